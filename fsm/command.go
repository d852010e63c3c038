package fsm

import (
	"crypto/sha256"
	"fmt"
	"math"
)

// The first byte of an entry says how its commands are framed. Another version
// is one that this program can't apply: the node halts rather than guess.
const (
	entryVersion0 = 1 // commands of feature level 0
	entryVersion  = 2 // each command begins with its feature level
)

// What follows a command's flags, in this order.
const (
	flagKey   = 1 // an idempotency key and a fingerprint
	flagOwner = 2 // the owner; from level 1 on
	flagTrace = 4 // the trace context; from level 1 on
)

// Envelope frames a command on its way into the log.
type Envelope struct {
	Request RequestID
	// Key is the Idempotency-Key, or empty. Each owner has keys of its own.
	Key string
	// Owner is the identity for which the command acts, at most MaxOwnerBytes.
	// It owns the sessions and keys that the command makes, and finds no session
	// of another owner. An empty owner finds every session.
	Owner string
	// Trace is a trace context, at most MaxTraceBytes, that the machine hands on
	// with the grants which the command causes in its entry. The machine does not read it.
	Trace string
}

// Encode returns a command as it travels to the leader and into an entry, encoded
// at the lowest feature level that can carry it:
// level | request id | operation | flags | [key | fingerprint] | [owner] | [trace] | parameters.
func (v Envelope) Encode(command Command) []byte {
	level := Needs(command)
	if v.Owner != "" || v.Trace != "" {
		level = max(level, 1)
	}
	e := encoder{buf: make([]byte, 0, 96), feature: level}
	e.uint(uint64(level))
	v.encode(&e, command)
	return e.buf
}

func (v Envelope) encode(e *encoder, command Command) {
	e.uint(v.Request.Origin)
	e.uint(v.Request.Sequence)
	e.uint(uint64(command.Op()))
	e.byte(v.flags())
	if v.Key != "" {
		e.string(v.Key)
		fingerprint := Fingerprint(command)
		e.buf = append(e.buf, fingerprint[:]...)
	}
	if v.Owner != "" {
		e.string(v.Owner)
	}
	if v.Trace != "" {
		e.string(v.Trace)
	}
	command.encode(e)
}

func (v Envelope) flags() (flags byte) {
	if v.Key != "" {
		flags |= flagKey
	}
	if v.Owner != "" {
		flags |= flagOwner
	}
	if v.Trace != "" {
		flags |= flagTrace
	}
	return flags
}

// Fingerprint is a 128-bit hash of what the client asked for: the command
// without ids that the node drew and without its wait. It is encoded at the
// level that the command needs, so that a raised level changes no fingerprint.
func Fingerprint(command Command) [16]byte {
	e := encoder{buf: make([]byte, 0, 64), clientOnly: true, feature: Needs(command)}
	e.uint(uint64(command.Op()))
	command.encode(&e)
	sum := sha256.Sum256(e.buf)
	return [16]byte(sum[:16])
}

// EncodeEntry returns a log entry: version | stamp | commands, each as
// [Envelope.Encode] made it. stampMS is the leader's reading of cluster time in
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
	Envelope
	level       uint32 // of the encoding
	op          Op
	fingerprint [16]byte
	command     Command
}

// decodeCommand reads what Envelope.Encode wrote, in an entry of that version.
// Bytes that make no command give a nil command, which is refused; an operation
// or a level that this program does not know is an error, since no result of it
// could be equal to the others'.
func decodeCommand(version byte, buf []byte) (decoded, error) {
	d := decoder{buf: buf}
	var c decoded
	if version != entryVersion0 {
		level := d.uint()
		if d.err == nil && level > uint64(FeatureLevel) {
			return c, newerLevelError(level)
		}
		c.level, d.feature = uint32(level), uint32(level)
	}
	c.Request = RequestID{Origin: d.uint(), Sequence: d.uint()}
	c.op = Op(d.uint())
	flags := d.byte()
	if d.err != nil {
		return c, nil
	}
	if c.op == 0 || c.op >= opCount {
		return c, fmt.Errorf("unknown %v: written by a newer version", c.op)
	}
	if operations[c.op].since > c.level {
		d.fail()
	}
	c.readFlagged(&d, flags)
	command := operations[c.op].decode(&d)
	switch err := d.done(); {
	case err == nil:
		c.command = command
	case err != errMalformed:
		return c, err
	}
	return c, nil
}

// readFlagged reads the texts that the flags announce.
func (c *decoded) readFlagged(d *decoder, flags byte) {
	known := byte(flagKey)
	if c.level >= 1 {
		known |= flagOwner | flagTrace
	}
	if flags&^known != 0 {
		d.fail()
	}
	text := func(flag byte, limit int) string {
		if flags&flag == 0 {
			return ""
		}
		read := d.string()
		if len(read) == 0 || len(read) > limit {
			d.fail()
		}
		return read
	}
	if c.Key = text(flagKey, maxKeyBytes); c.Key != "" {
		copy(c.fingerprint[:], d.bytes(uint64(len(c.fingerprint))))
	}
	c.Owner = text(flagOwner, MaxOwnerBytes)
	c.Trace = text(flagTrace, MaxTraceBytes)
}

// CommandLevel returns the feature level at which a command was encoded: the
// lowest one of a cluster that can take it. Bytes that are no command have the
// highest.
func CommandLevel(buf []byte) uint32 {
	d := decoder{buf: buf}
	level := d.uint()
	if d.err != nil || level > math.MaxUint32 {
		return math.MaxUint32
	}
	return uint32(level)
}

// CheckCommand decodes a command, and returns an error unless this program can
// apply it: a leader checks it before it puts a forwarded command into its log.
func CheckCommand(buf []byte) (Command, error) {
	c, err := decodeCommand(entryVersion, buf)
	if err == nil && c.command == nil {
		err = errMalformed
	}
	if err != nil {
		return nil, err
	}
	return c.command, nil
}
