package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/cluster/offline"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
	"github.com/signalbox/signalbox/test/memnet"
)

// lostNodes is five nodes on folders of their own. Three of them are lost: the survivors
// are ahead, whose log has all that was acknowledged, and behind, which was cut off before.
type lostNodes struct {
	nodes
	dir           string
	ahead, behind *testNode
	tokens        []uint64 // acknowledged
}

func (c *lostNodes) folder(n *testNode) string { return filepath.Join(c.dir, n.id) }

// open opens a node's folder, which is made if it is missing.
func (c *lostNodes) open(n *testNode) {
	c.t.Helper()
	s, err := store.Open(store.Options{Folder: c.folder(n), NodeID: n.id, Journal: true})
	c.must(err)
	n.store = s
}

// down ends a node and gives its folder free.
func (c *lostNodes) down(n *testNode) {
	c.t.Helper()
	c.kill(n)
	c.must(n.store.Close())
}

// up starts a node that is down.
func (c *lostNodes) up(n *testNode) {
	c.t.Helper()
	c.open(n)
	c.revive(n)
}

// wipe removes the folder of a node that is down.
func (c *lostNodes) wipe(n *testNode) { c.must(os.RemoveAll(c.folder(n))) }

// acquire takes a permit in a session of its own, and returns the token.
func (c *lostNodes) acquire(n *testNode) uint64 {
	c.t.Helper()
	session := c.nodes.open(n, time.Hour)
	reply := c.do(n, fsm.Acquire{Session: session, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}, fsm.OK)
	return reply.Grants[0].Token
}

// inLost runs a test after the loss: all nodes are down, and the lost ones are wiped.
func inLost(t *testing.T, test func(c *lostNodes)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := &lostNodes{nodes: nodes{t: t, net: memnet.New()}, dir: dir}
		for _, id := range []string{"n1", "n2", "n3", "n4", "n5"} {
			n := &testNode{id: id}
			c.open(n)
			c.all = append(c.all, n)
		}
		for _, n := range c.all {
			c.start(n)
		}
		leader := c.leader()
		c.semaphore("db", 1000)
		others := c.others(leader)
		c.ahead, c.behind = others[0], others[1]
		c.tokens = append(c.tokens, c.acquire(leader))
		c.until("what is behind", func() bool { return c.behind.replica.Index() >= leader.replica.Index() })
		c.net.Isolate(c.behind.id)
		for range 20 {
			c.tokens = append(c.tokens, c.acquire(leader))
		}
		c.until("what is ahead", func() bool { return c.ahead.replica.Index() >= leader.replica.Index() })
		for _, n := range c.all {
			c.down(n)
			if n != c.ahead && n != c.behind {
				c.wipe(n)
			}
		}
		test(c)
		c.stop()
	})
}

// config is that of a recovery on a survivor.
func (c *lostNodes) config(n *testNode) offline.Config {
	config := offline.Config{Folder: c.folder(n), Network: c.net.Host(n.id)}
	for _, member := range c.all {
		config.Peers = append(config.Peers, probe.Peer{ID: member.id, Address: member.id + ":8711"})
	}
	return config
}

// recover recovers a survivor, whose machine has its network again.
func (c *lostNodes) recover(n *testNode) offline.Recovered {
	c.t.Helper()
	c.net.Rejoin(n.id)
	plan, err := offline.Prepare(c.t.Context(), c.config(n))
	c.must(err)
	made, err := plan.Carry(c.t.Context())
	c.must(err)
	c.must(plan.Close())
	return made
}

// checkTokens makes sure that all leases are there, and that the next token is above all
// that can have been given out.
func (c *lostNodes) checkTokens() {
	c.t.Helper()
	leader := c.leader()
	next := c.acquire(leader)
	held := map[uint64]bool{}
	leader.View(func(m *fsm.Machine) {
		for _, lease := range m.Holders("db", 0, 1000) {
			held[lease.Token] = true
		}
	})
	for _, token := range c.tokens {
		if !held[token] || next <= token || next <= 1<<32 {
			c.t.Errorf("token %d is held: %t; the next is %d", token, held[token], next)
		}
	}
	c.tokens = append(c.tokens, next)
}

// checkFive waits until all nodes have a vote, and checks that they have one state.
func (c *lostNodes) checkFive(made offline.Recovered) {
	c.t.Helper()
	leader := c.leader()
	c.until("five votes", func() bool {
		voters := 0
		for _, m := range leader.Status().Members {
			if m.Voter {
				voters++
			}
		}
		return voters == 5
	})
	at, err := leader.Read(c.t.Context(), Consistency{})
	c.must(err)
	for _, n := range c.all {
		c.must(n.replica.Await(c.t.Context(), at.Index))
		if id := n.Status().Cluster; id != made.Cluster {
			c.t.Errorf("%s is of cluster %s", n.id, id)
		}
	}
}

// TestRecoverAfterAMajorityIsLost is the way of an operator: inspect shows which survivor
// is ahead, that one is recovered, the others come back with empty folders.
func TestRecoverAfterAMajorityIsLost(t *testing.T) {
	inLost(t, func(c *lostNodes) {
		ahead, err := offline.Inspect(c.folder(c.ahead), 1)
		c.must(err)
		behind, err := offline.Inspect(c.folder(c.behind), 1)
		c.must(err)
		if ahead.Folder.LastTerm < behind.Folder.LastTerm || ahead.Folder.LastIndex <= behind.Folder.LastIndex ||
			ahead.Latest.MostLeases[0].Leases != 21 || behind.Latest.MostLeases[0].Leases != 1 {
			t.Fatalf("ahead %+v, behind %+v", ahead.Folder, behind.Folder)
		}
		made := c.recover(c.ahead)
		c.up(c.ahead)
		if c.leader() != c.ahead {
			t.Fatal("another node leads")
		}
		c.checkTokens()
		if check := c.check(c.ahead, "address"); !check.OK || check.Moved != nil {
			t.Errorf("its own address: %+v", check)
		}
		for _, n := range c.others(c.ahead) {
			c.wipe(n)
			c.up(n)
		}
		c.checkFive(made)
		c.checkTokens()

		c.down(c.ahead) // what was recovered is one member of five now
		c.leader(c.ahead)
		c.checkTokens()
		c.up(c.ahead)
		c.checkFive(made)
	})
}

// TestLostMemberReturns with its old folder: it is refused and says so, and the recovered
// cluster serves, also while it has a single node.
func TestLostMemberReturns(t *testing.T) {
	inLost(t, func(c *lostNodes) {
		made := c.recover(c.ahead)
		c.up(c.behind) // at first it is alone
		c.up(c.ahead)
		c.leader()
		c.until("the refusal", func() bool {
			return strings.Contains(c.check(c.behind, "cluster").Detail, made.Cluster)
		})
		if check := c.check(c.behind, "cluster"); check.OK || !strings.Contains(check.Detail, "belongs to cluster") {
			t.Errorf("the lost member: %+v", check)
		}
		time.Sleep(time.Minute) // virtual: it campaigns in vain
		if check := c.check(c.ahead, "cluster"); !check.OK || c.leader() != c.ahead {
			t.Errorf("the recovered one: %+v", check)
		}
		c.checkTokens()
		for _, n := range c.others(c.ahead) {
			if n == c.behind {
				c.down(n)
			}
			c.wipe(n)
			c.up(n)
		}
		c.checkFive(made)
	})
}

// TestRecoverRefusesWhileNodesReply: a survivor that runs, and a node that runs as the
// one to be recovered; one with an empty folder has nothing to lose.
func TestRecoverRefusesWhileNodesReply(t *testing.T) {
	inLost(t, func(c *lostNodes) {
		c.net.Rejoin(c.ahead.id)
		c.up(c.behind)
		_, err := offline.Prepare(c.t.Context(), c.config(c.ahead))
		if !errors.Is(err, offline.ErrAlive) || !strings.Contains(err.Error(), c.behind.id+" at "+c.behind.id+":8711: it runs, in term") ||
			!strings.Contains(err.Error(), "no leader") {
			t.Errorf("beside the other survivor: %v", err)
		}
		c.down(c.behind)

		var lost *testNode
		for _, n := range c.all {
			if n != c.ahead && n != c.behind {
				lost = n
			}
		}
		c.up(lost)
		plan, err := offline.Prepare(c.t.Context(), c.config(c.ahead))
		c.must(err)
		for _, asked := range plan.Others {
			if asked.ID == lost.id && !strings.Contains(asked.Found, "empty folder") {
				t.Errorf("asked %+v", asked)
			}
		}
		made, err := plan.Carry(c.t.Context())
		c.must(err)
		c.must(plan.Close())
		c.up(c.ahead)
		c.until("the empty one to come in", func() bool { return lost.Status().Cluster == made.Cluster })

		c.down(c.ahead)
		c.net.Rejoin(c.ahead.id)
		_, err = offline.Prepare(c.t.Context(), c.config(c.ahead))
		if !errors.Is(err, offline.ErrAlive) || !strings.Contains(err.Error(), lost.id+" at ") {
			t.Errorf("beside a member of the new cluster: %v", err)
		}
		_, err = offline.Prepare(c.t.Context(), c.config(c.behind))
		if !errors.Is(err, offline.ErrAlive) || !strings.Contains(err.Error(), "different clusters") {
			t.Errorf("the other survivor, too: %v", err)
		}
		c.up(c.ahead)
		for _, n := range c.others(c.ahead) {
			if n != lost {
				c.wipe(n)
				c.up(n)
			}
		}
		c.checkFive(made)
	})
}
