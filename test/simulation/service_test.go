package simulation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/nodered"
	"github.com/signalbox/signalbox/httpapi/throttle"
	"github.com/signalbox/signalbox/store"
	"github.com/signalbox/signalbox/test/checks"
	"github.com/signalbox/signalbox/test/memnet"
)

const (
	// snapshotEntries and trailingEntries are small, so that nodes that come back often get a snapshot.
	snapshotEntries, trailingEntries = 400, 50
	// clockRate is how much faster or slower than the clients' clocks a node's clock may run. The clients' margin
	// covers it.
	clockRate = 0.03
	// patience bounds, in virtual time, the wait for a condition.
	patience = 3 * time.Minute
)

// service is a cluster of nodes with their HTTP servers, on one network with the clients.
type service struct {
	t          *testing.T
	net        *memnet.Network
	multiplier int
	events     *checks.EventLog
	nodes      []*node
	cuts       cuts
	refused    atomic.Value // the peer address at which connections are refused, though its node lives
	began      time.Time

	mu       sync.Mutex
	timeline []string
	fatal    []string
	log      bytes.Buffer // of all nodes
}

// node is a node of the service. Its store survives a crash.
type node struct {
	s     *service
	id    string
	rate  float64
	store *store.Store
	disk  *disk

	live   *cluster.Node // nil: it does not run
	server *httpapi.Server
	stop   chan struct{}  // closed: the goroutine that follows its events ends
	work   sync.WaitGroup // its server, and the goroutine that follows its events
}

// newService makes nodes that don't run yet. Each has a clock with a different rate.
func newService(t *testing.T, random *rand.Rand, ids ...string) *service {
	s := &service{t: t, net: memnet.New(), multiplier: 1, events: checks.NewEventLog(), cuts: cuts{held: map[[2]string]int{}}, began: time.Now()}
	s.cuts.net = s.net
	for _, id := range ids {
		n := &node{s: s, id: id, rate: 1 + clockRate*(2*random.Float64()-1), disk: newDisk()}
		s.nodes = append(s.nodes, n)
	}
	return s
}

// note adds a line to the timeline.
func (s *service) note(format string, arguments ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timeline = append(s.timeline, fmt.Sprintf("%v ", time.Since(s.began).Round(time.Millisecond))+fmt.Sprintf(format, arguments...))
}

func (s *service) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (n *node) peer() string { return n.id + ":8711" }

// peers is the network as a node sees it, on which one address refuses connections.
type peers struct {
	*memnet.Host
	refused *atomic.Value
}

// Dial implements [peer.Network].
func (p peers) Dial(ctx context.Context, address string) (net.Conn, error) {
	if p.refused.Load() == address {
		return nil, syscall.ECONNREFUSED
	}
	return p.Host.Dial(ctx, address)
}

// start starts a node on the store that it has.
func (n *node) start() {
	s := n.s
	s.t.Helper()
	if n.store == nil {
		var err error
		n.store, err = store.Open(store.Options{Ephemeral: true, NodeID: n.id, WrapLog: n.disk.wrap})
		s.must(err)
	}
	began := time.Now()
	config := cluster.Config{
		NodeID: n.id, Bind: n.peer(), Network: peers{s.net.Host(n.id), &s.refused}, Store: n.store, RaftMultiplier: s.multiplier,
		SnapshotEntries: snapshotEntries, TrailingEntries: trailingEntries,
		Clock:   func() time.Time { return began.Add(time.Duration(float64(time.Since(began)) * n.rate)) },
		OnFatal: func(err error) { s.failed("%s: %v", n.id, err) },
		Logger:  hclog.New(&hclog.LoggerOptions{Name: n.id, Level: hclog.Warn, Output: &s.log, Mutex: &s.mu}),
	}
	for _, member := range s.nodes {
		if member == n || member.id <= "n3" {
			config.Peers = append(config.Peers, cluster.Peer{ID: member.id, Address: member.peer()})
		}
	}
	live, err := cluster.Start(context.Background(), config)
	s.must(err)
	x, err := exchange.New(exchange.Config{Node: live})
	s.must(err)
	throttled, err := throttle.New(x, throttle.Config{})
	s.must(err)
	handler, err := httpapi.New(httpapi.Config{Exchange: x, Dialects: []exchange.Dialect{throttled, nodered.New(x, nodered.Config{})}})
	s.must(err)
	listener, err := s.net.Host(n.id).Listen(n.id + ":8701")
	s.must(err)
	server, stop := httpapi.NewServer(handler), make(chan struct{})
	n.live, n.server, n.stop = live, server, stop
	n.work.Go(func() { _ = server.Serve(listener) }) // its error is the crash
	n.work.Go(func() { follow(s.events, n.id, live, stop) })
}

// failed records a failure of the episode: a node that stopped with an error, or an unexpected reply.
func (s *service) failed(format string, arguments ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fatal = append(s.fatal, fmt.Sprintf(format, arguments...))
}

// crash lets the other hosts see the death of the node's process. Then it ends the node's goroutines in order, which no
// other host sees.
func (n *node) crash() {
	n.disk.hang(false)
	n.s.cuts.around(n, +1)
	n.s.net.Crash(n.id)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	n.end(gone)
}

// restart starts a node that has crashed.
func (n *node) restart() {
	n.s.cuts.around(n, -1)
	n.start()
}

// drain ends a node as a SIGTERM would.
func (n *node) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	n.live.Drain()
	n.end(ctx)
}

// end stops the parts of a node, and waits for their work until ctx ends.
func (n *node) end(ctx context.Context) {
	n.s.t.Helper()
	_ = n.server.Shutdown(ctx) // its error: some requests were cut off
	if err := n.live.Close(ctx); err != nil {
		n.s.t.Errorf("close %s: %v", n.id, err)
	}
	close(n.stop)
	n.work.Wait()
	n.live = nil
}

// wipe removes the store of a node that has crashed.
func (n *node) wipe() {
	n.s.must(n.store.Close())
	n.store = nil
}

// running returns the nodes that run.
func (s *service) running() (list []*node) {
	for _, n := range s.nodes {
		if n.live != nil {
			list = append(list, n)
		}
	}
	return list
}

// leader returns a node that reports that it leads, or nil.
func (s *service) leader() *node {
	for _, n := range s.running() {
		if n.live.Status().Leader == n.id {
			return n
		}
	}
	return nil
}

// until waits, in virtual time, for a condition, and reports whether it was met.
func (s *service) until(what string, holds func() bool) bool {
	s.t.Helper()
	for began := time.Now(); !holds(); {
		if time.Since(began) > patience {
			s.t.Errorf("in vain for %v: %s", patience, what)
			return false
		}
		time.Sleep(20 * time.Millisecond) // virtual: the step of looking
	}
	return true
}

// ready waits until all running nodes are ready.
func (s *service) ready() bool {
	return s.until("all nodes are ready", func() bool {
		for _, n := range s.running() {
			if !n.live.Ready() {
				return false
			}
		}
		return s.leader() != nil
	})
}

// close ends all nodes, the leader last, so that no other node begins a term meanwhile.
func (s *service) close() {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	leader := s.leader()
	for _, n := range s.running() {
		if n != leader {
			n.end(gone)
		}
	}
	if leader != nil {
		leader.end(gone)
	}
	for _, n := range s.nodes {
		if n.store != nil {
			s.must(n.store.Close())
		}
	}
}

// cuts counts the cuts of each direction between two hosts, so that faults may overlap.
type cuts struct {
	net  *memnet.Network
	mu   sync.Mutex
	held map[[2]string]int
}

// cut adds by to the cuts of a direction, which works while the sum is 0.
func (c *cuts) cut(from, to string, by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if from == to {
		return
	}
	at := [2]string{from, to}
	before := c.held[at]
	c.held[at] = before + by
	switch {
	case before == 0 && by > 0:
		c.net.Cut(from, to)
	case before > 0 && before+by == 0:
		c.net.Heal(from, to)
	}
}

// between adds by to the cuts of both directions.
func (c *cuts) between(a, b string, by int) {
	c.cut(a, b, by)
	c.cut(b, a, by)
}

// around cuts a node off from all nodes and clients.
func (c *cuts) around(n *node, by int) {
	for _, other := range n.s.nodes {
		c.between(n.id, other.id, by)
	}
	for i := range clients {
		c.between(n.id, clientHost(i), by)
	}
}

// disk is a log store that hangs on demand.
type disk struct {
	mu   sync.Mutex
	free sync.Cond
	hung bool
}

func newDisk() *disk {
	d := &disk{}
	d.free.L = &d.mu
	return d
}

// hang makes all writes hang from now on, or continue.
func (d *disk) hang(hung bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hung = hung
	d.free.Broadcast()
}

func (d *disk) pass() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.hung {
		d.free.Wait()
	}
}

func (d *disk) wrap(log raft.LogStore) raft.LogStore { return hanging{log, d} }

// hanging is a log store on a disk that can hang.
type hanging struct {
	raft.LogStore
	disk *disk
}

func (h hanging) StoreLog(entry *raft.Log) error {
	h.disk.pass()
	return h.LogStore.StoreLog(entry)
}

func (h hanging) StoreLogs(entries []*raft.Log) error {
	h.disk.pass()
	return h.LogStore.StoreLogs(entries)
}

// follow reads the events of a node until stop is closed and no event is left.
func follow(l *checks.EventLog, id string, n *cluster.Node, stop <-chan struct{}) {
	var after replica.EventID
	for stopped := false; ; {
		page, err := n.EventsAfter(after)
		switch {
		case errors.Is(err, outcome.ErrHistoryGone): // a snapshot has replaced the log
			l.Jumped()
			after = replica.EventID{Index: n.Status().AppliedIndex}
			time.Sleep(time.Millisecond) // virtual: the node reads the snapshot first
			if stopped {
				return
			}
			continue
		case err != nil:
			l.Note(fmt.Sprintf("the events of %s: %v", id, err))
			return
		}
		l.Take(id, page, after)
		after = page.Next
		switch {
		case page.News == nil:
		case stopped:
			return
		default:
			select {
			case <-page.News:
			case <-stop:
				stopped = true
			}
		}
	}
}
