package journal

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
)

var update = flag.Bool("update", false, "write the golden file")

// memory is a file in memory.
type memory struct {
	content []byte
	fail    error
	part    int64 // of a write that fails a half is done, or, if it is 1, all
}

func (m *memory) Close() error { return nil }

func (m *memory) ReadAt(into []byte, at int64) (int, error) {
	return bytes.NewReader(m.content).ReadAt(into, at)
}

func (m *memory) WriteAt(from []byte, at int64) (int, error) {
	if m.fail != nil {
		return copy(m.content[at:], from[:int64(len(from))/max(m.part, 1)]), m.fail
	}
	return copy(m.content[at:], from), nil
}

// empty makes a journal without records, whose salt is known.
func empty(half int64, base uint64) *memory {
	head := encodeFileHead(half, base, [8]byte{1, 2, 3, 4, 5, 6, 7, 8})
	return &memory{content: append(head, make([]byte, 2*half)...)}
}

func open(t testing.TB, m *memory, drained uint64) (*Journal, []Op) {
	t.Helper()
	found, err := Read(m, drained)
	must(t, err)
	j, err := Open(m, found, drained)
	must(t, err)
	return j, found.Ops
}

// op is the change with a sequence: each fifth one is a cut.
func op(sequence uint64) Op {
	if sequence%5 == 0 {
		return Op{Sequence: sequence, First: sequence - 1, Last: sequence + 1}
	}
	return Op{Sequence: sequence, Entries: []Entry{
		{Index: sequence, Term: 2, Kind: 1, At: 77, Data: fmt.Appendf(nil, "command %d", sequence), Extensions: []byte{9}},
		{Index: sequence + 1, Term: 2},
	}}
}

func ops(first, last uint64) (made []Op) {
	for sequence := first; sequence <= last; sequence++ {
		made = append(made, op(sequence))
	}
	return made
}

func fill(t testing.TB, j *Journal, first, last uint64) {
	t.Helper()
	for sequence := first; sequence <= last; sequence++ {
		if got, err := j.Append(op(sequence)); err != nil || got != sequence {
			t.Fatalf("change %d became %d, error %v", sequence, got, err)
		}
	}
}

// TestFormIsForEver: the golden file is read as what it was written from, and written to the
// same bytes.
func TestFormIsForEver(t *testing.T) {
	m := empty(1024, 41)
	j, _ := open(t, m, 41)
	fill(t, j, 42, 56)
	golden := filepath.Join("testdata", "journal-1")
	if *update {
		must(t, os.WriteFile(golden, m.content, 0o600))
	}
	content, err := os.ReadFile(golden)
	must(t, err)
	if !bytes.Equal(content, m.content) {
		t.Error("the same changes became other bytes")
	}
	if _, found := open(t, &memory{content: content}, 41); !reflect.DeepEqual(found, ops(42, 56)) {
		t.Errorf("it is read as %+v", found)
	}
}

// TestHalvesInTurn: a half is written again once it is drained, and not before.
func TestHalvesInTurn(t *testing.T) {
	m := empty(1024, 0)
	j, _ := open(t, m, 0)
	last, drained := uint64(0), uint64(0)
	for range 20 { // many times around
		err := error(nil)
		for err == nil {
			if _, err = j.Append(op(last + 1)); err == nil {
				last++
			}
		}
		if !errors.Is(err, ErrNoRoom) {
			t.Fatal(err)
		}
		for _, d := range []uint64{drained, last - 1, last} {
			if _, found := open(t, m, d); len(found) != int(last-d) || d < last && !reflect.DeepEqual(found, ops(d+1, last)) {
				t.Fatalf("after %d of %d changes were drained, it has %d", d, last, len(found))
			}
		}
		drained = last - 3
		j, _ = open(t, m, drained)
	}
	if _, err := j.Append(Op{Entries: []Entry{{Data: make([]byte, 1024)}}}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a change larger than a half: %v", err)
	}
}

// TestHalvesAreNotOverrun: no record reaches beyond its half, whatever its size.
func TestHalvesAreNotOverrun(t *testing.T) {
	const half = 1024
	for length := range half {
		m := empty(half, 0)
		m.content = append(m.content, make([]byte, half)...) // behind the second half, which is the first to be used
		j, _ := open(t, m, 0)
		_, err := j.Append(Op{Entries: []Entry{{Data: bytes.Repeat([]byte{1}, length)}}})
		if bytes.ContainsFunc(m.content[fileHead+2*half:], func(r rune) bool { return r != 0 }) {
			t.Fatalf("a record of %d bytes of data reaches beyond its half", length)
		}
		if fits := roundUpToAlignment(recordHead+entryHead+int64(length)) <= half; fits != (err == nil) {
			t.Fatalf("%d bytes of data: %v", length, err)
		}
	}
}

// TestFailedWriteIsWrittenOver: of a write that failed nothing is left once the next change is
// there, in whatever half that is, and whether all of it was written, or a part.
func TestFailedWriteIsWrittenOver(t *testing.T) {
	for _, part := range []int64{1, 2} {
		for fails := uint64(1); fails < 14; fails++ {
			m := empty(1024, 0)
			j, _ := open(t, m, 0)
			fill(t, j, 1, fails-1)
			m.fail, m.part = errors.New("no room"), part
			if _, err := j.Append(Op{Entries: []Entry{{Data: bytes.Repeat([]byte{7}, 300)}}}); !errors.Is(err, m.fail) {
				t.Fatalf("the error is %v", err)
			}
			m.fail = nil
			_, found := open(t, &memory{content: slices.Clone(m.content)}, 0)
			big := Op{Sequence: fails + 1, Entries: []Entry{{Index: 3, Data: bytes.Repeat([]byte{8}, 700)}}} // it may begin a half
			j.Drained(fails - 1)
			if got, err := j.Append(big); err != nil || got != fails+1 {
				t.Fatalf("after %d changes another one became %d, error %v", fails, got, err)
			}
			nothing := Op{Sequence: fails, Entries: []Entry{}} // in place of the one that failed
			_, again := open(t, m, fails-1)
			if want := []Op{nothing, big}; len(found) != int(fails-2+2/uint64(part)) || !reflect.DeepEqual(again, want) {
				t.Errorf("after %d changes it had %d, and then %+v", fails-1, len(found), again)
			}
		}
	}
}

// TestOpenWritesTheLastRecordAgain: its sync may have failed, while the page cache has it.
func TestOpenWritesTheLastRecordAgain(t *testing.T) {
	m := empty(1024, 0)
	j, _ := open(t, m, 0)
	fill(t, j, 1, 13)
	cached := &cache{memory: m, disk: slices.Clone(m.content)}
	clear(cached.disk[j.place()-roundUpToAlignment(recordHead+op(13).bodySize()) : j.place()])
	found, err := Read(cached, 0)
	must(t, err)
	if _, err := Open(cached, found, 0); err != nil {
		t.Fatal(err)
	}
	if _, found := open(t, &memory{content: cached.disk}, 0); !reflect.DeepEqual(found, ops(1, 13)) {
		t.Errorf("the disk has %d changes of 13", len(found))
	}
	m.fail = errors.New("the disk is gone")
	if _, err := Open(m, found, 0); !errors.Is(err, m.fail) {
		t.Errorf("the error is %v", err)
	}
}

// cache is a file whose content may differ from what the disk has.
type cache struct {
	*memory
	disk []byte
}

func (c *cache) WriteAt(from []byte, at int64) (int, error) {
	copy(c.disk[at:], from)
	return c.memory.WriteAt(from, at)
}

// TestDamageIsDistinguishedFromATornEnd: of a bad record in the middle, of a missing half and
// of a lost drained change the reader hears; the last record may be torn.
func TestDamageIsDistinguishedFromATornEnd(t *testing.T) {
	m := empty(1024, 0)
	j, _ := open(t, m, 0)
	last, first := uint64(0), uint64(0) // first: of generation 2
	places := []int64{0}                // of the records
	for j.Generation() < 3 || last < first+15 {
		last++
		j.Drained(last - 1)
		fill(t, j, last, last)
		places = append(places, j.place()-roundUpToAlignment(recordHead+op(last).bodySize()))
		if j.Generation() == 2 && first == 0 {
			first = last
		}
	}
	if j.Generation() != 3 {
		t.Fatalf("generation %d", j.Generation())
	}
	for sequence := first; sequence <= last; sequence++ {
		for _, drained := range []uint64{first - 1, sequence - 1, sequence, last} {
			spoilt := &memory{content: slices.Clone(m.content)}
			spoilt.content[places[sequence]+recordHead+3] ^= 1
			found, err := Read(spoilt, drained)
			broken := (*DamageError)(nil)
			switch {
			case sequence == last && drained < last:
				if err != nil || found.Sequence() != last-1 {
					t.Errorf("a torn end: up to %d, error %v", found.Sequence(), err)
				}
			case err == nil && (found.Sequence() != last || !reflect.DeepEqual(found.Ops, ops(drained+1, last)) && drained < last):
				t.Errorf("change %d of %d to %d is bad, %d drained: read %d up to %d", sequence, first, last, drained, len(found.Ops), found.Sequence())
			case err != nil && !errors.As(err, &broken):
				t.Errorf("the error is %v", err)
			case err == nil && sequence > drained:
				t.Errorf("change %d is bad, and was read", sequence)
			}
		}
	}
	if _, err := Read(m, last+1); err == nil {
		t.Error("a drained change is missing")
	}
	if _, err := Read(&memory{content: m.content[:len(m.content)-1]}, last); err == nil {
		t.Error("the file is too short")
	}
}

// TestHeadsOfNoFile: a head whose checksum is right, of halves that no file has.
func TestHeadsOfNoFile(t *testing.T) {
	for _, half := range []int64{-recordAlign, 0, 1, recordAlign - 1, recordAlign + 1, 1<<32 + 1, 1<<32 + recordAlign} {
		if _, err := decodeFileHead(encodeFileHead(half, 0, [8]byte{})); err == nil {
			t.Errorf("halves of %d bytes are believed", half)
		}
	}
	for _, half := range []int64{recordAlign, 1 << 32} {
		if s, err := decodeFileHead(encodeFileHead(half, 7, [8]byte{})); err != nil || s.half != half || s.base != 7 {
			t.Errorf("halves of %d bytes: %d after %d, %v", half, s.half, s.base, err)
		}
	}
}

func TestNewFileIsEmpty(t *testing.T) {
	folder := t.TempDir()
	must(t, Create(folder, 1<<20, 7))
	info, err := os.Stat(filepath.Join(folder, FileName))
	if err != nil || info.Size() != fileHead+2<<20 || info.Mode().Perm() != 0o600 {
		t.Errorf("made is %v, error %v", info, err)
	}
	file, err := OpenFile(folder)
	must(t, err)
	found, err := Read(file, 7)
	if err != nil || found.Sequence() != 7 || len(found.Ops) != 0 {
		t.Errorf("read %+v, error %v", found, err)
	}
	j, err := Open(file, found, 7)
	must(t, err)
	fill(t, j, 8, 9)
	must(t, j.Close())
	if _, err := j.Append(op(10)); err == nil {
		t.Error("it was stored in a closed file")
	}
}

// FuzzJournal damages a journal: what is read is what was stored, or less at its end.
func FuzzJournal(f *testing.F) {
	m := empty(512, 0)
	j, _ := open(f, m, 0)
	last := uint64(0)
	for ; j.Generation() < 4; last++ {
		j.Drained(last)
		fill(f, j, last+1, last+1)
	}
	f.Add(uint16(fileHead+40), []byte{1}, uint8(3))
	f.Add(uint16(fileHead+512), make([]byte, 512), uint8(0))
	f.Add(uint16(fileHead), m.content[fileHead+512:], uint8(9))
	f.Fuzz(func(t *testing.T, at uint16, over []byte, drained uint8) {
		content := slices.Clone(m.content)
		if int(at) < len(content) {
			copy(content[at:], over)
		}
		found, err := Read(&memory{content: content}, uint64(drained))
		if err != nil {
			return
		}
		if n := uint64(len(found.Ops)); n > 0 && !reflect.DeepEqual(found.Ops, ops(uint64(drained)+1, uint64(drained)+n)) {
			t.Errorf("with %d bytes at %d, and %d drained: read %+v", len(over), at, drained, found.Ops)
		}
	})
}

// FuzzBody decodes any bytes as the body of a record.
func FuzzBody(f *testing.F) {
	for sequence := uint64(4); sequence < 6; sequence++ {
		o := op(sequence)
		content, _ := appendRecord(nil, record{}, 0, o)
		f.Add(o.Entries != nil, content[recordHead:recordHead+o.bodySize()])
	}
	f.Fuzz(func(t *testing.T, entries bool, body []byte) {
		kind := uint32(kindCut)
		if entries {
			kind = kindEntries
		}
		decoded, err := decodeBody(kind, body)
		if err != nil {
			return
		}
		content, _ := appendRecord(nil, record{}, 0, decoded)
		if !bytes.Equal(content[recordHead:recordHead+decoded.bodySize()], body) {
			t.Errorf("%x became %x", body, content)
		}
	})
}

// TestRecordThatDoesNotFollowIsNotRead: a whole record that stands in the right place ends the
// journal if its head does not continue the one before it, as one that an earlier write has left.
func TestRecordThatDoesNotFollowIsNotRead(t *testing.T) {
	m := empty(1024, 0)
	j, _ := open(t, m, 0)
	fill(t, j, 1, 2)
	for _, c := range []struct {
		name  string
		head  record
		found int
	}{
		{"the next one", record{generation: j.generation, sequence: 3, previous: j.check}, 3},
		{"behind another record", record{generation: j.generation, sequence: 3, previous: j.check ^ 1}, 2},
		{"behind a missing one", record{generation: j.generation, sequence: 4, previous: j.check}, 2},
		{"the one before again", record{generation: j.generation, sequence: 2, previous: j.check}, 2},
		{"of another generation", record{generation: j.generation + 2, sequence: 3, previous: j.check}, 2},
	} {
		content := &memory{content: slices.Clone(m.content)}
		encoded, _ := appendRecord(nil, c.head, j.salt, op(3))
		if _, err := content.WriteAt(encoded, j.place()); err != nil {
			t.Fatal(err)
		}
		found, err := Read(content, 0)
		if err != nil || len(found.Ops) != c.found {
			t.Errorf("%s: %d changes are read, want %d, error %v", c.name, len(found.Ops), c.found, err)
		}
	}
}

// TestHalfIsWrittenAgainOnceAllOfItIsDrained, and not while one change of it is missing elsewhere.
func TestHalfIsWrittenAgainOnceAllOfItIsDrained(t *testing.T) {
	m := empty(1024, 0)
	j, _ := open(t, m, 0)
	last, err := uint64(0), error(nil)
	for err == nil {
		if _, err = j.Append(op(last + 1)); err == nil {
			last++
		}
	}
	needed := j.Needed()
	if !errors.Is(err, ErrNoRoom) || needed == 0 || needed >= last {
		t.Fatalf("after %d changes, of which %d are needed: %v", last, needed, err)
	}
	j.Drained(needed - 1)
	if _, err := j.Append(op(last + 1)); !errors.Is(err, ErrNoRoom) {
		t.Errorf("without change %d: error %v", needed, err)
	}
	j.Drained(needed)
	if got, err := j.Append(op(last + 1)); err != nil || got != last+1 {
		t.Errorf("with it: %d, error %v", got, err)
	}
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
