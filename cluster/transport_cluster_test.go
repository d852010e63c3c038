package cluster

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/memnet"
)

// transportPatience is how long, in virtual time, a test waits for what must
// happen.
const transportPatience = time.Minute

// transportCluster is three real Raft nodes on a network in memory, for use inside
// a synctest bubble.
type transportCluster struct {
	t     *testing.T
	net   *memnet.Network
	nodes []*transportNode
}

// transportNode is one of them. Its stores outlive a restart.
type transportNode struct {
	id    raft.ServerID
	port  *PeerPort
	trans *Transport
	acks  *AckClock
	raft  *raft.Raft
	logs  *transportLogs
	fsm   *transportFSM
}

// transportSetup changes a node before it starts.
type transportSetup func(*raft.Config, *TransportConfig, *transportNode)

func transportStart(t *testing.T, setups ...transportSetup) *transportCluster {
	t.Helper()
	c := &transportCluster{t: t, net: memnet.New()}
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

func (c *transportCluster) node(self raft.Server, all raft.Configuration, setups []transportSetup) *transportNode {
	c.t.Helper()
	n := &transportNode{id: self.ID, acks: NewAckClock(), logs: newTransportLogs(), fsm: &transportFSM{}}
	logger := hclog.NewNullLogger()
	address := string(self.Address)
	var err error
	n.port, err = OpenPeerPort(PeerPortConfig{
		Network: c.net.Host(string(self.ID)), Bind: address, Advertise: address, Identity: testIdentity(string(self.ID)), Logger: logger,
	})
	c.must(err)
	layer, err := n.port.OpenRaft()
	c.must(err)
	config, err := RaftConfig(self.ID, 1, logger)
	c.must(err)
	transport := TransportConfig{Layer: layer, Acks: n.acks, Logger: logger, Stalled: func() bool { return false }}
	for _, setup := range setups {
		setup(config, &transport, n)
	}
	n.trans = NewTransport(transport)
	snapshots := raft.NewInmemSnapshotStore()
	stable := raft.NewInmemStore()
	c.must(raft.BootstrapCluster(config, n.logs, stable, snapshots, n.trans, all))
	n.raft, err = raft.NewRaft(config, n.fsm, n.logs, stable, snapshots, n.trans)
	c.must(err)
	return n
}

func (c *transportCluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// stop ends all nodes, as a process does: Raft, then the port. It panics if a Raft
// does not end: its bubble would go on for ever.
func (c *transportCluster) stop() {
	c.t.Helper()
	for _, n := range c.nodes {
		n.logs.release()
		ended := make(chan error, 1)
		go func() { ended <- n.raft.Shutdown().Error() }()
		select {
		case err := <-ended:
			c.must(err)
		case <-time.After(transportPatience):
			panic(fmt.Sprintf("the Raft of %s does not end", n.id))
		}
	}
	for _, n := range c.nodes {
		c.must(n.port.Close())
	}
}

// leader waits until one of the nodes leads, other than those excepted.
func (c *transportCluster) leader(except ...*transportNode) *transportNode {
	c.t.Helper()
	excepted := map[*transportNode]bool{}
	for _, n := range except {
		excepted[n] = true
	}
	timer := time.NewTimer(transportPatience)
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

func (c *transportCluster) others(n *transportNode) []*transportNode {
	var others []*transportNode
	for _, o := range c.nodes {
		if o != n {
			others = append(others, o)
		}
	}
	return others
}

// apply writes through a leader and waits until all of these nodes have applied
// it.
func (c *transportCluster) apply(leader *transportNode, command string, on ...*transportNode) {
	c.t.Helper()
	future := leader.raft.Apply([]byte(command), 0)
	c.must(future.Error())
	for _, n := range on {
		n.fsm.await(c.t, future.Index())
	}
}

// transportFSM keeps the commands that it was given.
type transportFSM struct {
	mu       sync.Mutex
	commands []string
	index    uint64
	changed  chan struct{}
}

func (f *transportFSM) Apply(entry *raft.Log) any {
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
func (f *transportFSM) await(t *testing.T, index uint64) {
	t.Helper()
	timer := time.NewTimer(transportPatience)
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

func (f *transportFSM) history() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.commands...)
}

func (f *transportFSM) Snapshot() (raft.FSMSnapshot, error) {
	return nil, fmt.Errorf("no snapshots here")
}
func (f *transportFSM) Restore(io.ReadCloser) error { return fmt.Errorf("no snapshots here") }

// transportLogs is a log store whose writes can hang or fail.
type transportLogs struct {
	*raft.InmemStore
	mu      sync.Mutex
	gate    chan struct{} // writes wait for it to close
	since   atomic.Int64  // when the write under way started, Unix ns; 0: none
	fail    func() error  // asked before each write, if set
	failing atomic.Bool
}

func newTransportLogs() *transportLogs {
	gate := make(chan struct{})
	close(gate)
	return &transportLogs{InmemStore: raft.NewInmemStore(), gate: gate}
}

func (l *transportLogs) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

func (l *transportLogs) StoreLogs(entries []*raft.Log) error {
	l.since.Store(time.Now().UnixNano())
	defer l.since.Store(0)
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
func (l *transportLogs) hang() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate = make(chan struct{})
}

func (l *transportLogs) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.gate:
	default:
		close(l.gate)
	}
}

// stalled reports a write that has taken longer than 2 s, as the data folder's
// log store does.
func (l *transportLogs) stalled() bool {
	since := l.since.Load()
	return since != 0 && time.Since(time.Unix(0, since)) > 2*time.Second
}
