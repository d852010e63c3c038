package cluster

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/fsm"
)

// machineEntry is a log entry that creates a semaphore or adds to it.
func machineEntry(index, proposedIn, loggedIn uint64, command fsm.Command) *raft.Log {
	encoded := fsm.Envelope{Request: fsm.RequestID{Origin: 9, Sequence: index}, Key: ""}.Encode(command)
	return &raft.Log{Index: index, Term: loggedIn, Type: raft.LogCommand, Data: encodeEntry(proposedIn, int64(index), [][]byte{encoded})}
}

func machineValue(m *machine, name string) (value int64, found bool) {
	m.view(func(state *fsm.Machine) {
		view, ok := state.Semaphore(name)
		value, found = view.Available, ok
	})
	return value, found
}

// TestMachineSkipsOtherTerms: an entry counts only in the term that it was
// proposed in. The index moves on all the same.
func TestMachineSkipsOtherTerms(t *testing.T) {
	m := newMachine(hclog.NewNullLogger())
	var delivered []uint64
	m.deliver = func(a *fsm.Applied) { delivered = append(delivered, a.Index) }
	answers := m.ApplyBatch([]*raft.Log{
		machineEntry(1, 3, 3, fsm.CreateSemaphore{Name: "a", Permits: 1}),
		machineEntry(2, 3, 4, fsm.Up{Name: "a", Count: 1}),
		machineEntry(3, 4, 4, fsm.Up{Name: "a", Count: 10}),
	})
	if answers[0] != nil || answers[2] != nil {
		t.Errorf("answers: %v", answers)
	}
	if err, _ := answers[1].(error); err != errOtherTerm || !notApplied(err) {
		t.Errorf("the entry of another term: %v", answers[1])
	}
	if value, _ := machineValue(m, "a"); value != 11 {
		t.Errorf("value %d, want 11", value)
	}
	if len(delivered) != 2 || m.progress.reached.Load() != 3 {
		t.Errorf("delivered %v, at index %d", delivered, m.progress.reached.Load())
	}
}

// TestMachineCountsConfigurations: a read index may be that of a configuration.
func TestMachineCountsConfigurations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(hclog.NewNullLogger())
		m.ApplyBatch([]*raft.Log{machineEntry(1, 3, 3, fsm.CreateSemaphore{Name: "a", Permits: 1})})
		arrived := make(chan error, 1)
		go func() { arrived <- m.progress.await(t.Context(), 2) }()
		synctest.Wait()
		if len(arrived) != 0 {
			t.Fatal("it waited for nothing")
		}
		m.ApplyBatch([]*raft.Log{{Index: 2, Term: 3, Type: raft.LogConfiguration, Data: []byte("not ours to read")}})
		if err := <-arrived; err != nil {
			t.Fatal(err)
		}
		gone, cancel := context.WithTimeoutCause(t.Context(), time.Second, io.EOF)
		defer cancel()
		if err := m.progress.await(gone, 3); err != io.EOF {
			t.Fatalf("a wait that was given up: %v", err)
		}
		if len(m.progress.waiting) != 0 {
			t.Fatal("a wait that was given up is kept")
		}
	})
}

// TestMachineDeliversBeforeItsIndexShows: who waits for an index finds delivered
// what is up to it.
func TestMachineDeliversBeforeItsIndexShows(t *testing.T) {
	m := newMachine(hclog.NewNullLogger())
	m.deliver = func(a *fsm.Applied) {
		if reached := m.progress.reached.Load(); reached >= a.Index {
			t.Errorf("index %d shows before it was delivered", reached)
		}
		if _, found := machineValue(m, "a"); !found {
			t.Error("delivered before it was applied")
		}
	}
	m.Apply(machineEntry(1, 3, 3, fsm.CreateSemaphore{Name: "a", Permits: 1}))
	if m.progress.reached.Load() != 1 {
		t.Fatal("not applied")
	}
}

// machineSink is a snapshot in memory.
type machineSink struct {
	bytes.Buffer
	closed, cancelled bool
}

func (s *machineSink) ID() string    { return "test" }
func (s *machineSink) Cancel() error { s.cancelled = true; return nil }
func (s *machineSink) Close() error  { s.closed = true; return nil }

// machineSnapshot answers a snapshot's bytes.
func machineSnapshot(t *testing.T, m *machine) []byte {
	t.Helper()
	snapshot, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	sink := &machineSink{}
	if err := snapshot.Persist(sink); err != nil || !sink.closed {
		t.Fatalf("closed %v: %v", sink.closed, err)
	}
	snapshot.Release()
	return sink.Bytes()
}

func TestMachineSnapshotAndRestore(t *testing.T) {
	from := newMachine(hclog.NewNullLogger())
	from.ApplyBatch([]*raft.Log{
		machineEntry(1, 3, 3, fsm.CreateSemaphore{Name: "a", Permits: 7}),
		{Index: 2, Term: 3, Type: raft.LogConfiguration},
	})
	snapshot, err := from.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	from.Apply(machineEntry(3, 3, 3, fsm.Up{Name: "a", Count: 1})) // beside it
	sink := &machineSink{}
	if err := snapshot.Persist(sink); err != nil {
		t.Fatal(err)
	}
	to := newMachine(hclog.NewNullLogger())
	to.Apply(machineEntry(1, 3, 3, fsm.CreateSemaphore{Name: "b", Permits: 1}))
	var told uint64
	to.restored = func(state *fsm.Machine, index uint64) {
		told = index
		if to.progress.reached.Load() >= 2 {
			t.Error("the index shows before the restore was told")
		}
	}
	if err := to.Restore(io.NopCloser(bytes.NewReader(sink.Bytes()))); err != nil {
		t.Fatal(err)
	}
	if value, _ := machineValue(to, "a"); value != 7 {
		t.Errorf("value %d, want 7", value)
	}
	if _, found := machineValue(to, "b"); found {
		t.Error("the old state shines through")
	}
	// 2, that of the configuration, and not 1, that of the last command.
	if told != 2 || to.progress.reached.Load() != 2 {
		t.Errorf("told of index %d, at %d", told, to.progress.reached.Load())
	}
	if !bytes.Equal(machineSnapshot(t, to), sink.Bytes()) {
		t.Error("the restored machine writes another snapshot")
	}
}

// TestMachineRestoresWholeOrNotAtAll: damaged bytes change nothing.
func TestMachineRestoresWholeOrNotAtAll(t *testing.T) {
	from := newMachine(hclog.NewNullLogger())
	from.Apply(machineEntry(5, 3, 3, fsm.CreateSemaphore{Name: "a", Permits: 7}))
	whole := machineSnapshot(t, from)
	lying := bytes.Clone(whole)
	lying[snapshotHeader-1] = 4 // below the state's own index
	torn := whole[:len(whole)-1]
	flipped := bytes.Clone(whole)
	flipped[len(whole)/2] ^= 1
	for name, damaged := range map[string][]byte{
		"empty": nil, "short": whole[:5], "torn": torn, "flipped": flipped, "lying header": lying,
	} {
		to := newMachine(hclog.NewNullLogger())
		to.Apply(machineEntry(1, 3, 3, fsm.CreateSemaphore{Name: "b", Permits: 1}))
		if err := to.Restore(io.NopCloser(bytes.NewReader(damaged))); err == nil {
			t.Errorf("%s: restored", name)
		}
		if _, found := machineValue(to, "b"); !found || to.progress.reached.Load() != 1 {
			t.Errorf("%s: the state has changed", name)
		}
	}
}

// TestMachineHalts: once an entry can't be applied nothing is any more, nor is
// there a snapshot, and the process is told.
func TestMachineHalts(t *testing.T) {
	newer := machineEntry(2, 3, 3, fsm.Up{Name: "a", Count: 1})
	newer.Data[1] = 99 // the version of the entry
	noTerm := &raft.Log{Index: 2, Term: 3, Type: raft.LogCommand}
	for name, broken := range map[string]*raft.Log{"newer version": newer, "no term": noTerm} {
		m := newMachine(hclog.NewNullLogger())
		var fatal []error
		m.fatal = func(err error) { fatal = append(fatal, err) }
		m.Apply(machineEntry(1, 3, 3, fsm.CreateSemaphore{Name: "a", Permits: 1}))
		answers := m.ApplyBatch([]*raft.Log{broken, machineEntry(3, 3, 3, fsm.Up{Name: "a", Count: 1})})
		for _, a := range answers {
			if err, _ := a.(error); !errors.Is(err, errHalted) || notApplied(err) {
				t.Errorf("%s: %v", name, a)
			}
		}
		if len(fatal) != 1 || !errors.Is(fatal[0], errHalted) {
			t.Errorf("%s: the process was told %v", name, fatal)
		}
		if value, _ := machineValue(m, "a"); value != 1 || m.progress.reached.Load() != 1 {
			t.Errorf("%s: it went on to %d, at index %d", name, value, m.progress.reached.Load())
		}
		if _, err := m.Snapshot(); !errors.Is(err, errHalted) {
			t.Errorf("%s: a snapshot of what is not to be trusted: %v", name, err)
		}
		if err := m.Restore(io.NopCloser(bytes.NewReader(nil))); !errors.Is(err, errHalted) {
			t.Errorf("%s: restored: %v", name, err)
		}
	}
}

// TestMachineAsksForSnapshotsByBytes: after entries of so many bytes, and once for
// each time.
func TestMachineAsksForSnapshotsByBytes(t *testing.T) {
	m := newMachine(hclog.NewNullLogger())
	m.meter.base = 1 << 20
	asked := 0
	m.snapshotDue = func() { asked++ }
	big := make([][]byte, 4)
	for i := range big {
		// Malformed by what follows it: refused, alike everywhere.
		big[i] = append(fsm.Envelope{Request: fsm.RequestID{}, Key: ""}.Encode(fsm.Up{Name: "a"}), make([]byte, 10_000)...)
	}
	data := encodeEntry(3, 1, big)
	per := 1<<20/(len(data)+entryCost) + 1
	for index := range 3*per - 1 {
		m.Apply(&raft.Log{Index: uint64(index + 1), Term: 3, Type: raft.LogCommand, Data: data})
		if asked != (index+1)/per {
			t.Fatalf("after %d bytes it has asked %d times", (index+1)*len(data), asked)
		}
	}
	if _, err := m.Snapshot(); err != nil {
		t.Fatal(err)
	}
	m.Apply(&raft.Log{Index: uint64(3 * per), Term: 3, Type: raft.LogCommand, Data: data})
	if asked != 2 {
		t.Error("bytes from before the snapshot count")
	}
}

func TestChangesWakeTheirWatchers(t *testing.T) {
	c := newChanges()
	a, stopA := c.watch("a")
	again, stopAgain := c.watch("a")
	b, stopB := c.watch("b")
	c.deliver([]fsm.Effect{{Kind: fsm.EffectSessionEnded, Session: 4}, {Kind: fsm.EffectGranted, Semaphore: "a"}})
	for _, changed := range []<-chan struct{}{a, again} {
		select {
		case <-changed:
		default:
			t.Error("a watcher sleeps on")
		}
	}
	select {
	case <-b:
		t.Error("another semaphore's watcher was woken")
	default:
	}
	other, stopOther := c.watch("c")
	stopOther()
	c.wakeAll()
	select {
	case <-b:
	default:
		t.Error("a restore woke nobody")
	}
	select {
	case <-other:
		t.Error("one that has stopped was woken")
	default:
	}
	stopA()
	stopAgain()
	stopB()
	if len(c.watchers) != 0 {
		t.Errorf("%d watchers are kept", len(c.watchers))
	}
}

// TestIndexAndHashAreOneReading: also in the moment when an entry is applied and its
// index does not show yet, the index and the hash of a status belong together.
func TestIndexAndHashAreOneReading(t *testing.T) {
	m := newMachine(hclog.NewNullLogger())
	hashes := map[uint64][16]byte{}
	check := func(when string) {
		t.Helper()
		index, hash := m.reading()
		if want, known := hashes[index]; !known || hash != want {
			t.Errorf("%s: index %d with hash %x, want %x", when, index, hash, want)
		}
	}
	m.deliver = func(a *fsm.Applied) {
		m.view(func(state *fsm.Machine) { hashes[a.Index] = state.Hash() })
		check("before the index shows")
	}
	m.Apply(machineEntry(1, 3, 3, fsm.CreateSemaphore{Name: "a", Permits: 1}))
	m.Apply(machineEntry(2, 3, 3, fsm.Up{Name: "a", Count: 1}))
	check("afterwards")
	m.Apply(&raft.Log{Index: 3, Term: 3, Type: raft.LogConfiguration})
	hashes[3] = hashes[2]
	check("after a configuration")
}
