package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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
	"github.com/signalbox/signalbox/test/openapitest"
)

// service is the real thing: a cluster with its API, on a network in memory and in
// virtual time. It carries a client's requests as an http.RoundTripper.
type service struct {
	*testing.T
	ctx   context.Context
	net   *memnet.Network
	nodes map[string]*cluster.Node
	store map[string]*store.Store

	logging sync.Mutex
	log     bytes.Buffer // of all nodes, shown if the test fails

	mu      sync.Mutex
	api     map[string]*httpapi.Handler // of the nodes that can be reached
	lose    func(*http.Request) bool    // replies to lose
	late    func(*http.Request) bool    // requests that are carried out after lateBy, unheard
	pending sync.WaitGroup
}

// really runs a test against a real cluster of so many nodes.
func really(t *testing.T, nodes int, test func(s *service, c *client.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &service{T: t, ctx: context.Background(), net: memnet.New(),
			nodes: map[string]*cluster.Node{}, store: map[string]*store.Store{}, api: map[string]*httpapi.Handler{}}
		defer func() {
			if t.Failed() {
				s.logging.Lock()
				defer s.logging.Unlock()
				t.Logf("the nodes' log:\n%s", &s.log)
			}
		}()
		var peers []cluster.Peer
		var addresses []string
		for i := range nodes {
			id := fmt.Sprintf("n%d", i+1)
			peers = append(peers, cluster.Peer{ID: id, Address: id + ":8711"})
			addresses = append(addresses, "http://"+id)
		}
		for _, p := range peers {
			s.start(p.ID, peers)
		}
		c, err := client.New(client.Config{Addresses: addresses, InOrder: true, HTTPClient: &http.Client{Transport: s}})
		s.ok(err)
		test(s, c)
		s.ok(c.Close(s.ctx))
		for id := range s.nodes {
			s.stop(id)
		}
		s.pending.Wait()
	})
}

func (s *service) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *service) is(err error, targets ...error) {
	s.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			s.Errorf("error %q is not %q", err, target)
		}
	}
}

func (s *service) start(id string, peers []cluster.Peer) {
	s.Helper()
	var err error
	s.store[id], err = store.Open(store.Options{Ephemeral: true, NodeID: id})
	s.ok(err)
	s.nodes[id], err = cluster.Start(s.ctx, cluster.Config{NodeID: id, Bind: id + ":8711", Network: s.net.Host(id), Store: s.store[id], Peers: peers,
		Logger: hclog.New(&hclog.LoggerOptions{Name: id, Level: hclog.Info, Output: &s.log, Mutex: &s.logging})})
	s.ok(err)
	x, err := exchange.New(exchange.Config{Node: s.nodes[id]})
	s.ok(err)
	s.api[id], err = httpapi.New(httpapi.Config{Exchange: x})
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

// lateBy is how long a late request is on its way.
const lateBy = 10 * time.Second

// deliverLate carries a request out when its client has long given it up.
func (s *service) deliverLate(r *http.Request) {
	body, err := io.ReadAll(r.Body)
	s.ok(err)
	arriving := r.Clone(s.ctx)
	arriving.Body = io.NopCloser(bytes.NewReader(body))
	s.pending.Add(1)
	time.AfterFunc(lateBy, func() {
		defer s.pending.Done()
		s.mu.Lock()
		api := s.api[r.URL.Host]
		s.mu.Unlock()
		api.ServeHTTP(httptest.NewRecorder(), arriving)
	})
}

// drop makes replies to be lost from now on; nil: none.
func (s *service) drop(lose func(*http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose = lose
}

// RoundTrip is that of http.RoundTripper.
func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	api, lose, late := s.api[r.URL.Host], s.lose != nil && s.lose(r), s.late != nil && s.late(r)
	s.mu.Unlock()
	if late {
		s.deliverLate(r)
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if api == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}
	recorder, served := httptest.NewRecorder(), make(chan struct{})
	arriving := r.Clone(r.Context())
	if arriving.Body == nil {
		arriving.Body = http.NoBody
	}
	sent := openapitest.Record(arriving)
	s.pending.Add(1)
	go func() {
		defer s.pending.Done()
		defer close(served)
		api.ServeHTTP(recorder, arriving)
		openapitest.Check(s, arriving, sent, recorder)
	}()
	select {
	case <-served:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if lose {
		return nil, io.ErrUnexpectedEOF
	}
	return recorder.Result(), nil
}

// loseFirst loses the replies to the first n requests that match.
func (s *service) loseFirst(n int, method, part string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose = func(r *http.Request) bool {
		if r.Method != method || !strings.Contains(r.URL.Path, part) || n == 0 {
			return false
		}
		n--
		return true
	}
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

func TestRealLeases(t *testing.T) {
	really(t, 1, func(s *service, c *client.Client) {
		_, _, err := c.Put(s.ctx, "db", client.Permits(2))
		s.ok(err)
		_, _, err = c.Put(s.ctx, "other", client.Permits(1))
		s.ok(err)
		first, err := c.OpenSession(s.ctx, client.SessionOptions{TTL: 9 * time.Second, Metadata: map[string]string{"a": "b"}})
		s.ok(err)
		second, err := c.OpenSession(s.ctx, client.SessionOptions{})
		s.ok(err)
		_, err = first.Acquire(s.ctx, "db", client.Count(3))
		s.is(err, client.ErrNever)
		s.loseFirst(2, "PUT", "/leases/")
		lease, err := first.Acquire(s.ctx, "db", client.Count(2))
		s.ok(err)
		_, err = second.TryAcquire(s.ctx, "db")
		s.is(err, client.ErrUnavailable)
		short, cancel := context.WithTimeout(s.ctx, 2*time.Minute)
		defer cancel()
		_, err = second.Acquire(short, "db") // also beyond one slice
		s.is(err, client.ErrUnavailable, context.DeadlineExceeded)
		waits := later(func() (*client.Lease, error) { return c.Acquire(s.ctx, "db", client.TTL(6*time.Second)) })
		time.Sleep(time.Minute) // virtual
		seen, err := c.Get(s.ctx, "db")
		s.ok(err)
		if seen.HolderCount != 1 || seen.Holders[0].Token != lease.Token || seen.Holders[0].Metadata["a"] != "b" || seen.WaiterCount != 1 {
			t.Errorf("%+v", seen)
		}
		s.loseFirst(1, "DELETE", "/leases/")
		s.ok(lease.Release(s.ctx))
		r := <-waits
		s.ok(r.err)
		if left := time.Until(r.lease.Deadline()); left < 5900*time.Millisecond || left > 6*time.Second || r.lease.Token <= lease.Token {
			t.Errorf("%v left, token %d after %d", left, r.lease.Token, lease.Token)
		}
		both, err := second.AcquireAll(s.ctx, client.Want{Name: "other"}, client.Want{Name: "db"})
		s.ok(err)
		if both[0].Semaphore != "other" || both[1].Token <= both[0].Token {
			t.Errorf("%+v", both)
		}
		time.Sleep(time.Minute) // virtual
		s.ok(both[1].Err())
		s.ok(r.lease.Err())
		s.ok(both[1].Release(s.ctx))
		any, err := first.AcquireAny(s.ctx, client.Want{Name: "other"}, client.Want{Name: "db"})
		s.ok(err)
		if any.Semaphore != "db" {
			t.Errorf("%+v", any)
		}
		s.ok(r.lease.Release(s.ctx))
	})
}

// What an operator and other clients do to a lease, over the real API.
func TestRealLosses(t *testing.T) {
	really(t, 1, func(s *service, c *client.Client) {
		_, _, err := c.Put(s.ctx, "db", client.Permits(9))
		s.ok(err)
		_, _, err = c.Put(s.ctx, "gone", client.Permits(1))
		s.ok(err)
		operator := func(path string) {
			r, err := http.NewRequest(http.MethodDelete, "http://n1"+path+"?reason=maintenance", nil)
			if strings.HasSuffix(path, "/revoke") {
				r, err = http.NewRequest(http.MethodPost, "http://n1"+path, strings.NewReader(`{"reason":"maintenance"}`))
			}
			s.ok(err)
			response, err := s.RoundTrip(r)
			s.ok(err)
			if response.StatusCode != http.StatusNoContent {
				t.Fatalf("%s: %d", path, response.StatusCode)
			}
		}
		session, err := c.OpenSession(s.ctx, client.SessionOptions{TTL: 9 * time.Second})
		s.ok(err)
		revoked, err := session.Acquire(s.ctx, "db")
		s.ok(err)
		deleted, err := session.Acquire(s.ctx, "gone")
		s.ok(err)
		single, err := c.Acquire(s.ctx, "db")
		s.ok(err)
		operator("/v1/semaphores/db/holders/" + session.ID())
		s.ok(c.Delete(s.ctx, "gone"))
		operator("/v1/sessions/" + single.Session + "/revoke")
		for _, tc := range []struct {
			lease *client.Lease
			why   error
		}{{revoked, client.ErrRevoked}, {deleted, client.ErrUnknownSemaphore}, {single, client.ErrRevoked}} {
			select {
			case <-tc.lease.Lost():
			case <-time.After(11 * time.Second):
				t.Errorf("%s is not lost", tc.lease.Semaphore)
			}
			s.is(tc.lease.Err(), client.ErrLost, tc.why)
			s.is(tc.lease.Release(s.ctx), client.ErrLost, tc.why)
			var e *client.Error
			if tc.why == client.ErrRevoked && (!errors.As(tc.lease.Err(), &e) || e.Reason != "maintenance") {
				t.Errorf("%v", tc.lease.Err())
			}
		}
		s.ok(session.Err())
		again, err := session.Acquire(s.ctx, "db")
		s.ok(err)
		s.ok(again.Release(s.ctx))
	})
}

// Waits of all kinds keep their place when the leader stops.
func TestRealLeaderStops(t *testing.T) {
	really(t, 3, func(s *service, c *client.Client) {
		_, _, err := c.Put(s.ctx, "db", client.Permits(1))
		s.ok(err)
		_, _, err = c.Put(s.ctx, "jobs", client.Permits(0))
		s.ok(err)
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

func TestRealCancelledWaits(t *testing.T) {
	really(t, 1, func(s *service, c *client.Client) {
		_, _, err := c.Put(s.ctx, "db", client.Permits(1))
		s.ok(err)
		_, err = c.Acquire(s.ctx, "db")
		s.ok(err)
		for range 3 {
			ctx, cancel := context.WithCancel(s.ctx)
			waits := later(func() (*client.Lease, error) { return c.Acquire(ctx, "db") })
			down := later(func() (*client.Lease, error) { _, err := c.Down(ctx, "db", 1); return nil, err })
			time.Sleep(time.Minute) // virtual
			s.loseFirst(2, "POST", "")
			cancel()
			s.is((<-waits).err, context.Canceled, client.ErrUnavailable)
			s.is((<-down).err, context.Canceled, client.ErrUnavailable)
			seen, err := c.Get(s.ctx, "db")
			s.ok(err)
			if seen.WaiterCount != 0 || seen.HolderCount != 1 || seen.Offset != 0 {
				t.Errorf("%+v", seen)
			}
		}
	})
}

func TestRealWatch(t *testing.T) {
	really(t, 1, func(s *service, c *client.Client) {
		_, _, err := c.Put(s.ctx, "db", client.Permits(1))
		s.ok(err)
		go func() {
			for n := int64(2); n <= 4; n++ {
				time.Sleep(3 * time.Minute) // virtual
				_, _, _ = c.Put(s.ctx, "db", client.Permits(n))
			}
			time.Sleep(3 * time.Minute) // virtual
			_ = c.Delete(s.ctx, "db")
		}()
		seen := ""
		for db, err := range c.Watch(s.ctx, "db") {
			if err != nil {
				s.is(err, client.ErrUnknownSemaphore)
				break
			}
			seen += fmt.Sprint(db.Permits, " ")
		}
		if seen != "1 2 3 4 " {
			t.Errorf("saw %s", seen)
		}
	})
}
