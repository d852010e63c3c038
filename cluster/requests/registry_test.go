package requests

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/lead"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
)

// sent returns a registry with one request that was sent in a term.
func sent(t *testing.T, term uint64) (*Registry, *Request) {
	t.Helper()
	r := New(10, replica.New(replica.Config{}))
	q := r.Build(fsm.Up{Name: "a", Count: 1}, fsm.Envelope{}, lead.ClassSingle, nil)
	if r.Add(t.Context(), []*Request{q}) != 1 {
		t.Fatal("no room")
	}
	if live, ok := r.MarkSent([]*Request{q}, term, 0); !ok || len(live) != 1 {
		t.Fatal("not sent")
	}
	return r, q
}

// settled returns the outcome of a request, if it has one.
func settled(q *Request) (got Settlement, any bool) {
	select {
	case got := <-q.Settled:
		return *got, true
	default:
		return Settlement{}, false
	}
}

func applies(q *Request, index uint64, result fsm.Result) *fsm.Applied {
	return &fsm.Applied{Index: index, NowMS: int64(index) * 10, Commands: []fsm.AppliedCommand{{Request: q.ID, Result: result}}}
}

func TestRequestIsSettledByWhatComesFirst(t *testing.T) {
	r, q := sent(t, 3)
	r.Applied(applies(q, 7, fsm.Result{Value: 1}))
	if got, any := settled(q); !any || got.Err() != nil || got.Index != 7 || got.NowMS != 70 || got.Result.Value != 1 {
		t.Fatalf("from the machine: %+v, %v", got, any)
	}
	r.Reply(q.ID.Sequence, 3, 0, &Settlement{Result: fsm.Result{Value: 1}, Index: 7})
	if got, any := settled(q); any {
		t.Fatalf("twice: %+v", got)
	}
	r, q = sent(t, 3)
	r.Reply(q.ID.Sequence, 3, 0, &Settlement{Result: fsm.Result{Value: 2}, Index: 8})
	r.Applied(applies(q, 8, fsm.Result{Value: 2}))
	if got, any := settled(q); !any || got.Index != 8 {
		t.Fatalf("from the leader: %+v, %v", got, any)
	}
	if got, any := settled(q); any {
		t.Fatalf("twice: %+v", got)
	}
	if len(r.requests) != 0 {
		t.Error("a settled request is kept")
	}
}

// TestRequestOfAnotherBootIsNotOurs: their origins keep ids apart.
func TestRequestOfAnotherBootIsNotOurs(t *testing.T) {
	r, q := sent(t, 3)
	other := *q
	other.ID.Origin++
	r.Applied(applies(&other, 7, fsm.Result{}))
	if got, any := settled(q); any {
		t.Fatalf("another's result: %+v", got)
	}
}

// TestLaterTermIsEvidence: only the first entry of a later term shows that a request
// sent before is lost.
func TestLaterTermIsEvidence(t *testing.T) {
	for _, test := range []struct {
		name       string
		sent, term uint64
		lost       bool
	}{
		{"an earlier term", 3, 2, false},
		{"the same term", 3, 3, false},
		{"a later term", 3, 4, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, q := sent(t, test.sent)
			r.Applied(&fsm.Applied{Index: 9, Term: test.term})
			got, any := settled(q)
			if any != test.lost || any && got.Fate != outcome.Refused {
				t.Fatalf("%+v, %v", got, any)
			}
			if !any {
				return
			}
			if live, ok := r.MarkSent([]*Request{q}, test.term, 0); !ok || len(live) != 1 {
				t.Fatal("it can't be sent again")
			}
			r.Applied(applies(q, 10, fsm.Result{}))
			if got, any := settled(q); !any || got.Err() != nil {
				t.Fatalf("sent again: %+v, %v", got, any)
			}
		})
	}
}

// TestAppliedBeforeTheLaterTerm: the entry that names the new term may be the
// next one.
func TestAppliedBeforeTheLaterTerm(t *testing.T) {
	r, q := sent(t, 3)
	r.Applied(applies(q, 8, fsm.Result{Value: 5}))
	r.Applied(&fsm.Applied{Index: 9, Term: 4})
	if got, any := settled(q); !any || got.Err() != nil || got.Result.Value != 5 {
		t.Fatalf("%+v, %v", got, any)
	}
}

// TestNothingIsSentInATermThatIsOver: there would be no evidence about it.
func TestNothingIsSentInATermThatIsOver(t *testing.T) {
	r := New(10, replica.New(replica.Config{}))
	r.Applied(&fsm.Applied{Index: 9, Term: 4})
	q := r.Build(fsm.Up{Name: "a", Count: 1}, fsm.Envelope{}, lead.ClassSingle, nil)
	r.Add(t.Context(), []*Request{q})
	if _, ok := r.MarkSent([]*Request{q}, 3, 0); ok {
		t.Fatal("sent in term 3, although term 4 has begun")
	}
	if live, ok := r.MarkSent([]*Request{q}, 4, 0); !ok || len(live) != 1 {
		t.Fatal("not sent in term 4")
	}
}

// TestNothingIsSentOnAStreamWithASuccessor: its fence would be no evidence of it.
func TestNothingIsSentOnAStreamWithASuccessor(t *testing.T) {
	r := New(10, replica.New(replica.Config{}))
	q := r.Build(fsm.Up{Name: "a", Count: 1}, fsm.Envelope{}, lead.ClassSingle, nil)
	r.Add(t.Context(), []*Request{q})
	first, _ := r.OpenStream(3)
	second, _ := r.OpenStream(3)
	if _, ok := r.MarkSent([]*Request{q}, 3, first); ok {
		t.Error("sent on the first stream, although there is a second one")
	}
	if live, ok := r.MarkSent([]*Request{q}, 3, second); !ok || len(live) != 1 {
		t.Error("not sent on the second stream")
	}
}

// TestRestoreHidesEvidence: the machine may have jumped over the id, so a
// later term is no proof; the leader's reply still does.
func TestRestoreHidesEvidence(t *testing.T) {
	state := fsm.New()
	r, q := sent(t, 3)
	r.SnapshotRestored(state, state.Index())
	r.Applied(&fsm.Applied{Index: 9, Term: 4})
	if got, any := settled(q); any {
		t.Fatalf("a jump passed for evidence: %+v", got)
	}
	r.Reply(q.ID.Sequence, 3, 0, &Settlement{Verdict: outcome.Verdict{Fate: outcome.Refused}})
	if got, any := settled(q); !any || got.Fate != outcome.Refused {
		t.Fatalf("the leader's word: %+v, %v", got, any)
	}
	r.MarkSent([]*Request{q}, 4, 0)
	r.Applied(&fsm.Applied{Index: 10, Term: 5})
	if got, any := settled(q); !any || got.Fate != outcome.Refused {
		t.Fatalf("after it was sent again there is no jump: %+v, %v", got, any)
	}
}

// TestFencePassesAtItsIndex: not before this node's machine has applied it, and only for commands
// of the streams before the fence's own.
func TestFencePassesAtItsIndex(t *testing.T) {
	r := New(10, replica.New(replica.Config{}))
	var all []*Request
	for range 2 {
		q := r.Build(fsm.Up{Name: "a", Count: 1}, fsm.Envelope{}, lead.ClassSingle, nil)
		stream, _ := r.OpenStream(3)
		r.Add(t.Context(), []*Request{q})
		if live, ok := r.MarkSent([]*Request{q}, 3, stream); !ok || len(live) != 1 {
			t.Fatal("not sent")
		}
		all = append(all, q)
	}
	r.Applied(&fsm.Applied{Index: 6})
	r.AddFence(Fence{Term: 3, Stream: 2, Index: 8})
	for index := uint64(7); index <= 9; index++ {
		if got, any := settled(all[0]); any {
			t.Fatalf("refused at index %d, although the fence is at 8: %+v", index-1, got)
		}
		if r.Applied(&fsm.Applied{Index: index}); index == 8 {
			break
		}
	}
	if got, any := settled(all[0]); !any || got.Fate != outcome.Refused {
		t.Errorf("at the fence: %+v, %v", got, any)
	}
	if got, any := settled(all[1]); any {
		t.Errorf("a command of the fence's own stream: %+v", got)
	}
}

// TestRequestOfACallerThatIsGoneIsNotSent: it would be carried out for no one.
func TestRequestOfACallerThatIsGoneIsNotSent(t *testing.T) {
	r := New(10, replica.New(replica.Config{}))
	var all []*Request
	gone, leave := context.WithCancel(t.Context())
	for _, caller := range []context.Context{t.Context(), gone} {
		q := r.Build(fsm.Up{Name: "a", Count: 1}, fsm.Envelope{}, lead.ClassSingle, nil)
		r.Add(caller, []*Request{q})
		all = append(all, q)
	}
	leave()
	if live, ok := r.MarkSent(all, 3, 0); !ok || len(live) != 1 || live[0] != all[0] {
		t.Errorf("%d are sent, %v", len(live), ok)
	}
	if r.Wanted(all[1]) || !r.Wanted(all[0]) {
		t.Error("the request of the caller that is gone counts as sent")
	}
}

// TestLateRefusalIsIgnored: one about a term in which the request is no more.
func TestLateRefusalIsIgnored(t *testing.T) {
	r, q := sent(t, 3)
	r.Applied(&fsm.Applied{Index: 9, Term: 4})
	settled(q)
	r.MarkSent([]*Request{q}, 4, 0)
	r.Reply(q.ID.Sequence, 3, 0, &Settlement{Verdict: outcome.Verdict{Fate: outcome.Refused}})
	if got, any := settled(q); any {
		t.Fatalf("a late refusal had it sent twice: %+v", got)
	}
}

// TestRefusalOfAnEarlierStreamIsIgnored: the fence of the next stream has had the
// request sent again, and a late refusal on the earlier one is not that.
func TestRefusalOfAnEarlierStreamIsIgnored(t *testing.T) {
	for _, late := range []outcome.Verdict{{Fate: outcome.Refused}, {Fate: outcome.Late}, outcome.Failed.Because(outcome.ErrOverloaded)} {
		r := New(10, replica.New(replica.Config{}))
		q := r.Build(fsm.Up{Name: "a", Count: 1}, fsm.Envelope{}, lead.ClassSingle, nil)
		r.Add(t.Context(), []*Request{q})
		earlier, _ := r.OpenStream(3)
		r.MarkSent([]*Request{q}, 3, earlier)
		next, open := r.OpenStream(3)
		r.AddFence(Fence{Term: 3, Stream: next, Index: 0})
		if got, any := settled(q); !open || !any || got.Fate != outcome.Refused {
			t.Fatalf("behind the fence: %+v, %v", got, any)
		}
		if live, ok := r.MarkSent([]*Request{q}, 3, next); !ok || len(live) != 1 {
			t.Fatal("not sent again")
		}
		r.Reply(q.ID.Sequence, 3, earlier, &Settlement{Verdict: late})
		if got, any := settled(q); any {
			t.Errorf("%v on the earlier stream ends what is under way on the next: %+v", late, got)
		}
		r.Reply(q.ID.Sequence, 3, next, &Settlement{Verdict: late})
		if _, any := settled(q); !any {
			t.Errorf("%v on the stream itself changes nothing", late)
		}
	}
}

func TestRequestsAreBounded(t *testing.T) {
	r := New(3, replica.New(replica.Config{}))
	var all []*Request
	for range 5 {
		all = append(all, r.Build(fsm.Up{Name: "a", Count: 1}, fsm.Envelope{}, lead.ClassSingle, nil))
	}
	if room := r.Add(t.Context(), all[:2]); room != 2 {
		t.Fatalf("room for %d", room)
	}
	if room := r.Add(t.Context(), all[2:]); room != 1 {
		t.Fatalf("room for %d", room)
	}
	if was := r.Drop(all[0]); was != Held {
		t.Fatalf("dropped while %v", was)
	}
	if room := r.Add(t.Context(), all[3:]); room != 1 {
		t.Fatalf("room for %d", room)
	}
	if live := r.StillHeld(slices.Clone(all[:3])); len(live) != 2 {
		t.Fatalf("%d live", len(live))
	}
	if live, _ := r.MarkSent(all[:1], 3, 0); len(live) != 0 {
		t.Fatal("a request without a caller was sent")
	}
}

// notedStream keeps the outcomes that are delivered to it.
type notedStream struct {
	replies []uint64 // the indexes
	ends    []uint64 // the places
}

func (s *notedStream) Deliver(d *Delivery) {
	for range d.Results {
		s.replies = append(s.replies, d.Index)
	}
	for _, e := range d.Conclusions {
		s.ends = append(s.ends, e.Place)
	}
}

func TestForwardedRequestsAreDeliveredOnce(t *testing.T) {
	r := New(10, replica.New(replica.Config{}))
	id := fsm.RequestID{Origin: 5, Sequence: 6}
	first, second := &notedStream{}, &notedStream{}
	r.AddForwarded(id, Forwarded{Stream: first})
	r.AddForwarded(id, Forwarded{Stream: second}) // sent again, on another stream
	r.RemoveForwarded(id, first)
	for index := range uint64(2) {
		r.Applied(&fsm.Applied{Index: 7 + index, Commands: []fsm.AppliedCommand{{Request: id}}})
	}
	if len(first.replies) != 0 || len(second.replies) != 1 || second.replies[0] != 7 {
		t.Fatalf("%v, %v", first.replies, second.replies)
	}
}

// reentrantStream asks the requests something while it gets a delivery.
type reentrantStream struct {
	r    *Registry
	open int
}

func (s *reentrantStream) Deliver(*Delivery) { s.open = s.r.OpenWaits() }

// TestDeliveriesAreHandedOverAfterTheLock: a stream that takes a lock
// and then asks for a request must not stop the apply goroutine.
func TestDeliveriesAreHandedOverAfterTheLock(t *testing.T) {
	r := New(10, replica.New(replica.Config{}))
	id := fsm.RequestID{Origin: 5, Sequence: 6}
	s := &reentrantStream{r: r, open: -1}
	r.AddForwarded(id, Forwarded{Stream: s})
	r.Applied(&fsm.Applied{Index: 7, Commands: []fsm.AppliedCommand{{Request: id}}})
	if s.open != 0 {
		t.Errorf("the stream counts %d waits", s.open)
	}
}

// TestOneEntryIsOneDelivery for each stream, with a forwarded command's place and the
// end of its wait.
func TestOneEntryIsOneDelivery(t *testing.T) {
	r := New(10, replica.New(replica.Config{}))
	got := map[string][]string{}
	streams := map[string]*countedStream{"n2": {name: "n2", got: got}, "n3": {name: "n3", got: got}}
	entry := waitsApply(42, fsm.OK)
	for _, name := range []string{"n2", "n3"} {
		r.AddStream(streams[name])
		for i := range uint64(2) {
			id := fsm.RequestID{Origin: uint64(name[1]), Sequence: i + 1}
			r.AddForwarded(id, Forwarded{Stream: streams[name], Listens: true})
			entry.Commands = append(entry.Commands, fsm.AppliedCommand{Request: id, Result: fsm.Result{Code: fsm.Waiting, Place: 41 + i}})
		}
	}
	r.Applied(entry)
	for name := range streams {
		if want := []string{"index 20: replies [1 2], ends [42]"}; !slices.Equal(got[name], want) {
			t.Errorf("%s got %q, want %q", name, got[name], want)
		}
	}
}

// countedStream notes each delivery.
type countedStream struct {
	name string
	got  map[string][]string
}

func (s *countedStream) Deliver(d *Delivery) {
	var replies, ends []uint64
	for _, r := range d.Results {
		replies = append(replies, r.Sequence)
	}
	for _, e := range d.Conclusions {
		ends = append(ends, e.Place)
	}
	s.got[s.name] = append(s.got[s.name], fmt.Sprintf("index %d: replies %v, ends %v", d.Index, replies, ends))
}

// waitsApply ends a wait.
func waitsApply(place uint64, code fsm.Code) *fsm.Applied {
	return &fsm.Applied{Index: 20, NowMS: 200, Conclusions: []fsm.Conclusion{{Place: place, Result: fsm.Result{Code: code, Place: place}}}}
}

// TestListeningStartsWithTheResult: the entry that enqueues may be the entry that
// grants, or the next, before the caller has run at all.
func TestListeningStartsWithTheResult(t *testing.T) {
	for name, deliver := range map[string]func(*Registry, *Request, fsm.Result){
		"machine": func(r *Registry, q *Request, waiting fsm.Result) {
			entry := applies(q, 20, waiting)
			entry.Conclusions = waitsApply(waiting.Place, fsm.OK).Conclusions
			r.Applied(entry)
		},
		"leader": func(r *Registry, q *Request, waiting fsm.Result) {
			r.Reply(q.ID.Sequence, 3, 0, &Settlement{Result: waiting, Index: 20})
			r.Applied(waitsApply(waiting.Place, fsm.OK))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := New(10, replica.New(replica.Config{}))
			q := r.Build(fsm.Acquire{Name: "a", Count: 1}, fsm.Envelope{}, lead.ClassSingle, NewListener(nil))

			r.Add(t.Context(), []*Request{q})
			r.MarkSent([]*Request{q}, 3, 0)
			deliver(r, q, fsm.Result{Code: fsm.Waiting, Place: 42})
			select {
			case end := <-q.Listener.Concluded:
				if end.Result.Code != fsm.OK {
					t.Fatalf("%+v", end)
				}
			default:
				t.Fatal("the Conclusion slipped through")
			}
			if got, _ := settled(q); got.Result.Code != fsm.Waiting {
				t.Fatalf("%+v", got)
			}
		})
	}
}

func TestSeveralListenForOnePlace(t *testing.T) {
	r := New(10, replica.New(replica.Config{}))
	var all []*Listener
	for range 3 {
		l := NewListener(nil)
		r.waits.listen(l, &fsm.Result{Place: 42}, 20)
		all = append(all, l)
	}
	r.Stop(all[2])
	r.Applied(waitsApply(43, fsm.OK))
	r.Conclude(42, Conclusion{Result: fsm.Result{Code: fsm.Deleted}})
	r.Applied(waitsApply(42, fsm.Deleted)) // the local machine comes second
	for i, l := range all[:2] {
		if len(l.Concluded) != 1 {
			t.Fatalf("Listener %d has %d conclusions", i, len(l.Concluded))
		}
	}
	if len(all[2].Concluded) != 0 || r.OpenWaits() != 0 {
		t.Fatal("one that has stopped has a Conclusion, or is kept")
	}
}

func TestStreamsWatchUntilTheyLeave(t *testing.T) {
	r := New(10, replica.New(replica.Config{}))
	stays, leaves, never := &notedStream{}, &notedStream{}, &notedStream{}
	r.AddStream(stays)
	r.AddStream(leaves)
	for _, s := range []*notedStream{stays, leaves, never, stays} {
		r.waits.watch(42, s)
		r.waits.watch(43, s)
	}
	r.RemoveStream(leaves)
	r.waits.watch(43, leaves)
	r.Applied(waitsApply(42, fsm.OK))
	r.Applied(waitsApply(42, fsm.OK))
	if len(stays.ends) != 1 || len(leaves.ends) != 0 || len(never.ends) != 0 {
		t.Fatalf("ends: %v, %v, %v", stays.ends, leaves.ends, never.ends)
	}
	r.RemoveStream(stays)
	if len(r.waits.streams) != 0 || len(r.waits.places) != 0 {
		t.Fatalf("kept: %v, %v", r.waits.streams, r.waits.places)
	}
}

// TestRefusedRequestIsHeldAgain: whoever refuses it, unless it has left anew since.
func TestRefusedRequestIsHeldAgain(t *testing.T) {
	r, q := sent(t, 3)
	again := func(term uint64) {
		t.Helper()
		if state, _, tried := r.Progress(q); state != Held || !tried || r.Wanted(q) || len(r.StillHeld([]*Request{q})) != 1 || r.Count(Held) != 1 {
			t.Fatalf("state %d, tried %v", state, tried)
		}
		if live, ok := r.MarkSent([]*Request{q}, term, 0); !ok || len(live) != 1 || !r.Wanted(q) || r.Count(Sent) != 1 {
			t.Fatal("not sent again")
		}
	}
	r.Unmark([]*Request{q})     // it did not leave
	r.RefuseHeld([]*Request{q}) // no leader has got it
	if got, any := settled(q); !any || got.Fate != outcome.Refused {
		t.Errorf("returned: %+v", got)
	}
	again(3)
	r.Failed(q, 3, 0, outcome.Verdict{Fate: outcome.Late})
	if r.TimesLate(q) != 1 {
		t.Errorf("%d times late", r.TimesLate(q))
	}
	again(4)
	r.Failed(q, 3, 0, outcome.Verdict{Fate: outcome.Refused}) // of the time before
	if state, _, _ := r.Progress(q); state != Sent {
		t.Error("an earlier refusal counts")
	}
	r.Failed(q, 4, 0, outcome.Failed.Because(outcome.ErrStorageFull))
	if got, any := settled(q); !any || got.Err() != outcome.ErrStorageFull || r.Count(Held)+r.Count(Sent) != 0 {
		t.Errorf("failed for good: %+v, %v", got, any)
	}
}

// TestLargeSessionsCostMore as long as they are large, also after a snapshot.
func TestLargeSessionsCostMore(t *testing.T) {
	m := replica.New(replica.Config{})
	r := New(10, m)
	feed := m.FSM(replica.FSMConfig{Sinks: []replica.Sink{r}, Fatal: func(err error) { t.Fatal(err) }})
	index := uint64(0)
	apply := func(c fsm.Command) {
		index++
		entry := replica.EncodeTermEntry(1, int64(index), [][]byte{fsm.Envelope{}.Encode(c)})
		feed.Apply(&raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: entry})
	}
	end := fsm.EndSession{Session: 5}
	small := r.Cost(end)
	apply(fsm.OpenSession{Session: 5, TTLMS: 60_000})
	for i := range largeRecords {
		name := fmt.Sprint("s", i)
		apply(fsm.CreateSemaphore{Name: name, Permits: 1})
		apply(fsm.Acquire{Session: 5, Name: name, Count: 1, TTLMS: fsm.KeepTTL})
	}
	if r.Cost(end) <= small {
		t.Errorf("the end of a large session costs %d, not more than %d", r.Cost(end), small)
	}
	fresh := New(10, m)
	m.View(func(state *fsm.Machine) { fresh.SnapshotRestored(state, index) })
	if fresh.Cost(end) != r.Cost(end) {
		t.Errorf("after a snapshot it costs %d, not %d", fresh.Cost(end), r.Cost(end))
	}
	apply(end)
	r.large.sizes.Range(func(session, _ any) bool {
		t.Errorf("session %d is known as large after its end", session)
		return true
	})
	if r.Cost(end) != small {
		t.Errorf("after the end it costs %d, not %d", r.Cost(end), small)
	}
}
