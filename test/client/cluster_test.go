package client_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/store"
	"github.com/signalbox/signalbox/test/memnet"
)

// service is a cluster of several nodes, on a network in memory and in virtual time, with the
// client of a bed.
type service struct {
	*bed
	cell  int // as serve --cell has it
	mem   *memnet.Network
	nodes map[string]*cluster.Node
	store map[string]*store.Store

	logging sync.Mutex
	log     bytes.Buffer // of all nodes, shown if the test fails

	mu  sync.Mutex
	api map[string]*httpapi.Handler // of the nodes that can be reached
}

// really runs a test against a cluster of so many nodes.
func really(t *testing.T, nodes int, test func(s *service, c *client.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &service{mem: memnet.New(), nodes: map[string]*cluster.Node{}, store: map[string]*store.Store{}, api: map[string]*httpapi.Handler{}}
		outside := newBed(&node{T: t, ctx: context.Background()}, nodes, s.at) // meets no fault
		s.bed = newBed(&node{t, context.Background(), outside.c}, nodes, s.at)
		defer func() {
			if t.Failed() {
				s.logging.Lock()
				defer s.logging.Unlock()
				t.Logf("the nodes' log:\n%s", &s.log)
			}
		}()
		var peers []cluster.Peer
		for i := range nodes {
			id := fmt.Sprintf("n%d", i+1)
			peers = append(peers, cluster.Peer{ID: id, Address: id + ":8711"})
		}
		for _, p := range peers {
			s.start(p.ID, peers)
		}
		test(s, s.c)
		s.end()
		outside.end()
		for id := range s.nodes {
			s.stop(id)
		}
	})
}

// at returns the API of the node with this address, nil if it does not run.
func (s *service) at(address string) http.Handler {
	id, _, _ := strings.Cut(address, ":")
	s.mu.Lock()
	defer s.mu.Unlock()
	if api := s.api[id]; api != nil {
		return api
	}
	return nil
}

func (s *service) start(id string, peers []cluster.Peer) {
	s.Helper()
	var err error
	s.store[id], err = store.Open(store.Options{Ephemeral: true, NodeID: id})
	s.ok(err)
	s.nodes[id], err = cluster.Start(s.ctx, cluster.Config{NodeID: id, Bind: id + ":8711", Network: s.mem.Host(id), Store: s.store[id], Peers: peers, Cell: s.cell,
		Logger: hclog.New(&hclog.LoggerOptions{Name: id, Level: hclog.Info, Output: &s.log, Mutex: &s.logging})})
	s.ok(err)
	x, err := exchange.New(exchange.Config{Node: s.nodes[id]})
	s.ok(err)
	s.api[id], err = httpapi.New(httpapi.Config{Exchange: x, Cell: s.cell})
	s.ok(err)
}

// stop ends a node as SIGTERM does.
func (s *service) stop(id string) {
	s.Helper()
	if s.nodes[id] == nil {
		return
	}
	s.nodes[id].Drain()
	s.api[id].EndWaits()
	ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
	defer cancel()
	if err := s.nodes[id].Close(ctx); err != nil {
		s.Errorf("close %s: %v", id, err)
	}
	s.mu.Lock()
	delete(s.api, id)
	s.mu.Unlock()
	s.ok(s.store[id].Close())
	delete(s.nodes, id)
}

// leader returns the leading node.
func (s *service) leader() string {
	s.Helper()
	for range 60_000 {
		for id, n := range s.nodes {
			if n.Status().Leader == id {
				return id
			}
		}
		time.Sleep(time.Millisecond) // virtual
	}
	s.Fatal("no leader within a minute")
	return ""
}

func TestRealSemaphores(t *testing.T) {
	really(t, 1, func(s *service, c *client.Client) {
		for _, name := range []string{"/&", "a b", "a%2541", "..", `^Rem2("22")`, "up", "__proto__"} {
			made, created, err := c.Create(s.ctx, name, 3, client.Level(2), client.Metadata{"k": "v"})
			s.ok(err)
			if !created || made.Name != name || made.Permits != 3 || *made.Level != 2 || made.Metadata["k"] != "v" || made.Epoch == 0 {
				t.Errorf("%q: %+v", name, made)
			}
			s.loseFirst(1, "POST", "/up")
			value, err := c.Up(s.ctx, name, 2)
			s.ok(err)
			taken, err := c.Down(s.ctx, name, 1, client.Epoch(made.Epoch))
			s.ok(err)
			if value != 5 || taken != (client.Taken{Granted: 1, Value: 4}) {
				t.Errorf("%q: %d, %+v", name, value, taken)
			}
			_, err = c.TryDown(s.ctx, name, 9)
			s.is(err, client.ErrUnavailable)
			value, err = c.SetValue(s.ctx, name, 1)
			s.ok(err)
			changed, _, err := c.Put(s.ctx, name, client.NoLevel(), client.Metadata(nil))
			s.ok(err)
			if value != 1 || changed.Level != nil || len(changed.Metadata) != 0 || changed.Available != 1 {
				t.Errorf("%q: %d, %+v", name, value, changed)
			}
			_, _, err = c.Put(s.ctx, name, client.Permits(1), client.OnlyNew())
			s.is(err, client.ErrPreconditionFailed)
			s.is(c.Delete(s.ctx, name, client.Epoch(made.Epoch+1)), client.ErrPreconditionFailed)
			s.loseFirst(1, "DELETE", "")
			s.ok(c.Delete(s.ctx, name))
			s.is(c.Delete(s.ctx, name), client.ErrUnknownSemaphore)
		}
		for i := range 250 {
			_, _, err := c.Put(s.ctx, fmt.Sprintf("list/%03d", i), client.Permits(1))
			s.ok(err)
		}
		n := 0
		for listed, err := range c.List(s.ctx, "list/", client.Stale()) {
			s.ok(err)
			if listed.Name != fmt.Sprintf("list/%03d", n) {
				t.Errorf("%d is %s", n, listed.Name)
			}
			n++
		}
		if n != 250 {
			t.Errorf("%d listed", n)
		}
		down := make(chan error, 1)
		go func() {
			_, err := c.Down(s.ctx, "list/000", 2)
			down <- err
		}()
		time.Sleep(time.Second) // virtual
		seen, err := c.Get(s.ctx, "list/000")
		s.ok(err)
		w := seen.Waiters[0]
		if w.BlockedBy != "not-enough-available" || w.Reason != "It needs 2, 1 available." || !w.Unowned || w.ExpiresIn <= 0 ||
			w.ObstacleCount != 1 || !slices.Equal(w.Obstacles, []client.Obstacle{{Semaphore: "list/000", BlockedBy: w.BlockedBy, Needs: 2, Available: 1}}) {
			t.Errorf("it waits as %+v", w)
		}
		_, err = c.Up(s.ctx, "list/000", 1)
		s.ok(err)
		s.ok(<-down)
	})
}

// Waits of all kinds keep their place when the leader stops.
func TestRealLeaderStops(t *testing.T) {
	really(t, 3, func(s *service, c *client.Client) {
		s.put("db", 1)
		s.put("jobs", 0)
		holder, err := c.OpenSession(s.ctx, client.SessionOptions{})
		s.ok(err)
		lease, err := holder.Acquire(s.ctx, "db")
		s.ok(err)
		session, err := c.OpenSession(s.ctx, client.SessionOptions{})
		s.ok(err)
		first := later(func() (*client.Lease, error) { return session.Acquire(s.ctx, "db") })
		time.Sleep(time.Second) // virtual
		second := later(func() (*client.Lease, error) { return c.Acquire(s.ctx, "db") })
		down := make(chan error, 1)
		go func() {
			_, err := c.Down(s.ctx, "jobs", 1)
			down <- err
		}()
		time.Sleep(time.Second) // virtual
		s.stop(s.leader())
		time.Sleep(15 * time.Second) // virtual
		seen, err := c.Get(s.ctx, "db")
		s.ok(err)
		if seen.WaiterCount != 2 || seen.Waiters[0].Session != session.ID() {
			t.Errorf("%+v", seen.Waiters)
		}
		s.ok(lease.Release(s.ctx))
		r := <-first
		s.ok(r.err)
		s.ok(r.lease.Release(s.ctx))
		s.ok((<-second).err)
		value, err := c.Up(s.ctx, "jobs", 1)
		s.ok(err)
		s.ok(<-down)
		if value != 0 {
			t.Errorf("%d jobs left", value)
		}
	})
}
