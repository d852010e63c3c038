package cluster

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/raftlib"
	"github.com/signalbox/signalbox/cluster/requests"
	"github.com/signalbox/signalbox/fsm"
)

// TestCloseHandsOver: when the leader stops in order, another leads at once, without
// an election timeout, and the calls that waited return.
func TestCloseHandsOver(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		c.semaphore("db", 1)
		leader := c.leader()
		holder, waiter := c.open(leader, time.Minute), c.open(leader, time.Minute)
		c.do(leader, fsm.Acquire{Session: holder, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}, fsm.OK)
		waiting := background(t.Context(), leader, Call{
			Command: fsm.Acquire{Session: waiter, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}, Wait: time.Minute,
		})
		c.until("a waiter", func() bool {
			view, _ := c.read(leader, "db")
			return view.Waiters == 1
		})
		took, err := c.closeTook(leader)
		if err != nil || took > 500*time.Millisecond {
			t.Errorf("closed after %v: %v", took, err)
		}
		if got := <-waiting; got.err != nil || got.Code != fsm.Waiting {
			t.Errorf("the wait ended with %v, %v", got.Code, got.err)
		}
		began := time.Now()
		next := c.leader(leader)
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("another leader after %v", took)
		}
		c.do(next, fsm.Release{Session: holder, Name: "db"}, fsm.OK)
		if view, _ := c.read(next, "db"); view.Waiters != 0 || view.Held != 1 {
			t.Errorf("the place was lost: %+v", view)
		}
	})
}

// TestDrain: not ready, and no further call, while the node lives on.
func TestDrain(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		n := c.follower()
		n.Drain()
		if check := c.check(n, "draining"); check.OK || n.Ready() {
			t.Errorf("ready while draining: %+v", check)
		}
		if _, err := n.Do(t.Context(), Call{Command: fsm.CreateSemaphore{Name: "db", Permits: 1}}); !errors.Is(err, outcome.ErrDraining) {
			t.Errorf("a call while draining: %v", err)
		}
		leader := c.leader()
		if err := leader.TransferLeadership(t.Context(), n.id); !errors.Is(err, outcome.ErrNoTarget) {
			t.Errorf("leadership for a node that drains: %v", err)
		}
	})
}

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
		c.until("a write hangs", func() bool { return leader.store.StuckFor() > 0 }) // a tick, if nothing else
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
				call := background(t.Context(), leader, Call{ // hangs, unless all is well
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

// TestCloseBeforeTheClusterForms: a node that waits for its peers stops at once.
func TestCloseBeforeTheClusterForms(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		n := c.all[0]
		c.begin(n)
		time.Sleep(3 * time.Second) // virtual
		if took, err := c.closeTook(n); err != nil || took > time.Second {
			t.Errorf("closed after %v: %v", took, err)
		}
		if err := n.Close(context.Background()); err != nil {
			t.Errorf("closed again: %v", err)
		}
	})
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

// hungLogs makes a log's writes wait.
type hungLogs struct {
	raft.LogStore
	mu   sync.Mutex
	gate chan struct{} // nil: they don't
}

func (h *hungLogs) wrap(below raft.LogStore) raft.LogStore {
	h.LogStore = below
	return h
}

func (h *hungLogs) hang() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gate = make(chan struct{})
}

func (h *hungLogs) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gate != nil {
		close(h.gate)
		h.gate = nil
	}
}

func (h *hungLogs) pass() {
	h.mu.Lock()
	gate := h.gate
	h.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

func (h *hungLogs) StoreLog(entry *raft.Log) error {
	h.pass()
	return h.LogStore.StoreLog(entry)
}

func (h *hungLogs) StoreLogs(entries []*raft.Log) error {
	h.pass()
	return h.LogStore.StoreLogs(entries)
}
