package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
)

// entryOf is a log entry that creates a semaphore or adds to it.
func entryOf(index, proposedIn, loggedIn uint64, command fsm.Command) *raft.Log {
	encoded := fsm.Envelope{Request: fsm.RequestID{Origin: 9, Sequence: index}, Key: ""}.Encode(command)
	return &raft.Log{Index: index, Term: loggedIn, Type: raft.LogCommand, Data: EncodeTermEntry(proposedIn, int64(index), [][]byte{encoded})}
}

// fedReplica is a replica with its feed. It notes the calls of the feed.
type fedReplica struct {
	*Replica
	*FSM
	applied  func(*fsm.Applied) // nil: not needed
	restored func(index uint64) // nil: not needed
	asked    func()             // called when a snapshot is due; nil: not needed
	fatal    []error
}

func newFedReplica() *fedReplica {
	r := &fedReplica{Replica: New(Config{})}
	r.FSM = r.Replica.FSM(FSMConfig{
		Sinks: []Sink{r}, Fatal: func(err error) { r.fatal = append(r.fatal, err) },
		SnapshotDue: func() {
			if r.asked != nil {
				r.asked()
			}
		},
	})
	return r
}

func (r *fedReplica) Applied(entry *fsm.Applied) {
	if r.applied != nil {
		r.applied(entry)
	}
}

func (r *fedReplica) SnapshotRestored(_ *fsm.Machine, index uint64) {
	if r.restored != nil {
		r.restored(index)
	}
}

func valueOf(r *Replica, name string) (value int64, found bool) {
	r.View(func(state *fsm.Machine) {
		view, ok := state.Semaphore(name)
		value, found = view.Available, ok
	})
	return value, found
}

// TestSkipsOtherTerms: an entry counts only in the term that it was
// proposed in. The index moves on all the same.
func TestSkipsOtherTerms(t *testing.T) {
	m := newFedReplica()
	var delivered []uint64
	m.applied = func(a *fsm.Applied) { delivered = append(delivered, a.Index) }
	responses := m.ApplyBatch([]*raft.Log{
		entryOf(1, 3, 3, fsm.CreateSemaphore{Name: "a", Permits: 1}),
		entryOf(2, 3, 4, fsm.Up{Name: "a", Count: 1}),
		entryOf(3, 4, 4, fsm.Up{Name: "a", Count: 10}),
		entryOf(4, 5, 4, fsm.Up{Name: "a", Count: 100}),
	})
	if responses[0] != nil || responses[2] != nil {
		t.Errorf("responses: %v", responses)
	}
	for _, i := range []int{1, 3} {
		if err, _ := responses[i].(error); err != outcome.ErrOtherTerm {
			t.Errorf("entry %d, of another term: %v", i+1, responses[i])
		}
	}
	if value, _ := valueOf(m.Replica, "a"); value != 11 {
		t.Errorf("value %d, want 11", value)
	}
	if len(delivered) != 2 || m.Index() != 4 {
		t.Errorf("delivered %v, at index %d", delivered, m.Index())
	}
}

// TestCountsConfigurations: a read index may be the index of a configuration.
func TestCountsConfigurations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFedReplica()
		m.ApplyBatch([]*raft.Log{entryOf(1, 3, 3, fsm.CreateSemaphore{Name: "a", Permits: 1})})
		arrived := make(chan error, 1)
		go func() { arrived <- m.Await(t.Context(), 2) }()
		synctest.Wait()
		if len(arrived) != 0 {
			t.Fatal("it waited for nothing")
		}
		m.ApplyBatch([]*raft.Log{{Index: 2, Term: 3, Type: raft.LogConfiguration, Data: []byte("not ours to read")}})
		must(t, <-arrived)
		gone, cancel := context.WithTimeoutCause(t.Context(), time.Second, io.EOF)
		defer cancel()
		if err := m.Await(gone, 3); err != io.EOF {
			t.Fatalf("a wait that was given up: %v", err)
		}
	})
}

// TestDeliversBeforeItsIndexShows: a caller that waits for an index finds everything
// up to it delivered.
func TestDeliversBeforeItsIndexShows(t *testing.T) {
	m := newFedReplica()
	m.applied = func(a *fsm.Applied) {
		if reached := m.Index(); reached >= a.Index {
			t.Errorf("index %d shows before it was delivered", reached)
		}
		if _, found := valueOf(m.Replica, "a"); !found {
			t.Error("delivered before it was applied")
		}
	}
	m.Apply(entryOf(1, 3, 3, fsm.CreateSemaphore{Name: "a", Permits: 1}))
	if m.Index() != 1 {
		t.Fatal("not applied")
	}
}

// snapshotSink is a snapshot in memory.
type snapshotSink struct {
	bytes.Buffer
	closed, cancelled bool
}

func (s *snapshotSink) ID() string    { return "test" }
func (s *snapshotSink) Cancel() error { s.cancelled = true; return nil }
func (s *snapshotSink) Close() error  { s.closed = true; return nil }

// snapshotOf returns a snapshot's bytes.
func snapshotOf(t *testing.T, m raft.FSM) []byte {
	t.Helper()
	snapshot, err := m.Snapshot()
	must(t, err)
	sink := &snapshotSink{}
	if err := snapshot.Persist(sink); err != nil || !sink.closed {
		t.Fatalf("closed %v: %v", sink.closed, err)
	}
	snapshot.Release()
	return sink.Bytes()
}

// sourceOf reads a snapshot's bytes.
func sourceOf(snapshot []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(snapshot)) }

func TestSnapshotAndRestore(t *testing.T) {
	from := newFedReplica()
	from.ApplyBatch([]*raft.Log{
		entryOf(1, 3, 3, fsm.CreateSemaphore{Name: "a", Permits: 7}),
		{Index: 2, Term: 3, Type: raft.LogConfiguration},
	})
	snapshot, err := from.Snapshot()
	must(t, err)
	from.Apply(entryOf(3, 3, 3, fsm.Up{Name: "a", Count: 1})) // beside it
	sink := &snapshotSink{}
	must(t, snapshot.Persist(sink))
	to := newFedReplica()
	to.Apply(entryOf(1, 3, 3, fsm.CreateSemaphore{Name: "b", Permits: 1}))
	var restoredAt uint64
	to.restored = func(index uint64) {
		restoredAt = index
		if to.Index() >= 2 {
			t.Error("the index shows before the sinks were called")
		}
	}
	must(t, to.Restore(sourceOf(sink.Bytes())))
	if value, _ := valueOf(to.Replica, "a"); value != 7 {
		t.Errorf("value %d, want 7", value)
	}
	if _, found := valueOf(to.Replica, "b"); found {
		t.Error("the old state shines through")
	}
	// The index of the configuration, 2, and not of the last command, 1.
	if restoredAt != 2 || to.Index() != 2 {
		t.Errorf("restored at index %d, at %d", restoredAt, to.Index())
	}
	if !bytes.Equal(snapshotOf(t, to), sink.Bytes()) {
		t.Error("the restored machine writes another snapshot")
	}
}

// pendingSnapshot returns the snapshot of a state from a backup, in the place of the state of r at
// an index.
func pendingSnapshot(t *testing.T, r *fedReplica, index uint64) []byte {
	t.Helper()
	file := fsm.New()
	for i, command := range []fsm.Command{
		fsm.StartTerm{Term: 9, Leader: "other", Limits: fsm.DefaultLimits(), Cluster: fsm.ClusterID{9}, Level: fsm.FeatureLevel},
		fsm.CreateSemaphore{Name: "restored", Permits: 7},
	} {
		file.Apply(uint64(i+1), fsm.EncodeEntry(5000, [][]byte{fsm.Envelope{}.Encode(command)}))
	}
	var header fsm.StateHeader
	r.View(func(m *fsm.Machine) { header = m.StateHeader() })
	must(t, file.Succeed(fsm.Succession{Own: header, Index: index}))
	var out bytes.Buffer
	must(t, WriteSnapshot(&out, index, file.Freeze()))
	return out.Bytes()
}

// TestPendingRestoreWaitsForAnEntry: no reader, sink or watcher sees a state from a backup
// before an entry follows it, of whichever kind; and then the sinks see it first.
func TestPendingRestoreWaitsForAnEntry(t *testing.T) {
	first := fsm.StartTerm{Term: 3, Leader: "n1", Limits: fsm.DefaultLimits(), Cluster: fsm.ClusterID{1}, Level: fsm.FeatureLevel}
	for name, next := range map[string]*raft.Log{
		"a command": entryOf(51, 3, 3, first), "a skipped one": entryOf(51, 2, 3, first), "a configuration": {Index: 51, Term: 3, Type: raft.LogConfiguration},
	} {
		r := newFedReplica()
		r.Apply(entryOf(1, 3, 3, first))
		r.Apply(entryOf(2, 3, 3, fsm.CreateSemaphore{Name: "own", Permits: 1}))
		changed, stop := r.Watch("own")
		restored := uint64(0)
		r.restored = func(index uint64) { restored = index }
		snapshot := pendingSnapshot(t, r, 50)
		must(t, r.Restore(sourceOf(snapshot)))
		if _, found := valueOf(r.Replica, "own"); !found || r.Index() != 2 || restored != 0 || len(changed) != 0 {
			t.Errorf("%s: the state shows before it is committed", name)
		}
		if r.NowMS() != 5000 {
			t.Errorf("%s: the next entry goes on from cluster time %d", name, r.NowMS())
		}
		if !bytes.Equal(snapshotOf(t, r), snapshot) {
			t.Errorf("%s: a snapshot meanwhile is another one", name)
		}
		r.Apply(next)
		if _, found := valueOf(r.Replica, "own"); found || r.Index() != 51 || restored != 50 || len(changed) != 1 {
			t.Errorf("%s: the state does not show once it is committed", name)
		}
		if _, err := r.EventsAfter(EventID{Index: 2}); !errors.Is(err, outcome.ErrHistoryGone) {
			t.Errorf("%s: the events before it: %v", name, err)
		}
		stop()
	}
}

// TestSnapshotIsDueOnceAPendingRestoreHasALeader, and only once: until then a restart would
// begin with the state before it.
func TestSnapshotIsDueOnceAPendingRestoreHasALeader(t *testing.T) {
	first := fsm.StartTerm{Term: 3, Leader: "n1", Limits: fsm.DefaultLimits(), Cluster: fsm.ClusterID{1}, Level: fsm.FeatureLevel}
	r, calls := newFedReplica(), 0
	r.asked = func() { calls++ }
	r.Apply(entryOf(1, 3, 3, first))
	must(t, r.Restore(sourceOf(pendingSnapshot(t, r, 50))))
	r.Apply(&raft.Log{Index: 51, Term: 3, Type: raft.LogConfiguration})
	if calls != 0 {
		t.Error("a snapshot is asked for that would have the pending restore too")
	}
	for index := uint64(52); index < 55; index++ {
		r.Apply(entryOf(index, 3, 3, first))
		if calls != 1 {
			t.Errorf("entry %d: a snapshot is asked for %d times", index, calls)
		}
	}
}

// TestPendingRestoreGivesWay to the snapshot of a leader that has gone on without it.
func TestPendingRestoreGivesWay(t *testing.T) {
	from, r := newFedReplica(), newFedReplica()
	from.Apply(entryOf(1, 3, 3, fsm.CreateSemaphore{Name: "later", Permits: 1}))
	r.Apply(entryOf(1, 3, 3, fsm.StartTerm{Term: 3, Leader: "n1", Limits: fsm.DefaultLimits(), Cluster: fsm.ClusterID{1}, Level: fsm.FeatureLevel}))
	must(t, r.Restore(sourceOf(pendingSnapshot(t, r, 50))))
	if r.FSM.pendingState == nil {
		t.Fatal("the test shows nothing")
	}
	must(t, r.Restore(sourceOf(snapshotOf(t, from))))
	r.Apply(entryOf(2, 3, 3, fsm.Up{Name: "later", Count: 1}))
	if value, _ := valueOf(r.Replica, "later"); value != 2 || r.NowMS() != 2 {
		t.Errorf("value %d at cluster time %d", value, r.NowMS())
	}
}

// TestRestoresWholeOrNotAtAll: damaged bytes do not change the state.
func TestRestoresWholeOrNotAtAll(t *testing.T) {
	from := newFedReplica()
	from.Apply(entryOf(5, 3, 3, fsm.CreateSemaphore{Name: "a", Permits: 7}))
	whole := snapshotOf(t, from)
	lying := bytes.Clone(whole)
	lying[snapshotHeader-1] = 4 // below the state's own index
	torn := whole[:len(whole)-1]
	flipped := bytes.Clone(whole)
	flipped[len(whole)/2] ^= 1
	for name, damaged := range map[string][]byte{
		"empty": nil, "short": whole[:5], "torn": torn, "flipped": flipped, "lying header": lying,
	} {
		to := newFedReplica()
		to.Apply(entryOf(1, 3, 3, fsm.CreateSemaphore{Name: "b", Permits: 1}))
		if err := to.Restore(sourceOf(damaged)); err == nil {
			t.Errorf("%s: restored", name)
		}
		if _, found := valueOf(to.Replica, "b"); !found || to.Index() != 1 {
			t.Errorf("%s: the state has changed", name)
		}
	}
}

// TestHalts: after an entry that can't be applied no other is applied and no snapshot is
// made, and the process gets the reason.
func TestHalts(t *testing.T) {
	newer := entryOf(2, 3, 3, fsm.Up{Name: "a", Count: 1})
	newer.Data[1] = 99 // the version of the entry
	noTerm := &raft.Log{Index: 2, Term: 3, Type: raft.LogCommand}
	for name, broken := range map[string]*raft.Log{"newer version": newer, "no term": noTerm} {
		m := newFedReplica()
		m.Apply(entryOf(1, 3, 3, fsm.CreateSemaphore{Name: "a", Permits: 1}))
		responses := m.ApplyBatch([]*raft.Log{broken, entryOf(3, 3, 3, fsm.Up{Name: "a", Count: 1})})
		for _, a := range responses {
			if err, _ := a.(error); !errors.Is(err, outcome.ErrHalted) {
				t.Errorf("%s: %v", name, a)
			}
		}
		if len(m.fatal) != 1 || !errors.Is(m.fatal[0], outcome.ErrHalted) {
			t.Errorf("%s: the process got %v", name, m.fatal)
		}
		if value, _ := valueOf(m.Replica, "a"); value != 1 || m.Index() != 1 {
			t.Errorf("%s: it went on to %d, at index %d", name, value, m.Index())
		}
		if _, err := m.Snapshot(); !errors.Is(err, outcome.ErrHalted) {
			t.Errorf("%s: a snapshot of what is not to be trusted: %v", name, err)
		}
		if err := m.Restore(sourceOf(nil)); !errors.Is(err, outcome.ErrHalted) {
			t.Errorf("%s: restored: %v", name, err)
		}
	}
}

// TestAsksForSnapshotsByBytes: after entries of so many bytes, and once for
// each time.
func TestAsksForSnapshotsByBytes(t *testing.T) {
	m := newFedReplica()
	m.meter.base = 1 << 20
	calls := 0
	m.asked = func() { calls++ }
	big := make([][]byte, 4)
	for i := range big {
		// Malformed by the bytes behind it: refused, alike everywhere.
		big[i] = append(fsm.Envelope{Request: fsm.RequestID{}, Key: ""}.Encode(fsm.Up{Name: "a"}), make([]byte, 10_000)...)
	}
	data := EncodeTermEntry(3, 1, big)
	per := 1<<20/(len(data)+entryCost) + 1
	for index := range 3*per - 1 {
		m.Apply(&raft.Log{Index: uint64(index + 1), Term: 3, Type: raft.LogCommand, Data: data})
		if calls != (index+1)/per {
			t.Fatalf("after %d bytes it has asked %d times", (index+1)*len(data), calls)
		}
	}
	if _, err := m.Snapshot(); err != nil {
		t.Fatal(err)
	}
	m.Apply(&raft.Log{Index: uint64(3 * per), Term: 3, Type: raft.LogCommand, Data: data})
	if calls != 2 {
		t.Error("bytes from before the snapshot count")
	}
}

// TestChangesWakeTheirWatchers: an entry wakes the watchers of the semaphores that it
// changed, and of the wait lists that it made worth a look.
func TestChangesWakeTheirWatchers(t *testing.T) {
	r := newFedReplica()
	a, stopA := r.Watch("a")
	b, stopB := r.Watch("b")
	defer stopA()
	defer stopB()
	r.notifySinks(&fsm.Applied{Effects: []fsm.Effect{{Kind: fsm.EffectSessionEnded, Session: 4}, {Kind: fsm.EffectGranted, Semaphore: "a"}}})
	if len(a) != 1 || len(b) != 0 {
		t.Errorf("the changed semaphore's watcher has %d signals, another one's %d", len(a), len(b))
	}
	ended, stopEnded := r.Listen(4)
	emptied, stopEmptied := r.Listen(5)
	refused, stopRefused := r.Listen(6)
	defer stopEnded()
	defer stopEmptied()
	defer stopRefused()
	r.notifySinks(&fsm.Applied{
		Effects: []fsm.Effect{{Kind: fsm.EffectSessionEnded, Session: 4}},
		Commands: []fsm.AppliedCommand{
			{Op: fsm.OpListDeliver, Result: fsm.Result{Code: fsm.OK, Session: 5}},
			{Op: fsm.OpListDeliver, Result: fsm.Result{Code: fsm.NothingReady, Session: 6}},
		},
	})
	if len(ended) != 1 || len(emptied) != 1 || len(refused) != 0 {
		t.Errorf("signals for an ended session %d, an emptied list %d, an unchanged one %d", len(ended), len(emptied), len(refused))
	}
	must(t, r.Restore(sourceOf(snapshotOf(t, r))))
	if len(b) != 1 || len(refused) != 1 {
		t.Errorf("a restore set %d and %d signals, want one each", len(b), len(refused))
	}
}

// TestIndexAndHashAreOneReading: also in the moment when an entry is applied and its
// index does not show yet, the index and the hash of a status belong together.
func TestIndexAndHashAreOneReading(t *testing.T) {
	m := newFedReplica()
	hashes := map[uint64][16]byte{}
	check := func(when string) {
		t.Helper()
		index, hash := m.Reading()
		if want, known := hashes[index]; !known || hash != want {
			t.Errorf("%s: index %d with hash %x, want %x", when, index, hash, want)
		}
	}
	m.applied = func(a *fsm.Applied) {
		m.View(func(state *fsm.Machine) { hashes[a.Index] = state.Hash() })
		check("before the index shows")
	}
	m.Apply(entryOf(1, 3, 3, fsm.CreateSemaphore{Name: "a", Permits: 1}))
	m.Apply(entryOf(2, 3, 3, fsm.Up{Name: "a", Count: 1}))
	check("afterwards")
	m.Apply(&raft.Log{Index: 3, Term: 3, Type: raft.LogConfiguration})
	hashes[3] = hashes[2]
	check("after a configuration")
}

// orderSink notes its calls.
type orderSink struct {
	name  string
	calls *[]string
	r     *Replica
	watch <-chan struct{} // a watcher of the replica
}

func (s orderSink) Applied(entry *fsm.Applied) {
	if len(s.watch) != 0 {
		*s.calls = append(*s.calls, s.name+" came after a watcher")
	}
	*s.calls = append(*s.calls, fmt.Sprintf("%s applied %d at %d", s.name, entry.Index, s.r.Index()))
}

func (s orderSink) TermBegan(entry *fsm.Applied) {
	*s.calls = append(*s.calls, fmt.Sprintf("%s began term %d at %d", s.name, entry.Term, s.r.Index()))
}

func (s orderSink) Configured(entry *raft.Log) {
	*s.calls = append(*s.calls, fmt.Sprintf("%s configured %d at %d", s.name, entry.Index, s.r.Index()))
}

func (s orderSink) SnapshotRestored(state *fsm.Machine, index uint64) {
	*s.calls = append(*s.calls, fmt.Sprintf("%s restored %d, %d at %d", s.name, state.Index(), index, s.r.Index()))
}

// TestFeedCallsItsSinksInOrder: with entries of the machine alone, with snapshots, and
// all before the index shows; the cluster's with configurations and first entries of terms.
func TestFeedCallsItsSinksInOrder(t *testing.T) {
	r := New(Config{})
	var calls []string
	changed, stop := r.Watch("a")
	defer stop()
	f := r.FSM(FSMConfig{
		Cluster: orderSink{"cluster", &calls, r, changed},
		Sinks:   []Sink{orderSink{"first", &calls, r, changed}, orderSink{"second", &calls, r, changed}},
		Fatal:   func(err error) { t.Fatal(err) }, SnapshotDue: func() {},
	})
	f.ApplyBatch([]*raft.Log{
		entryOf(1, 3, 3, fsm.StartTerm{Term: 3, Leader: "n1", Cluster: fsm.ClusterID{1: 7}, Limits: fsm.DefaultLimits()}),
		entryOf(2, 3, 4, fsm.Up{Name: "a", Count: 1}), // of another term
		{Index: 3, Term: 4, Type: raft.LogConfiguration},
		entryOf(4, 4, 4, fsm.CreateSemaphore{Name: "a", Permits: 1}),
		{Index: 5, Term: 4, Type: raft.LogConfiguration},
	})
	must(t, f.Restore(sourceOf(snapshotOf(t, f))))
	want := []string{
		"cluster began term 3 at 0", "first applied 1 at 0", "second applied 1 at 0",
		"cluster configured 3 at 2", "first applied 4 at 3", "second applied 4 at 3", "cluster configured 5 at 4",
		"cluster restored 4, 5 at 5", "first restored 4, 5 at 5", "second restored 4, 5 at 5",
	}
	if len(changed) == 0 {
		t.Error("the watcher was not woken")
	}
	if !slices.Equal(calls, want) {
		t.Errorf("the sinks were called as %q, want %q", calls, want)
	}
}

// TestAdmitsTheLevelInForce: a command is admitted up to the level of the state, from the first
// moment on, also after an entry and a snapshot.
func TestAdmitsTheLevelInForce(t *testing.T) {
	command := fsm.Envelope{}.Encode(fsm.DeleteSemaphore{Name: "a"})
	newer := bytes.Clone(command)
	newer[0]++ // the level that it names
	r, restored, empty := newFedReplica(), newFedReplica(), newFedReplica()
	r.Apply(entryOf(1, 3, 3, fsm.StartTerm{Term: 3, Leader: "n1", Cluster: fsm.ClusterID{7}, Level: fsm.FeatureLevel, Limits: fsm.DefaultLimits()}))
	must(t, restored.Restore(sourceOf(snapshotOf(t, r))))
	for name, r := range map[string]*fedReplica{"empty": empty, "raised": r, "restored": restored} {
		if err := r.Admits(command); err != nil || r.Level() != fsm.FeatureLevel {
			t.Errorf("%s, at level %d: %v", name, r.Level(), err)
		}
		if err := r.Admits(newer); err != outcome.ErrBelowLevel {
			t.Errorf("%s: a command of the next level: %v", name, err)
		}
	}
}

// must ends a test upon an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
