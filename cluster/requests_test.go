package cluster

import (
	"slices"
	"testing"

	"github.com/signalbox/signalbox/fsm"
)

// requestsSent is a registry with one request that was sent in a term.
func requestsSent(t *testing.T, term uint64) (*requests, *request) {
	t.Helper()
	r := newRequests(10, newWaits())
	q := r.build(fsm.Up{Name: "a", Count: 1}, fsm.Envelope{})
	if r.add([]*request{q}) != 1 {
		t.Fatal("no room")
	}
	if live, ok := r.markSent([]*request{q}, term, 0); !ok || len(live) != 1 {
		t.Fatal("not sent")
	}
	return r, q
}

// requestsOutcome answers what a request has come to, if anything.
func requestsOutcome(q *request) (got outcome, any bool) {
	select {
	case got := <-q.outcome:
		return got, true
	default:
		return outcome{}, false
	}
}

func requestsApply(q *request, index uint64, result fsm.Result) *fsm.Applied {
	return &fsm.Applied{Index: index, NowMS: int64(index) * 10, Commands: []fsm.AppliedCommand{{Request: q.id, Result: result}}}
}

func TestRequestIsSettledByWhatComesFirst(t *testing.T) {
	r, q := requestsSent(t, 3)
	r.deliver(requestsApply(q, 7, fsm.Result{Value: 1}))
	if got, any := requestsOutcome(q); !any || got.err != nil || got.index != 7 || got.nowMS != 70 || got.result.Value != 1 {
		t.Fatalf("from the machine: %+v, %v", got, any)
	}
	r.reply(q.id.Sequence, 3, 0, outcome{result: fsm.Result{Value: 1}, index: 7})
	if got, any := requestsOutcome(q); any {
		t.Fatalf("twice: %+v", got)
	}
	r, q = requestsSent(t, 3)
	r.reply(q.id.Sequence, 3, 0, outcome{result: fsm.Result{Value: 2}, index: 8})
	r.deliver(requestsApply(q, 8, fsm.Result{Value: 2}))
	if got, any := requestsOutcome(q); !any || got.index != 8 {
		t.Fatalf("from the leader: %+v, %v", got, any)
	}
	if got, any := requestsOutcome(q); any {
		t.Fatalf("twice: %+v", got)
	}
	if len(r.own) != 0 {
		t.Error("a settled request is kept")
	}
}

// TestRequestOfAnotherBootIsNotOurs: ids are told apart by their origin.
func TestRequestOfAnotherBootIsNotOurs(t *testing.T) {
	r, q := requestsSent(t, 3)
	other := *q
	other.id.Origin++
	r.deliver(requestsApply(&other, 7, fsm.Result{}))
	if got, any := requestsOutcome(q); any {
		t.Fatalf("another's result: %+v", got)
	}
}

// TestReignIsEvidence: only a later term's reign entry shows that what was sent
// before is lost.
func TestReignIsEvidence(t *testing.T) {
	for _, test := range []struct {
		name        string
		sent, reign uint64
		lost        bool
	}{
		{"an earlier reign", 3, 2, false},
		{"the very reign", 3, 3, false},
		{"a later reign", 3, 4, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, q := requestsSent(t, test.sent)
			r.deliver(&fsm.Applied{Index: 9, Term: test.reign})
			got, any := requestsOutcome(q)
			if any != test.lost || any && got.err != errRefused {
				t.Fatalf("%+v, %v", got, any)
			}
			if !any {
				return
			}
			if live, ok := r.markSent([]*request{q}, test.reign, 0); !ok || len(live) != 1 {
				t.Fatal("it can't be sent again")
			}
			r.deliver(requestsApply(q, 10, fsm.Result{}))
			if got, any := requestsOutcome(q); !any || got.err != nil {
				t.Fatalf("sent again: %+v, %v", got, any)
			}
		})
	}
}

// TestAppliedBeforeTheReignEntry: the entry that names the new term may be the
// next one.
func TestAppliedBeforeTheReignEntry(t *testing.T) {
	r, q := requestsSent(t, 3)
	r.deliver(requestsApply(q, 8, fsm.Result{Value: 5}))
	r.deliver(&fsm.Applied{Index: 9, Term: 4})
	if got, any := requestsOutcome(q); !any || got.err != nil || got.result.Value != 5 {
		t.Fatalf("%+v, %v", got, any)
	}
}

// TestNothingIsSentInATermThatIsOver: there would be no evidence about it.
func TestNothingIsSentInATermThatIsOver(t *testing.T) {
	r := newRequests(10, newWaits())
	r.deliver(&fsm.Applied{Index: 9, Term: 4})
	q := r.build(fsm.Up{Name: "a", Count: 1}, fsm.Envelope{})
	r.add([]*request{q})
	if _, ok := r.markSent([]*request{q}, 3, 0); ok {
		t.Fatal("sent in term 3, although term 4 has begun")
	}
	if live, ok := r.markSent([]*request{q}, 4, 0); !ok || len(live) != 1 {
		t.Fatal("not sent in term 4")
	}
}

// TestRestoreHidesEvidence: what the machine jumped over may have had the id, so a
// later reign proves nothing; the leader's word still does.
func TestRestoreHidesEvidence(t *testing.T) {
	state := fsm.NewAtLevel(fsm.FeatureLevel)
	r, q := requestsSent(t, 3)
	r.restored(state)
	r.deliver(&fsm.Applied{Index: 9, Term: 4})
	if got, any := requestsOutcome(q); any {
		t.Fatalf("a jump passed for evidence: %+v", got)
	}
	r.reply(q.id.Sequence, 3, 0, outcome{err: errRefused})
	if got, any := requestsOutcome(q); !any || got.err != errRefused {
		t.Fatalf("the leader's word: %+v, %v", got, any)
	}
	r.markSent([]*request{q}, 4, 0)
	r.deliver(&fsm.Applied{Index: 10, Term: 5})
	if got, any := requestsOutcome(q); !any || got.err != errRefused {
		t.Fatalf("after it was sent again there is no jump: %+v, %v", got, any)
	}
}

// TestLateRefusalIsIgnored: one about a term in which the request is no more.
func TestLateRefusalIsIgnored(t *testing.T) {
	r, q := requestsSent(t, 3)
	r.deliver(&fsm.Applied{Index: 9, Term: 4})
	requestsOutcome(q)
	r.markSent([]*request{q}, 4, 0)
	r.reply(q.id.Sequence, 3, 0, outcome{err: errRefused})
	if got, any := requestsOutcome(q); any {
		t.Fatalf("a late refusal had it sent twice: %+v", got)
	}
}

// TestRefusalOfAnEarlierStreamIsIgnored: the fence of the next stream has had the
// request sent again, and what is refused late on the earlier one is not that.
func TestRefusalOfAnEarlierStreamIsIgnored(t *testing.T) {
	for _, late := range []error{errRefused, errLate, ErrOverloaded} {
		r := newRequests(10, newWaits())
		q := r.build(fsm.Up{Name: "a", Count: 1}, fsm.Envelope{})
		r.add([]*request{q})
		earlier, _ := r.openStream(3)
		r.markSent([]*request{q}, 3, earlier)
		next, open := r.openStream(3)
		r.fence(streamFence{term: 3, stream: next, index: 0})
		if got, any := requestsOutcome(q); !open || !any || got.err != errRefused {
			t.Fatalf("behind the fence: %+v, %v", got, any)
		}
		if live, ok := r.markSent([]*request{q}, 3, next); !ok || len(live) != 1 {
			t.Fatal("not sent again")
		}
		r.reply(q.id.Sequence, 3, earlier, outcome{err: late})
		if got, any := requestsOutcome(q); any {
			t.Errorf("%v on the earlier stream ends what is under way on the next: %+v", late, got)
		}
		r.reply(q.id.Sequence, 3, next, outcome{err: late})
		if _, any := requestsOutcome(q); !any {
			t.Errorf("%v on the stream itself changes nothing", late)
		}
	}
}

func TestRequestsAreBounded(t *testing.T) {
	r := newRequests(3, newWaits())
	var all []*request
	for range 5 {
		all = append(all, r.build(fsm.Up{Name: "a", Count: 1}, fsm.Envelope{}))
	}
	if room := r.add(all[:2]); room != 2 {
		t.Fatalf("room for %d", room)
	}
	if room := r.add(all[2:]); room != 1 {
		t.Fatalf("room for %d", room)
	}
	if was := r.drop(all[0]); was != requestHeld {
		t.Fatalf("dropped while %v", was)
	}
	if room := r.add(all[3:]); room != 1 {
		t.Fatalf("room for %d", room)
	}
	if live := r.live(slices.Clone(all[:3])); len(live) != 2 {
		t.Fatalf("%d live", len(live))
	}
	if live, _ := r.markSent(all[:1], 3, 0); len(live) != 0 {
		t.Fatal("one was sent that nobody waits for")
	}
}

// requestsGuest notes what it is answered.
type requestsGuest struct{ answers []uint64 }

func (g *requestsGuest) answer(_ *fsm.Result, index uint64, _ int64) {
	g.answers = append(g.answers, index)
}

func TestGuestsAreAnsweredOnce(t *testing.T) {
	r := newRequests(10, newWaits())
	id := fsm.RequestID{Origin: 5, Sequence: 6}
	first, second := &requestsGuest{}, &requestsGuest{}
	r.host(id, first)
	r.host(id, second) // sent again, on another stream
	r.unhost(id, first)
	for index := range uint64(2) {
		r.deliver(&fsm.Applied{Index: 7 + index, Commands: []fsm.AppliedCommand{{Request: id}}})
	}
	if len(first.answers) != 0 || len(second.answers) != 1 || second.answers[0] != 7 {
		t.Fatalf("%v, %v", first.answers, second.answers)
	}
}

// waitsApply ends a wait.
func waitsApply(place uint64, code fsm.Code) *fsm.Applied {
	return &fsm.Applied{Index: 20, NowMS: 200, Conclusions: []fsm.Conclusion{{Place: place, Result: fsm.Result{Code: code, Place: place}}}}
}

// TestListeningStartsWithTheResult: the entry that enqueues may be the one that
// grants, or the next, before the caller has run at all.
func TestListeningStartsWithTheResult(t *testing.T) {
	for name, deliver := range map[string]func(*requests, *request, fsm.Result){
		"machine": func(r *requests, q *request, waiting fsm.Result) {
			entry := requestsApply(q, 20, waiting)
			entry.Conclusions = waitsApply(waiting.Place, fsm.OK).Conclusions
			r.deliver(entry)
			r.waits.deliver(entry)
		},
		"leader": func(r *requests, q *request, waiting fsm.Result) {
			r.reply(q.id.Sequence, 3, 0, outcome{result: waiting, index: 20})
			r.waits.deliver(waitsApply(waiting.Place, fsm.OK))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRequests(10, newWaits())
			q := r.build(fsm.Acquire{Name: "a", Count: 1}, fsm.Envelope{})
			q.listener = newListener(nil)
			r.add([]*request{q})
			r.markSent([]*request{q}, 3, 0)
			deliver(r, q, fsm.Result{Code: fsm.Waiting, Place: 42})
			select {
			case end := <-q.listener.concluded:
				if end.result.Code != fsm.OK {
					t.Fatalf("%+v", end)
				}
			default:
				t.Fatal("the conclusion slipped through")
			}
			if got, _ := requestsOutcome(q); got.result.Code != fsm.Waiting {
				t.Fatalf("%+v", got)
			}
		})
	}
}

func TestSeveralListenForOnePlace(t *testing.T) {
	w := newWaits()
	var all []*listener
	for range 3 {
		l := newListener(nil)
		w.listen(l, &fsm.Result{Place: 42})
		all = append(all, l)
	}
	w.stop(all[2])
	w.deliver(waitsApply(43, fsm.OK))
	w.concluded(42, &conclusion{result: fsm.Result{Code: fsm.Deleted}})
	w.deliver(waitsApply(42, fsm.Deleted)) // the local machine comes second
	for i, l := range all[:2] {
		if len(l.concluded) != 1 {
			t.Fatalf("listener %d was told %d times", i, len(l.concluded))
		}
	}
	if len(all[2].concluded) != 0 || len(w.callers) != 0 {
		t.Fatal("one that has stopped was told, or is kept")
	}
}

// waitsStream notes the places that it is told of.
type waitsStream struct{ told []uint64 }

func (s *waitsStream) conclude(place uint64, _ *conclusion) { s.told = append(s.told, place) }

func TestStreamsWatchUntilTheyLeave(t *testing.T) {
	w := newWaits()
	stays, leaves, never := &waitsStream{}, &waitsStream{}, &waitsStream{}
	w.enter(stays)
	w.enter(leaves)
	for _, s := range []*waitsStream{stays, leaves, never, stays} {
		w.watch(42, s)
		w.watch(43, s)
	}
	w.leave(leaves)
	w.watch(43, leaves)
	w.deliver(waitsApply(42, fsm.OK))
	w.deliver(waitsApply(42, fsm.OK))
	if len(stays.told) != 1 || len(leaves.told) != 0 || len(never.told) != 0 {
		t.Fatalf("told: %v, %v, %v", stays.told, leaves.told, never.told)
	}
	w.leave(stays)
	if len(w.remote) != 0 || len(w.places) != 0 {
		t.Fatalf("kept: %v, %v", w.remote, w.places)
	}
}
