package cluster

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster/forward"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cluster/requests"
	"github.com/signalbox/signalbox/fsm"
)

// The limits of package forward that tests know.
const (
	outcomeTimeout = 5 * time.Second // without any news of a command
	linkSilence    = 2 * time.Second // without a word that the sent frames have come
)

// TestHeldWithoutALeader: a command waits 5 s for a leader, goes to one that comes
// before that, and is dropped when its caller hangs up.
func TestHeldWithoutALeader(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		n := c.all[0]
		up := Call{Command: fsm.Up{Name: "a", Count: 1}}
		for _, other := range c.all[1:] {
			c.kill(other)
		}
		c.leaderless(n)
		began := time.Now()
		if _, err := n.Do(t.Context(), up); !errors.Is(err, outcome.ErrNoLeader) || time.Since(began) != forward.HoldTimeout {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Do(gone, up); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a caller that hung up: %v", err)
		}
		waiting := background(t.Context(), n, up)
		c.revive(c.all[1])
		if got := <-waiting; got.err != nil || got.Value != 1 {
			t.Fatalf("value %d, %v: the one that was dropped, or failed, was applied too", got.Value, got.err)
		}
	})
}

// TestHeldCommandsAreBounded: without a leader, too, there is a limit.
func TestHeldCommandsAreBounded(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		n := c.all[0]
		for _, other := range c.all[1:] {
			c.kill(other)
		}
		c.leaderless(n)
		up := Call{Command: fsm.Up{Name: "a", Count: 1}}
		for round := range 3 {
			var held []<-chan answer
			for range 20 {
				held = append(held, background(t.Context(), n, up))
			}
			c.until("all are held", func() bool { return n.requests.Count(requests.Held) == 20 })
			began := time.Now()
			if _, err := n.Do(t.Context(), up); !errors.Is(err, outcome.ErrOverloaded) || time.Since(began) != 0 {
				t.Fatalf("round %d, after %v: %v", round, time.Since(began), err)
			}
			for _, a := range held {
				if got := <-a; !errors.Is(got.err, outcome.ErrNoLeader) {
					t.Fatalf("round %d: %v", round, got.err)
				}
			}
		}
	}, func(c *Config) { c.QueueSize = 20 })
}

// TestLostReply: the leader has applied the command, but its reply is lost with
// the connection. The origin learns the outcome from its own machine.
func TestLostReply(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		leader, n := c.leader(), c.follower()
		c.net.Cut(leader.id, n.id) // from here on nothing comes back
		waiting := background(t.Context(), n, Call{Command: fsm.Up{Name: "a", Count: 1}})
		c.until("the leader's applying it", func() bool {
			value, _ := machineValue(leader.replica, "a")
			return value == 1
		})
		if len(waiting) != 0 {
			t.Fatal("answered through a cut: the test shows nothing")
		}
		c.net.Reset(leader.id, n.id)
		c.net.Heal(leader.id, n.id)
		if got := <-waiting; got.err != nil || got.Value != 1 {
			t.Fatalf("%+v, %v", got.Result, got.err)
		}
		if view, _ := c.read(n, "a"); view.Available != 1 {
			t.Fatalf("applied %d times", view.Available)
		}
	})
}

// TestLostCommand: a command is lost with the leader. The next StartTerm shows
// that it never was applied, so it is sent again, and applied once.
func TestLostCommand(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		leader, n := c.leader(), c.follower()
		c.net.Cut(n.id, leader.id) // it hears the leader, but is not heard
		waiting := background(t.Context(), n, Call{Command: fsm.Up{Name: "a", Count: 1}})
		c.until("it is sent", func() bool { return n.requests.Count(requests.Sent) == 1 })
		c.kill(leader)
		began := time.Now()
		if got := <-waiting; got.err != nil || got.Value != 1 {
			t.Fatalf("%+v, %v", got.Result, got.err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
		c.revive(leader)
		if view, _ := c.read(leader, "a"); view.Available != 1 {
			t.Fatalf("applied %d times", view.Available)
		}
	})
}

// TestIsolatedLeader: what an isolated leader has taken is open. When it comes
// back in time it learns that the entry is lost, and sends the command anew; until
// then it must not.
func TestIsolatedLeader(t *testing.T) {
	for name, test := range map[string]struct {
		isolated time.Duration
		want     error
	}{"in time": {3 * time.Second, nil}, "too late": {8 * time.Second, outcome.ErrOutcomeUnknown}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, c *nodes) {
				c.semaphore("a", 0)
				old := c.leader()
				c.net.Isolate(old.id)
				began := time.Now()
				waiting := background(t.Context(), old, Call{Command: fsm.Up{Name: "a", Count: 1}})
				next := c.leader(old)
				time.Sleep(test.isolated - time.Since(began)) // virtual: the partition
				c.net.Rejoin(old.id)
				got := <-waiting
				if !errors.Is(got.err, test.want) {
					t.Fatalf("after %v: %v", got.at.Sub(began), got.err)
				}
				if test.want != nil && got.at.Sub(began) != outcomeTimeout {
					t.Errorf("it took %v to say so", got.at.Sub(began))
				}
				time.Sleep(time.Second) // virtual: whatever might still come
				view, _ := c.read(next, "a")
				if applied := view.Available == 1; applied != (test.want == nil) || view.Available > 1 {
					t.Errorf("applied %d times", view.Available)
				}
			})
		})
	}
}

// lossyNetwork can lose the open streams to the leader alone, as a firewall loses
// single ones: bytes that are sent into them vanish.
type lossyNetwork struct {
	peer.Network
	losses atomic.Int64
}

func (n *lossyNetwork) Dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := n.Network.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	return &lossyConn{Conn: conn, network: n, opened: n.losses.Load()}, nil
}

// lossyConn is one stream, of one writer.
type lossyConn struct {
	net.Conn
	network *lossyNetwork
	opened  int64 // after so many losses
	kind    peer.StreamKind
}

func (c *lossyConn) Write(b []byte) (int, error) {
	if c.kind == 0 {
		c.kind = peer.StreamKind(b[8]) // behind the preamble's head
	}
	if c.kind == peer.StreamForward && c.opened < c.network.losses.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// TestLostStream: only the stream to the leader is lost, and neither end notices. The
// commands that were sent into it are sent again on another one.
func TestLostStream(t *testing.T) {
	var networks []*lossyNetwork
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		leader, n := c.leader(), c.follower()
		c.do(n, fsm.Up{Name: "a", Count: 1}, fsm.OK)
		term := leader.raft().CurrentTerm()
		for _, network := range networks {
			network.losses.Add(1)
		}
		began := time.Now()
		c.do(n, fsm.Up{Name: "a", Count: 1}, fsm.OK)
		if took := time.Since(began); took > linkSilence+100*time.Millisecond {
			t.Errorf("the lost command took %v", took)
		}
		began = time.Now()
		c.do(n, fsm.Up{Name: "a", Count: 1}, fsm.OK)
		if view, _ := c.read(n, "a"); view.Available != 3 {
			t.Errorf("applied %d times", view.Available)
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("the next command took %v", took)
		}
		if now := leader.raft().CurrentTerm(); now != term {
			t.Errorf("term %d has become %d: the test shows nothing", term, now)
		}
	}, func(c *Config) {
		networks = append(networks, &lossyNetwork{Network: c.Network})
		c.Network = networks[len(networks)-1]
	})
}
