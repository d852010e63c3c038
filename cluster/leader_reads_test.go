package cluster

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/raftlib"
	"github.com/signalbox/signalbox/fsm"
)

// TestReadIndexIsTheCommitIndex: the leader's own machine may be the slowest. What
// another node has acknowledged or shown already, no later read on the leader may
// deny, so that it waits for its machine.
func TestReadIndexIsTheCommitIndex(t *testing.T) {
	type slowNode struct {
		id      string
		release chan struct{}
	}
	var slow atomic.Pointer[slowNode]
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		leader, n := c.leader(), c.follower()
		c.read(leader, "a") // its machine is idle
		release := make(chan struct{})
		slow.Store(&slowNode{leader.id, release})
		got := c.do(n, fsm.Up{Name: "a", Count: 1}, fsm.OK)
		if leader.replica.Index() >= got.Index || leader.raft().CommitIndex() < got.Index {
			t.Fatal("the leader's machine is not the slowest: the test shows nothing")
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, node := range []*testNode{leader, n} {
			if at, err := node.Read(ctx, calls.Consistency{}); err == nil {
				t.Errorf("%s read index %d after %v, after %d was acknowledged", node.id, at.Index, time.Since(began), got.Index)
			}
		}
		close(release)
		for _, node := range c.all {
			if view, at := c.read(node, "a"); view.Available != 1 || at.Index < got.Index {
				t.Errorf("%s reads %d at index %d", node.id, view.Available, at.Index)
			}
		}
	}, func(c *Config) {
		id := c.NodeID
		c.firstSink = applying(func(*fsm.Applied) {
			if s := slow.Load(); s != nil && s.id == id {
				<-s.release
			}
		})
	})
}

// TestReadOfAnEarlierTerm: a read that began in a term of this node is not completed
// with that one's clock once another has come, though the round is confirmed.
func TestReadOfAnEarlierTerm(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		n := c.leader()
		earlier := n.established()
		c.must(n.TransferLeadership(t.Context(), ""))
		next := c.leader(n)
		c.must(next.TransferLeadership(t.Context(), n.id))
		if c.leader(next) != n || n.established() == earlier {
			t.Fatal("the node does not lead again: the test shows nothing")
		}
		if _, _, err := n.established().ReadIndex(t.Context()); err != nil {
			t.Errorf("in its term: %v", err)
		}
		if index, nowMS, err := earlier.ReadIndex(t.Context()); !errors.Is(err, raftlib.ErrTermOver) {
			t.Errorf("in an earlier one: index %d, cluster time %d, %v", index, nowMS, err)
		}
	})
}
