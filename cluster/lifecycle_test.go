package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
	"github.com/signalbox/signalbox/test/logtest"
	"github.com/signalbox/signalbox/test/memnet"
)

// lifeNodes is a cluster whose nodes the test starts itself.
type lifeNodes struct {
	*nodes
	mu     sync.Mutex
	fatals map[string][]error // what each node must not go on for
	logs   map[string]*logtest.Log
	peers  []Peer // the list that nodes start with; nil: all
	wrap   func(id string) func(raft.LogStore) raft.LogStore
	bolt   bool
}

// lifeBubble runs a test on so many nodes that have not been started yet.
func lifeBubble(t *testing.T, count int, test func(t *testing.T, c *lifeNodes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { lifeReal(t, count, test) })
}

// formedBubble runs a test on so many nodes that are ready.
func formedBubble(t *testing.T, count int, test func(t *testing.T, c *lifeNodes)) {
	t.Helper()
	lifeBubble(t, count, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		test(t, c)
	})
}

// lifeReal is lifeBubble in real time: for what leaves goroutines behind that never
// end, as Raft does when it is shut down while its disk hangs.
func lifeReal(t *testing.T, count int, test func(t *testing.T, c *lifeNodes)) {
	t.Helper()
	c := newLifeNodes(t, count)
	defer c.stop()
	test(t, c)
}

func newLifeNodes(t *testing.T, count int) *lifeNodes {
	c := &lifeNodes{nodes: &nodes{t: t, net: memnet.New()}, fatals: map[string][]error{}, logs: map[string]*logtest.Log{}}
	for i := range count {
		c.all = append(c.all, &testNode{id: fmt.Sprintf("n%d", i+1)})
	}
	return c
}

// openStore opens the store of a node without a store.
func (c *lifeNodes) openStore(n *testNode) {
	c.t.Helper()
	if n.store != nil {
		return
	}
	options := store.Options{NodeID: n.id, Ephemeral: !c.bolt, Journal: c.bolt}
	if c.bolt {
		options.Folder = c.t.TempDir()
	}
	if c.wrap != nil {
		options.WrapLog = c.wrap(n.id)
	}
	var err error
	n.store, err = store.Open(options)
	c.must(err)
}

// begin starts nodes in that order, on the stores that they have.
func (c *lifeNodes) begin(list ...*testNode) {
	c.t.Helper()
	for _, n := range list {
		c.openStore(n)
		if c.logs[n.id] == nil {
			c.logs[n.id] = logtest.New()
		}
		setups := c.setups
		c.setups = append(slices.Clone(setups), func(config *Config) {
			config.Logger = c.logs[n.id]
			config.OnFatal = func(err error) { c.failed(n.id, err) }
			if c.peers != nil {
				config.Peers = slices.Clone(c.peers)
			}
		})
		c.net.Rejoin(n.id)
		c.start(n)
		c.setups = setups
	}
}

func (c *lifeNodes) failed(id string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fatals[id] = append(c.fatals[id], err)
}

// fatal returns why a node must not go on, if so.
func (c *lifeNodes) fatal(id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.fatals[id]...)
}

// wipe kills a node, if it is up, and takes its store away.
func (c *lifeNodes) wipe(n *testNode) {
	c.t.Helper()
	if n.up {
		c.kill(n)
	}
	c.must(n.store.Close())
	n.store = nil
}

// stop closes all, also nodes that were never started.
func (c *lifeNodes) stop() {
	c.t.Helper()
	c.all = slices.DeleteFunc(c.all, func(n *testNode) bool { return n.store == nil })
	c.nodes.stop()
}

// voting waits until each of these nodes sees exactly these members vote.
func (c *lifeNodes) voting(want []string, on ...*testNode) {
	c.t.Helper()
	for _, n := range on {
		var got []string
		ok := func() bool {
			got = nil
			for _, s := range membership.Voters(n.joining.Servers()) {
				got = append(got, string(s.ID))
			}
			slices.Sort(got)
			return slices.Equal(got, want)
		}
		c.until(fmt.Sprintf("%s sees the voters %v", n.id, want), ok)
	}
}

// suffrage returns how a node sees a member: "voter", "nonvoter" or "none".
func (c *lifeNodes) suffrage(n *testNode, id string) string {
	server, ok := membership.Find(n.joining.Servers(), id)
	switch {
	case !ok:
		return "none"
	case server.Suffrage == raft.Voter:
		return "voter"
	}
	return "nonvoter"
}

// ready waits until a node is.
func (c *lifeNodes) ready(list ...*testNode) {
	c.t.Helper()
	for _, n := range list {
		for began := time.Now(); !n.Ready(); {
			if time.Since(began) > nodesPatience {
				c.t.Fatalf("in vain: %s is ready: %+v", n.id, n.Checks())
			}
			time.Sleep(time.Millisecond) // virtual: the step of looking
		}
	}
}

// check returns one of a node's checks.
func (c *nodes) check(n *testNode, name string) Check {
	c.t.Helper()
	for _, check := range n.Checks() {
		if check.Name == name {
			return check
		}
	}
	c.t.Fatalf("no check %q", name)
	return Check{}
}

// closeTook closes a node and returns how long that took.
func (c *lifeNodes) closeTook(n *testNode) (time.Duration, error) {
	c.t.Helper()
	began := time.Now()
	err := n.Close(context.Background())
	n.up = false
	return time.Since(began), err
}

// holding makes a semaphore and leases on it, and returns what they look like.
func (c *lifeNodes) holding(on *testNode, leases int) func(*testNode) []fsm.LeaseView {
	c.t.Helper()
	c.do(on, fsm.CreateSemaphore{Name: "db", Permits: 100}, fsm.OK)
	for range leases {
		session := c.open(on, time.Hour)
		c.do(on, fsm.Acquire{Session: session, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}, fsm.OK)
	}
	return func(n *testNode) (held []fsm.LeaseView) {
		_, err := n.Read(c.t.Context(), calls.Consistency{})
		c.must(err)
		n.View(func(m *fsm.Machine) { held = m.Holders("db", 0, 1000) })
		return held
	}
}

func TestNodesStartInEveryOrder(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		for _, apart := range []time.Duration{0, 7 * time.Second} {
			t.Run(fmt.Sprint(order, apart), func(t *testing.T) {
				lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
					for k, i := range order {
						c.begin(c.all[i])
						time.Sleep(apart) // virtual
						for _, n := range c.all {
							if k < 2 && n.up && n.raft() != nil {
								t.Fatalf("%s formed a cluster with only %d nodes up", n.id, k+1)
							}
						}
					}
					began := time.Now()
					c.ready(c.all...)
					if took := time.Since(began); took > 5*time.Second {
						t.Errorf("ready after %v", took)
					}
					c.voting([]string{"n1", "n2", "n3"}, c.all...)
					c.semaphore("db", 1)
					for _, n := range c.all {
						var first raft.Log
						c.must(n.store.Logs().GetLog(1, &first))
						if !slices.Equal(first.Data, raft.EncodeConfiguration(membership.FirstConfiguration(n.config.Peers))) {
							t.Errorf("%s began with %v", n.id, raft.DecodeConfiguration(first.Data))
						}
						if held, _ := c.read(n, "db"); held.Permits != 1 {
							t.Errorf("%s shows %+v", n.id, held)
						}
					}
				})
			})
		}
	}
}

// joiner adds a node to the test that is no member yet: its list names the members
// that there are, and itself.
func joiner(c *lifeNodes, id string) *testNode {
	n := &testNode{id: id}
	c.all = append(c.all, n)
	return n
}
