package client_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/store"
	"github.com/signalbox/signalbox/test/memnet"
)

// divided is two clusters of three nodes each, in virtual time.
type divided struct {
	*node
	parts map[int]*service
	net   *network
}

// inCells runs a test with cells 1 and 2.
func inCells(t *testing.T, test func(d *divided)) {
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
		d.net = &network{t: t, node: func(host string) http.Handler {
			var number int
			var id string
			_, err := fmt.Sscanf(strings.ReplaceAll(host, ".", " "), "%s %d:8701", &id, &number)
			d.ok(err)
			return d.parts[number].at(id)
		}}
		test(d)
		d.net.pending.Wait()
		for _, s := range d.parts {
			for id := range s.nodes {
				s.stop(id)
			}
		}
	})
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

// TestCells: a name has the client of its cell, a session is opened in a cell when it is first used there, and a list has
// the names of all cells in order.
func TestCells(t *testing.T) {
	inCells(t, func(d *divided) {
		c, err := client.NewCells(client.Config{HTTPClient: newHTTP(d.net)}, listOf("eu/", "us/"))
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
		c, err = client.NewCells(client.Config{HTTPClient: newHTTP(d.net)}, wrong)
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
