package requests

import (
	"testing"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/lead"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
)

// lastApplied is the sink that keeps the last entry.
type lastApplied struct{ entry *fsm.Applied }

func (l *lastApplied) Applied(entry *fsm.Applied)            { l.entry = entry }
func (l *lastApplied) SnapshotRestored(*fsm.Machine, uint64) {}

// TestPlaceFromBehindASnapshot: the leader's word that a request waits may be about
// an index that the local machine has jumped over; the state shows how it ended.
func TestPlaceFromBehindASnapshot(t *testing.T) {
	m := replica.New(replica.Config{})
	var last lastApplied
	feed := m.FSM(replica.FSMConfig{Sinks: []replica.Sink{&last}, Fatal: func(err error) { t.Fatal(err) }})
	apply := func(index uint64, commands ...fsm.Command) *fsm.Applied {
		var encoded [][]byte
		for _, c := range commands {
			encoded = append(encoded, fsm.Envelope{Request: fsm.RequestID{Origin: 5, Sequence: index}, Key: ""}.Encode(c))
		}
		feed.Apply(&raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: replica.EncodeTermEntry(1, int64(index), encoded)})
		return last.entry
	}
	apply(1, fsm.CreateSemaphore{Name: "db", Permits: 1},
		fsm.OpenSession{Session: 1, TTLMS: 1000}, fsm.OpenSession{Session: 2, TTLMS: 1000},
		fsm.Acquire{Session: 1, Name: "db", Count: 1, TTLMS: fsm.KeepTTL})
	queued := apply(2, fsm.Acquire{Session: 2, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}).Commands[0].Result
	r := New(10, m)
	l := NewListener([]fsm.Want{{Semaphore: "db", Count: 1}})
	r.waits.listen(l, &queued, 2)
	r.restoredAt = 2
	r.Recheck(l, 2)
	if len(l.Concluded) != 0 {
		t.Fatal("it still waits")
	}
	apply(3, fsm.EndSession{Session: 1})
	r.SnapshotRestored(fsm.New(), 1)
	if len(l.Concluded) != 0 {
		t.Error("a state from before the wait has ended it")
	}
	r.SnapshotRestored(fsm.New(), 2)
	<-l.Concluded // the empty state does not know it
	r.restoredAt = 1
	if !r.JumpedOver(1) || r.JumpedOver(2) {
		t.Error("a snapshot at 1 hides what came up to 1")
	}
	r.waits.listen(l, &queued, 2)
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

// TestOldLeaseIsNoGrant: the leader says that a request waits, before this node's machine is there. A snapshot from
// before that, in which the session still has an earlier lease of the semaphore, does not end the wait.
func TestOldLeaseIsNoGrant(t *testing.T) {
	m := replica.New(replica.Config{})
	var last lastApplied
	feed := m.FSM(replica.FSMConfig{Sinks: []replica.Sink{&last}, Fatal: func(err error) { t.Fatal(err) }})
	var encoded [][]byte
	for i, c := range []fsm.Command{fsm.CreateSemaphore{Name: "db", Permits: 1}, fsm.OpenSession{Session: 1, TTLMS: 1000},
		fsm.Acquire{Session: 1, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}} {
		encoded = append(encoded, fsm.Envelope{Request: fsm.RequestID{Origin: 5, Sequence: uint64(i)}}.Encode(c))
	}
	feed.Apply(&raft.Log{Index: 1, Term: 1, Type: raft.LogCommand, Data: replica.EncodeTermEntry(1, 1, encoded)})
	if last.entry.Commands[2].Result.Code != fsm.OK {
		t.Fatalf("%+v", last.entry.Commands)
	}
	r := New(10, m)
	q := r.Build(fsm.Acquire{Session: 1, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}, fsm.Envelope{}, lead.ClassSingle, NewListener([]fsm.Want{{Semaphore: "db", Count: 1}}))
	r.Add(t.Context(), []*Request{q})
	r.MarkSent([]*Request{q}, 3, 0)
	r.Reply(q.ID.Sequence, 3, 0, &Settlement{Result: fsm.Result{Code: fsm.Waiting, Session: 1, Place: 42}, Index: 20})
	m.View(func(state *fsm.Machine) { r.SnapshotRestored(state, 1) })
	if len(q.Listener.Concluded) != 0 {
		t.Fatalf("the wait has ended with %+v", <-q.Listener.Concluded)
	}
	r.Applied(waitsApply(42, fsm.OK))
	if end := <-q.Listener.Concluded; end.Result.Code != fsm.OK || end.Lost {
		t.Errorf("%+v", end)
	}
}
