package cluster

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/cluster/raftlib"
)

// joiner adds a node to the test that is no member yet: its list names the members
// that there are, and itself.
func joiner(c *lifeNodes, id string) *testNode {
	n := &testNode{id: id}
	c.all = append(c.all, n)
	return n
}

func TestAddAndRemoveAMember(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		leases := c.holding(c.leader(), 5)
		first := append([]*testNode(nil), c.all...)
		n4 := joiner(c, "n4")
		c.begin(n4)
		time.Sleep(6 * time.Second) // virtual
		if said := c.logs["n4"].Lines("the cluster has no member n4: add it"); len(said) == 0 || n4.raft() != nil {
			t.Errorf("in 6 s it said %q", said)
		}
		for _, asked := range []*testNode{c.follower(), c.leader()} { // the second time it is there
			if err := asked.AddMember(t.Context(), "n4", "n4:8711"); err != nil {
				t.Fatalf("through %s: %v", asked.id, err)
			}
		}
		c.voting([]string{"n1", "n2", "n3", "n4"}, c.all...)
		c.ready(n4)
		if got := leases(n4); len(got) != 5 {
			t.Errorf("it shows %d leases", len(got))
		}
		c.must(n4.RemoveMember(t.Context(), "n4")) // asked on the node itself
		c.voting([]string{"n1", "n2", "n3"}, first...)
		c.until("n4 knows", func() bool { return !c.check(n4, "member").OK })
		time.Sleep(2 * time.Second) // virtual: a campaign that it may have begun ends
		term := c.leader().raft().CurrentTerm()
		time.Sleep(10 * time.Second) // virtual: many election times
		if n4.Ready() || c.leader().raft().CurrentTerm() != term {
			t.Errorf("the removed node: ready %v, %v; term %d, was %d", n4.Ready(), n4.raft().State(), c.leader().raft().CurrentTerm(), term)
		}
		c.must(c.leader().RemoveMember(t.Context(), "n4")) // it is none
		c.must(c.follower().AddMember(t.Context(), "n4", "n4:8711"))
		c.ready(n4)
	})
}

func TestMemberChangesThatAreRefused(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		leader := c.leader()
		for _, bad := range [][2]string{{"", "n4:1"}, {"n4", ""}, {"n4", "n4"}, {"n4", ":1"}, {"n4", "[]:1"}, {"n4", "n4:x"}, {"n4", "n4:0"}, {"n4", "n4:08711"}, {"n4", "0.0.0.0:8711"}, {"n4", "[::]:8711"}, {"n4", "[::ffff:0.0.0.0]:1"},
			{"n4", "224.0.0.1:1"}, {"n4", "[ff02::1]:1"}, {"n4", "255.255.255.255:1"}, {"n4", "10.0.0.256:1"}, {"n4", "7:1"}, {"n4", "//n4:1"}, {"n4", "n4..x:1"}, {"n4", "-n4:1"}, {"n4", "u@n4:1"}, {"n 4", "n4:1"}, {"n=4", "n4:1"},
			{strings.Repeat("n", 256), "n4:1"}, {"n4", strings.Repeat("n", 256) + ":1"}} {
			if err := leader.AddMember(t.Context(), bad[0], bad[1]); !errors.Is(err, outcome.ErrMemberInvalid) {
				t.Errorf("%q at %q: %v", bad[0], bad[1], err)
			}
		}
		others := c.others(leader)
		c.kill(others[0])
		c.until("the silence is noticed", func() bool { return leader.members().Seen()[others[0].id].Failing })
		err := leader.RemoveMember(t.Context(), others[1].id)
		if !errors.Is(err, outcome.ErrMemberInvalid) || !strings.Contains(err.Error(), "no reply came from "+others[0].id) {
			t.Errorf("removing one of two that are up: %v", err)
		}
		c.must(leader.RemoveMember(t.Context(), others[0].id)) // the dead one may go
		c.voting([]string{min(leader.id, others[1].id), max(leader.id, others[1].id)}, leader)
	})
}

func TestLastVoterStays(t *testing.T) {
	lifeBubble(t, 1, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		if err := c.all[0].RemoveMember(t.Context(), "n1"); !errors.Is(err, outcome.ErrLastVoter) {
			t.Errorf("removing the last voter: %v", err)
		}
		if err := c.all[0].TransferLeadership(t.Context(), ""); !errors.Is(err, outcome.ErrNoTarget) {
			t.Errorf("handing over to nobody: %v", err)
		}
	})
}

// TestRemovingTheLeader hands over first, whichever node is asked.
func TestRemovingTheLeader(t *testing.T) {
	for _, through := range []string{"itself", "a follower"} {
		t.Run(through, func(t *testing.T) {
			lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
				c.begin(c.all...)
				c.ready(c.all...)
				leader := c.leader()
				asked := leader
				if through == "a follower" {
					asked = c.follower()
				}
				began := time.Now()
				c.must(asked.RemoveMember(t.Context(), leader.id))
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("took %v", took)
				}
				if got := c.suffrage(c.leader(leader), leader.id); got != "none" {
					t.Errorf("it is a %s", got)
				}
				c.until("the old leader knows", func() bool { return !c.check(leader, "member").OK })
				c.ready(c.others(leader)...)
			})
		})
	}
}

// TestNodeRemovedWhileAway learns of it when it is back, and does not disturb the
// others.
func TestNodeRemovedWhileAway(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		leader := c.leader()
		away := c.others(leader)[0]
		c.net.Isolate(away.id)
		c.until("the silence is noticed", func() bool { return leader.members().Seen()[away.id].Failing })
		c.must(leader.RemoveMember(t.Context(), away.id))
		term := leader.raft().CurrentTerm()
		time.Sleep(5 * time.Second) // virtual: it campaigns in vain
		c.net.Rejoin(away.id)
		c.until("it knows", func() bool { return !c.check(away, "member").OK })
		time.Sleep(2 * time.Second) // virtual: the campaign that it is in ends
		campaigns := len(c.logs[away.id].Lines("entering candidate state"))
		time.Sleep(10 * time.Second) // virtual: many election times
		if again := len(c.logs[away.id].Lines("entering candidate state")); campaigns == 0 || again != campaigns {
			t.Errorf("it campaigned %d times, and then %d times more", campaigns, again-campaigns)
		}
		if got := leader.raft().CurrentTerm(); got != term || leader.raft().State() != raft.Leader {
			t.Errorf("its return moved the leader from term %d to %d, %v", term, got, leader.raft().State())
		}
		c.must(leader.AddMember(t.Context(), away.id, away.id+":8711"))
		c.ready(away)
		c.voting([]string{"n1", "n2", "n3"}, c.all...)
		c.until("its election times are as before", func() bool { return away.raft().ReloadableConfig().ElectionTimeout == raftlib.Tick })
	})
}

func TestTransferLeadership(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		for round := range 4 {
			leader := c.leader()
			asked, target := leader, c.others(leader)[round%2]
			if round >= 2 {
				asked = c.follower()
			}
			began := time.Now()
			c.must(asked.TransferLeadership(t.Context(), target.id))
			if next := c.leader(leader); next != target {
				t.Errorf("%s leads, not %s", next.id, target.id)
			}
			if took := time.Since(began); took > 200*time.Millisecond {
				t.Errorf("took %v", took)
			}
		}
		leader := c.leader()
		c.must(leader.TransferLeadership(t.Context(), leader.id)) // it has it
		if err := leader.TransferLeadership(t.Context(), "n9"); !errors.Is(err, outcome.ErrNoTarget) {
			t.Errorf("to a stranger: %v", err)
		}
		dead := c.others(leader)[0]
		c.kill(dead)
		if err := leader.TransferLeadership(t.Context(), dead.id); !errors.Is(err, outcome.ErrNoTarget) {
			t.Errorf("to a dead one: %v", err)
		}
		c.must(leader.TransferLeadership(t.Context(), ""))
		if next := c.leader(leader); next == dead {
			t.Error("a dead node leads")
		}
	})
}

// TestTransferNeedsEntries: leadership is not handed to a member that replies, but does not get entries. Raft would
// wait for it, and refuse all writes.
func TestTransferNeedsEntries(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		var withheld atomic.Pointer[string]
		c.setups = append(c.setups, func(config *Config) {
			config.fault = func(peer raft.ServerID, request any) error {
				args, is := request.(*raft.AppendEntriesRequest)
				if from := withheld.Load(); is && len(args.Entries) > 0 && from != nil && *from == string(peer) {
					return errors.New("withheld")
				}
				return nil
			}
		})
		c.begin(c.all...)
		c.ready(c.all...)
		leader := c.leader()
		target := c.others(leader)[0]
		reaches := func(want bool) {
			for leader.running.Load().transport.Reaches(t.Context(), raft.ServerID(target.id)) != want {
				time.Sleep(time.Millisecond) // virtual: Raft has yet to try
			}
		}
		withheld.Store(&target.id)
		c.open(leader, time.Hour)
		reaches(false)
		for range 3 {
			if err := leader.TransferLeadership(t.Context(), target.id); !errors.Is(err, outcome.ErrNoTarget) {
				t.Errorf("without entries: %v", err)
			}
			c.open(leader, time.Hour)
		}
		withheld.Store(nil)
		reaches(true)
		c.must(leader.TransferLeadership(t.Context(), target.id))
	})
}

// TestConfigurationLogKnowsIndexes: each committed configuration with the index of
// its entry, also after a restart from a snapshot.
func TestConfigurationLogKnowsIndexes(t *testing.T) {
	lifeBubble(t, 1, func(t *testing.T, c *lifeNodes) {
		n := c.all[0]
		c.begin(n)
		c.ready(n)
		c.must(n.raft().AddNonvoter("n2", "n2:8711", 0, time.Second).Error())
		index, servers := n.joining.Configuration()
		var entry raft.Log
		c.must(n.store.Logs().GetLog(index, &entry))
		if entry.Type != raft.LogConfiguration || len(servers) != 2 {
			t.Fatalf("at %d is a %v; servers %v", index, entry.Type, servers)
		}
		config := n.raft().ReloadableConfig()
		config.TrailingLogs = 1
		c.must(n.raft().ReloadConfig(config))
		c.semaphore("db", 1)
		c.must(n.raft().Snapshot().Error())
		c.kill(n)
		c.begin(n)
		if again, servers := n.joining.Configuration(); again != index || len(servers) != 2 {
			t.Errorf("after a restart: configuration %d, %v, want %d", again, servers, index)
		}
	})
}

// TestNoVoteBeforeCaughtUp: a member that gets heartbeats but no entries stays
// without a vote.
func TestNoVoteBeforeCaughtUp(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		var withheld atomic.Bool
		withheld.Store(true)
		c.setups = append(c.setups, func(config *Config) {
			config.fault = func(peer raft.ServerID, request any) error {
				append, is := request.(*raft.AppendEntriesRequest)
				if is && peer == "n4" && withheld.Load() && len(append.Entries) > 0 {
					return errors.New("withheld")
				}
				return nil
			}
		})
		c.begin(c.all...)
		c.ready(c.all...)
		leader := c.leader()
		n4 := joiner(c, "n4")
		c.begin(n4)
		began := time.Now()
		err := leader.AddMember(t.Context(), "n4", "n4:8711")
		if took := time.Since(began); !errors.Is(err, outcome.ErrCatchingUp) || took > probe.CallTimeout {
			t.Fatalf("added without entries: %v after %v", err, took)
		}
		time.Sleep(10 * time.Second) // virtual
		if got := c.suffrage(leader, "n4"); got != "nonvoter" || n4.raft() == nil || !leader.members().Seen()["n4"].Up() {
			t.Fatalf("it is a %s", got)
		}
		withheld.Store(false)
		c.voting([]string{"n1", "n2", "n3", "n4"}, c.all...)
	})
}
