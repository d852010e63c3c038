package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/cluster/peer"
)

// TestWipedNodeRejoins: each node in turn loses its folder, on real files, and
// comes back with all leases, and with its vote.
func TestWipedNodeRejoins(t *testing.T) {
	for i := range 3 {
		t.Run(fmt.Sprintf("n%d", i+1), func(t *testing.T) {
			lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
				c.bolt = true
				c.begin(c.all...)
				leases := c.holding(c.leader(), 20)
				wiped := c.all[i]
				c.wipe(wiped)
				want := leases(c.leader())
				c.begin(wiped)
				c.ready(c.all...)
				c.voting([]string{"n1", "n2", "n3"}, c.all...)
				for _, n := range c.all {
					if got := leases(n); len(got) != 20 || fmt.Sprint(got) != fmt.Sprint(want) {
						t.Errorf("%s shows %v, want %v", n.id, got, want)
					}
				}
				if n := len(c.logs[wiped.id].Lines("this node rejoins")); n != 1 {
					t.Errorf("said %d times that it rejoins", n)
				}
				// It has come back for good: with it alone beside another, all goes on.
				other := c.others(wiped)[0]
				c.kill(other)
				c.ready(wiped)
				if got := leases(wiped); len(got) != 20 {
					t.Errorf("%d leases after another one went", len(got))
				}
			})
		})
	}
}

// TestWipedNodeDoesNotVote: what n1 and n2 have committed, n3 never got. Then n1 is
// down and n2 loses its folder: with n2's new, empty vote n3 would be elected, and
// the leases would be lost. So there must be no leader until n1 is back.
func TestWipedNodeDoesNotVote(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		leader := c.leader()
		others := c.others(leader)
		witness, behind := others[0], others[1]
		c.kill(behind)
		leases := c.holding(leader, 5)
		c.until("the witness has all", func() bool {
			return witness.replica.Index() >= leader.raft().CommitIndex()
		})
		c.kill(leader)
		c.wipe(witness)
		c.begin(behind, witness)
		for range 300 {
			time.Sleep(100 * time.Millisecond) // virtual: half a minute
			if behind.raft().State() == raft.Leader {
				t.Fatal("a wiped voter elected a node that lacks what was committed")
			}
			if witness.raft() != nil {
				t.Fatal("a wiped voter opened Raft without the cluster's leave")
			}
		}
		said := c.logs[witness.id].Lines("waiting to be taken back")
		if len(said) < 5 || !strings.Contains(said[len(said)-1], "silent ["+leader.id) {
			t.Errorf("in half a minute it said %q", said)
		}
		c.begin(leader)
		c.ready(c.all...)
		if got := leases(witness); len(got) != 5 {
			t.Errorf("%d leases are left", len(got))
		}
	})
}

// demoted waits until the leader has taken a member's vote, and returns the leader.
func demoted(c *lifeNodes, id string) *testNode {
	c.t.Helper()
	var leader *testNode
	c.until(id+" has no vote", func() bool {
		for _, n := range c.all {
			if n.up && n.id != id && n.established() != nil {
				_, servers := n.joining.Configuration()
				server, _ := membership.Find(servers, id)
				if leader = n; server.Suffrage == raft.Nonvoter {
					return true
				}
			}
		}
		return false
	})
	return leader
}

// TestRaftOpensOnlyAfterTheDemotion looks at every step of virtual time.
func TestRaftOpensOnlyAfterTheDemotion(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		wiped := c.others(c.leader())[0]
		c.wipe(wiped)
		c.begin(wiped)
		c.until("raft is open", func() bool { return wiped.raft() != nil })
		_, servers := c.leader().joining.Configuration()
		if server, _ := membership.Find(servers, wiped.id); server.Suffrage != raft.Nonvoter {
			t.Errorf("Raft is open while the node is %v", server.Suffrage)
		}
		term, err := wiped.store.Stable().GetUint64([]byte("LastVoteTerm"))
		if err != nil || term < c.leader().raft().CurrentTerm() {
			t.Errorf("its vote is kept for term %d, %v; the leader's term is %d", term, err, c.leader().raft().CurrentTerm())
		}
		c.voting([]string{"n1", "n2", "n3"}, c.all...)
	})
}

// TestRejoinSurvives: whatever happens in the middle of a rejoin, it comes to its
// end.
func TestRejoinSurvives(t *testing.T) {
	for name, disturb := range map[string]func(c *lifeNodes, wiped, leader *testNode){
		"a restart": func(c *lifeNodes, wiped, _ *testNode) {
			c.kill(wiped)
			c.begin(wiped)
		},
		"a restart after a while": func(c *lifeNodes, wiped, _ *testNode) {
			c.kill(wiped)
			time.Sleep(20 * time.Second) // virtual
			c.begin(wiped)
		},
		"another wipe": func(c *lifeNodes, wiped, _ *testNode) {
			c.wipe(wiped)
			c.begin(wiped)
		},
		"a transfer": func(c *lifeNodes, _, leader *testNode) {
			c.must(leader.TransferLeadership(context.Background(), ""))
		},
		"the leader's restart": func(c *lifeNodes, _, leader *testNode) {
			c.kill(leader)
			time.Sleep(5 * time.Second) // virtual
			c.begin(leader)
		},
		"the leader's wipe after its restart": func(c *lifeNodes, wiped, leader *testNode) {
			// All nodes must know the voters: the leader forgets them, and a node without them elects no leader.
			c.voting([]string{"n1", "n2", "n3"}, c.all...)
			c.wipe(leader)
			c.begin(leader)
		},
		"a restart of all": func(c *lifeNodes, _, _ *testNode) {
			for _, n := range c.all {
				c.kill(n)
			}
			c.begin(c.all...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
				c.begin(c.all...)
				leases := c.holding(c.leader(), 5)
				wiped := c.others(c.leader())[0]
				c.wipe(wiped)
				c.begin(wiped)
				disturb(c, wiped, demoted(c, wiped.id))
				c.ready(c.all...)
				c.voting([]string{"n1", "n2", "n3"}, c.all...)
				for _, n := range c.all {
					if got := leases(n); len(got) != 5 {
						t.Errorf("%s shows %d leases", n.id, len(got))
					}
				}
				if err := errors.Join(c.fatal("n1"), c.fatal("n2"), c.fatal("n3")); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestWipedBetweenLookAndPromotion: a member that has caught up loses its folder again
// before its vote is committed. It must not get it for what it has lost.
func TestWipedBetweenLookAndPromotion(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		leases := c.holding(c.leader(), 5)
		wiped := c.others(c.leader())[0]
		c.wipe(wiped)
		c.begin(wiped)
		leader := demoted(c, wiped.id)
		before, _, done, err := leader.members().Changes().Begin(t.Context()) // so that no other change of members runs
		c.must(err)
		c.until("it has caught up", func() bool {
			return leader.members().Seen()[wiped.id].Answer.Applied >= before
		})
		time.Sleep(5 * time.Second) // virtual: the promotion has looked, and waits for its turn
		c.wipe(wiped)
		c.begin(wiped)
		time.Sleep(5 * time.Second) // virtual: it asks to be taken back, and waits behind that
		if now, _ := leader.joining.Configuration(); now != before || wiped.raft() != nil {
			t.Fatalf("the configuration went on from %d to %d: the test shows nothing", before, now)
		}
		done()
		c.ready(c.all...)
		c.voting([]string{"n1", "n2", "n3"}, c.all...)
		if got := configurations(c, leader, before, wiped.id); fmt.Sprint(got) != "[Nonvoter Voter]" {
			t.Errorf("from its second loss on it was made %v", got)
		}
		if got := leases(wiped); len(got) != 5 {
			t.Errorf("%d leases are left", len(got))
		}
	})
}

// configurations returns what a member was made by each configuration in a node's
// log after an index.
func configurations(c *lifeNodes, n *testNode, after uint64, id string) (made []raft.ServerSuffrage) {
	c.t.Helper()
	for index := after + 1; index <= n.raft().LastIndex(); index++ {
		var entry raft.Log
		c.must(n.store.Logs().GetLog(index, &entry))
		if entry.Type == raft.LogConfiguration {
			server, _ := membership.Find(raft.DecodeConfiguration(entry.Data).Servers, id)
			made = append(made, server.Suffrage)
		}
	}
	return made
}

// TestRejoinAsOneOfTwoAlive: one voter wiped, one down: no entry can be committed, so
// the wiped one waits and says so, until the other is back.
func TestRejoinAsOneOfTwoAlive(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		leases := c.holding(c.leader(), 5)
		wiped, down := c.all[0], c.all[1]
		c.kill(down)
		c.wipe(wiped)
		c.begin(wiped)
		time.Sleep(time.Minute) // virtual
		said := c.logs[wiped.id].Lines("no leader: a majority of the voters but this one must be up; replying [n3], silent [n2")
		if len(said) < 10 || wiped.raft() != nil {
			t.Errorf("in a minute it said %d times what it waits for", len(said))
		}
		c.begin(down)
		c.ready(c.all...)
		if got := leases(wiped); len(got) != 5 {
			t.Errorf("%d leases", len(got))
		}
	})
}

// TestRejoinOfFive: two of five lose their folders at the same time.
func TestRejoinOfFive(t *testing.T) {
	lifeBubble(t, 5, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		leases := c.holding(c.leader(), 5)
		wiped := c.others(c.leader())[:2]
		for _, n := range wiped {
			c.wipe(n)
		}
		c.begin(wiped...)
		c.ready(c.all...)
		c.voting([]string{"n1", "n2", "n3", "n4", "n5"}, c.all...)
		for _, n := range c.all {
			if got := leases(n); len(got) != 5 {
				t.Errorf("%s shows %d leases", n.id, len(got))
			}
		}
	})
}

// TestRejoinThroughASnapshot: the log that the wiped node missed is gone.
func TestRejoinThroughASnapshot(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		leader := c.leader()
		leases := c.holding(leader, 5)
		wiped := c.others(leader)[0]
		c.wipe(wiped)
		c.until("the leader steps on", func() bool { return leader.established() != nil })
		config := leader.raft().ReloadableConfig()
		config.TrailingLogs = 1
		c.must(leader.raft().ReloadConfig(config))
		c.must(leader.raft().Snapshot().Error())
		if first, _ := leader.store.Logs().FirstIndex(); first <= 1 {
			t.Fatalf("the log begins at %d: the test shows nothing", first)
		}
		c.begin(wiped)
		c.ready(wiped)
		c.voting([]string{"n1", "n2", "n3"}, c.all...)
		if got := leases(wiped); len(got) != 5 {
			t.Errorf("%d leases", len(got))
		}
		if index, servers := wiped.joining.Configuration(); index == 0 || len(servers) != 3 {
			t.Errorf("it knows configuration %d, %v", index, servers)
		}
	})
}

// TestStaleLeaderReadmitsNobody: a leader that is cut off still sees the member as
// one without a vote, and must not let it in on the strength of that.
func TestStaleLeaderReadmitsNobody(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		leader := c.leader()
		member := c.others(leader)[0]
		index, _ := leader.joining.Configuration()
		c.must(leader.raft().DemoteVoter(raft.ServerID(member.id), index, 0).Error())
		c.until("the leader knows", func() bool { return c.suffrage(leader, member.id) == "nonvoter" })
		c.net.Isolate(leader.id)
		term, err := leader.members().Changes().Readmit(t.Context(), member.id, "", member.joining.Identity().Hello(peer.StreamProbe, ""), "")
		if err == nil {
			t.Fatalf("readmitted in term %d by a leader that is cut off", term)
		}
		c.net.Rejoin(leader.id)
		c.voting([]string{"n1", "n2", "n3"}, c.all...) // promoted by whoever leads
	})
}

// TestPromotionDecidedBeforeIsRefused: a promotion that was decided upon the
// configuration before a readmission comes too late.
func TestPromotionDecidedBeforeIsRefused(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		leader := c.leader()
		member := c.others(leader)[0]
		m := leader.members().Changes()
		before, _ := leader.joining.Configuration()
		hello := member.joining.Identity().Hello(peer.StreamProbe, "")
		// As a node that asks for it: Raft is not open there. (It reads a member's
		// entry without its lock when an append succeeds.)
		c.kill(member)
		_, err := m.Readmit(t.Context(), member.id, "", hello, "")
		c.must(err)
		between := demotedIndex(leader)
		_, err = m.Readmit(t.Context(), member.id, "", hello, "") // a second loss
		c.must(err)
		for _, index := range []uint64{before, between} {
			if err := leader.raft().AddVoter(raft.ServerID(member.id), raft.ServerAddress(member.id+":8711"), index, 0).Error(); err == nil {
				t.Errorf("a promotion upon configuration %d was taken", index)
			}
		}
	})
}

func demotedIndex(n *testNode) uint64 {
	index, _ := n.joining.Configuration()
	return index
}

// TestWipedWhileAllRestart: after a restart no machine has applied anything yet, and
// still the wiped node must not take the others for a cluster that forms.
func TestWipedWhileAllRestart(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		leases := c.holding(c.leader(), 5)
		for _, n := range c.all {
			c.kill(n)
		}
		wiped := c.all[2]
		c.wipe(wiped)
		c.begin(wiped, c.all[0], c.all[1])
		c.ready(c.all...)
		if n := len(c.logs[wiped.id].Lines("this node rejoins")); n != 1 {
			t.Errorf("said %d times that it rejoins", n)
		}
		for _, n := range c.all {
			if got := leases(n); len(got) != 5 {
				t.Errorf("%s shows %d leases", n.id, len(got))
			}
		}
	})
}
