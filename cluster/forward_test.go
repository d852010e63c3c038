package cluster

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/fsm"
)

// The limits of package forward that tests know.
const (
	linkSilence = 2 * time.Second // without a word that the sent frames have come
)

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

// TestManyResetsLoseNothing: under load, with a reset every now and then, each call is
// done once.
func TestManyResetsLoseNothing(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		leader, n := c.leader(), c.follower()
		c.net.Delay(n.id, leader.id, 3*time.Millisecond)
		c.net.Delay(leader.id, n.id, 2*time.Millisecond)
		const callers, each = 20, 100
		failures := make(chan error, callers)
		for range callers {
			go func() {
				for range each {
					if _, err := n.Do(t.Context(), calls.Call{Command: fsm.Up{Name: "a", Count: 1}}); err != nil {
						failures <- err
						return
					}
				}
				failures <- nil
			}()
		}
		resets := 0
		for done := 0; done < callers; {
			select {
			case err := <-failures:
				if err != nil {
					t.Error(err)
				}
				done++
			case <-time.After(time.Duration(37+13*(resets%7)) * time.Millisecond):
				c.net.Reset(n.id, leader.id)
				resets++
			}
		}
		if resets < 10 {
			t.Errorf("%d resets", resets)
		}
		if view, _ := c.read(n, "a"); view.Available != callers*each {
			t.Errorf("%d applied of %d, with %d resets", view.Available, callers*each, resets)
		}
	})
}
