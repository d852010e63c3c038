package journal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// Entry is an entry of the log. Its bytes are the caller's, or, of a record that was read,
// those of the journal's content.
type Entry struct {
	Index, Term      uint64
	Kind             uint8
	At               int64 // when it was made, in nanoseconds since 1970; 0 if that isn't known
	Data, Extensions []byte
}

// Op is one change of the log: entries are stored, or those from First to Last are removed.
type Op struct {
	Sequence    uint64 // one more than that of the change before; Append sets it
	Entries     []Entry
	First, Last uint64 // 0 unless it is a cut
}

// castagnoli is the polynomial of all checksums (CRC32C).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A record is a head, in network order, and a body:
//
//	0 magic  4 kind  8 generation  16 sequence  24 check of the record before in this half
//	28 length of the body  32 CRC32C of the body  36 check: CRC32C of the file's salt and of 0 to 36
//
// It begins at a multiple of recordAlign.
const (
	recordMagic = 0x53424a52 // "SBJR"
	recordAlign = 64
	recordHead  = 40
	entryHead   = 33

	kindEntries = 1
	kindCut     = 2
)

// errRecord: the bytes are not the body of a record.
var errRecord = errors.New("a record of the journal can't be read")

// record is the head of a record.
type record struct {
	kind                 uint32
	generation, sequence uint64
	previous             uint32
	length, sum, check   uint32
}

// size is the room that the record takes.
func (r record) size() int64 { return aligned(recordHead + int64(r.length)) }

func aligned(n int64) int64 { return (n + recordAlign - 1) / recordAlign * recordAlign }

// bodySize is the length of the change's body.
func (o Op) bodySize() int64 {
	if o.Entries == nil {
		return 16
	}
	size := int64(0)
	for i := range o.Entries {
		size += entryHead + int64(len(o.Entries[i].Data)) + int64(len(o.Entries[i].Extensions))
	}
	return size
}

// appendRecord appends the stored form of a change, filled up with zeros, and returns its
// check. generation, sequence and previous of the head are given.
func appendRecord(to []byte, head record, salt uint32, op Op) ([]byte, uint32) {
	start := len(to)
	to = append(to, make([]byte, recordHead)...)
	head.kind = kindEntries
	if op.Entries == nil {
		head.kind = kindCut
		to = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(to, op.First), op.Last)
	}
	for i := range op.Entries {
		e := &op.Entries[i]
		to = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(to, e.Index), e.Term)
		to = binary.BigEndian.AppendUint64(append(to, e.Kind), uint64(e.At))
		to = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(to, uint32(len(e.Data))), uint32(len(e.Extensions)))
		to = append(append(to, e.Data...), e.Extensions...)
	}
	body := to[start+recordHead:]
	h := to[start:start]
	h = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(h, recordMagic), head.kind)
	h = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(h, head.generation), head.sequence)
	h = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(h, head.previous), uint32(len(body)))
	h = binary.BigEndian.AppendUint32(h, crc32.Checksum(body, castagnoli))
	check := crc32.Update(salt, castagnoli, h)
	binary.BigEndian.PutUint32(to[start+len(h):], check)
	return append(to, make([]byte, aligned(int64(len(to)-start))-int64(len(to)-start))...), check
}

// decodeHead reads the head at the beginning of the content; ok is false for anything that
// appendRecord didn't write, and if the record is longer than the content.
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

// decodeRecord reads the record at the beginning of the content; ok is false for a bad one.
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

// decodeBody reads a body. The error is errRecord for anything that appendRecord didn't write.
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
