package journal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"sync/atomic"
)

var (
	// ErrNoRoom: both halves have records that are not drained. The change is not stored.
	ErrNoRoom = errors.New("the journal is full")
	// ErrTooLarge: the change is larger than a half. It is not stored.
	ErrTooLarge = errors.New("the change is larger than a half of the journal")
)

// Journal appends records to a file.
type Journal struct {
	state
	file    File
	unsure  bool          // a write failed, but its record may be in the file
	buffer  []byte        // of the last record, to be used again
	drained atomic.Uint64 // see Drained
}

// Open returns a journal that continues after the records that Read has found. Changes up to the sequence drained are
// drained. Open writes the last record again, since Read may have found it only in the page cache. Earlier records are
// on the disk, because each record is synced before the next record is written.
func Open(file File, found Contents, drained uint64) (*Journal, error) {
	j := &Journal{state: found.state, file: file}
	j.drained.Store(drained)
	if len(found.last) == 0 {
		return j, nil
	}
	_, err := file.WriteAt(found.last, found.lastAt)
	return j, err
}

// Append stores a change durably and returns its sequence. After ErrNoRoom and ErrTooLarge the change is not in the
// file. Other errors come from the system; then the record may be on the disk, and Settle removes it. If such an error
// is not a full disk, the caller must not append again.
func (j *Journal) Append(op Op) (sequence uint64, err error) {
	if err := j.Settle(); err != nil {
		return 0, err
	}
	size := roundUpToAlignment(recordHead + op.bodySize())
	switch {
	case size > j.half:
		return 0, ErrTooLarge
	case j.at+size > j.half && j.drained.Load() < j.before:
		return 0, ErrNoRoom
	case j.at+size > j.half: // even if this write fails, the next record goes to the other half
		j.generation, j.at, j.check, j.before = j.generation+1, 0, 0, j.sequence
	}
	return j.write(op)
}

// Settle overwrites a record that a failed write may have left, with an empty change.
func (j *Journal) Settle() error {
	if !j.unsure {
		return nil
	}
	_, err := j.write(Op{Entries: []Entry{}}) // there is room, since an empty change is the smallest record
	return err
}

// write writes a record. The caller has made sure of the room.
func (j *Journal) write(op Op) (sequence uint64, err error) {
	next := j.state
	next.sequence++
	j.buffer, next.check = appendRecord(j.buffer[:0], record{generation: next.generation, sequence: next.sequence, previous: next.check}, j.salt, op)
	j.unsure = true
	if _, err := j.file.WriteAt(j.buffer, j.place()); err != nil {
		return 0, err
	}
	j.unsure = false
	next.at += int64(len(j.buffer))
	j.state = next
	if cap(j.buffer) > 1<<20 { // don't keep a buffer of unusual size
		j.buffer = nil
	}
	return j.sequence, nil
}

// Drained reports that all changes up to a sequence are durable elsewhere. The caller has stored the sequence with
// them, for the next Read. Any goroutine may call it.
func (j *Journal) Drained(sequence uint64) { j.drained.Store(sequence) }

// Needed returns the sequence up to which changes must be drained before Append can succeed after ErrNoRoom.
func (j *Journal) Needed() uint64 { return j.before }

// Generation returns a number that rises by one when the other half is begun.
func (j *Journal) Generation() uint64 { return j.generation }

// Sequence returns the sequence of the last change.
func (j *Journal) Sequence() uint64 { return j.sequence }

// Close closes the file.
func (j *Journal) Close() error { return j.file.Close() }

// place returns the offset of the next record in the file.
func (s state) place() int64 { return fileHead + int64(s.generation%2)*s.half + s.at }

// Entry is an entry of the log. Its bytes belong to the caller. The entries of one Read share one buffer.
type Entry struct {
	Index, Term      uint64
	Kind             uint8
	At               int64 // time of its creation, in nanoseconds since 1970; 0 if not known
	Data, Extensions []byte
}

// Op is one change of the log: it stores Entries, or removes the entries from First to Last.
type Op struct {
	Sequence    uint64 // rises by one with each change; Append sets it
	Entries     []Entry
	First, Last uint64 // 0 unless entries are removed
}

// castagnoli is the polynomial of all checksums (CRC32C).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A record is a head, with numbers in big-endian order, and a body:
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

// record is the head of a record.
type record struct {
	kind                 uint32
	generation, sequence uint64
	previous             uint32
	length, sum, check   uint32
}

// size returns the number of bytes that the record takes in the file.
func (r record) size() int64 { return roundUpToAlignment(recordHead + int64(r.length)) }

func roundUpToAlignment(n int64) int64 { return (n + recordAlign - 1) / recordAlign * recordAlign }

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

// appendRecord appends the stored form of a change, padded with zeros, and returns its check value. The caller has set
// generation, sequence and previous in head.
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
	return append(to, make([]byte, roundUpToAlignment(int64(len(to)-start))-int64(len(to)-start))...), check
}
