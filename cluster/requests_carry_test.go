package cluster

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/fsm"
)

// fakeLane answers each request by a script: one line of errors for each time
// that requests are sent, nil for a result.
type fakeLane struct {
	requests *requests
	script   [][]error
	sent     [][]uint64 // sequences, each time
}

func (l *fakeLane) send(reqs []*request) []*request {
	live, _ := l.requests.markSent(reqs, 3, 0)
	var sequences []uint64
	for i, q := range live {
		sequences = append(sequences, q.id.Sequence)
		if err := l.script[len(l.sent)][i]; err != errOpen {
			l.requests.reply(q.id.Sequence, 3, 0, outcome{err: err, index: uint64(len(l.sent) + 1)})
		}
	}
	l.sent = append(l.sent, sequences)
	return nil
}

func (l *fakeLane) read(context.Context) (uint64, int64, error) { return 0, 0, errRefused }
func (l *fakeLane) term() uint64                                { return 3 }
func (l *fakeLane) valid() bool                                 { return true }
func (l *fakeLane) done() <-chan struct{}                       { return nil }
func (l *fakeLane) close()                                      {}

// TestListsAreSentAgainFromTheFirstLost: only once all of the rest is certainly
// lost, so that a list stays in its order; else what is certain is told.
func TestListsAreSentAgainFromTheFirstLost(t *testing.T) {
	for _, test := range []struct {
		name   string
		script [][]error
		want   []error
		sent   string
	}{
		{"all at once", [][]error{{nil, nil, nil}}, []error{nil, nil, nil}, "[[1 2 3]]"},
		{"the rest again", [][]error{{nil, errRefused, errRefused}, {nil, nil}}, []error{nil, nil, nil}, "[[1 2 3] [2 3]]"},
		{"twice", [][]error{{errRefused, errRefused, errRefused}, {nil, nil, errRefused}, {nil}}, []error{nil, nil, nil}, "[[1 2 3] [1 2 3] [3]]"},
		{"a later one is in", [][]error{{errRefused, nil, errRefused}}, []error{ErrNotApplied, nil, ErrNotTried}, "[[1 2 3]]"},
		{"a later one is open", [][]error{{errRefused, errOpen, errRefused}}, []error{ErrNotApplied, ErrOutcomeUnknown, ErrNotTried}, "[[1 2 3]]"},
		{"the first is open", [][]error{{errOpen, errRefused, errRefused}}, []error{ErrOutcomeUnknown, ErrNotTried, ErrNotTried}, "[[1 2 3]]"},
		{"a full disk", [][]error{{nil, ErrStorageFull, ErrStorageFull}}, []error{nil, ErrStorageFull, ErrNotTried}, "[[1 2 3]]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRequests(10, newWaits())
				l := &fakeLane{requests: r, script: test.script}
				c := &carrier{requests: r, router: &router{log: hclog.NewNullLogger(), requests: r, current: l, changed: make(chan struct{})}}
				var reqs []*request
				for range test.want {
					reqs = append(reqs, r.build(fsm.Up{Name: "a", Count: 1}, fsm.Envelope{}))
				}
				for i, got := range c.carry(t.Context(), reqs) {
					if got.err != test.want[i] {
						t.Errorf("%d: %v, want %v", i+1, got.err, test.want[i])
					}
				}
				if sent := fmt.Sprint(l.sent); sent != test.sent {
					t.Errorf("sent %s, want %s", sent, test.sent)
				}
				if len(r.own) != 0 {
					t.Errorf("%d requests are kept", len(r.own))
				}
			})
		})
	}
}
