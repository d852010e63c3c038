package cluster

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/lead"
	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
	"github.com/signalbox/signalbox/test/memnet"
)

// nodesPatience is how long, in virtual time, a test waits for an event that has to come.
const nodesPatience = time.Minute

// nodes is a cluster of whole nodes on a network in memory, for use inside a
// synctest bubble.
type nodes struct {
	t      *testing.T
	net    *memnet.Network
	all    []*testNode
	setups []func(*Config)
}

// testNode is one of them. Its store outlives a restart.
type testNode struct {
	*Node
	id    string
	store *store.Store
	up    bool
}

// members returns the node's membership; its Raft must run.
func (n *testNode) members() *membership.Members { return n.running.Load().members }

// raft returns the node's Raft, or nil before it runs.
func (n *Node) raft() *raft.Raft {
	if r := n.running.Load(); r != nil {
		return r.raft
	}
	return nil
}

// established returns the node's term as leader, or nil.
func (n *Node) established() *lead.Term { return n.running.Load().established() }

// inBubble runs a test on a cluster of that many nodes, in virtual time.
func inBubble(t *testing.T, count int, test func(t *testing.T, c *nodes), setups ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &nodes{t: t, net: memnet.New(), setups: setups}
		for i := range count {
			id := fmt.Sprintf("n%d", i+1)
			s, err := store.Open(store.Options{Ephemeral: true, NodeID: id})
			c.must(err)
			c.all = append(c.all, &testNode{id: id, store: s})
		}
		for _, n := range c.all {
			c.start(n)
		}
		defer c.stop()
		c.leader()
		test(t, c)
	})
}

func (c *nodes) must(err error) {
	c.t.Helper()
	must(c.t, err)
}

// start starts a node, or starts it again.
func (c *nodes) start(n *testNode) {
	c.t.Helper()
	config := Config{NodeID: n.id, Bind: n.id + ":8711", Network: c.net.Host(n.id), Store: n.store, Logger: testLogger(n.id), MetricsSemaphores: 3}
	for _, peer := range c.all {
		config.Peers = append(config.Peers, Peer{ID: peer.id, Address: peer.id + ":8711"})
	}
	for _, setup := range c.setups {
		setup(&config)
	}
	node, err := Start(c.t.Context(), config)
	c.must(err)
	n.Node, n.up = node, true
}

// testLogger drops all lines, unless a developer changes it here.
func testLogger(string) hclog.Logger { return hclog.NewNullLogger() }

// kill does to the others what the death of a process does; the node's own
// goroutines are then stopped in order, where no other node can see it.
func (c *nodes) kill(n *testNode) {
	c.t.Helper()
	c.net.Isolate(n.id)
	c.net.Crash(n.id)
	gone, cancel := context.WithCancel(context.Background())
	cancel() // without waiting for anything
	if err := n.Close(gone); err != nil {
		c.t.Fatalf("stop %s: %v", n.id, err)
	}
	n.up = false
}

// revive starts a killed node again on what it had stored.
func (c *nodes) revive(n *testNode) {
	c.t.Helper()
	c.net.Rejoin(n.id)
	c.start(n)
}

// stop closes all nodes.
func (c *nodes) stop() {
	c.t.Helper()
	for _, n := range c.all {
		c.net.Rejoin(n.id)
	}
	// Without handing over, which would go from one to the next: the barrier of a new
	// leader that is shut down at that moment never returns, nor would the bubble.
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for _, n := range c.all {
		if n.up {
			if err := n.Close(gone); err != nil {
				c.t.Errorf("close %s: %v", n.id, err)
			}
		}
	}
	for _, n := range c.all {
		c.must(n.store.Close())
	}
}

// until waits, in virtual time, for a condition.
func (c *nodes) until(what string, holds func() bool) {
	c.t.Helper()
	for began := time.Now(); !holds(); {
		if time.Since(began) > nodesPatience {
			c.t.Fatalf("in vain: %s", what)
		}
		time.Sleep(time.Millisecond) // virtual: the step of looking
	}
}

// leader waits until a node that is not excepted leads, and returns it.
func (c *nodes) leader(except ...*testNode) *testNode {
	c.t.Helper()
	var found *testNode
	c.until("a leader", func() bool {
		for _, n := range c.all {
			if n.up && !contains(except, n) && n.established() != nil && n.raft().State() == raft.Leader {
				found = n
				return true
			}
		}
		return false
	})
	return found
}

// leaderless waits until a node neither leads nor knows a leader.
func (c *nodes) leaderless(n *testNode) {
	c.t.Helper()
	c.until("the leader's end", func() bool {
		address, _ := n.raft().LeaderWithID()
		return address == "" && n.established() == nil
	})
	synctest.Wait() // for its router to see it
}

func contains(list []*testNode, n *testNode) bool {
	for _, other := range list {
		if other == n {
			return true
		}
	}
	return false
}

// others returns all nodes but one.
func (c *nodes) others(n *testNode) []*testNode {
	var others []*testNode
	for _, o := range c.all {
		if o != n {
			others = append(others, o)
		}
	}
	return others
}

// follower returns a node that does not lead, once it has read from the leader: the
// leader has welcomed its stream then, before which the node sends no command.
func (c *nodes) follower() *testNode {
	c.t.Helper()
	n := c.others(c.leader())[0]
	c.read(n, "")
	return n
}

// do calls Do and expects the code.
func (c *nodes) do(n *testNode, command fsm.Command, want fsm.Code) calls.Reply {
	c.t.Helper()
	return c.call(n, calls.Call{Command: command}, want)
}

func (c *nodes) call(n *testNode, call calls.Call, want fsm.Code) calls.Reply {
	c.t.Helper()
	reply, err := n.Do(c.t.Context(), call)
	if err != nil {
		c.t.Fatalf("%s: %T: %v", n.id, call.Command, err)
	}
	if reply.Code != want {
		c.t.Fatalf("%s: %T: %v, want %v", n.id, call.Command, reply.Code, want)
	}
	return *reply
}

// semaphore makes one.
func (c *nodes) semaphore(name string, permits int64) {
	c.t.Helper()
	c.do(c.leader(), fsm.CreateSemaphore{Name: name, Permits: permits}, fsm.OK)
}

// open opens a session on a node.
func (c *nodes) open(n *testNode, ttl time.Duration) uint64 {
	c.t.Helper()
	return c.do(n, fsm.OpenSession{Session: n.DrawSession(), TTLMS: ttl.Milliseconds()}, fsm.OK).Session
}

// answer is the result of a call in the background.
type answer struct {
	calls.Reply
	err error
	at  time.Time
}

// background makes a call in another goroutine.
func background(ctx context.Context, n *testNode, call calls.Call) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		reply, err := n.Do(ctx, call)
		answers <- answer{*reply, err, time.Now()}
	}()
	return answers
}

// read reads linearizably and returns a semaphore as a node shows it.
func (c *nodes) read(n *testNode, name string) (view fsm.SemaphoreView, at calls.Reading) {
	c.t.Helper()
	at, err := n.Read(c.t.Context(), calls.Consistency{})
	c.must(err)
	n.View(func(m *fsm.Machine) { view, _ = m.Semaphore(name) })
	return view, at
}

// machineValue returns the permits of a semaphore in a node's own copy of the state.
func machineValue(r *replica.Replica, name string) (value int64, found bool) {
	r.View(func(m *fsm.Machine) {
		view, ok := m.Semaphore(name)
		value, found = view.Available, ok
	})
	return value, found
}

// must ends a test upon an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
