package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Contents is the content of a journal.
type Contents struct {
	state
	Ops    []Op   // the changes that are not drained, in order
	last   []byte // bytes of the last record, which is at lastAt in the file; empty if there is no record
	lastAt int64
}

// Sequence returns the sequence of the last change, or base of Create if there is no change.
func (c Contents) Sequence() uint64 { return c.sequence }

// DamageError says what is wrong with a journal. The damage is after the entry with index After, or before all entries
// if After is 0.
type DamageError struct {
	After  uint64
	Detail string
}

func (e *DamageError) Error() string { return e.Detail }

// scanned is the result of scan.
type scanned struct {
	state        // after the last valid record; generation is 0 without a valid record
	first uint64 // sequence of the first record
	ops   []Op
	last  []byte // bytes of the last valid record
	rest  []byte // from the first bad record on
}

// Read reads a journal. Changes up to the sequence drained are durable elsewhere. It fails with a DamageError, or with
// an error of the system.
func Read(file io.ReaderAt, drained uint64) (Contents, error) {
	content := make([]byte, fileHead)
	if err := readFull(file, content, 0); err != nil {
		return Contents{}, err
	}
	head, err := decodeFileHead(content)
	if err != nil {
		return Contents{}, &DamageError{Detail: err.Error()}
	}
	var halves [2]scanned
	for parity := range halves {
		half := make([]byte, head.half)
		if err := readFull(file, half, fileHead+int64(parity)*head.half); err != nil {
			return Contents{}, err
		}
		halves[parity] = scan(head, half, uint64(parity))
	}
	newest, older := halves[0], halves[1]
	if older.generation > newest.generation {
		newest, older = older, newest
	}
	return join(head, newest, older, drained)
}

func readFull(file io.ReaderAt, into []byte, at int64) error {
	if n, err := file.ReadAt(into, at); n < len(into) {
		if err == io.EOF {
			return &DamageError{Detail: fmt.Sprintf("it ends at byte %d", at+int64(n))}
		}
		return err
	}
	return nil
}

// scan reads the records of a half up to the first bad record.
func scan(head state, half []byte, parity uint64) scanned {
	s := scanned{state: head, rest: half}
	for {
		found, op, ok := decodeRecord(s.rest, head.salt)
		begins := s.generation == 0
		switch {
		case !ok, found.generation%2 != parity, found.generation == 0, found.previous != s.check:
			return s
		case begins:
			s.generation, s.first, s.before = found.generation, found.sequence, found.sequence-1
		case found.generation != s.generation, found.sequence != s.sequence+1:
			return s
		}
		s.sequence, s.check, s.at = found.sequence, found.check, s.at+found.size()
		s.ops, s.last, s.rest = append(s.ops, op), s.rest[:found.size()], s.rest[found.size():]
	}
}

// join combines the halves, and decides whether a bad record was torn by a crash or is damaged.
func join(head state, newest, older scanned, drained uint64) (Contents, error) {
	if newest.generation == 0 { // the newest half has no record yet, or its first record was torn
		newest.state = head
		newest.generation, newest.sequence, newest.before = 1, head.base, head.base
		if head.begins(newest.rest, 1) || head.begins(older.rest, 1) {
			return Contents{}, &DamageError{Detail: "its first record can't be read"}
		}
		return newest.complete(older, drained)
	}
	if head.begins(newest.rest, newest.generation) {
		return Contents{}, newest.damaged("a record can't be read, and later ones can")
	}
	if head.begins(older.rest, newest.generation+1) {
		return Contents{}, newest.damaged("the first record of a half can't be read, and later ones can")
	}
	return newest.complete(older, drained)
}

// complete returns the changes after drained, or an error if a change is missing.
func (s scanned) complete(older scanned, drained uint64) (Contents, error) {
	ops := s.ops
	switch {
	case s.sequence < drained:
		return Contents{}, s.damaged(fmt.Sprintf("change %d is missing: it ends with change %d", drained, s.sequence))
	case s.before <= drained: // all records of the other half are drained
	case older.generation != 0 && older.generation+1 == s.generation && older.sequence == s.before && older.first <= drained+1:
		ops = append(older.ops, ops...)
	default:
		return Contents{}, older.damaged(fmt.Sprintf("changes %d to %d are not all there", drained+1, s.before))
	}
	for len(ops) > 0 && ops[0].Sequence <= drained {
		ops = ops[1:]
	}
	return Contents{state: s.state, Ops: ops, last: bytes.Clone(s.last), lastAt: s.place() - int64(len(s.last))}, nil
}

// damaged returns an error that names the last entry before the damage.
func (s scanned) damaged(detail string) *DamageError {
	e := &DamageError{Detail: detail}
	for _, op := range s.ops {
		if n := len(op.Entries); n > 0 {
			e.After = op.Entries[n-1].Index
		}
	}
	return e
}

// begins reports whether content has the head of a record of at least this generation, other than at its beginning.
func (s state) begins(content []byte, generation uint64) bool {
	for at := recordAlign; at < len(content); at += recordAlign {
		if head, ok := decodeHead(content[at:], s.salt); ok && head.generation >= generation {
			return true
		}
	}
	return false
}

// errRecord means that the bytes are not the body of a record.
var errRecord = errors.New("a record of the journal can't be read")

// decodeHead decodes the head of the record at the beginning of content. ok is false if appendRecord has not written
// these bytes, or if the record is longer than content.
func decodeHead(content []byte, salt uint32) (head record, ok bool) {
	if len(content) < recordHead || binary.BigEndian.Uint32(content) != recordMagic {
		return record{}, false
	}
	number := func(at int) uint32 { return binary.BigEndian.Uint32(content[at:]) }
	head = record{
		kind: number(4), generation: binary.BigEndian.Uint64(content[8:]), sequence: binary.BigEndian.Uint64(content[16:]),
		previous: number(24), length: number(28), sum: number(32), check: number(36),
	}
	ok = head.check == crc32.Update(salt, castagnoli, content[:36]) && head.size() <= int64(len(content))
	return head, ok
}

// decodeRecord decodes the record at the beginning of content. ok is false for a bad record.
func decodeRecord(content []byte, salt uint32) (head record, op Op, ok bool) {
	if head, ok = decodeHead(content, salt); !ok {
		return record{}, Op{}, false
	}
	body := content[recordHead : recordHead+int64(head.length)]
	if crc32.Checksum(body, castagnoli) != head.sum {
		return record{}, Op{}, false
	}
	op, err := decodeBody(head.kind, body)
	op.Sequence = head.sequence
	return head, op, err == nil
}

// decodeBody decodes a body. It fails with errRecord for bytes that appendRecord has not written.
func decodeBody(kind uint32, body []byte) (op Op, err error) {
	if kind == kindCut && len(body) == 16 {
		return Op{First: binary.BigEndian.Uint64(body), Last: binary.BigEndian.Uint64(body[8:])}, nil
	}
	if kind != kindEntries {
		return Op{}, errRecord
	}
	op.Entries = []Entry{}
	for len(body) > 0 {
		if len(body) < entryHead {
			return Op{}, errRecord
		}
		e := Entry{
			Index: binary.BigEndian.Uint64(body), Term: binary.BigEndian.Uint64(body[8:]), Kind: body[16],
			At: int64(binary.BigEndian.Uint64(body[17:])),
		}
		data, extensions := uint64(binary.BigEndian.Uint32(body[25:])), uint64(binary.BigEndian.Uint32(body[29:]))
		body = body[entryHead:]
		if data+extensions > uint64(len(body)) {
			return Op{}, errRecord
		}
		if data > 0 {
			e.Data = body[:data:data]
		}
		if extensions > 0 {
			e.Extensions = body[data : data+extensions : data+extensions]
		}
		op.Entries, body = append(op.Entries, e), body[data+extensions:]
	}
	return op, nil
}
