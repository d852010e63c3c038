package requests

import (
	"testing"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
)

// lastApplied is the sink that keeps the last entry.
type lastApplied struct{ entry *fsm.Applied }

func (l *lastApplied) Applied(entry *fsm.Applied)    { l.entry = entry }
func (l *lastApplied) Restored(*fsm.Machine, uint64) {}

// TestPlaceFromBehindASnapshot: the leader's word that a request waits may be about
// an index that the local machine has jumped over; the state shows how it ended.
func TestPlaceFromBehindASnapshot(t *testing.T) {
	m := replica.New(replica.Config{})
	var last lastApplied
	feed := m.Feed(replica.FeedConfig{Sinks: []replica.Sink{&last}, Fatal: func(err error) { t.Fatal(err) }})
	apply := func(index uint64, commands ...fsm.Command) *fsm.Applied {
		var encoded [][]byte
		for _, c := range commands {
			encoded = append(encoded, fsm.Envelope{Request: fsm.RequestID{Origin: 5, Sequence: index}, Key: ""}.Encode(c))
		}
		feed.Apply(&raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: replica.EncodeEntry(1, int64(index), encoded)})
		return last.entry
	}
	apply(1, fsm.CreateSemaphore{Name: "db", Permits: 1},
		fsm.OpenSession{Session: 1, TTLMS: 1000}, fsm.OpenSession{Session: 2, TTLMS: 1000},
		fsm.Acquire{Session: 1, Name: "db", Count: 1, TTLMS: fsm.KeepTTL})
	queued := apply(2, fsm.Acquire{Session: 2, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}).Commands[0].Result
	r := New(10, m)
	l := NewListener([]fsm.Want{{Semaphore: "db", Count: 1}})
	r.waits.listen(l, &queued)
	r.restoredAt = 2
	r.Recheck(l, 2)
	if len(l.Concluded) != 0 {
		t.Fatal("it still waits")
	}
	apply(3, fsm.EndSession{Session: 1})
	r.Restored(fsm.NewAtLevel(fsm.FeatureLevel), 1)
	if !r.JumpedOver(1) || r.JumpedOver(2) {
		t.Error("a snapshot at 1 hides what came up to 1")
	}
	<-l.Concluded // the empty state does not know it
	r.waits.listen(l, &queued)
	r.Recheck(l, 2)
	if len(l.Concluded) != 0 {
		t.Fatal("it was looked up though no snapshot hides its end")
	}
	r.Recheck(l, 1)
	if len(l.Concluded) != 1 {
		t.Fatal("it was not looked up though a snapshot may hide its end")
	}
	if end := <-l.Concluded; end.Lost || end.Result.Code != fsm.OK || end.Index != 3 {
		t.Fatalf("%+v", end)
	}
	r.Recheck(l, 1) // it does not listen any more
	if len(l.Concluded) != 0 || r.OpenWaits() != 0 {
		t.Fatal("concluded twice")
	}
}
