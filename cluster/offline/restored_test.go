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
	own, err := Inspect(path, 0)
	must(t, err)
	m := fsm.New()
	for _, entry := range entriesOf(three, fsm.CreateSemaphore{Name: "restored", Permits: 1})[1:] {
		m.Apply(entry.Index, entry.Data[1:])
	}
	must(t, m.Succeed(fsm.Succession{Own: m.Standing(), Index: 2000}))
	s, err := store.Open(store.Options{Folder: path, NodeID: "n1"})
	must(t, err)
	sink, err := s.Snapshots().Create(1, 2000, own.Folder.LastTerm, raft.Configuration{Servers: three.Servers}, 1, nil)
	must(t, err)
	must(t, replica.WriteSnapshot(sink, 2000, m.Freeze()))
	must(t, sink.Close())
	must(t, s.Close())
}

// TestStateOfARestoreThatIsNotInForce is not that of the folder: the report is of the state
// with which a node would go on, and of none if the folder lacks it.
func TestStateOfARestoreThatIsNotInForce(t *testing.T) {
	log := entriesOf(three, usual()...)
	for name, c := range map[string]struct{ snapshot, cut uint64 }{
		"after a log": {0, 0}, "after a snapshot and a log": {7, 0}, "after a gap": {0, 4},
	} {
		path := madeFolder(t, log, c.snapshot)
		addRestored(t, path)
		if c.cut != 0 {
			s, err := store.Open(store.Options{Folder: path, NodeID: "n1"})
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
