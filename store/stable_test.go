package store

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"syscall"
	"testing"
)

func TestStableKeepsTheContractOfRaft(t *testing.T) {
	eachKind(t, func(t *testing.T, open func(...func(*Options)) *Store) {
		stable := open().Stable()
		// Raft looks at the text. (The library's own store in memory has no error
		// for a missing number, which Raft takes as well.)
		if _, err := stable.Get([]byte("key")); err == nil || err.Error() != "not found" {
			t.Errorf("a missing value: error %v", err)
		}
		if number, err := stable.GetUint64([]byte("number")); number != 0 || err != nil && err.Error() != "not found" {
			t.Errorf("a missing number: %d, error %v", number, err)
		}
		for _, value := range []string{"first", "second, longer", ""} {
			if err := stable.Set([]byte("key"), []byte(value)); err != nil {
				t.Fatal(err)
			}
			if got, err := stable.Get([]byte("key")); err != nil || string(got) != value {
				t.Errorf("got %q, error %v; want %q", got, err, value)
			}
		}
		for _, number := range []uint64{0, 1, 1<<64 - 1} {
			if err := stable.SetUint64([]byte("number"), number); err != nil {
				t.Fatal(err)
			}
			if got, err := stable.GetUint64([]byte("number")); err != nil || got != number {
				t.Errorf("got %d, error %v; want %d", got, err, number)
			}
		}
	})
}

func TestStableValuesAreNotShared(t *testing.T) {
	stable := openStore(t, t.TempDir()).Stable()
	value := []byte("value")
	if err := stable.Set([]byte("key"), value); err != nil {
		t.Fatal(err)
	}
	value[0] = 'X'
	got, err := stable.Get([]byte("key"))
	if err != nil || string(got) != "value" {
		t.Fatalf("got %q, error %v", got, err)
	}
	got[0] = 'X'
	if again, err := stable.Get([]byte("key")); err != nil || string(again) != "value" {
		t.Errorf("got %q, error %v", again, err)
	}
	if _, err := stable.GetUint64([]byte("key")); err == nil {
		t.Error("a text was read as a number")
	}
}

// boltSets remembers what is written to the file, and can fail.
type boltSets struct {
	mu     sync.Mutex
	below  interface{ Set(key, value []byte) error }
	fail   error
	writes []stableRecord
}

func (b *boltSets) Set(key, value []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return b.fail
	}
	record, err := decodeStableRecord(value)
	if err != nil {
		return err
	}
	b.writes = append(b.writes, record)
	return b.below.Set(key, value)
}

// spyOn puts itself between the stable values and the file.
func spyOn(s *Store) (*stableValues, *boltSets) {
	stable := s.stable.(*stableValues)
	spy := &boltSets{below: stable.bolt}
	stable.bolt = spy
	return stable, spy
}

// TestVoteIsStoredWhole plays raft#661: between the two calls that make a vote, a
// crash must leave the vote before it, not a new term with the old candidate.
func TestVoteIsStoredWhole(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	vote := func(s *Store) (uint64, string) {
		t.Helper()
		term, err := s.Stable().GetUint64([]byte(keyVoteTerm))
		candidate, candidateErr := s.Stable().Get([]byte(keyVoteCandidate))
		if err := errors.Join(err, candidateErr); err != nil {
			t.Fatal(err)
		}
		return term, string(candidate)
	}
	set := func(term uint64, candidate string) {
		t.Helper()
		if err := s.Stable().SetUint64([]byte(keyVoteTerm), term); err != nil {
			t.Fatal(err)
		}
		if candidate == "" {
			return
		}
		if err := s.Stable().Set([]byte(keyVoteCandidate), []byte(candidate)); err != nil {
			t.Fatal(err)
		}
	}
	_, spy := spyOn(s)
	set(4, "n2")
	if len(spy.writes) != 1 || len(spy.writes[0].values) != 2 {
		t.Fatalf("a vote took the writes %v", spy.writes)
	}
	set(5, "") // and here the power fails
	if term, candidate := vote(s); term != 4 || candidate != "n2" {
		t.Errorf("in between, the vote is %q in term %d", candidate, term)
	}
	closeStore(t, s)
	s = openStore(t, folder)
	if term, candidate := vote(s); term != 4 || candidate != "n2" {
		t.Errorf("after the crash, the vote is %q in term %d", candidate, term)
	}

	stable, spy := spyOn(s)
	spy.fail = full
	stable.reserve = nil
	if err := stable.SetUint64([]byte(keyVoteTerm), 6); err != nil {
		t.Fatal(err)
	}
	wantError(t, stable.Set([]byte(keyVoteCandidate), []byte("n3")), ErrFull)
	spy.fail = nil
	if err := stable.SetUint64([]byte(keyCurrentTerm), 6); err != nil {
		t.Fatal(err)
	}
	if term, candidate := vote(s); term != 4 || candidate != "n2" {
		t.Errorf("after a vote that failed, it is %q in term %d", candidate, term)
	}
	set(7, "n3")
	closeStore(t, s)
	if term, candidate := vote(openStore(t, folder)); term != 7 || candidate != "n3" {
		t.Errorf("at last, the vote is %q in term %d", candidate, term)
	}
}

func TestStableWriteThatFailsLeavesTheValueBefore(t *testing.T) {
	s := openStore(t, t.TempDir())
	stable, spy := spyOn(s)
	stable.reserve = nil
	if err := stable.SetUint64([]byte(keyCurrentTerm), 3); err != nil {
		t.Fatal(err)
	}
	spy.fail = full
	wantError(t, stable.SetUint64([]byte(keyCurrentTerm), 4), ErrFull)
	if term, err := stable.GetUint64([]byte(keyCurrentTerm)); err != nil || term != 3 {
		t.Errorf("the term is %d, error %v", term, err)
	}
	spy.fail = syscall.EIO
	wantError(t, stable.SetUint64([]byte(keyCurrentTerm), 4), ErrDamaged, raftFile)
}

// TestStableRecordThatIsTooOldIsDamage: an older state of the file is well-formed
// in itself; a node that took it for its own could vote twice.
func TestStableRecordThatIsTooOldIsDamage(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	old := s.stable.(*stableValues).now
	if err := s.Stable().SetUint64([]byte(keyCurrentTerm), 9); err != nil {
		t.Fatal(err)
	}
	if err := s.files.raft.Set(stableKey, old.encode()); err != nil { // behind the store's back
		t.Fatal(err)
	}
	closeStore(t, s)
	_, err := Open(Options{Folder: folder, NodeID: "n1"})
	wantError(t, err, ErrDamaged, raftFile, "term and vote")
}

func TestStableRecordTakesNoOtherBytes(t *testing.T) {
	record := stableRecord{generation: 7, values: map[string][]byte{keyCurrentTerm: {0, 0, 0, 0, 0, 0, 0, 9}, keyVoteCandidate: []byte("n2"), "": {}}}
	encoded := record.encode()
	decoded, err := decodeStableRecord(encoded)
	if err != nil || !bytes.Equal(decoded.encode(), encoded) || decoded.generation != 7 || len(decoded.values) != 3 {
		t.Fatalf("%+v, error %v", decoded, err)
	}
	for length := range encoded {
		if _, err := decodeStableRecord(encoded[:length]); err == nil {
			t.Errorf("%d of %d bytes were taken", length, len(encoded))
		}
	}
	for bit := range 8 * len(encoded) {
		flipped := slices.Clone(encoded)
		flipped[bit/8] ^= 1 << (bit % 8)
		if _, err := decodeStableRecord(flipped); err == nil {
			t.Errorf("taken with bit %d flipped", bit)
		}
	}
}
