package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/cluster/peer"
)

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
	formedBubble(t, 3, func(t *testing.T, c *lifeNodes) {
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

// TestStaleLeaderReadmitsNobody: a leader that is cut off still sees the member as
// one without a vote, and must not let it in on the strength of that.
func TestStaleLeaderReadmitsNobody(t *testing.T) {
	formedBubble(t, 3, func(t *testing.T, c *lifeNodes) {
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
	formedBubble(t, 3, func(t *testing.T, c *lifeNodes) {
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
