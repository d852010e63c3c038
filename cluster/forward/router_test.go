package forward

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/cluster/lead"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/requests"
	"github.com/signalbox/signalbox/fsm"
)

// movingNode is a node whose leader changes: itself, another node, or no node.
type movingNode struct {
	mu    sync.Mutex
	own   Term
	other *testLeader
}

func (n *movingNode) Leading() Term {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.own
}

func (n *movingNode) Leader() (address, id string, term uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.other == nil {
		return "", "", 0
	}
	return "n2:8711", "n2", n.other.number
}

func (n *movingNode) Dial(context.Context, string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.other == nil {
		return nil, outcome.ErrNoLeader
	}
	near, far := net.Pipe()
	go n.other.server.Serve(far)
	return near, nil
}

// follow changes the leader, at most one of the two.
func (n *movingNode) follow(self Term, other *testLeader) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.own, n.other = self, other
}

// TestRouterFollowsTheLeader: commands and reads go to this node's own term while it
// leads, then to the node that leads instead, and are held while no node does. A command
// that is held goes to the next leader.
func TestRouterFollowsTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there, node := newTestLeader(4), newTestLeader(5), &movingNode{}
		config := here.Config
		config.Self, config.Node, config.Pulse, config.Stopping = "n1", node, lead.NewPulse(), t.Context()
		r := NewRouter(config)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		running.Go(func() { r.Run(ctx) })
		follow := func(self Term, other *testLeader) {
			node.follow(self, other)
			r.Notify()
			synctest.Wait()
		}
		up := func() error {
			q := here.Requests.Build(fsm.Up{Name: "a", Count: 1}, fsm.Envelope{}, lead.ClassSingle, nil)
			return r.Submit(t.Context(), []*requests.Request{q})[0].Err()
		}
		check := func(when string, wantHere, wantThere int64) {
			t.Helper()
			if err := up(); err != nil {
				t.Errorf("%s: %v", when, err)
			}
			if here.value() != wantHere || there.value() != wantThere {
				t.Errorf("%s: %d applied here, %d there", when, here.value(), there.value())
			}
			if _, _, err := r.ReadIndex(t.Context()); err != nil {
				t.Errorf("%s: a read: %v", when, err)
			}
		}
		follow(here.testTerm, nil)
		check("this node leads", 1, 0)
		follow(nil, there)
		check("the other node leads", 1, 1)
		follow(nil, nil)
		began := time.Now()
		if err := up(); err != outcome.ErrNoLeader || time.Since(began) != HoldTimeout {
			t.Errorf("without a leader, after %v: %v", time.Since(began), err)
		}
		time.AfterFunc(time.Second, func() {
			node.follow(nil, there)
			r.Notify()
		})
		check("a leader comes after a second", 1, 2)
	})
}

// TestReadEndsWithItsCallerAndTheNode while there is no leader.
func TestReadEndsWithItsCallerAndTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopping, stop := context.WithCancel(t.Context())
		r := NewRouter(Config{Stopping: stopping})
		gone, cancel := context.WithTimeoutCause(t.Context(), time.Second, outcome.ErrBehind)
		defer cancel()
		if _, _, err := r.ReadIndex(gone); err != outcome.ErrBehind {
			t.Errorf("after the caller's end: %v", err)
		}
		stop()
		if _, _, err := r.ReadIndex(t.Context()); err != outcome.ErrDraining {
			t.Errorf("after the node's end: %v", err)
		}
	})
}

// hungNode is a node whose dials to the leader hang for a while and fail. It counts them.
type hungNode struct {
	movingNode
	dials int
}

func (n *hungNode) Dial(ctx context.Context, _ string) (net.Conn, error) {
	n.dials++
	time.Sleep(2 * routeSettled) // virtual
	return nil, outcome.ErrNoLeader
}

// TestRouterPausesAfterHungDials: a dial that hung for long is no route that was of use.
func TestRouterPausesAfterHungDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader, node := newTestLeader(4), &hungNode{}
		node.follow(nil, leader)
		config := leader.Config
		config.Self, config.Node, config.Pulse, config.Stopping = "n1", node, lead.NewPulse(), t.Context()
		const dials = 100
		ctx, stop := context.WithTimeout(t.Context(), dials*(2*routeSettled+routePauseMax))
		defer stop()
		NewRouter(config).Run(ctx)
		synctest.Wait()
		if node.dials > dials+5 { // the first pauses are shorter
			t.Errorf("%d dials; with the longest pause after each there is time for %d", node.dials, dials)
		}
	})
}
