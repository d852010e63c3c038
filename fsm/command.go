package fsm

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/signalbox/signalbox/internal/wire"
)

// Op is the number of an operation in the log. A number is never used again for another
// operation; testdata/numbers.golden pins them.
type Op uint64

// The operations.
const (
	OpStartTerm       Op = 1
	OpPutSemaphore    Op = 2
	OpCreateSemaphore Op = 3
	OpDeleteSemaphore Op = 4
	OpUp              Op = 5
	OpDown            Op = 6
	OpSetValue        Op = 7
	OpOpenSession     Op = 8
	OpRenew           Op = 9
	OpEndSession      Op = 10
	OpAcquire         Op = 11
	OpAcquireOnce     Op = 12
	OpAcquireMany     Op = 13
	OpRelease         Op = 14
	OpResizeLease     Op = 15
	OpRevokeLease     Op = 16
	OpRestoreSession  Op = 17
	OpListAdd         Op = 18
	OpListRemove      Op = 19
	OpListDeliver     Op = 20
	OpNoticeDone      Op = 21
	OpRaiseLevel      Op = 22
	OpOpenHolder      Op = 23
	OpItemPut         Op = 24
	OpItemAcquire     Op = 25
	OpItemRelease     Op = 26
	OpItemDelete      Op = 27
	OpItemDeleteAll   Op = 28
	opCount           Op = 29
)

// operation is one row of the table of operations.
type operation struct {
	name   string
	decode func(*decoder) Command
	since  uint32 // the feature level that brought it, 0: the first
}

// operations has a row for each operation, which also has a file and a script of its own.
var operations = [opCount]operation{
	OpStartTerm:       {"start-term", decodeStartTerm, 0},
	OpPutSemaphore:    {"put", decodePutSemaphore, 0},
	OpCreateSemaphore: {"create", decodeCreateSemaphore, 0},
	OpDeleteSemaphore: {"delete", decodeDeleteSemaphore, 0},
	OpUp:              {"up", decodeUp, 0},
	OpDown:            {"down", decodeDown, 0},
	OpSetValue:        {"set", decodeSetValue, 0},
	OpOpenSession:     {"open", decodeOpenSession, 0},
	OpRenew:           {"renew", decodeRenew, 0},
	OpEndSession:      {"end", decodeEndSession, 0},
	OpAcquire:         {"acquire", decodeAcquire, 0},
	OpAcquireOnce:     {"acquire-once", decodeAcquireOnce, 0},
	OpAcquireMany:     {"acquire-many", decodeAcquireMany, 0},
	OpRelease:         {"release", decodeRelease, 0},
	OpResizeLease:     {"resize", decodeResizeLease, 0},
	OpRevokeLease:     {"revoke", decodeRevokeLease, 0},
	OpRestoreSession:  {"restore", decodeRestoreSession, 0},
	OpListAdd:         {"list-add", decodeListAdd, 0},
	OpListRemove:      {"list-remove", decodeListRemove, 0},
	OpListDeliver:     {"list-deliver", decodeListDeliver, 0},
	OpNoticeDone:      {"notice-done", decodeNoticeDone, 0},
	OpRaiseLevel:      {"raise-level", decodeRaiseLevel, 0},
	OpOpenHolder:      {"open-holder", decodeOpenHolder, 0},
	OpItemPut:         {"item-put", decodeItemPut, 0},
	OpItemAcquire:     {"item-acquire", decodeItemAcquire, 0},
	OpItemRelease:     {"item-release", decodeItemRelease, 0},
	OpItemDelete:      {"item-delete", decodeItemDelete, 0},
	OpItemDeleteAll:   {"item-delete-all", decodeItemDeleteAll, 0},
}

// String returns the stable name of the operation, as logs and metrics show it.
func (op Op) String() string {
	if op > 0 && op < opCount {
		return operations[op].name
	}
	return fmt.Sprintf("operation %d", uint64(op))
}

// Command is one operation with its parameters. Its types are those of this package, one
// for each operation. They are values, and safe to share.
type Command interface {
	// Op returns the number of the operation.
	Op() Op
	encode(*encoder)
	apply(*Machine) Result
}

// OpOf returns the operation of a command that [Envelope.Encode] encoded, and 0 for bytes
// that are no command. It reads the head alone.
func OpOf(command []byte) Op {
	var head [4]uint64 // level, origin, sequence, operation
	for i := range head {
		v, n := binary.Uvarint(command)
		if n <= 0 {
			return 0
		}
		head[i], command = v, command[n:]
	}
	return Op(head[3])
}

// MayGrow reports whether an operation may leave more records behind than it found. A
// leader whose disk is nearly full takes only the other operations, which keep or end what
// clients have. A new operation counts as growing until it is listed here.
//
// A grant that follows from a release does not count: the lease takes the place of a
// waiting request and is no larger. Idempotency keys and marks of ended sessions do not
// count either, nor do deleted items: all are bounded, and go after their time. Up counts
// although its record does not grow: it makes permits, of which any number of leases may
// follow. A release of an item may bring a longer value, once for each acquire before.
func (op Op) MayGrow() bool {
	switch op {
	case OpStartTerm, OpDeleteSemaphore, OpRenew, OpEndSession, OpRelease, OpResizeLease, OpRevokeLease,
		OpListRemove, OpListDeliver, OpNoticeDone, OpItemRelease, OpItemDelete, OpItemDeleteAll:
		return false
	}
	return true
}

// MayTake reports whether an operation may give its owner another session, lease or waiting
// request, so that [OwnerLimits] bound it. A new operation counts as one that may until it
// is listed here or in MayGrow.
func (op Op) MayTake() bool {
	switch op {
	case OpPutSemaphore, OpCreateSemaphore, OpUp, OpSetValue, OpRaiseLevel, OpItemPut, OpItemAcquire:
		return false
	}
	return op.MayGrow()
}

// entryVersion is the first byte of an entry and says how its commands are framed. A node halts at
// a version that it does not know, since it can't apply the entry.
const entryVersion = 1

// The flags of a command announce optional parts, which follow in this order.
const (
	flagKey    = 1 // an idempotency key and a fingerprint
	flagOwner  = 2 // the owner
	flagTrace  = 4 // the trace context
	flagLimits = 8 // the limits of the owner
)

// Envelope frames a command for the log.
type Envelope struct {
	Request RequestID
	// Key is the Idempotency-Key, or empty. Each owner has keys of its own.
	Key string
	// Owner is the identity on whose behalf the command acts, at most MaxOwnerBytes. It
	// owns the sessions and keys that the command makes, and finds no session of another
	// owner. An empty owner finds every session. A session or key without an owner becomes that of
	// the first owner that goes on with it.
	Owner string
	// Limits bound what the owner has. They are part of the command, so that a machine has
	// no configuration of owners. Without an owner they have no effect.
	Limits OwnerLimits
	// Trace is a trace context, at most MaxTraceBytes. The machine passes it on, unread,
	// with the grants that the command causes in its entry.
	Trace string
}

// FeatureLevel is the highest feature level that this program knows. The level of a cluster
// is part of its state. Every rule, operation, member, record and code that is newer than
// the first level is used only from its own level on, so that all members apply an entry alike, in
// whichever order they were upgraded.
const FeatureLevel uint32 = 1

// firstLevel is the feature level of the first release, with which every state begins.
const firstLevel uint32 = 1

// newerLevelError reports bytes of a feature level that this program does not know.
func newerLevelError(found uint64) error {
	return fmt.Errorf("feature level %d, this program knows %d: written by a newer version", found, FeatureLevel)
}

// Needs returns the lowest feature level at which a command may be proposed: the level of its
// operation, or of the newest of its members that are set, as its method needs says.
func Needs(c Command) uint32 {
	level := max(firstLevel, operations[c.Op()].since)
	if newer, ok := c.(interface{ needs() uint32 }); ok {
		level = max(level, newer.needs())
	}
	return level
}

// Encode returns a command in the form in which it travels to the leader and stands in an
// entry, encoded at the lowest feature level that can carry it: level | request id |
// operation | flags | [key | fingerprint] | [owner] | [trace] | [limits] | parameters.
func (v Envelope) Encode(command Command) []byte {
	level := Needs(command)
	e := encoder{buf: make([]byte, 0, 96), feature: level}
	e.uint(uint64(level))
	v.encode(&e, command)
	return e.buf
}

func (v Envelope) encode(e *encoder, command Command) {
	e.uint(v.Request.Origin)
	e.uint(v.Request.Sequence)
	e.uint(uint64(command.Op()))
	flags := len(e.buf)
	e.byte(0)
	if v.Key != "" {
		e.buf[flags] |= flagKey
		e.string(v.Key)
		fingerprint := Fingerprint(command)
		e.buf = append(e.buf, fingerprint[:]...)
	}
	if v.Owner != "" {
		e.buf[flags] |= flagOwner
		e.string(v.Owner)
	}
	if v.Trace != "" {
		e.buf[flags] |= flagTrace
		e.string(v.Trace)
	}
	if v.limited() {
		e.buf[flags] |= flagLimits
		e.ownerLimits(v.Limits)
	}
	command.encode(e)
}

// limited reports whether the command carries limits.
func (v Envelope) limited() bool { return v.Owner != "" && v.Limits != OwnerLimits{} }

// Fingerprint returns a 128-bit hash of the request of a client: the command without the
// session ids that a node drew and without the wait of this call. It is encoded at the
// level that the command needs, so that raising the level of the cluster changes no
// fingerprint.
func Fingerprint(command Command) [16]byte {
	e := encoder{buf: make([]byte, 0, 64), clientOnly: true, feature: Needs(command)}
	e.uint(uint64(command.Op()))
	command.encode(&e)
	sum := sha256.Sum256(e.buf)
	return [16]byte(sum[:16])
}

// EncodeEntry returns a log entry: version | stamp | commands, each encoded by
// [Envelope.Encode]. stampMS is the leader's reading of cluster time in milliseconds. An
// entry without commands is a tick.
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

// decoded is a command with its frame. command is nil if its parameters are malformed.
type decoded struct {
	Envelope
	level       uint32 // of the encoding
	op          Op
	fingerprint [16]byte
	command     Command
}

// decodeCommand reads the output of Envelope.Encode, up to the end of d. Malformed bytes give a nil
// command, which the machine refuses. An operation or a level that this program does not know is an
// error, since the program can't compute the result that other members compute.
func decodeCommand(d *decoder) (decoded, error) {
	var c decoded
	level := d.Uint()
	if d.Err == nil && level > uint64(FeatureLevel) {
		return c, newerLevelError(level)
	}
	c.level, d.feature = uint32(level), uint32(level)
	c.Request = RequestID{Origin: d.Uint(), Sequence: d.Uint()}
	c.op = Op(d.Uint())
	flags := d.Byte()
	if d.Err != nil {
		return c, nil
	}
	if c.op == 0 || c.op >= opCount {
		return c, fmt.Errorf("unknown %v: written by a newer version", c.op)
	}
	if max(firstLevel, operations[c.op].since) > c.level {
		d.Fail()
	}
	c.readFlagged(d, flags)
	command := operations[c.op].decode(d)
	switch err := d.Done(); {
	case err == nil:
		c.command = command
	case err != wire.ErrMalformed:
		return c, err
	}
	return c, nil
}

// readFlagged reads the parts that the flags announce.
func (c *decoded) readFlagged(d *decoder, flags byte) {
	if flags&^(flagKey|flagOwner|flagTrace|flagLimits) != 0 {
		d.Fail()
	}
	text := func(flag byte, limit int) string {
		if flags&flag == 0 {
			return ""
		}
		read := d.Text()
		if len(read) == 0 || len(read) > limit {
			d.Fail()
		}
		return read
	}
	if c.Key = text(flagKey, maxKeyBytes); c.Key != "" {
		copy(c.fingerprint[:], d.Bytes(uint64(len(c.fingerprint))))
	}
	c.Owner = text(flagOwner, MaxOwnerBytes)
	c.Trace = text(flagTrace, MaxTraceBytes)
	if flags&flagLimits != 0 {
		c.Limits = d.ownerLimits()
		if !c.limited() {
			d.Fail()
		}
	}
}

// CommandLevel returns the feature level at which a command was encoded: only a cluster of
// that level or above can take it. For bytes that are no command it is the highest level.
func CommandLevel(buf []byte) uint32 {
	d := decoder{Decoder: wire.Decoder{Rest: buf}}
	level := d.Uint()
	if d.Err != nil || level > math.MaxUint32 {
		return math.MaxUint32
	}
	return uint32(level)
}

// TraceOf returns the trace context of a command as [Envelope.Encode] made it, "" if it has
// none or is malformed.
func TraceOf(buf []byte) string {
	d := newDecoder(buf)
	var c decoded
	d.Uint() // the level
	d.Uint()
	d.Uint() // the request id
	d.Uint() // the operation
	c.readFlagged(d, d.Byte())
	if d.Err != nil {
		return ""
	}
	return c.Trace
}

// CheckCommand decodes a command and returns an error if this program can't apply it. A
// leader checks a forwarded command before it logs it.
func CheckCommand(buf []byte) (Command, error) {
	c, err := decodeCommand(newDecoder(buf))
	if err == nil && c.command == nil {
		err = wire.ErrMalformed
	}
	if err != nil {
		return nil, err
	}
	return c.command, nil
}

// ValidName reports whether a semaphore may have this name: valid UTF-8 of 1 to 512 bytes
// without control characters. Names are compared byte by byte.
func ValidName(name string) bool {
	return len(name) > 0 && len(name) <= maxNameBytes && validText(name)
}

// ValidReason reports whether an operator's reason is valid: UTF-8 of up to 1,024 bytes
// without control characters. It may be empty.
func ValidReason(reason string) bool {
	return len(reason) <= maxReasonBytes && validText(reason)
}

// ValidMetadata reports whether pairs is a metadata map: up to 16 pairs of valid UTF-8, 1
// KiB in all, sorted by key without duplicates.
func ValidMetadata(pairs []Pair) bool {
	bytes := 0
	for i, p := range pairs {
		bytes += len(p.Key) + len(p.Value)
		if i > 0 && pairs[i-1].Key >= p.Key {
			return false
		}
		if !utf8.ValidString(p.Key) || !utf8.ValidString(p.Value) {
			return false
		}
	}
	return len(pairs) <= maxMetadataPairs && bytes <= maxMetadataBytes
}

func validText(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}
