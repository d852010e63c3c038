package raftlib

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/test/memnet"
)

// patience is how long, in virtual time, a test waits for an event that must come.
const patience = time.Minute

// raftNodes is three real Raft nodes on a network in memory, for use inside
// a synctest bubble.
type raftNodes struct {
	t     *testing.T
	net   *memnet.Network
	nodes []*raftNode
}

// raftNode is one of them. Its stores outlive a restart.
type raftNode struct {
	id    raft.ServerID
	trans *Transport
	acks  *AckClock
	raft  *raft.Raft
	logs  *fakeLogs
	log   *Log // over logs
	end   func()
	fsm   *fakeMachine
}

// nodeSetup changes a node before it starts.
type nodeSetup func(*raft.Config, *TransportConfig, *raftNode)

// inLedNodes runs a test on nodes of which one leads and all have applied an entry, in a bubble.
func inLedNodes(t *testing.T, test func(t *testing.T, c *raftNodes, leader *raftNode)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t)
		defer c.stop()
		leader := c.leader()
		c.apply(leader, "first", c.nodes...)
		test(t, c, leader)
	})
}

func startNodes(t *testing.T, setups ...nodeSetup) *raftNodes {
	t.Helper()
	c := &raftNodes{t: t, net: memnet.New()}
	var all raft.Configuration
	for i := range 3 {
		id := fmt.Sprintf("n%d", i+1)
		all.Servers = append(all.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id + ":8711")})
	}
	for _, server := range all.Servers {
		c.nodes = append(c.nodes, c.node(server, all, setups))
	}
	return c
}

func (c *raftNodes) node(self raft.Server, all raft.Configuration, setups []nodeSetup) *raftNode {
	c.t.Helper()
	n := &raftNode{id: self.ID, acks: NewAckClock(), logs: newFakeLogs(), fsm: &fakeMachine{}}
	logger := hclog.NewNullLogger()
	address := string(self.Address)
	layer, err := openLayer(c.net, string(self.ID), address)
	c.must(err)
	config, err := Config(self.ID, 1, logger)
	c.must(err)
	transport := TransportConfig{Layer: layer, Acks: n.acks, Logger: logger, Stalled: func() bool { return false }}
	n.log = NewLog(LogConfig{Storage: n.logs, Self: self.ID, Fatal: func(err error) { c.t.Errorf("%s: %v", self.ID, err) }})
	transport.Log = n.log
	for _, setup := range setups {
		setup(config, &transport, n)
	}
	n.trans = NewTransport(transport)
	snapshots := raft.NewInmemSnapshotStore()
	stable := raft.NewInmemStore()
	c.must(raft.BootstrapCluster(config, n.logs, stable, snapshots, n.trans, all))
	n.raft, err = raft.NewRaft(config, n.fsm, n.log, stable, snapshots, n.trans)
	c.must(err)
	n.log.Attach(n.raft)
	ctx, end := context.WithCancel(context.Background())
	n.end = end
	go n.trans.Run(ctx, n.raft)
	return n
}

// memLayer is a stream layer on a network in memory. Close closes its connections,
// too, as the peer port does.
type memLayer struct {
	net.Listener
	host    *memnet.Host
	address memAddress

	mu    sync.Mutex
	conns []net.Conn
	over  bool
}

// memAddress is a name:port.
type memAddress string

func (memAddress) Network() string  { return "mem" }
func (a memAddress) String() string { return string(a) }

func openLayer(n *memnet.Network, name, address string) (*memLayer, error) {
	host := n.Host(name)
	listener, err := host.Listen(address)
	return &memLayer{Listener: listener, host: host, address: memAddress(address)}, err
}

func (l *memLayer) Addr() net.Addr { return l.address }

func (l *memLayer) Accept() (net.Conn, error) { return l.keep(l.Listener.Accept()) }

func (l *memLayer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return l.keep(l.host.Dial(ctx, string(address)))
}

func (l *memLayer) keep(conn net.Conn, err error) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.conns = append(l.conns, conn)
		if l.over {
			_ = conn.Close()
		}
	}
	return conn, err
}

func (l *memLayer) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	for _, conn := range l.conns {
		_ = conn.Close()
	}
	return l.Listener.Close()
}

func (c *raftNodes) must(err error) {
	c.t.Helper()
	must(c.t, err)
}

// stop ends all nodes; each Raft closes its transport. It panics if a Raft does not
// end: its bubble would go on for ever.
func (c *raftNodes) stop() {
	c.t.Helper()
	for _, n := range c.nodes {
		n.logs.release()
		n.end()
		ended := make(chan error, 1)
		go func() {
			future := n.raft.Shutdown()
			_ = n.trans.Close()
			ended <- errors.Join(n.log.Close(), future.Error())
		}()
		select {
		case err := <-ended:
			c.must(err)
		case <-time.After(patience):
			panic(fmt.Sprintf("the Raft of %s does not end", n.id))
		}
	}
}

// leader waits until one of the nodes leads, other than those excepted.
func (c *raftNodes) leader(except ...*raftNode) *raftNode {
	c.t.Helper()
	excepted := map[*raftNode]bool{}
	for _, n := range except {
		excepted[n] = true
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		for _, n := range c.nodes {
			if !excepted[n] && n.raft.State() == raft.Leader {
				return n
			}
		}
		select {
		case <-c.nodes[0].raft.LeaderCh():
		case <-c.nodes[1].raft.LeaderCh():
		case <-c.nodes[2].raft.LeaderCh():
		case <-timer.C:
			c.t.Fatal("no leader")
		}
	}
}

func (c *raftNodes) others(n *raftNode) []*raftNode {
	var others []*raftNode
	for _, o := range c.nodes {
		if o != n {
			others = append(others, o)
		}
	}
	return others
}

// apply writes through a leader and waits until all of these nodes have applied
// it.
func (c *raftNodes) apply(leader *raftNode, command string, nodes ...*raftNode) {
	c.t.Helper()
	future := leader.raft.Apply([]byte(command), 0)
	c.must(future.Error())
	for _, n := range nodes {
		n.fsm.await(c.t, future.Index())
	}
}

// fakeMachine keeps the commands that it was given.
type fakeMachine struct {
	mu       sync.Mutex
	commands []string
	index    uint64
	changed  chan struct{}
}

func (f *fakeMachine) Apply(entry *raft.Log) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commands = append(f.commands, string(entry.Data))
	f.index = entry.Index
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
	return nil
}

// await blocks until the entry at index was applied.
func (f *fakeMachine) await(t *testing.T, index uint64) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		f.mu.Lock()
		if f.index >= index {
			f.mu.Unlock()
			return
		}
		if f.changed == nil {
			f.changed = make(chan struct{})
		}
		changed, at := f.changed, f.index
		f.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			t.Fatalf("the machine is still at index %d, want %d", at, index)
		}
	}
}

// at returns the index of the last entry that was applied.
func (f *fakeMachine) at() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.index
}

func (f *fakeMachine) history() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.commands...)
}

func (f *fakeMachine) Snapshot() (raft.FSMSnapshot, error) {
	return nil, fmt.Errorf("no snapshots here")
}
func (f *fakeMachine) Restore(io.ReadCloser) error { return fmt.Errorf("no snapshots here") }

// fakeLogs is a log store whose writes can hang or fail.
type fakeLogs struct {
	*raft.InmemStore
	mu      sync.Mutex
	gate    chan struct{} // writes wait for it to close
	fail    func() error  // asked before each write, if set
	failing atomic.Bool
}

func newFakeLogs() *fakeLogs {
	gate := make(chan struct{})
	close(gate)
	return &fakeLogs{InmemStore: raft.NewInmemStore(), gate: gate}
}

// fakeLogs is also the Storage of a Log.
func (l *fakeLogs) Logs() raft.LogStore                           { return l }
func (l *fakeLogs) Seal(entries []*raft.Log) ([]*raft.Log, error) { return copies(entries), nil }
func (l *fakeLogs) Full(err error) bool                           { return errors.Is(err, errFakeFull) }

var errFakeFull = errors.New("no room")

// copies are not shared with Raft's goroutines.
func copies(entries []*raft.Log) (clones []*raft.Log) {
	for _, entry := range entries {
		clone := *entry
		clones = append(clones, &clone)
	}
	return clones
}

func (l *fakeLogs) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

func (l *fakeLogs) StoreLogs(entries []*raft.Log) error {
	l.mu.Lock()
	gate := l.gate
	l.mu.Unlock()
	<-gate
	if l.failing.Load() {
		if err := l.fail(); err != nil {
			return err
		}
	}
	return l.InmemStore.StoreLogs(entries)
}

// hang makes writes wait for release.
func (l *fakeLogs) hang() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate = make(chan struct{})
}

func (l *fakeLogs) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.gate:
	default:
		close(l.gate)
	}
}

// must ends a test upon an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
