package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/fsm"
)

// TestFirstEntriesNameTheirTerms: each leader's first entry names Raft's own term and
// itself, its limits are in force then, and no entry follows it that a machine
// would never get.
func TestFirstEntriesNameTheirTerms(t *testing.T) {
	limits := fsm.DefaultLimits()
	limits.Sessions = 77
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		last := uint64(0)
		for range 4 {
			n := c.leader()
			term := n.raft().CurrentTerm()
			n.View(func(m *fsm.Machine) {
				if m.Term() != term || m.Leader() != n.id || m.Limits().Sessions != 77 {
					t.Errorf("term %d of %q with %d sessions, want term %d of %q", m.Term(), m.Leader(), m.Limits().Sessions, term, n.id)
				}
			})
			if term <= last || n.established().Number() != term {
				t.Errorf("leads in term %d in term %d, after %d", n.established().Number(), term, last)
			}
			last = term
			var entry raft.Log
			c.must(n.store.Logs().GetLog(n.raft().LastIndex(), &entry))
			if entry.Type != raft.LogCommand {
				t.Errorf("the last entry is a %v", entry.Type)
			}
			c.kill(n)
			c.leader()
			c.revive(n)
		}
	}, func(c *Config) { c.Limits = limits })
}

// TestLeaderCatchesUpFirst: a new leader has applied what the old one acknowledged,
// and stamps on from there, before it takes a command.
func TestLeaderCatchesUpFirst(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		total := int64(0)
		for range 3 {
			old := c.leader()
			var stamp int64
			for range 50 {
				total++
				c.do(old, fsm.Up{Name: "a", Count: 1}, fsm.OK)
			}
			time.Sleep(5 * time.Second) // virtual: so that the last entry moves time far …
			total++
			stamp = c.do(old, fsm.Up{Name: "a", Count: 1}, fsm.OK).NowMS
			c.kill(old) // … and no other node knows yet that it is committed
			next := c.leader()
			if now := next.established().NowMS(); now < stamp {
				t.Errorf("the new leader reads cluster time %d, after %d was told", now, stamp)
			}
			got := c.do(next, fsm.Up{Name: "a", Count: 1}, fsm.OK)
			if total++; got.Value != total || got.NowMS < stamp {
				t.Fatalf("value %d of %d, cluster time %d after %d", got.Value, total, got.NowMS, stamp)
			}
			c.revive(old)
		}
	})
}

// TestOnlyOneTermAtATime: news of wins and losses may come in any order, twice or
// late; what counts is what Raft says.
func TestOnlyOneTermAtATime(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		n := c.leader()
		first := n.established()
		for range 100 {
			n.running.Load().raftNews <- true
		}
		time.Sleep(100 * time.Millisecond) // virtual: for the news to be looked at
		if n.established() != first {
			t.Fatal("a term was replaced though it goes on")
		}
		c.must(n.raft().LeadershipTransfer().Error())
		c.leader(n)
		c.until("the end of the old term", func() bool { return n.established() == nil })
		synctest.Wait() // for its proposer, too
		if first.Propose(nil) {
			t.Fatal("a term that is over took commands")
		}
	})
}
