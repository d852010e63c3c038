package fsm

import (
	"encoding/binary"
	"errors"
)

// errMalformed is what every decoder of this package answers for bytes that it
// can't read. The bytes of an entry carry a checksum of their own in the log,
// so that this is a wrong sender, never rot.
var errMalformed = errors.New("malformed bytes")

// encoder appends the package's binary format: unsigned and zigzag varints,
// strings as length and bytes, lists as length and members.
type encoder struct {
	buf []byte
	// clientOnly leaves out what the node chose (session ids) and how long this
	// call listens (wait): the fingerprint of an idempotent request.
	clientOnly bool
	// feature is the feature level of what is written: members of later levels
	// are left out.
	feature uint32
}

func (e *encoder) uint(v uint64) { e.buf = binary.AppendUvarint(e.buf, v) }
func (e *encoder) int(v int64)   { e.buf = binary.AppendVarint(e.buf, v) }
func (e *encoder) byte(v byte)   { e.buf = append(e.buf, v) }

func (e *encoder) bool(v bool) {
	if v {
		e.buf = append(e.buf, 1)
	} else {
		e.buf = append(e.buf, 0)
	}
}

func (e *encoder) string(v string) {
	e.uint(uint64(len(v)))
	e.buf = append(e.buf, v...)
}

func (e *encoder) pairs(v []Pair) {
	e.uint(uint64(len(v)))
	for _, p := range v {
		e.string(p.Key)
		e.string(p.Value)
	}
}

func (e *encoder) wants(v []Want) {
	e.uint(uint64(len(v)))
	for _, w := range v {
		e.string(w.Semaphore)
		e.int(w.Count)
	}
}

func (e *encoder) level(v *int32) {
	e.bool(v != nil)
	if v != nil {
		e.int(int64(*v))
	}
}

// drawn writes a session id that the proposing node drew.
func (e *encoder) drawn(session uint64) {
	if !e.clientOnly {
		e.uint(session)
	}
}

// wait writes how long this call listens.
func (e *encoder) wait(ms int64) {
	if !e.clientOnly {
		e.int(ms)
	}
}

// decoder reads what encoder wrote. The first error sticks; every later read
// answers zero values, so that a decode function checks once, at its end.
type decoder struct {
	buf []byte
	err error
	// feature is the feature level of what is read.
	feature uint32
}

func (d *decoder) fail() {
	d.err = errMalformed
	d.buf = nil
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.buf)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.buf = d.buf[n:]
	return v
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.buf)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.buf = d.buf[n:]
	return v
}

func (d *decoder) byte() byte {
	if len(d.buf) == 0 {
		d.fail()
		return 0
	}
	v := d.buf[0]
	d.buf = d.buf[1:]
	return v
}

func (d *decoder) bool() bool {
	switch d.byte() {
	case 0:
		return false
	case 1:
		return true
	}
	d.fail()
	return false
}

// bytes answers the next n bytes without copying them.
func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.buf)) {
		d.fail()
		return nil
	}
	v := d.buf[:n]
	d.buf = d.buf[n:]
	return v
}

// string copies: what the machine keeps must not pin a whole log entry.
func (d *decoder) string() string { return string(d.bytes(d.uint())) }

// count reads a list's length and refuses one that the rest of the bytes can't
// hold, at least min bytes a member, so that a short message can't ask for a
// large allocation.
func (d *decoder) count(min int) int {
	n := d.uint()
	if n > uint64(len(d.buf)/min) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) pairs() []Pair {
	n := d.count(2)
	if n == 0 {
		return nil
	}
	v := make([]Pair, n)
	for i := range v {
		v[i] = Pair{Key: d.string(), Value: d.string()}
	}
	return v
}

func (d *decoder) wants() []Want {
	n := d.count(2)
	if n == 0 {
		return nil
	}
	v := make([]Want, n)
	for i := range v {
		v[i] = Want{Semaphore: d.string(), Count: d.int()}
	}
	return v
}

func (d *decoder) level() *int32 {
	if !d.bool() {
		return nil
	}
	v := d.int()
	if v != int64(int32(v)) {
		d.fail()
	}
	level := int32(v)
	return &level
}

// featureLevel reads a feature level that this program must know.
func (d *decoder) featureLevel() uint32 {
	level := d.uint()
	if level > uint64(FeatureLevel) && d.err == nil {
		d.err = newerLevelError(level)
	}
	return uint32(level)
}

// done answers the first error, or that bytes are left over.
func (d *decoder) done() error {
	if d.err == nil && len(d.buf) != 0 {
		d.fail()
	}
	return d.err
}
