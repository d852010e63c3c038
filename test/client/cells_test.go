package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/cells"
	"github.com/signalbox/signalbox/client/operator"
	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/httpapi/proxy"
	"github.com/signalbox/signalbox/store"
	"github.com/signalbox/signalbox/test/memnet"
)

// divided is two clusters of three nodes each, behind a proxy, in virtual time.
type divided struct {
	*node
	parts  map[int]*service
	proxy  *proxy.Proxy
	net    *network // to the proxy
	inside *network // to the nodes
}

// inCells runs a test with the prefix "" in cell 1 and the others in cell 2.
func inCells(t *testing.T, prefixes []string, test func(d *divided)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &divided{node: &node{T: t, ctx: context.Background()}, parts: map[int]*service{}}
		for number := 1; number <= 2; number++ {
			s := &service{bed: &bed{node: d.node}, cell: number, mem: memnet.New(), nodes: map[string]*cluster.Node{}, store: map[string]*store.Store{}, api: map[string]*httpapi.Handler{}}
			d.parts[number] = s
			var peers []cluster.Peer
			for _, id := range []string{"n1", "n2", "n3"} {
				peers = append(peers, cluster.Peer{ID: id, Address: id + ":8711"})
			}
			for _, p := range peers {
				s.start(p.ID, peers)
			}
		}
		d.inside = &network{t: t, node: func(host string) http.Handler {
			var number int
			var id string
			_, err := fmt.Sscanf(strings.ReplaceAll(host, ".", " "), "%s %d:8701", &id, &number)
			d.ok(err)
			return d.parts[number].at(id)
		}}
		var err error
		d.proxy, err = proxy.New(proxy.Config{Cells: d.cells(prefixes...), Transport: d.inside})
		d.ok(err)
		d.net = &network{t: t, node: func(string) http.Handler { return aborting{d.proxy} }}
		test(d)
		d.net.pending.Wait()
		d.inside.pending.Wait()
		for _, s := range d.parts {
			for id := range s.nodes {
				s.stop(id)
			}
		}
	})
}

// aborting ends a request as net/http's server does when a handler panics to abort it.
type aborting struct{ http.Handler }

func (a aborting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if cause := recover(); cause != nil && cause != http.ErrAbortHandler {
			panic(cause)
		}
	}()
	a.Handler.ServeHTTP(w, r)
}

// cells is the list in which cell 2 has these prefixes.
func (d *divided) cells(prefixes ...string) *cells.Map {
	d.Helper()
	var list []cells.Cell
	for _, c := range listOf(prefixes...) {
		list = append(list, cells.Cell(c))
	}
	m, err := cells.New(list)
	d.ok(err)
	return m
}

func listOf(prefixes ...string) (list []client.Cell) {
	for number, named := range map[int][]string{1: {""}, 2: prefixes} {
		c := client.Cell{Number: number, Prefixes: named}
		for _, id := range []string{"n1", "n2", "n3"} {
			c.Nodes = append(c.Nodes, fmt.Sprintf("http://%s.%d:8701", id, number))
		}
		list = append(list, c)
	}
	return list
}

// client returns a client of the proxy, or by a path of one cell.
func (d *divided) client(path string) *client.Client {
	d.Helper()
	c, err := client.New(client.Config{Addresses: []string{"http://proxy:8700" + path}, HTTPClient: newHTTP(d.net)})
	d.ok(err)
	return c
}

// raiseTokens sends PUT /v1/cluster/tokens to a cell, and returns its reply.
func (d *divided) raiseTokens(cell int, above string) string {
	d.Helper()
	r, err := http.NewRequest("PUT", fmt.Sprintf("http://proxy:8700/cells/%d/v1/cluster/tokens", cell), strings.NewReader(`{"above":`+above+`}`))
	d.ok(err)
	response, err := d.net.RoundTrip(r)
	d.ok(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	d.ok(err)
	if response.StatusCode != 200 {
		d.Fatalf("tokens: %d %s", response.StatusCode, text)
	}
	return strings.Trim(string(text), "{}\n\" :_abcdefghijklmnopqrstuvwxyz")
}

// worker holds a semaphore of one permit again and again, and notes the tokens.
type worker struct {
	mu     sync.Mutex
	tokens map[string][]uint64 // in the order of the grants
	lost   int
	other  []error
}

func (w *worker) work(ctx context.Context, c *client.Client, name string) {
	for ctx.Err() == nil {
		lease, err := c.Acquire(ctx, name, client.TTL(3*time.Second))
		if err != nil {
			if !errors.Is(err, client.ErrDeleted) && ctx.Err() == nil {
				w.mu.Lock()
				w.other = append(w.other, err)
				w.mu.Unlock()
			}
			continue // deleted by the move: ask again
		}
		w.mu.Lock()
		w.tokens[name] = append(w.tokens[name], lease.Token)
		w.mu.Unlock()
		select {
		case <-lease.Lost():
			w.mu.Lock()
			w.lost++
			w.mu.Unlock()
		case <-time.After(4 * time.Second): // virtual; longer than the ttl
		}
		_ = lease.Release(context.WithoutCancel(ctx)) // of a lost lease: counted
	}
}

// TestMoveOfAPrefix moves eu/ from cell 1 to cell 2 by the steps of docs/cells.md, while clients of the proxy hold leases
// and wait: no lease is lost, and the tokens of each name rise.
func TestMoveOfAPrefix(t *testing.T) {
	inCells(t, []string{"us/"}, func(d *divided) {
		c, before, after := d.client(""), d.client("/cells/1"), d.client("/cells/2")
		moved := []string{"eu/a", "eu/b"}
		all := append([]string{"db", "us/db"}, moved...)
		for _, name := range all {
			_, _, err := c.Put(d.ctx, name, client.Permits(1))
			d.ok(err)
		}
		_, _, err := c.Put(d.ctx, "db2", client.Permits(1))
		d.ok(err)
		stays, err := c.Acquire(d.ctx, "db2", client.TTL(3*time.Second))
		d.ok(err)
		ctx, stop := context.WithCancel(d.ctx)
		w := &worker{tokens: map[string][]uint64{}}
		var working sync.WaitGroup
		for _, name := range all {
			for range 3 {
				working.Go(func() { w.work(ctx, c, name) })
			}
		}
		time.Sleep(time.Minute) // virtual

		for _, name := range moved {
			d.ok(before.Pause(d.ctx, name, "moves to cell 2"))
		}
		for _, name := range moved {
			for held := int64(1); held > 0; time.Sleep(100 * time.Millisecond) { // virtual
				s, err := before.Get(d.ctx, name)
				d.ok(err)
				held = s.Held
			}
		}
		highest := d.raiseTokens(1, "0")
		d.raiseTokens(2, highest)
		for _, name := range moved {
			_, _, err := after.Put(d.ctx, name, client.Permits(1), client.Paused("moves here"))
			d.ok(err)
		}
		d.ok(d.proxy.SetCells(d.cells("us/", "eu/")))
		for _, name := range moved {
			d.ok(after.Resume(d.ctx, name))
		}
		counts := map[string]int{}
		w.mu.Lock()
		for _, name := range all {
			counts[name] = len(w.tokens[name])
		}
		w.mu.Unlock()
		for _, name := range moved {
			d.ok(before.Delete(d.ctx, name))
		}
		time.Sleep(time.Minute) // virtual
		stop()
		working.Wait()

		for _, name := range all {
			tokens := w.tokens[name]
			if counts[name] < 5 || len(tokens) < counts[name]+5 {
				t.Errorf("%s: %d grants, %d of them before the move", name, len(tokens), counts[name])
			}
			for i := 1; i < len(tokens); i++ {
				if tokens[i] <= tokens[i-1] {
					t.Errorf("%s: token %d came after %d", name, tokens[i], tokens[i-1])
				}
			}
		}
		select {
		case <-stays.Lost():
			w.lost++
		default:
		}
		if w.lost > 0 || len(w.other) > 0 {
			t.Errorf("%d leases were lost; errors: %v", w.lost, errors.Join(w.other...))
		}
		for _, each := range []*client.Client{c, before, after} {
			d.ok(each.Close(d.ctx))
		}
	})
}

// TestCells: a name has the client of its cell, a session is opened in a cell when it is first used there, and a list has
// the names of all cells in order.
func TestCells(t *testing.T) {
	inCells(t, []string{"eu/", "us/"}, func(d *divided) {
		c, err := client.NewCells(client.Config{HTTPClient: newHTTP(d.inside)}, listOf("eu/", "us/"))
		d.ok(err)
		names := []string{"db", "eu/a", "eu/b", "f", "us/a", "z"}
		for _, name := range names {
			_, _, err := c.For(name).Put(d.ctx, name, client.Permits(1))
			d.ok(err)
		}
		_, _, err = c.Numbered(1).Put(d.ctx, "eu/left", client.Permits(1)) // as after a move
		d.ok(err)
		if got := listed(d.parts[1], c.List(d.ctx, ""), func(s *client.Semaphore) string { return s.Name }, nil); got != strings.Join(names, " ") {
			t.Errorf("the list is %q", got)
		}
		for range c.List(d.ctx, "") {
			break // ends the lists of all cells
		}

		sessions := c.NewSessions(client.SessionOptions{TTL: 3 * time.Second})
		opened := func() (count int) {
			for number := 1; number <= 2; number++ {
				for _, err := range operator.New(c.Numbered(number)).ListSessions(d.ctx) {
					d.ok(err)
					count++
				}
			}
			return count
		}
		if n := opened(); n != 0 {
			t.Errorf("%d sessions before the first use", n)
		}
		var leases []*client.Lease
		for i, name := range []string{"eu/a", "us/a", "db"} {
			s, err := sessions.For(d.ctx, name)
			d.ok(err)
			lease, err := s.Acquire(d.ctx, name)
			d.ok(err)
			leases = append(leases, lease)
			if n, want := opened(), []int{1, 1, 2}[i]; n != want || c.ForSession(s.ID()) != c.For(name) {
				t.Errorf("%s: %d sessions, want %d; session %s is of another cell", name, n, want, s.ID())
			}
		}
		time.Sleep(10 * time.Second) // virtual; longer than the ttl
		for _, l := range leases {
			select {
			case <-l.Lost():
				t.Error("a lease was lost")
			default:
			}
		}
		d.ok(sessions.Close(d.ctx))
		if n := opened(); n != 0 {
			t.Errorf("%d sessions after their end", n)
		}
		if c.ForSession("5") != nil || c.ForSession("x") != nil || c.Numbered(3) != nil {
			t.Error("a client of no cell")
		}
		d.ok(c.Close(d.ctx))

		wrong := listOf("eu/", "us/")
		wrong[0].Nodes, wrong[1].Nodes = wrong[1].Nodes, wrong[0].Nodes
		c, err = client.NewCells(client.Config{HTTPClient: newHTTP(d.inside)}, wrong)
		d.ok(err)
		if _, err := c.For("db").Get(d.ctx, "db"); err == nil || !strings.Contains(err.Error(), "This node is of cell 2") {
			t.Errorf("a node of another cell: %v", err)
		}
	})
	for _, list := range [][]client.Cell{nil, listOf("")} {
		if _, err := client.NewCells(client.Config{}, list); err == nil {
			t.Errorf("%v is taken", list)
		}
	}
	if _, err := client.NewCells(client.Config{Addresses: []string{"n1"}}, listOf("eu/")); err == nil {
		t.Error("addresses outside of the cells are taken")
	}
}
