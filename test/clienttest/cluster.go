package clienttest

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/store"
)

const (
	node        = "n1"
	address     = "http://signalbox.test"
	connections = 10_000
	// endsIn bounds how long the node and a client take to end.
	endsIn = 10 * time.Second
)

// Cluster is a cluster of one node.
type Cluster struct {
	t       testing.TB
	handler http.Handler
	pipes   *pipes
	http    *http.Client
}

// Start starts a cluster, which ends with the test. It fails the test if that can't be.
func Start(t testing.TB) *Cluster {
	t.Helper()
	folder, err := store.OpenEphemeral(node)
	if err != nil {
		t.Fatal(err)
	}
	started, err := cluster.Start(context.Background(), cluster.Config{NodeID: node, Bind: "127.0.0.1:1", Network: alone{}, Store: folder})
	if err != nil {
		t.Fatal(errors.Join(err, folder.Close()))
	}
	end := func() {
		ctx, cancel := context.WithTimeout(context.Background(), endsIn)
		defer cancel()
		if err := errors.Join(started.Close(ctx), folder.Close()); err != nil {
			t.Error(err)
		}
	}
	x, err := exchange.New(exchange.Config{Node: started})
	var handler *httpapi.Handler
	if err == nil {
		handler, err = httpapi.New(httpapi.Config{Exchange: x, MaxConnections: connections})
	}
	if err != nil {
		end()
		t.Fatal(err)
	}
	c := &Cluster{t: t, handler: handler, pipes: newPipes()}
	transport := &http.Transport{DialContext: c.pipes.dial, MaxIdleConnsPerHost: 100}
	c.http = &http.Client{Transport: transport}
	server, served := httpapi.NewServer(handler), make(chan error, 1)
	go func() { served <- server.Serve(c.pipes) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), endsIn)
		defer cancel()
		started.Drain()
		transport.CloseIdleConnections()
		if err := errors.Join(server.Shutdown(ctx), <-served); err != nil {
			t.Error(err)
		}
		end()
	})
	return c
}

// Config returns the settings of a client of this cluster. The caller may add to them, and
// closes the client that it makes before the test ends.
func (c *Cluster) Config() client.Config {
	return client.Config{Addresses: []string{address}, HTTPClient: c.http}
}

// Client returns a new client of this cluster, for one of the processes that a test is about.
// It is closed at the end of the test, which releases its leases.
func (c *Cluster) Client() *client.Client {
	c.t.Helper()
	made, err := client.New(c.Config())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), endsIn)
		defer cancel()
		_ = made.Close(ctx) // fails for leases that the test took away
	})
	return made
}

// Handler returns the node's API, which a server of the test's own can serve.
func (c *Cluster) Handler() http.Handler { return c.handler }

// CutOff breaks the connections of all clients and refuses new ones until Rejoin: calls fail again and again,
// and leases are lost once their ttl is over. The node goes on.
func (c *Cluster) CutOff() { c.pipes.setCut(true) }

// Rejoin ends CutOff.
func (c *Cluster) Rejoin() { c.pipes.setCut(false) }
