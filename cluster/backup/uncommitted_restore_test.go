package backup

import (
	"bytes"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

// TestGiveUp: a restored state goes only if it is the newest, no entry follows it, and what is
// before it is whole; and the folder can be opened after that.
func TestGiveUp(t *testing.T) {
	whole := func(index uint64) *fsm.Machine { return state(3, index) }
	restorePending := func(index uint64) *fsm.Machine {
		m := state(7, 9, fsm.CreateSemaphore{Name: "db", Permits: 3})
		must(t, m.Succeed(fsm.Succession{Own: whole(5).StateHeader(), Index: index}))
		return m
	}
	for name, c := range map[string]struct {
		from, to  uint64 // the log
		after     uint64 // an entry after it, or 0
		snapshots []*fsm.Machine
		gone      bool
	}{
		"after a log alone":              {1, 9, 0, []*fsm.Machine{restorePending(50)}, true},
		"after a snapshot and a log":     {6, 9, 0, []*fsm.Machine{whole(5), restorePending(50)}, true},
		"after a snapshot without a log": {0, 0, 0, []*fsm.Machine{whole(5), restorePending(50)}, false},
		"in an empty folder":             {0, 0, 0, []*fsm.Machine{restorePending(50)}, false},
		"after a gap":                    {7, 9, 0, []*fsm.Machine{whole(5), restorePending(50)}, false},
		"after a log cut off":            {2, 9, 0, []*fsm.Machine{restorePending(50)}, false},
		"with an entry after it":         {1, 9, 51, []*fsm.Machine{restorePending(50)}, false},
		"with a later state":             {1, 9, 0, []*fsm.Machine{restorePending(50), whole(60)}, false},
		"in force":                       {1, 9, 0, []*fsm.Machine{whole(50)}, false},
	} {
		options := store.Options{NodeID: "n1", Folder: t.TempDir(), Journal: true}
		s, err := store.Open(options)
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		must(err)
		add := func(index uint64) {
			t.Helper()
			must(s.Logs().StoreLog(&raft.Log{Index: index, Term: 3, Type: raft.LogCommand, Data: []byte("x")}))
		}
		for index := c.from; index <= c.to && index > 0; index++ {
			add(index)
		}
		for _, m := range c.snapshots {
			sink, err := s.Snapshots().Create(1, m.Index(), 3, raft.Configuration{}, 1, nil)
			must(err)
			var content bytes.Buffer
			must(replica.WriteSnapshot(&content, m.Index(), m.Freeze()))
			_, err = sink.Write(content.Bytes())
			must(err)
			must(sink.Close())
		}
		if c.after != 0 {
			add(c.after)
		}
		removed, err := DropUncommittedRestore(s)
		must(err)
		kept, err := s.Snapshots().List()
		must(err)
		if (removed != nil) != c.gone || len(kept) != len(c.snapshots) != c.gone {
			t.Errorf("%s: given up %v, kept %v", name, removed, kept)
		}
		if c.gone {
			add(c.to + 1) // the snapshot does not cover it any more
		}
		must(s.Close())
		if s, err = store.Open(options); err != nil && c.gone {
			t.Errorf("%s: opened again: %v", name, err)
		} else if err == nil {
			must(s.Close())
		}
	}
}
