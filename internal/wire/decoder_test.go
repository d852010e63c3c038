package wire

import (
	"encoding/binary"
	"testing"
)

func TestDecoderReadsWhatWasWritten(t *testing.T) {
	buf := binary.AppendUvarint(nil, 300)
	buf = binary.AppendVarint(buf, -300)
	buf = append(buf, 1, 0, 7)
	buf = append(append(buf, 3), "abc"...)
	buf = append(buf, 2, 'x', 'y')
	d := Decoder{Rest: buf}
	if v := d.Uint(); v != 300 {
		t.Errorf("unsigned: %d", v)
	}
	if v := d.Int(); v != -300 {
		t.Errorf("signed: %d", v)
	}
	if yes, no, b := d.Bool(), d.Bool(), d.Byte(); !yes || no || b != 7 {
		t.Errorf("%v, %v, %d", yes, no, b)
	}
	if v := d.Text(); v != "abc" {
		t.Errorf("string %q", v)
	}
	if n := d.Count(1); n != 2 {
		t.Errorf("a list of %d", n)
	}
	if v := d.Bytes(2); string(v) != "xy" || cap(v) != 2 {
		t.Errorf("bytes %q with room for %d", v, cap(v))
	}
	if err := d.Done(); err != nil {
		t.Error(err)
	}
}

func TestDecoderRefusesMalformedBytes(t *testing.T) {
	for name, test := range map[string]struct {
		buf  []byte
		read func(*Decoder)
	}{
		"no varint":            {nil, func(d *Decoder) { d.Uint() }},
		"half a varint":        {[]byte{0x80}, func(d *Decoder) { d.Int() }},
		"no byte":              {nil, func(d *Decoder) { d.Byte() }},
		"a bool of 2":          {[]byte{2}, func(d *Decoder) { d.Bool() }},
		"too few bytes":        {[]byte{1, 2}, func(d *Decoder) { d.Bytes(3) }},
		"a string too long":    {[]byte{9, 'a'}, func(d *Decoder) { _ = d.Text() }},
		"a list too long":      {[]byte{2, 0, 0, 0}, func(d *Decoder) { d.Count(2) }},
		"bytes left over":      {[]byte{1, 2}, func(d *Decoder) { d.Byte() }},
		"reads after failures": {[]byte{2, 1}, func(d *Decoder) { d.Bool(); d.Byte() }},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decoder{Rest: test.buf}
			test.read(&d)
			if err := d.Done(); err != ErrMalformed {
				t.Errorf("%v", err)
			}
			if v := d.Uint(); v != 0 {
				t.Errorf("%d is read after the failure", v)
			}
		})
	}
}
