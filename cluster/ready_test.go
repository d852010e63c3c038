package cluster

import (
	"iter"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
)

// stale returns a semaphore as a node has it.
func stale(n *testNode, name string) (view fsm.SemaphoreView, ok bool) {
	n.View(func(m *fsm.Machine) { view, ok = m.Semaphore(name) })
	return view, ok
}

// TestReadOfAnEarlierLeaderProvesNothing: it began before the leader was lost.
func TestReadOfAnEarlierLeaderProvesNothing(t *testing.T) {
	p := &readProof{running: &raftParts{}, lost: 2}
	if p.judge(readResult{lost: 1}); p.running.caughtUp.Load() != nil {
		t.Error("a read that began with an earlier leader counts")
	}
	if p.judge(readResult{lost: 2}); p.running.caughtUp.Load() == nil {
		t.Error("a read that began with this leader does not count")
	}
}

func TestStatus(t *testing.T) {
	formedBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.semaphore("db", 1)
		leader := c.leader()
		dead := c.others(leader)[0]
		c.kill(dead)
		for i := range 30 {
			c.do(leader, fsm.Up{Name: "db", Count: int64(i + 1)}, fsm.OK)
		}
		time.Sleep(10 * time.Second) // virtual
		for _, n := range c.others(dead) {
			s := n.Status()
			if s.Node != n.id || s.Leader != leader.id || s.Term != leader.raft().CurrentTerm() || s.CommitIndex == 0 ||
				s.AppliedIndex != s.CommitIndex || s.StateHash != leader.Status().StateHash || s.StateHash == [16]byte{} {
				t.Errorf("%s says %+v", n.id, s)
			}
			if !s.Majority() || len(s.Members) != 3 {
				t.Fatalf("%s knows %d members", n.id, len(s.Members))
			}
			for i, m := range s.Members {
				want := Member{ID: c.all[i].id, Address: c.all[i].id + ":8711", Voter: true, Leader: m.ID == leader.id, State: MemberUp, Knows: fsm.FeatureLevel}
				if m.ID == dead.id {
					want.State = MemberDown
				}
				switch {
				case m.ID == dead.id && (m.LastContact < 10*time.Second || m.LastContact > 12*time.Second):
					t.Errorf("%s says the dead node answered %v ago", n.id, m.LastContact)
				case m.ID == n.id && m.LastContact != 0, m.ID != dead.id && m.LastContact > 2*probe.WatchEvery+time.Second:
					t.Errorf("%s says %s answered %v ago", n.id, m.ID, m.LastContact)
				}
				if m.ID != dead.id && m.Lag != 0 {
					t.Errorf("%s says %s trails by %d", n.id, m.ID, m.Lag)
				}
				m.LastContact, m.Lag = 0, 0
				if m != want {
					t.Errorf("%s says %+v, want %+v", n.id, m, want)
				}
			}
		}
		c.kill(c.others(dead)[1]) // no majority is left
		alone := c.others(dead)[0]
		c.until("no leader", func() bool { return alone.Status().Leader == "" })
		c.until("no majority", func() bool { return !alone.Status().Majority() })
		if s := alone.Status(); len(s.Members) != 3 || s.CommitIndex == 0 {
			t.Errorf("without a leader: %+v", s)
		}
	})
}

// TestStateHashesAgree: after thousands of entries of all kinds every node has kept
// the same hash at the same index.
func TestStateHashesAgree(t *testing.T) {
	formedBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.semaphore("db", 1)
		leader := c.leader()
		term := leader.established().Number()
		var last raft.ApplyFuture
		for range replica.HashEvery { // past the proposer, which would log one after the other
			last = leader.raft().Apply(replica.EncodeTermEntry(term, 0, nil), 0)
		}
		c.must(last.Error())
		c.do(leader, fsm.Up{Name: "db", Count: 1}, fsm.OK)
		c.must(c.leader().TransferLeadership(t.Context(), "")) // entries without commands, too
		for _, n := range c.all {
			kept := func(n *testNode) map[uint64][16]byte { return maps.Collect(n.replica.Hashes().All()) }
			c.until(n.id+" has applied it", func() bool { return len(kept(n)) == 1 })
			if got, want := kept(n), kept(c.all[0]); got[replica.HashEvery] != want[replica.HashEvery] || got[replica.HashEvery] == ([16]byte{}) {
				t.Errorf("%s has %v, n1 %v", n.id, got, want)
			}
		}
		c.until("they know each other's", func() bool {
			seen := c.all[0].members().Seen()
			return len(seen["n2"].Answer.Hashes) == 1 && len(seen["n3"].Answer.Hashes) == 1
		})
		for _, n := range c.all {
			if err := c.fatal(n.id); err != nil || !n.Ready() {
				t.Errorf("%s: %v", n.id, err)
			}
		}
	})
}

// flippedHashes are a node's hashes until one is set in place of all that are kept.
type flippedHashes struct {
	membership.Hashes
	flipped atomic.Pointer[probe.StateHash]
}

func (h *flippedHashes) All() iter.Seq2[uint64, [16]byte] {
	if f := h.flipped.Load(); f != nil {
		return func(yield func(uint64, [16]byte) bool) { yield(f.Index, f.Hash) }
	}
	return h.Hashes.All()
}

// flips has the nodes' hashes, by id.
type flips map[string]*flippedHashes

func newFlips(c *lifeNodes) flips {
	all := flips{}
	c.setups = append(c.setups, func(config *Config) {
		shown := &flippedHashes{}
		all[config.NodeID] = shown
		config.hashes = func(hashes membership.Hashes) membership.Hashes {
			shown.Hashes = hashes
			return shown
		}
	})
	return all
}

func (f flips) set(n *testNode, hash byte) {
	f[n.id].flipped.Store(&probe.StateHash{Index: replica.HashEvery, Hash: [16]byte{hash}})
}
