package fsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"
)

// stampedLog applies one command an entry, 10 ms after the last one.
type stampedLog struct {
	t     *testing.T
	m     *Machine
	stamp int64
}

func (l *stampedLog) do(key string, commands ...Command) (result Result) {
	l.t.Helper()
	for _, c := range commands {
		l.stamp += 10
		index := l.m.Index() + 1
		result = l.m.Apply(index, EncodeEntry(l.stamp, [][]byte{Envelope{Request: RequestID{1, index}, Key: key}.Encode(c)})).Commands[0].Result
		if result.Code != OK && result.Code != Waiting && result.Code != Unavailable {
			l.t.Fatalf("%v: %s", c.Op(), show(result))
		}
	}
	return result
}

// tick applies an entry without commands, some milliseconds after the last one.
func (l *stampedLog) tick(ms int64) {
	l.stamp += ms
	l.m.Apply(l.m.Index()+1, EncodeEntry(l.stamp, nil))
}

// restored returns a log that goes on with the snapshot of this one's machine.
func (l *stampedLog) restored() *stampedLog {
	l.t.Helper()
	m, err := Restore(bytes.NewReader(snapshotOf(l.t, l.m.Freeze())))
	if err != nil {
		l.t.Fatal(err)
	}
	return &stampedLog{l.t, m, l.stamp}
}

// manyRecords returns a machine whose snapshot has several records in each section.
func manyRecords(t *testing.T) *Machine {
	l := &stampedLog{t: t, m: New()}
	l.do("", CreateSemaphore{Name: "a", Permits: 1}, CreateSemaphore{Name: "b", Permits: 1}, CreateSemaphore{Name: "c", Permits: 9})
	for id := range uint64(9) {
		l.do("", OpenSession{Session: id + 1, TTLMS: MaxTTLMS})
	}
	for _, name := range []string{"a", "b"} {
		l.do("", Acquire{Session: 9, Name: name, Count: 1, TTLMS: KeepTTL}, RevokeLease{Session: 9, Name: name}, Release{Session: 9, Name: name})
		l.do("", Acquire{Session: 1, Name: name, Count: 1, TTLMS: KeepTTL})
		l.do("once "+name, AcquireOnce{Session: 100 + uint64(len(l.m.marked)), Name: "c", Count: 1, TTLMS: MaxTTLMS})
		l.do("", Release{Session: 100 + uint64(len(l.m.marked)), Name: "c"})
		l.do("key "+name, Up{Name: "c", Count: 1})
		l.do("", Down{Name: name, Count: 1, Notice: "http://host/" + name})
	}
	l.do("", Acquire{Session: 2, Name: "a", Count: 1, TTLMS: KeepTTL}, Acquire{Session: 3, Name: "a", Count: 1, TTLMS: KeepTTL})
	l.do("", ListAdd{Session: 4, Name: "c", Count: 1}, ListAdd{Session: 5, Name: "b", Count: 1})
	l.do("", EndSession{Session: 7}, EndSession{Session: 8})
	l.do("", OpenHolder{Session: 10, TTLMS: MaxTTLMS, DeleteItems: true, DelayMS: 60_000})
	for _, name := range []string{"p/1", "p/2", "q/1", "q/2"} {
		l.do("", ItemAcquire{Session: 10, Name: name}, ItemPut{Name: name + "/free"}, ItemPut{Name: name + "/gone"}, ItemDelete{Name: name + "/gone"})
	}
	l.do("", EndSession{Session: 10}, ItemAcquire{Session: 1, Name: "p"}, ItemAcquire{Session: 1, Name: "q"})
	return l.m
}

// part is a section of a snapshot.
type part struct {
	tag     byte
	records [][]byte
}

// parts returns what a snapshot has before its sections, and these.
func parts(snapshot []byte) (head []byte, sections []part) {
	rest := snapshot[len(snapshotMagic)+1:]
	number := func() uint64 {
		v, n := binary.Uvarint(rest)
		rest = rest[n:]
		return v
	}
	number() // the level
	head = snapshot[:len(snapshot)-len(rest)]
	for {
		p := part{tag: rest[0]}
		rest = rest[1:]
		for range number() {
			length := number()
			p.records, rest = append(p.records, rest[:length]), rest[length:]
		}
		if p.tag == sectionEnd {
			return head, sections
		}
		sections = append(sections, p)
	}
}

// assemble is the reverse of parts.
func assemble(head []byte, sections []part) []byte {
	out := slices.Clone(head)
	for _, p := range append(slices.Clone(sections), part{tag: sectionEnd}) {
		out = binary.AppendUvarint(append(out, p.tag), uint64(len(p.records)))
		for _, r := range p.records {
			out = append(binary.AppendUvarint(out, uint64(len(r))), r...)
		}
	}
	return binary.BigEndian.AppendUint32(out, crc32.Checksum(out, castagnoli))
}

// TestRecordsComeOnceInTheirOrder: of a snapshot whose records stand in another order, or one of
// them twice, the machine would differ from the other nodes' machines.
func TestRecordsComeOnceInTheirOrder(t *testing.T) {
	snapshot := snapshotOf(t, manyRecords(t).Freeze())
	head, sections := parts(snapshot)
	if !bytes.Equal(assemble(head, sections), snapshot) {
		t.Fatal("a snapshot put together of its parts is another one")
	}
	seen := 0
	for i, p := range sections {
		if p.tag == sectionState {
			continue
		}
		if seen++; len(p.records) < 2 {
			t.Fatalf("section %d has %d records: too few to be in another order", p.tag, len(p.records))
		}
		n := len(p.records)
		for name, records := range map[string][][]byte{
			"swapped":     append(slices.Clone(p.records[:n-2]), p.records[n-1], p.records[n-2]),
			"last twice":  append(slices.Clone(p.records), p.records[n-1]),
			"first twice": append(p.records[:1:1], p.records...),
		} {
			t.Run(fmt.Sprintf("section %d, %s", p.tag, name), func(t *testing.T) {
				changed := slices.Clone(sections)
				changed[i].records = records
				if _, err := Restore(bytes.NewReader(assemble(head, changed))); err == nil {
					t.Error("it is read")
				}
			})
		}
	}
	if seen != sectionFolders-sectionState {
		t.Errorf("%d sections", seen)
	}
}

// TestFlippedBitsOfASnapshot: no snapshot with a wrong bit is read.
func TestFlippedBitsOfASnapshot(t *testing.T) {
	snapshot := snapshotOf(t, manyRecords(t).Freeze())
	for at := range snapshot {
		for bit := range 8 {
			if at%7 != bit%7 && at < len(snapshot)-4 { // of the checksum itself all
				continue
			}
			snapshot[at] ^= 1 << bit
			if _, err := Restore(bytes.NewReader(snapshot)); err == nil {
				t.Errorf("bit %d of byte %d of %d is flipped, and it is read", bit, at, len(snapshot))
			}
			snapshot[at] ^= 1 << bit
		}
	}
}

// TestRestoredKeysAreForgotten: keys of each kind live as long after a restore as without it, and
// so do their marks and the memories of ended sessions.
func TestRestoredKeysAreForgotten(t *testing.T) {
	l := &stampedLog{t: t, m: New()}
	l.do("", CreateSemaphore{Name: "a", Permits: 1}, CreateSemaphore{Name: "b", Permits: 1},
		OpenSession{Session: 1, TTLMS: MaxTTLMS}, OpenSession{Session: 2, TTLMS: 1})
	l.do("plain", Up{Name: "b", Count: 1})
	l.do("one-shot", AcquireOnce{Session: 3, Name: "a", Count: 1, TTLMS: MaxTTLMS})
	l.do("gone", AcquireOnce{Session: 4, Name: "b", Count: 1, TTLMS: MaxTTLMS})
	l.do("", Release{Session: 4, Name: "b"})
	l.do("pending", Acquire{Session: 1, Name: "a", Count: 1, TTLMS: KeepTTL})
	before := l.restored() // with a pending key
	for _, log := range []*stampedLog{l, before} {
		log.tick(1000)
		log.do("", Release{Session: 3, Name: "a"}, AcquireOnce{Session: 5, Name: "b", Count: 1, TTLMS: MaxTTLMS})
		log.do("late one-shot", AcquireOnce{Session: 6, Name: "b", Count: 1, TTLMS: MaxTTLMS})
	}
	for name, log := range map[string]*stampedLog{"live": l, "restored with a pending key": before, "restored with its outcome": l.restored()} {
		if log.m.keys.live != 3 || log.m.marks.length != 2 || log.m.ended.live != 3 {
			t.Fatalf("%s: %d keys, %d marks, %d ended sessions", name, log.m.keys.live, log.m.marks.length, log.m.ended.live)
		}
		log.tick(keysKeptMS - 1000)
		if log.m.keys.live != 2 || log.m.marks.length != 1 || log.m.ended.live != 1 {
			t.Errorf("%s, when the first ones have been kept for their time: %d keys, %d marks, %d ended sessions",
				name, log.m.keys.live, log.m.marks.length, log.m.ended.live)
		}
		log.tick(1000)
		if log.m.keys.live != 0 || log.m.marks.length != 0 || log.m.ended.live != 0 || log.m.keyBytes != 0 {
			t.Errorf("%s, at the end: %d keys of %d bytes, %d marks, %d ended sessions",
				name, log.m.keys.live, log.m.keyBytes, log.m.marks.length, log.m.ended.live)
		}
		if err := log.m.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
