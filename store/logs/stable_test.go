package logs

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store/damage"
	"github.com/signalbox/signalbox/test/storetest"
)

func TestStableKeepsTheContractOfRaft(t *testing.T) {
	eachKind(t, func(t *testing.T, open func(...func(*Config)) *testStores) {
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
			storetest.Must(t, stable.Set([]byte("key"), []byte(value)))
			if got, err := stable.Get([]byte("key")); err != nil || string(got) != value {
				t.Errorf("got %q, error %v; want %q", got, err, value)
			}
		}
		for _, number := range []uint64{0, 1, 1<<64 - 1} {
			storetest.Must(t, stable.SetUint64([]byte("number"), number))
			if got, err := stable.GetUint64([]byte("number")); err != nil || got != number {
				t.Errorf("got %d, error %v; want %d", got, err, number)
			}
		}
	})
}

func TestStableValuesAreNotShared(t *testing.T) {
	stable := openLogs(t, t.TempDir()).Stable()
	value := []byte("value")
	storetest.Must(t, stable.Set([]byte("key"), value))
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

// boltSets remembers the writes to the file, and can fail.
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
func spyOn(s *testStores) (*stableValues, *boltSets) {
	stable := s.stable.(*stableValues)
	spy := &boltSets{below: stable.bolt}
	stable.bolt = spy
	return stable, spy
}

// TestVoteIsStoredWhole plays raft#661: between the two calls that make a vote, a
// crash must leave the vote before it, not a new term with the old candidate.
func TestVoteIsStoredWhole(t *testing.T) {
	folder := t.TempDir()
	s := openLogs(t, folder)
	vote := func(s *testStores) (uint64, string) {
		t.Helper()
		term, err := s.Stable().GetUint64([]byte(keyVoteTerm))
		candidate, candidateErr := s.Stable().Get([]byte(keyVoteCandidate))
		storetest.Must(t, errors.Join(err, candidateErr))
		return term, string(candidate)
	}
	set := func(term uint64, candidate string) {
		t.Helper()
		storetest.Must(t, s.Stable().SetUint64([]byte(keyVoteTerm), term))
		if candidate == "" {
			return
		}
		storetest.Must(t, s.Stable().Set([]byte(keyVoteCandidate), []byte(candidate)))
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
	s.close(t)
	s = openLogs(t, folder)
	if term, candidate := vote(s); term != 4 || candidate != "n2" {
		t.Errorf("after the crash, the vote is %q in term %d", candidate, term)
	}

	stable, spy := spyOn(s)
	spy.fail = storetest.Full
	storetest.Must(t, stable.SetUint64([]byte(keyVoteTerm), 6))
	storetest.WantError(t, stable.Set([]byte(keyVoteCandidate), []byte("n3")), damage.ErrFull)
	spy.fail = nil
	storetest.Must(t, stable.SetUint64([]byte(keyCurrentTerm), 6))
	if term, candidate := vote(s); term != 4 || candidate != "n2" {
		t.Errorf("after a vote that failed, it is %q in term %d", candidate, term)
	}
	set(7, "n3")
	s.close(t)
	if term, candidate := vote(openLogs(t, folder)); term != 7 || candidate != "n3" {
		t.Errorf("at last, the vote is %q in term %d", candidate, term)
	}
}

func TestStableWriteThatFailsLeavesTheValueBefore(t *testing.T) {
	s := openLogs(t, t.TempDir())
	stable, spy := spyOn(s)
	storetest.Must(t, stable.SetUint64([]byte(keyCurrentTerm), 3))
	spy.fail = storetest.Full
	storetest.WantError(t, stable.SetUint64([]byte(keyCurrentTerm), 4), damage.ErrFull)
	if term, err := stable.GetUint64([]byte(keyCurrentTerm)); err != nil || term != 3 {
		t.Errorf("the term is %d, error %v", term, err)
	}
	spy.fail = syscall.EIO
	storetest.WantError(t, stable.SetUint64([]byte(keyCurrentTerm), 4), damage.ErrDamaged, FileName)
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

// TestTermIsStoredOnAFullDisk takes all room away, also what bbolt has free inside its
// file, so that only the reserve is left.
func TestTermIsStoredOnAFullDisk(t *testing.T) {
	s := openLogs(t, t.TempDir())
	s.reserve.held = true
	stable, spy := spyOn(s)
	stable.bolt = setFunc(func(key, value []byte) error {
		if s.reserve.held {
			return storetest.Full
		}
		return spy.Set(key, value)
	})
	storetest.Must(t, stable.SetUint64([]byte(keyCurrentTerm), 7))
	spy.fail = storetest.Full
	storetest.WantError(t, stable.SetUint64([]byte(keyCurrentTerm), 8), damage.ErrFull) // it was used up
}

type setFunc func(key, value []byte) error

func (f setFunc) Set(key, value []byte) error { return f(key, value) }

// TestVoteIsOneWrite holds a real election: Raft's names of the vote's parts,
// which it doesn't export, are those that stableValues puts together.
func TestVoteIsOneWrite(t *testing.T) {
	s := openLogs(t, t.TempDir())
	_, spy := spyOn(s)
	address, transport := raft.NewInmemTransport("")
	config, won := raft.DefaultConfig(), make(chan bool, 8)
	config.LocalID, config.NotifyCh, config.Logger = "n1", won, hclog.NewNullLogger()
	config.HeartbeatTimeout, config.ElectionTimeout, config.LeaderLeaseTimeout = 200*time.Millisecond, 200*time.Millisecond, 100*time.Millisecond
	first, kept := raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: address}}}, raft.NewInmemSnapshotStore()
	storetest.Must(t, raft.BootstrapCluster(config, s.Logs(), s.Stable(), kept, transport, first))
	node, err := raft.NewRaft(config, &raft.MockFSM{}, s.Logs(), s.Stable(), kept, transport)
	storetest.Must(t, err)
	select {
	case <-won:
	case <-time.After(20 * time.Second):
		t.Error("it doesn't win")
	}
	storetest.Must(t, node.Shutdown().Error())
	spy.mu.Lock()
	defer spy.mu.Unlock()
	votes := 0
	before := stableRecord{}
	for _, record := range spy.writes {
		changed := map[string]bool{}
		for key, value := range record.values {
			if !bytes.Equal(before.values[key], value) {
				changed[key] = true
			}
			if key != keyCurrentTerm && key != keyVoteTerm && key != keyVoteCandidate {
				t.Errorf("Raft keeps a value %q that this package doesn't know", key)
			}
		}
		if changed[keyVoteTerm] {
			votes++
		}
		if changed[keyVoteTerm] != changed[keyVoteCandidate] {
			t.Errorf("a vote was written in parts: %v, then %v", before.values, record.values)
		}
		before = record
	}
	if votes == 0 {
		t.Errorf("no vote was seen in %v", spy.writes)
	}
}

// TestEachStableWriteHasAGeneration: it rises by one with each write, in the file and at the
// witness, so that no older record passes for the last one.
func TestEachStableWriteHasAGeneration(t *testing.T) {
	folder := t.TempDir()
	s := openLogs(t, folder, withoutJournal)
	for generation := uint64(2); generation <= 6; generation++ { // the first is a new folder's
		storetest.Must(t, s.Stable().SetUint64([]byte(keyCurrentTerm), 7))
		if s.witness.stable != generation {
			t.Errorf("the witness has seen generation %d and not %d", s.witness.stable, generation)
		}
	}
	s.close(t)
	if found, err := Read(folder, false); err != nil || found.Generation() != 6 || found.Term() != 7 {
		t.Errorf("the file has generation %d, term %d, error %v", found.Generation(), found.Term(), err)
	}
}
