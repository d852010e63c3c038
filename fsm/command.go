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
	OpGroupPut        Op = 29
	OpFreeLost        Op = 30
	OpRaiseTokens     Op = 31
	opCount           Op = 32
)

// operation is one row of the table of operations. This package and others read these traits instead of switching over
// operations. Rows are written without field names, so a row that lacks a trait does not compile.
type operation struct {
	name    string
	decode  func(*decoder) Command
	since   uint32 // the feature level that introduced it; 0: the first
	class   Class
	right   Right
	growth  growth
	waits   waitUse
	session sessionUse
	object  Object
}

// Class groups operations by their priority in the leader's queue.
type Class uint8

const (
	_            Class = iota
	ClassRenewal       // keeps a session alive
	ClassRelease       // gives permits back
	ClassOther         // other operations
)

// Right is the permission that a client needs for a command.
type Right uint8

const (
	_          Right = iota
	RightNodes       // no client may give the command
	RightUse         // the scope use
	RightAdmin       // the scope admin
)

// Object says what kind of thing a command names.
type Object uint8

const (
	_               Object = iota
	ObjectNone             // names no object
	ObjectSemaphore        // of semaphores
	ObjectItem             // of items, or prefixes of their names
)

// growth says which records an operation may add to the state.
type growth uint8

const (
	_     growth = iota
	keeps        // adds no record, see MayGrow
	grows        // adds records that do not count as the owner's, see MayTake
	takes        // adds a session, a lease or a waiting request of the owner
)

// waitUse says whether the result of a command may be Waiting.
type waitUse uint8

const (
	_ waitUse = iota
	noWait
	mayWait
)

// sessionUse says what a command does with a session.
type sessionUse uint8

const (
	_ sessionUse = iota
	noSession
	opens     // makes a session, with an id that the node drew
	oneShot   // makes a session for a single lease or request
	goesOn    // names a session that its client continues
	givesBack // names a session, and only gives permits back, see takeOver
	reclaims  // gives permits back; an admin may do so in the sessions of all owners
	frees     // returns permits of a session that has ended; an admin may do so for all owners
)

// operations has a row for each operation. Each operation also has one file and one script.
var operations = [opCount]operation{
	OpStartTerm:       {"start-term", decodeStartTerm, 0, ClassOther, RightNodes, keeps, noWait, noSession, ObjectNone},
	OpPutSemaphore:    {"put", decodePutSemaphore, 0, ClassOther, RightUse, grows, noWait, noSession, ObjectSemaphore},
	OpCreateSemaphore: {"create", decodeCreateSemaphore, 0, ClassOther, RightUse, grows, noWait, noSession, ObjectSemaphore},
	OpDeleteSemaphore: {"delete", decodeDeleteSemaphore, 0, ClassOther, RightUse, keeps, noWait, noSession, ObjectSemaphore},
	OpUp:              {"up", decodeUp, 0, ClassRelease, RightUse, grows, noWait, noSession, ObjectSemaphore},
	OpDown:            {"down", decodeDown, 0, ClassOther, RightUse, takes, mayWait, oneShot, ObjectSemaphore},
	OpSetValue:        {"set", decodeSetValue, 0, ClassOther, RightUse, grows, noWait, noSession, ObjectSemaphore},
	OpOpenSession:     {"open", decodeOpenSession, 0, ClassOther, RightUse, takes, noWait, opens, ObjectNone},
	OpRenew:           {"renew", decodeRenew, 0, ClassRenewal, RightUse, keeps, noWait, goesOn, ObjectNone},
	OpEndSession:      {"end", decodeEndSession, 0, ClassRelease, RightUse, keeps, noWait, reclaims, ObjectNone},
	OpAcquire:         {"acquire", decodeAcquire, 0, ClassOther, RightUse, takes, mayWait, goesOn, ObjectSemaphore},
	OpAcquireOnce:     {"acquire-once", decodeAcquireOnce, 0, ClassOther, RightUse, takes, mayWait, oneShot, ObjectSemaphore},
	OpAcquireMany:     {"acquire-many", decodeAcquireMany, 0, ClassOther, RightUse, takes, mayWait, goesOn, ObjectSemaphore},
	OpRelease:         {"release", decodeRelease, 0, ClassRelease, RightUse, keeps, noWait, reclaims, ObjectSemaphore},
	OpResizeLease:     {"resize", decodeResizeLease, 0, ClassRelease, RightUse, keeps, noWait, givesBack, ObjectSemaphore},
	OpRevokeLease:     {"revoke", decodeRevokeLease, 0, ClassRelease, RightAdmin, keeps, noWait, reclaims, ObjectSemaphore},
	OpRestoreSession:  {"restore", decodeRestoreSession, 0, ClassOther, RightUse, takes, noWait, goesOn, ObjectSemaphore},
	OpListAdd:         {"list-add", decodeListAdd, 0, ClassOther, RightUse, takes, noWait, goesOn, ObjectSemaphore},
	OpListRemove:      {"list-remove", decodeListRemove, 0, ClassRelease, RightUse, keeps, noWait, givesBack, ObjectSemaphore},
	OpListDeliver:     {"list-deliver", decodeListDeliver, 0, ClassOther, RightUse, keeps, noWait, goesOn, ObjectNone},
	OpNoticeDone:      {"notice-done", decodeNoticeDone, 0, ClassRelease, RightNodes, keeps, noWait, noSession, ObjectNone},
	OpRaiseLevel:      {"raise-level", decodeRaiseLevel, 0, ClassOther, RightNodes, grows, noWait, noSession, ObjectNone},
	OpOpenHolder:      {"open-holder", decodeOpenHolder, 0, ClassOther, RightUse, takes, noWait, opens, ObjectNone},
	OpItemPut:         {"item-put", decodeItemPut, 0, ClassOther, RightUse, grows, noWait, noSession, ObjectItem},
	OpItemAcquire:     {"item-acquire", decodeItemAcquire, 0, ClassOther, RightUse, grows, noWait, goesOn, ObjectItem},
	OpItemRelease:     {"item-release", decodeItemRelease, 0, ClassRelease, RightUse, keeps, noWait, givesBack, ObjectItem},
	OpItemDelete:      {"item-delete", decodeItemDelete, 0, ClassOther, RightUse, keeps, noWait, noSession, ObjectItem},
	OpItemDeleteAll:   {"item-delete-all", decodeItemDeleteAll, 0, ClassOther, RightUse, keeps, noWait, noSession, ObjectItem},
	OpGroupPut:        {"group-put", decodeGroupPut, 0, ClassOther, RightUse, grows, noWait, noSession, ObjectSemaphore},
	OpFreeLost:        {"free-lost", decodeFreeLost, 0, ClassRelease, RightUse, keeps, noWait, frees, ObjectSemaphore},
	OpRaiseTokens:     {"raise-tokens", decodeRaiseTokens, 0, ClassOther, RightAdmin, keeps, noWait, noSession, ObjectNone},
}

// row returns the row of an operation, an empty row for an unknown number.
func (op Op) row() *operation {
	if op >= opCount {
		op = 0
	}
	return &operations[op]
}

// String returns the stable name of the operation, as logs and metrics show it.
func (op Op) String() string {
	if name := op.row().name; name != "" {
		return name
	}
	return fmt.Sprintf("operation %d", uint64(op))
}

// Command is one operation with its parameters. Commands are values, and safe to share.
type Command interface {
	// Op returns the number of the operation.
	Op() Op
	names() []string // see Names
	session() uint64 // the id of the session that the command makes or names; 0: no session or several
	encode(*encoder)
	apply(*Machine) Result
}

// Names returns the semaphores or the items that a command names, as its [Object] says.
func Names(c Command) []string { return c.names() }

func namesOf(wants []Want) []string {
	names := make([]string, len(wants))
	for i := range wants {
		names[i] = wants[i].Semaphore
	}
	return names
}

// SessionOf returns the session that a command names, 0 if it names no session or makes a session.
func SessionOf(c Command) uint64 {
	if c.Op().Opens() {
		return 0
	}
	return c.session()
}

// OneShotOf returns the one-shot session that a command makes for its lease or request, or 0.
func OneShotOf(c Command) uint64 {
	if c.Op().row().session != oneShot {
		return 0
	}
	return c.session()
}

// Redraw replaces the session id that a node drew for a command. It reports whether the command has such an id.
func Redraw(c *Command, id uint64) bool {
	drawn, ok := (*c).(interface{ redrawn(id uint64) Command })
	if ok = ok && OneShotOf(*c) < DerivedSessions; ok {
		*c = drawn.redrawn(id)
	}
	return ok
}

// Wants returns the leases that a command requests.
func Wants(c Command) []Want {
	if requests, ok := c.(interface{ wants() []Want }); ok {
		return requests.wants()
	}
	return nil
}

// Permits returns the permits that a command moves, or 0.
func Permits(c Command) int64 {
	if moves, ok := c.(interface{ permits() int64 }); ok {
		return moves.permits()
	}
	return 0
}

// Reason returns the reason that an operator gives with a command. ok is false if the command has no reason.
func Reason(c Command) (reason string, ok bool) {
	if explained, ok := c.(interface{ reason() string }); ok {
		return explained.reason(), true
	}
	return "", false
}

// RightOf returns the permission that a client needs for a command.
func RightOf(c Command) Right {
	if special, ok := c.(interface{ right() Right }); ok {
		return special.right()
	}
	return c.Op().row().right
}

// OpOf returns the operation of an encoded command, 0 for malformed bytes. It decodes only the first four numbers.
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

// MayGrow reports whether an operation may leave more records behind than it found. A leader whose disk is nearly full
// refuses operations that may grow the state, so that clients can still renew and release.
//
// Growth that is bounded does not count. A release may cause a grant, but the lease replaces a waiting request and is
// no larger. Idempotency keys, marks of ended sessions and deleted items are removed after their time. A release of an
// item may store a longer value, but only once for each acquire. Up counts, although its record does not grow, because
// the permits that it adds allow any number of new leases.
func (op Op) MayGrow() bool { return op.row().growth != keeps }

// MayTake reports whether an operation may give its owner another session, lease or waiting request. [OwnerLimits]
// bound such operations.
func (op Op) MayTake() bool { return op.MayGrow() && op.row().growth != grows }

// Class returns the priority class of an operation.
func (op Op) Class() Class { return op.row().class }

// Object returns what kind of thing the commands of an operation name.
func (op Op) Object() Object { return op.row().object }

// Opens reports whether an operation makes a session.
func (op Op) Opens() bool { return op.row().session == opens || op.row().session == oneShot }

// Reclaims reports whether an admin may use an operation in the sessions of all owners.
func (op Op) Reclaims() bool { return op.row().session == reclaims || op.row().session == frees }

// entryVersion is the first byte of an entry. A node halts at a version that it does not know, since it can't apply the
// entry.
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
	// Key is the Idempotency-Key, or empty. Two owners may use the same key for different requests.
	Key string
	// Owner is the identity on whose behalf the command acts, at most MaxOwnerBytes. It owns the sessions and keys that
	// the command makes, and can't use a session of another owner. The first owner that continues a session without an
	// owner becomes its owner. A command with an empty owner can use every session.
	Owner string
	// Limits bound what the owner has. The command carries them because the machine has no configuration of owners.
	// They have no effect if Owner is empty.
	Limits OwnerLimits
	// Trace is a trace context, at most MaxTraceBytes. The machine copies it, unread, to the grants that the command
	// causes in its entry.
	Trace string
}

// FeatureLevel is the highest feature level that this program knows. The cluster's own level is part of its state. A
// rule, operation, member, record or code is used only from the level that introduced it, so that all members apply an
// entry alike, in whichever order they were upgraded.
const FeatureLevel uint32 = 1

// firstLevel is the feature level of the first release and of a new machine.
const firstLevel uint32 = 1

// CheckLevel returns an error for a feature level that this program does not know.
func CheckLevel(found uint64) error {
	if found > uint64(FeatureLevel) {
		return fmt.Errorf("feature level %d, this program knows %d: written by a newer version", found, FeatureLevel)
	}
	return nil
}

// Needs returns the lowest feature level at which a command may be proposed: the level of its operation or of the
// newest member that is set.
func Needs(c Command) uint32 {
	level := max(firstLevel, c.Op().row().since)
	if newer, ok := c.(interface{ needs() uint32 }); ok {
		level = max(level, newer.needs())
	}
	return level
}

// Encode returns a command as it travels to the leader and stands in an entry, at the lowest feature level that can
// carry it: level | request id | operation | flags | [key | fingerprint] | [owner] | [trace] | [limits] | parameters.
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

// Fingerprint returns a 128-bit hash of the request of a client: the command without the session ids that a node drew
// and without the wait of this call. Raising the level of the cluster changes no fingerprint, because the command is
// encoded at the level that it needs.
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
	level       uint32 // the feature level of the encoding
	op          Op
	fingerprint [16]byte
	command     Command
}

// decodeCommand reads a command up to the end of d. Malformed bytes give a nil command, which the machine refuses. An
// unknown operation or level is an error: this program can't compute the result that newer members compute.
func decodeCommand(d *decoder) (decoded, error) {
	var c decoded
	level := d.Uint()
	if err := CheckLevel(level); err != nil {
		return c, err
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
	if max(firstLevel, c.op.row().since) > c.level {
		d.Fail()
	}
	c.readFlagged(d, flags)
	command := c.op.row().decode(d)
	switch err := d.Done(); {
	case err == nil:
		c.command = command
	case err != wire.ErrMalformed:
		return c, err
	}
	return c, nil
}

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

// CommandLevel returns the feature level at which a command was encoded. Only a cluster at or above this level can
// apply it. Malformed bytes give the highest level.
func CommandLevel(buf []byte) uint32 {
	d := decoder{Decoder: wire.Decoder{Rest: buf}}
	level := d.Uint()
	if d.Err != nil {
		return math.MaxUint32
	}
	return uint32(min(level, math.MaxUint32))
}

// TraceOf returns the trace context of an encoded command, "" if it has no trace context or is malformed.
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

// ValidGroup reports whether a group may have this name: valid UTF-8 of up to 128 bytes without
// control characters. It may be empty.
func ValidGroup(group string) bool {
	return group == "" || len(group) <= MaxGroupBytes && validText(group)
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
