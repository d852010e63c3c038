package offline

import (
	"testing"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

// addRestored adds to a folder what a leader has that dies inside a restore: a state at index
// 2000 which no entry follows.
func addRestored(t *testing.T, path string) {
	t.Helper()
	report, err := Inspect(path, 0)
	must(t, err)
	m := restoredState(t)
	s, err := store.Open(store.Options{Folder: path, NodeID: "n1", Journal: true})
	must(t, err)
	sink, err := s.Snapshots().Create(1, 2000, report.Folder.LastTerm, raft.Configuration{Servers: three.Servers}, 1, nil)
	must(t, err)
	must(t, replica.WriteSnapshot(sink, 2000, m.Freeze()))
	must(t, sink.Close())
	must(t, s.Close())
}

// restoredState is that state.
func restoredState(t *testing.T) *fsm.Machine {
	t.Helper()
	before, m := fsm.New(), fsm.New()
	for _, entry := range entriesOf(three, usual()...)[1:] {
		before.Apply(entry.Index, entry.Data[1:])
	}
	for _, entry := range entriesOf(three, fsm.CreateSemaphore{Name: "restored", Permits: 1})[1:] {
		m.Apply(entry.Index, entry.Data[1:])
	}
	must(t, m.Succeed(fsm.Succession{Own: before.StateHeader(), Index: 2000}))
	return m
}

// nextToken returns the token of a grant at an index.
func nextToken(m *fsm.Machine, index uint64) uint64 {
	applied := m.Apply(index, fsm.EncodeEntry(8000, [][]byte{
		fsm.Envelope{}.Encode(fsm.CreateSemaphore{Name: "new", Permits: 1}),
		fsm.Envelope{}.Encode(fsm.AcquireOnce{Session: 77, Name: "new", Count: 1, TTLMS: 9000}),
	}))
	return applied.Commands[1].Result.Grants[0].Token
}

// TestRecoveredTokensPassThoseOfALostRestore: the other nodes gave tokens with the state of the
// restore, and are lost; the survivor has it without the entry after it, or lacks it.
func TestRecoveredTokensPassThoseOfALostRestore(t *testing.T) {
	lost := nextToken(restoredState(t), 2001)
	for name, prepare := range map[string]func(t *testing.T, path string){"it has the state": addRestored, "it was down": func(*testing.T, string) {}} {
		path := madeFolder(t, entriesOf(three, usual()...), 7)
		prepare(t, path)
		made := recovered(t, path)
		state, _ := machineOf(t, path)
		if next := nextToken(state, made.Index+1); next <= lost {
			t.Errorf("%s: token %d after %d", name, next, lost)
		}
	}
}

// TestStateOfARestoreThatIsNotInForce is not the state of the folder: the report is of the state
// with which a node would go on, and of no state if the folder lacks it.
func TestStateOfARestoreThatIsNotInForce(t *testing.T) {
	log := entriesOf(three, usual()...)
	for name, c := range map[string]struct{ snapshot, cut uint64 }{
		"after a log": {0, 0}, "after a snapshot and a log": {7, 0}, "after a gap": {0, 4},
	} {
		path := madeFolder(t, log, c.snapshot)
		addRestored(t, path)
		if c.cut != 0 {
			s, err := store.Open(store.Options{Folder: path, NodeID: "n1", Journal: true})
			must(t, err)
			must(t, s.Logs().DeleteRange(1, c.cut))
			must(t, s.Close())
		}
		r, err := Inspect(path, 5)
		must(t, err)
		shown := r.Latest
		if shown == nil {
			shown = r.Committed
		}
		switch {
		case r.Folder.NotInForce != 2000:
			t.Errorf("%s: %+v", name, r.Folder)
		case c.cut != 0:
			if shown != nil || r.CommittedIndex != 0 {
				t.Errorf("%s: %+v at %d", name, shown, r.CommittedIndex)
			}
		case shown == nil || shown.Semaphores != 2 || shown.Leases != 2:
			t.Errorf("%s: %+v", name, shown)
		}
	}
}
