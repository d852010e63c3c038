package fsm

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// everyCommand is one command of each operation, with values in every member.
func everyCommand() []Command {
	level := int32(-2)
	pairs := []Pair{{"job", "7"}, {"who", "me"}}
	limits := DefaultLimits()
	limits.Queue = 3
	return []Command{
		StartTerm{Term: 2, Leader: "n1", Limits: limits, Jump: true},
		PutSemaphore{Name: "b", Permits: Change[int64]{true, 2}, Level: Change[*int32]{true, &level}, Metadata: Change[[]Pair]{true, pairs}},
		CreateSemaphore{Name: "c d/&", Permits: 1, Level: &level, Metadata: pairs},
		Up{Name: "a", Count: 1, Epoch: 1},
		Down{Name: "a", Count: 5, Partial: true, WaitMS: 50, Session: 77},
		SetValue{Name: "a", Value: 3},
		OpenSession{Session: 7, TTLMS: 30_000, Metadata: pairs, Keep: true},
		Renew{Renewals: []Renewal{{Session: 1, TTLMS: 0}, {Session: 2, TTLMS: KeepTTL}}},
		Acquire{Session: 2, Name: "a", Count: 1, TTLMS: 100, Try: true},
		AcquireOnce{Name: "a", Count: 2, TTLMS: 1000, Metadata: pairs, WaitMS: 100, Session: 78},
		AcquireMany{Session: 3, Wants: []Want{{Semaphore: "b", Count: 1}, {Semaphore: "a", Count: 2}}, Mode: Any},
		ResizeLease{Session: 1, Name: "a", Count: 1},
		Release{Session: 1, Name: "a"},
		RevokeLease{Session: 1, Name: "a", Reason: "maintenance"},
		RestoreSession{Session: 1 << 60, TTLMS: 1000, Leases: []Want{{Semaphore: "a", Count: 9}}, Metadata: pairs},
		EndSession{Session: 1, Operator: true, Reason: "gone"},
		ListAdd{Session: 3, Name: "b", Count: 2},
		ListDeliver{Session: 2},
		ListRemove{Session: 2, Name: "b"},
		Down{Name: "b", Count: 4, Notice: "http://example.com/free"},
		NoticeDone{IDs: []uint64{1, 9}},
		RaiseLevel{Level: 1},
		DeleteSemaphore{Name: "a", Epoch: 1},
		OpenHolder{Session: 8, TTLMS: 30_000, About: "about", DeleteItems: true, DelayMS: 15_000},
		ItemPut{Name: "p/1", Value: "\x00", Flags: 1 << 63, Version: Change[uint64]{true, 3}},
		ItemAcquire{Name: "p/2", Value: "two", Flags: 2, Session: 1},
		ItemRelease{Name: "p/1", Value: "done", Flags: 1, Session: 2},
		ItemDelete{Name: "p/1", Version: Change[uint64]{true, 3}},
		ItemDeleteAll{Prefix: "p/"},
	}
}

// busy is a machine with leases, waiters of every kind, a revoked lease, keys
// pending and done, ended sessions, and items held, free, delayed and deleted.
func busy(t testing.TB) (*Machine, uint64) {
	m := New()
	level := int32(1)
	commands := []Command{
		CreateSemaphore{Name: "a", Permits: 2, Level: &level}, CreateSemaphore{Name: "b", Permits: 1},
		OpenSession{Session: 1, TTLMS: 10_000}, OpenSession{Session: 2, TTLMS: 10_000}, OpenSession{Session: 3, TTLMS: 10_000},
		OpenSession{Session: 4, TTLMS: 0},
		Acquire{Session: 1, Name: "a", Count: 2, TTLMS: KeepTTL}, Acquire{Session: 1, Name: "b", Count: 1, TTLMS: KeepTTL},
		Acquire{Session: 2, Name: "a", Count: 1, TTLMS: KeepTTL},
		AcquireMany{Session: 3, Wants: []Want{{Semaphore: "a", Count: 1}, {Semaphore: "b", Count: 1}}, Mode: Any},
		AcquireOnce{Name: "a", Count: 1, TTLMS: 500, WaitMS: 5000, Session: 90},
		Down{Name: "b", Count: 3, Partial: true, WaitMS: 5000, Session: 91},
		RevokeLease{Session: 1, Name: "b", Reason: "because"},
		Down{Name: "b", Count: 7, Notice: "http://example.com/free"}, Up{Name: "b", Count: 9},
		ListAdd{Session: 2, Name: "b", Count: 2}, ListAdd{Session: 2, Name: "b", Count: 90}, ListAdd{Session: 2, Name: "b", Count: 5},
		ListAdd{Session: 3, Name: "a", Count: 5}, Down{Name: "a", Count: 7, Notice: "http://example.com/free"},
		OpenHolder{Session: 5, TTLMS: 5000, About: "about", DeleteItems: true, DelayMS: 60_000},
		OpenHolder{Session: 6, TTLMS: 10_000, DelayMS: 4000}, ItemAcquire{Name: "p/1", Value: "one", Session: 2},
		ItemAcquire{Name: "p/2", Session: 5}, ItemAcquire{Name: "p/3", Session: 6}, ItemAcquire{Name: "q", Session: 6},
		ItemPut{Name: "p/4", Value: "four"}, ItemDelete{Name: "p/3"}, ItemPut{Name: "p/3"}, EndSession{Session: 6}, ItemDelete{Name: "q"},
	}
	for i, c := range commands {
		key := ""
		if i%3 == 0 {
			key = "key " + strings.Repeat("x", i+1)
		}
		m.Apply(uint64(i+1), EncodeEntry(1000, [][]byte{Envelope{Request: RequestID{1, uint64(i)}, Key: key}.Encode(c)}))
	}
	if err := m.check(); err != nil {
		t.Fatal(err)
	}
	return m, uint64(len(commands))
}

// Run one with: go test ./fsm -run '^$' -fuzz FuzzRestore -fuzzminimizetime 10x
// (without the last, Go spends most of a short run making its finds smaller).

// FuzzDecodeCommand: any bytes are a command, no command, or an operation of a newer
// version. A decoded command keeps its meaning when it is encoded again.
func FuzzDecodeCommand(f *testing.F) {
	for i, c := range everyCommand() {
		f.Add(Envelope{Request: RequestID{7, uint64(i)}, Key: ""}.Encode(c))
		f.Add(Envelope{Request: RequestID{1 << 63, 0}, Key: "scope and key 0123"}.Encode(c))
		f.Add(Envelope{Request: RequestID{1, 2}, Owner: "ci", Limits: OwnerLimits{Sessions: 300, Waiting: 1}, Trace: "t"}.Encode(c))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := decodeCommand(newDecoder(data))
		if err != nil {
			if !strings.Contains(err.Error(), "newer version") {
				t.Fatalf("an error that is not an unknown operation: %v", err)
			}
			return
		}
		if command, err := CheckCommand(data); (c.command != nil) != (err == nil && Weight(command) > 0) {
			t.Fatalf("CheckCommand says otherwise: %v, %v", command, err)
		}
		if c.command == nil {
			return
		}
		again, err := decodeCommand(newDecoder(c.Envelope.Encode(c.command)))
		if err != nil || again.Envelope != c.Envelope || again.op != c.op || !reflect.DeepEqual(again.command, c.command) {
			t.Fatalf("%s became %s, %v", show(c.command), show(again.command), err)
		}
		if Fingerprint(again.command) != Fingerprint(c.command) {
			t.Fatal("the fingerprint changed")
		}
	})
}

// halts applies an entry and returns the text of the halt, or "".
func halts(m *Machine, index uint64, data []byte) (halt string) {
	defer func() {
		if broken := recover(); broken != nil {
			halt = broken.(string)
		}
	}()
	m.Apply(index, data)
	return ""
}

// applyFuzzed applies an entry to a busy machine and to its restored copy: it
// may halt only for a newer version; else all invariants hold, the two agree,
// and the state survives a snapshot.
func applyFuzzed(t *testing.T, data []byte) {
	m, last := busy(t)
	restored, err := Restore(bytes.NewReader(snapshotOf(t, m.Freeze())))
	if err != nil {
		t.Fatal(err)
	}
	halt, other := halts(m, last+1, data), halts(restored, last+1, data)
	if halt != other {
		t.Fatalf("one halted with %q, the restored one with %q", halt, other)
	}
	if halt != "" {
		if !strings.Contains(halt, "entry version") && !strings.Contains(halt, "newer version") {
			t.Fatal(halt)
		}
		return
	}
	for index := last + 2; index < last+4; index++ {
		if err := m.check(); err != nil {
			t.Fatal(err)
		}
		if m.Hash() != restored.Hash() {
			t.Fatal("state hashes differ")
		}
		bytesOf := snapshotOf(t, m.Freeze())
		if restored, err = Restore(bytes.NewReader(bytesOf)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(bytesOf, snapshotOf(t, restored.Freeze())) {
			t.Fatal("snapshots differ")
		}
		tick := EncodeEntry(6000*int64(index-last), nil)
		m.Apply(index, tick)
		restored.Apply(index, tick)
	}
}

// FuzzApplyBytes: any bytes as an entry.
func FuzzApplyBytes(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{entryVersion + 1})
	for i, c := range everyCommand() {
		f.Add(EncodeEntry(2000, [][]byte{Envelope{Request: RequestID{7, uint64(i)}, Key: ""}.Encode(c), {1, 2}}))
	}
	f.Fuzz(applyFuzzed)
}

// FuzzApplyCommands: any bytes as the commands of a well-formed entry.
func FuzzApplyCommands(f *testing.F) {
	commands := everyCommand()
	for i, c := range commands {
		next := commands[(i+5)%len(commands)]
		f.Add(int64(2000), Envelope{Request: RequestID{7, 1}, Key: ""}.Encode(c), Envelope{Request: RequestID{7, 2}, Key: "key x"}.Encode(next))
	}
	f.Fuzz(func(t *testing.T, stampMS int64, first, second []byte) {
		applyFuzzed(t, EncodeEntry(stampMS, [][]byte{first, second}))
	})
}

// FuzzRestore: any bytes are refused, or a machine whose invariants hold and
// that goes on. The checksum is made right, so that damage behind it is seen.
func FuzzRestore(f *testing.F) {
	m, _ := busy(f)
	f.Add(snapshotOf(f, m.Freeze()), true)
	f.Add(snapshotOf(f, m.Freeze()), false)
	f.Add(snapshotOf(f, New().Freeze()), true)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal && len(data) >= 4 {
			data = bytes.Clone(data)
			binary.BigEndian.PutUint32(data[len(data)-4:], crc32.Checksum(data[:len(data)-4], crc32.MakeTable(crc32.Castagnoli)))
		}
		m, err := Restore(bytes.NewReader(data))
		if err != nil {
			return
		}
		first := snapshotOf(t, m.Freeze())
		again, err := Restore(bytes.NewReader(first))
		if err != nil {
			t.Fatalf("its own snapshot is refused: %v", err)
		}
		if !bytes.Equal(first, snapshotOf(t, again.Freeze())) {
			t.Fatal("its snapshot is not canonical")
		}
		for _, stamp := range []int64{m.NowMS(), m.NowMS() + 1000, m.NowMS() + 100_000} {
			m.Apply(m.Index()+1, EncodeEntry(stamp, [][]byte{Envelope{Request: RequestID{}, Key: ""}.Encode(Up{Name: "a", Count: 1})}))
			if err := m.check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// FuzzDecodeResult: any bytes are refused, or a result that means the same
// after it is encoded again.
func FuzzDecodeResult(f *testing.F) {
	level := int32(3)
	view := SemaphoreView{Name: "a", Epoch: 1, Permits: 2, Offset: -1, Held: 1, Level: &level, Metadata: []Pair{{"k", "v"}}}
	f.Add(AppendResult(nil, &Result{}))
	f.Add(AppendResult(nil, &Result{Code: LimitReached, Rule: RuleOwnerLeases, Refusal: &Refusal{Limit: 300}}))
	f.Add(AppendResult(nil, &Result{Code: ItemDiffers, Rule: RuleDelay, Version: 1 << 44, Locks: 3, More: true, Refusal: &Refusal{DelayMS: 15_000}}))
	f.Add(AppendResult(nil, &Result{Code: Never, Subject: "a", Asked: 3, Rule: RuleHolds,
		Refusal: &Refusal{Permits: 1, Level: &level, LowestLevel: &level, Reason: "r"}}))
	f.Add(AppendResult(nil, &Result{Session: 9, TTLMS: 1, Grants: []Grant{{Semaphore: "a", Epoch: 1, Count: 2, Token: 3, GrantedMS: 4}}, Semaphore: &view, Each: []Result{{Code: Revoked}, {Granted: -1}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeResult(data)
		if err != nil {
			return
		}
		encoded := AppendResult(nil, &r)
		again, err := DecodeResult(encoded)
		if err != nil || !bytes.Equal(AppendResult(nil, &again), encoded) {
			t.Fatalf("%s became %s, %v", show(r), show(again), err)
		}
	})
}

// FuzzValidName: a name is 1 to 512 bytes of UTF-8 without control characters.
func FuzzValidName(f *testing.F) {
	for _, name := range []string{"", "a", "/&", "..", `^Rem2("22")`, "a\x00", "\xff", "\u0085", strings.Repeat("x", 513), strings.Repeat("ä", 256)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		want := len(name) >= 1 && len(name) <= 512 && utf8.ValidString(name) && strings.IndexFunc(name, unicode.IsControl) < 0
		if ValidName(name) != want {
			t.Fatalf("ValidName(%q) is %v", name, !want)
		}
	})
}

// FuzzModel is TestPropertyModel, steered by coverage.
func FuzzModel(f *testing.F) {
	f.Add(bytes.Repeat([]byte{0x5a, 0x0f, 0x33}, 2000))
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { newSequence(t).run(30, nil) }))
}
