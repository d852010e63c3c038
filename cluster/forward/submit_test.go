package forward

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/signalbox/signalbox/cluster/lead"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/cluster/requests"
	"github.com/signalbox/signalbox/fsm"
)

// fakeRoute settles each request by a script: one line of verdicts for each time
// that requests are sent.
type fakeRoute struct {
	requests *requests.Registry
	script   [][]outcome.Verdict
	sent     [][]uint64 // sequences, each time
}

func (l *fakeRoute) send(reqs []*requests.Request) []*requests.Request {
	live, _ := l.requests.MarkSent(reqs, 3, 0)
	var sequences []uint64
	for i, q := range live {
		sequences = append(sequences, q.ID.Sequence)
		if v := l.script[len(l.sent)][i]; v.Fate != outcome.Unknown {
			l.requests.Reply(q.ID.Sequence, 3, 0, &requests.Settlement{Verdict: v, Index: uint64(len(l.sent) + 1)})
		}
	}
	l.sent = append(l.sent, sequences)
	return nil
}

func (l *fakeRoute) readIndex(context.Context) (uint64, int64, error) {
	return 0, 0, outcome.ErrNotApplied
}
func (l *fakeRoute) term() uint64          { return 3 }
func (l *fakeRoute) valid() bool           { return true }
func (l *fakeRoute) done() <-chan struct{} { return nil }
func (l *fakeRoute) close()                {}

// TestListsAreSentAgainFromTheFirstLost: only once all of the rest is certainly
// lost, so that a list stays in its order; else each command gets its own outcome.
func TestListsAreSentAgainFromTheFirstLost(t *testing.T) {
	in, refused, open := outcome.Verdict{}, outcome.Verdict{Fate: outcome.Refused}, outcome.Verdict{Fate: outcome.Unknown}
	full := outcome.Failed.Because(outcome.ErrStorageFull)
	for _, test := range []struct {
		name   string
		script [][]outcome.Verdict
		want   []error
		sent   string
	}{
		{"all at once", [][]outcome.Verdict{{in, in, in}}, []error{nil, nil, nil}, "[[1 2 3]]"},
		{"the rest again", [][]outcome.Verdict{{in, refused, refused}, {in, in}}, []error{nil, nil, nil}, "[[1 2 3] [2 3]]"},
		{"twice", [][]outcome.Verdict{{refused, refused, refused}, {in, in, refused}, {in}}, []error{nil, nil, nil}, "[[1 2 3] [1 2 3] [3]]"},
		{"a later one is in", [][]outcome.Verdict{{refused, in, refused}}, []error{outcome.ErrNotApplied, nil, outcome.ErrNotTried}, "[[1 2 3]]"},
		{"a later one is open", [][]outcome.Verdict{{refused, open, refused}}, []error{outcome.ErrNotApplied, outcome.ErrOutcomeUnknown, outcome.ErrNotTried}, "[[1 2 3]]"},
		{"the first is open", [][]outcome.Verdict{{open, refused, refused}}, []error{outcome.ErrOutcomeUnknown, outcome.ErrNotTried, outcome.ErrNotTried}, "[[1 2 3]]"},
		{"a full disk", [][]outcome.Verdict{{in, full, full}}, []error{nil, outcome.ErrStorageFull, outcome.ErrNotTried}, "[[1 2 3]]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := requests.New(10, replica.New(replica.Config{}))
				l := &fakeRoute{requests: r, script: test.script}
				router := NewRouter(Config{Requests: r})
				router.install(l)
				var reqs []*requests.Request
				for range test.want {
					reqs = append(reqs, r.Build(fsm.Up{Name: "a", Count: 1}, fsm.Envelope{}, lead.ClassSingle, nil))
				}
				for i, got := range router.Submit(t.Context(), reqs) {
					if got.Err() != test.want[i] {
						t.Errorf("%d: %v, want %v", i+1, got.Err(), test.want[i])
					}
				}
				if sent := fmt.Sprint(l.sent); sent != test.sent {
					t.Errorf("sent %s, want %s", sent, test.sent)
				}
				if kept := r.Count(requests.Held) + r.Count(requests.Sent); kept != 0 {
					t.Errorf("%d requests are kept", kept)
				}
			})
		})
	}
}
