//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/store"
)

// moment is an action of a node on a connection or on its disk, and its time.
type moment struct {
	at   time.Time
	node string // its peer address
	what action
	kind peer.StreamKind // of the connection
	to   string          // the peer address of the node that was dialled; empty: the other one dialled
}

type action int

const (
	sent action = iota
	received
	storeBegins
	storeEnds
)

// tracer collects the moments of one request.
type tracer struct {
	mu      sync.Mutex
	moments []moment
}

func (t *tracer) add(m moment) {
	m.at = time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.moments = append(t.moments, m)
}

// take returns the moments since the last take.
func (t *tracer) take() []moment {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := t.moments
	t.moments = nil
	return taken
}

// watch makes a node's connections and its log report to the tracer.
func (t *tracer) watch(c *config) {
	node := c.peerAddress
	c.hooks.cluster = func(c *cluster.Config) { c.Network = tracedNetwork{peer.TCPNetwork{Stretch: 1}, t, node} }
	c.hooks.store = func(o *store.Options) {
		o.WrapLog = func(log raft.LogStore) raft.LogStore { return tracedLog{log, t, node} }
	}
}

type tracedLog struct {
	raft.LogStore
	tracer *tracer
	node   string
}

func (l tracedLog) StoreLogs(logs []*raft.Log) error {
	l.tracer.add(moment{node: l.node, what: storeBegins})
	defer l.tracer.add(moment{node: l.node, what: storeEnds})
	return l.LogStore.StoreLogs(logs)
}

type tracedNetwork struct {
	peer.Network
	tracer *tracer
	node   string
}

func (n tracedNetwork) Dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := n.Network.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	return &tracedConn{Conn: conn, tracer: n.tracer, node: n.node, to: address}, nil
}

func (n tracedNetwork) Listen(address string) (net.Listener, error) {
	listener, err := n.Network.Listen(address)
	return tracedListener{listener, n}, err
}

type tracedListener struct {
	net.Listener
	network tracedNetwork
}

func (l tracedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tracedConn{Conn: conn, tracer: l.network.tracer, node: l.network.node}, nil
}

// kindAt is the position of the connection's kind in a hello.
const kindAt = 8

// tracedConn reads the kind of the connection from the hello of the node that dials.
type tracedConn struct {
	net.Conn
	tracer   *tracer
	node, to string

	mu    sync.Mutex
	hello int // bytes of it that were seen
	kind  peer.StreamKind
}

func (c *tracedConn) Write(p []byte) (int, error) {
	c.tracer.add(moment{node: c.node, what: sent, kind: c.kindFrom(p, c.to != ""), to: c.to})
	return c.Conn.Write(p)
}

func (c *tracedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.tracer.add(moment{node: c.node, what: received, kind: c.kindFrom(p[:n], c.to == ""), to: c.to})
	return n, err
}

func (c *tracedConn) kindFrom(p []byte, hello bool) peer.StreamKind {
	c.mu.Lock()
	defer c.mu.Unlock()
	if hello && c.kind == 0 {
		if c.hello+len(p) > kindAt {
			c.kind = peer.StreamKind(p[kindAt-c.hello])
		}
		c.hello += len(p)
	}
	return c.kind
}

// after returns the first moment of this sort after some time.
func after(all []moment, from time.Time, like moment) (time.Time, bool) {
	for _, m := range all {
		if !m.at.Before(from) && m.node == like.node && m.what == like.what && m.kind == like.kind && m.to == like.to {
			return m.at, true
		}
	}
	return time.Time{}, false
}

// stages are the parts of a write through a follower, in their order.
var stages = []string{
	"follower: from the client's request to the frame for the leader",
	"network and wake-up: frame to the leader",
	"leader: from the frame to the append",
	"network and wake-up: append to the first follower that acknowledges",
	"that follower: from the append to the write of its log",
	"that follower: the write of its log",
	"that follower: from the write to the acknowledgement",
	"network and wake-up: acknowledgement to the leader",
	"leader: its own disk, beyond the acknowledgement",
	"leader: commit, state machine, frame to the follower",
	"network and wake-up: frame to the follower",
	"follower: from the frame to the client's reply",
}

// split returns the times of the stages of a request between two moments. found is false if other work on the nodes
// interfered.
func split(all []moment, leader, follower string, others []string, begin, end time.Time) (parts []time.Duration, found bool) {
	at, found := begin, true
	next := func(like moment) {
		t, ok := after(all, at, like)
		found = found && ok
		parts, at = append(parts, t.Sub(at)), t
	}
	next(moment{node: follower, what: sent, kind: peer.StreamForward, to: leader})
	next(moment{node: leader, what: received, kind: peer.StreamForward})
	framed := at
	var quickest string
	var acknowledged time.Time
	for _, o := range others {
		appended, sentIt := after(all, framed, moment{node: leader, what: sent, kind: peer.StreamRaft, to: o})
		stored, storedIt := after(all, appended, moment{node: o, what: storeBegins}) // not the entry before, which a slow follower may still write
		t, replied := after(all, stored, moment{node: leader, what: received, kind: peer.StreamRaft, to: o})
		if sentIt && storedIt && replied && (quickest == "" || t.Before(acknowledged)) {
			quickest, acknowledged = o, t
		}
	}
	next(moment{node: leader, what: sent, kind: peer.StreamRaft, to: quickest})
	next(moment{node: quickest, what: received, kind: peer.StreamRaft})
	next(moment{node: quickest, what: storeBegins})
	next(moment{node: quickest, what: storeEnds})
	next(moment{node: quickest, what: sent, kind: peer.StreamRaft})
	next(moment{node: leader, what: received, kind: peer.StreamRaft, to: quickest})
	stores, ok := after(all, framed, moment{node: leader, what: storeEnds})
	found = found && ok
	parts = append(parts, max(0, stores.Sub(at)))
	if stores.After(at) {
		at = stores
	}
	next(moment{node: leader, what: sent, kind: peer.StreamForward})
	next(moment{node: follower, what: received, kind: peer.StreamForward, to: leader})
	return append(parts, end.Sub(at)), found && !end.Before(at)
}

// BenchmarkTrace follows one client's writes through a follower, and prints where the
// time goes: the median of each stage, and its share of a raw fdatasync of the same run.
func BenchmarkTrace(b *testing.B) {
	t := &tracer{}
	nodes := startNodes(b, t.watch)
	var addresses []string
	for _, n := range nodes {
		addresses = append(addresses, n.peerAddress)
	}
	w := dialWire(b, nodes[1].address)
	defer w.conn.Close()
	if _, err := w.do(http.MethodPut, "/v1/semaphores/other", `{"permits":0}`); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		took, whole := make([][]time.Duration, len(stages)), []time.Duration(nil)
		missed := 0
		for start := time.Now(); time.Since(start) < 4*phase; {
			t.take()
			begin := time.Now()
			_, err := w.do(http.MethodPost, "/v1/semaphores/other/up", "")
			end := time.Now()
			must(b, err)
			parts, found := split(t.take(), addresses[0], addresses[1], addresses[1:], begin, end)
			if !found {
				missed++
				continue
			}
			whole = append(whole, end.Sub(begin))
			for i, p := range parts {
				took[i] = append(took[i], p)
			}
		}
		if len(whole) == 0 {
			b.Fatalf("none of %d requests could be followed", missed)
		}
		disk := syncP50(b)
		fmt.Printf("\n| a write through a follower, p50 of %d (%d not followed) | µs | ÷ raw fdatasync (%v) |\n| --- | --- | --- |\n", len(whole), missed, disk)
		line := func(name string, d time.Duration) {
			fmt.Printf("| %s | %d | %.2f |\n", name, d.Microseconds(), float64(d)/float64(disk))
		}
		for i, name := range stages {
			line(name, middle(took[i]))
		}
		line("all", middle(whole))
		fmt.Println()
	}
}
