package cluster

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cluster/raftlib"
	"github.com/signalbox/signalbox/cluster/requests"
	"github.com/signalbox/signalbox/fsm"
)

// TestCloseHasItsShares: all that Close waits for takes less than 5 s together.
func TestCloseHasItsShares(t *testing.T) {
	if sum := drainTimeout + handOverTimeout + 2*workTimeout + raftShutdownTimeout + portTimeout; sum >= 5*time.Second {
		t.Errorf("it may take %v", sum)
	}
}

// TestCloseIsBounded: within 5 s, whatever the other nodes and the disk do. In real
// time, on a busy machine, each share may end late.
func TestCloseIsBounded(t *testing.T) {
	hang := func(c *lifeNodes, leader *testNode, logs *hungLogs) {
		logs.hang()
		c.until("a write hangs", func() bool { return leader.store.StuckFor() > 0 }) // a tick at least
	}
	for name, disturb := range map[string]func(c *lifeNodes, leader *testNode, logs *hungLogs){
		"nothing": func(*lifeNodes, *testNode, *hungLogs) {},
		"the others are dead": func(c *lifeNodes, leader *testNode, _ *hungLogs) {
			for _, n := range c.others(leader) {
				c.kill(n)
			}
		},
		"cut off from the others": func(c *lifeNodes, leader *testNode, _ *hungLogs) {
			c.net.Isolate(leader.id)
		},
		"cut off for long": func(c *lifeNodes, leader *testNode, _ *hungLogs) {
			c.net.Isolate(leader.id)
			time.Sleep(10 * time.Second) // virtual
		},
		"the disk hangs": hang,
		"the disk hangs and the others are dead": func(c *lifeNodes, leader *testNode, logs *hungLogs) {
			hang(c, leader, logs) // alone, it could give up to lead before anything is written
			for _, n := range c.others(leader) {
				c.kill(n)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			hangs := strings.Contains(name, "hangs")
			run, limit := lifeBubble, 5*time.Second
			if hangs {
				t.Parallel()
				run, limit = lifeReal, 2*limit
			}
			run(t, 3, func(t *testing.T, c *lifeNodes) {
				logs := map[string]*hungLogs{}
				c.wrap = func(id string) func(raft.LogStore) raft.LogStore {
					logs[id] = &hungLogs{}
					return logs[id].wrap
				}
				c.begin(c.all...)
				c.ready(c.all...)
				c.semaphore("db", 1)
				leader := c.leader()
				session := c.open(leader, time.Minute)
				disturb(c, leader, logs[leader.id])
				call := background(t.Context(), leader, calls.Call{ // hangs, unless all is well
					Command: fsm.Acquire{Session: session, Name: "db", Count: 1, TTLMS: fsm.KeepTTL},
				})
				c.until("the call is under way", func() bool { return leader.requests.Count(requests.Sent) == 1 || len(call) == 1 })
				took, err := c.closeTook(leader)
				if took > limit {
					t.Errorf("closed after %v: %v", took, err)
				}
				t.Logf("closed after %v: %v", took, err)
				if hangs != (errors.Is(err, errRaftRuns) || errors.Is(err, raftlib.ErrNotStored)) || (!hangs && err != nil) {
					t.Errorf("closed with %v", err)
				}
				logs[leader.id].release()
				<-call
			})
		})
	}
}

// closingPort is a network, and its listener, that calls closes before the listener closes.
type closingPort struct {
	peer.Network
	net.Listener
	closes func()
}

func (p closingPort) Listen(address string) (_ net.Listener, err error) {
	p.Listener, err = p.Network.Listen(address)
	return p, err
}

func (p closingPort) Close() error {
	p.closes()
	return p.Listener.Close()
}

// TestPortClosesLast: a leader that stops in order hands over first; its port closes last, after its Raft has ended,
// even if it can't hand over, since a refused connection proves its death.
func TestPortClosesLast(t *testing.T) {
	for _, orderly := range []bool{true, false} {
		closes := func(string) {}
		inBubble(t, 3, func(t *testing.T, c *nodes) {
			n, state, handedOver := c.leader(), raft.Leader, false
			closes = func(id string) {
				if id == n.id {
					state, handedOver = n.raft().State(), c.others(n)[0].established() != nil || c.others(n)[1].established() != nil
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if !orderly {
				cancel()
			}
			c.must(n.Close(ctx))
			n.up = false
			if state != raft.Shutdown || handedOver != orderly {
				t.Errorf("in order: %v; when the port closes, Raft is %v, and another node leads: %v", orderly, state, handedOver)
			}
		}, func(config *Config) {
			config.Network = closingPort{Network: config.Network, closes: func() { closes(config.NodeID) }}
		})
	}
}

// TestCloseWhileRaftOpens: a node whose disk hangs while it opens Raft reports that it has
// not ended. When Raft opens after that, the node shuts it down.
func TestCloseWhileRaftOpens(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		n, logs := c.all[0], &hungLogs{}
		logs.hang()
		c.wrap = func(id string) func(raft.LogStore) raft.LogStore {
			if id == n.id {
				return logs.wrap
			}
			return func(below raft.LogStore) raft.LogStore { return below }
		}
		c.begin(c.all...)
		c.ready(c.all[1:]...)
		if took, err := c.closeTook(n); !errors.Is(err, errTasksRun) || took > workTimeout+portTimeout {
			t.Errorf("closed after %v: %v", took, err)
		}
		logs.release()
		n.tasks.Wait()
		if n.raft() != nil || n.store.Empty() {
			t.Errorf("Raft runs: %t, and had not come to the disk: %t", n.raft() != nil, n.store.Empty())
		}
	})
}
