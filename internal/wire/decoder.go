package wire

import (
	"encoding/binary"
	"errors"
)

// ErrMalformed is the error of a [Decoder] for bytes that it can't read. Stored bytes have a checksum, so the cause is
// not damage but a wrong sender.
var ErrMalformed = errors.New("malformed bytes")

// Decoder reads primitives from the front of Rest. After the first failure every read returns a zero value, so that a
// caller checks for errors once, with [Decoder.Done]. Byte slices that it returns alias Rest; strings are copies. The
// zero value has no bytes to read.
type Decoder struct {
	Rest []byte
	Err  error
}

// Fail records that the bytes are malformed, and drops the remaining bytes.
func (d *Decoder) Fail() { d.Rest, d.Err = nil, ErrMalformed }

// Uint reads an unsigned varint.
func (d *Decoder) Uint() uint64 {
	v, n := binary.Uvarint(d.Rest)
	if n <= 0 {
		d.Fail()
		return 0
	}
	d.Rest = d.Rest[n:]
	return v
}

// Int reads a zigzag varint.
func (d *Decoder) Int() int64 {
	v, n := binary.Varint(d.Rest)
	if n <= 0 {
		d.Fail()
		return 0
	}
	d.Rest = d.Rest[n:]
	return v
}

// Byte reads one byte.
func (d *Decoder) Byte() byte {
	if len(d.Rest) == 0 {
		d.Fail()
		return 0
	}
	v := d.Rest[0]
	d.Rest = d.Rest[1:]
	return v
}

// Bool reads a byte that is 0 or 1.
func (d *Decoder) Bool() bool {
	v := d.Byte()
	if v > 1 {
		d.Fail()
	}
	return v == 1
}

// Bytes reads the next n bytes without copying them.
func (d *Decoder) Bytes(n uint64) []byte {
	if n > uint64(len(d.Rest)) {
		d.Fail()
		return nil
	}
	v := d.Rest[:n:n]
	d.Rest = d.Rest[n:]
	return v
}

// Text reads a length and that many bytes. It copies them, so that a string does not keep the whole message in memory.
func (d *Decoder) Text() string { return string(d.Bytes(d.Uint())) }

// Count reads the length of a list. It fails if the remaining bytes can't hold that many members of at least minBytes
// each, so that a short message can't cause a large allocation.
func (d *Decoder) Count(minBytes int) int {
	n := d.Uint()
	if n > uint64(len(d.Rest)/minBytes) {
		d.Fail()
		return 0
	}
	return int(n)
}

// Done returns the first error, or [ErrMalformed] if bytes are left over.
func (d *Decoder) Done() error {
	if d.Err == nil && len(d.Rest) != 0 {
		d.Fail()
	}
	return d.Err
}
