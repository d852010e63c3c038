package fsm

import (
	"crypto/sha256"
	"fmt"
)

// entryVersion is the first byte of every entry. Another version is one that
// this program can't apply: the node halts rather than guess.
const entryVersion = 1

// flagKey in a command's flags: an idempotency key and a fingerprint follow.
const flagKey = 1

// EncodeCommand answers a command as it travels to the leader and into an
// entry: request id | operation | flags | [key | fingerprint] | parameters.
// idempotencyKey is the scoped Idempotency-Key, or empty.
func EncodeCommand(id RequestID, idempotencyKey string, command Command) []byte {
	e := encoder{buf: make([]byte, 0, 96)}
	e.uint(id.Origin)
	e.uint(id.Sequence)
	e.uint(uint64(command.Op()))
	if idempotencyKey == "" {
		e.byte(0)
	} else {
		e.byte(flagKey)
		e.string(idempotencyKey)
		fingerprint := Fingerprint(command)
		e.buf = append(e.buf, fingerprint[:]...)
	}
	command.encode(&e)
	return e.buf
}

// Fingerprint is a 128-bit hash of what the client asked for: the command
// without ids that the node drew and without its wait.
func Fingerprint(command Command) [16]byte {
	e := encoder{buf: make([]byte, 0, 64), clientOnly: true}
	e.uint(uint64(command.Op()))
	command.encode(&e)
	sum := sha256.Sum256(e.buf)
	return [16]byte(sum[:16])
}

// EncodeEntry answers a log entry: version | stamp | commands, each as
// EncodeCommand made it. stampMS is the leader's reading of cluster time in
// milliseconds. An entry without commands is a tick.
func EncodeEntry(stampMS int64, commands [][]byte) []byte {
	size := 24
	for _, c := range commands {
		size += len(c) + 5
	}
	e := encoder{buf: make([]byte, 0, size)}
	e.byte(entryVersion)
	e.int(stampMS)
	e.uint(uint64(len(commands)))
	for _, c := range commands {
		e.uint(uint64(len(c)))
		e.buf = append(e.buf, c...)
	}
	return e.buf
}

// decoded is a command with what frames it. command is nil when its
// parameters are malformed.
type decoded struct {
	id          RequestID
	op          Op
	key         string
	fingerprint [16]byte
	command     Command
}

// decodeCommand reads what EncodeCommand wrote. Bytes that make no command
// give a nil command, which is refused; an operation that this version does
// not know is an error, since no answer to it could be equal to the others'.
func decodeCommand(buf []byte) (decoded, error) {
	d := decoder{buf: buf}
	var c decoded
	c.id = RequestID{Origin: d.uint(), Sequence: d.uint()}
	c.op = Op(d.uint())
	flags := d.byte()
	if d.err != nil {
		return c, nil
	}
	if c.op == 0 || c.op >= opCount {
		return c, fmt.Errorf("unknown %v: written by a newer version", c.op)
	}
	if flags&flagKey != 0 {
		c.key = d.string()
		copy(c.fingerprint[:], d.bytes(uint64(len(c.fingerprint))))
		if len(c.key) == 0 || len(c.key) > maxKeyBytes {
			d.fail()
		}
	}
	if flags&^flagKey != 0 {
		d.fail()
	}
	command := operations[c.op].decode(&d)
	if d.done() == nil {
		c.command = command
	}
	return c, nil
}

// CheckCommand answers an error unless buf is a command that this version can
// apply: what a leader checks before it puts a forwarded command into its log.
func CheckCommand(buf []byte) error {
	c, err := decodeCommand(buf)
	if err == nil && c.command == nil {
		err = errMalformed
	}
	return err
}
