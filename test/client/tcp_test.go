package client_test

import (
	"context"
	"net"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/test/clienttest"
)

// clientGoroutines returns the stacks that are in this package, or below it.
func clientGoroutines() (stacks []string) {
	buffer := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
		if strings.Contains(stack, "signalbox/client.") || strings.Contains(stack, "signalbox/client/internal") && !strings.Contains(stack, "clientGoroutines(") {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}

// The same over real connections, with the HTTP client of the package's own: the node
// in use stops while a request waits there, and Close leaves no goroutine running.
func TestRealConnections(t *testing.T) {
	cluster := clienttest.Start(t)
	f := (&node{t, t.Context(), cluster.Client()}).put("db", 1).put("a/b", 1)
	first, second := httptest.NewServer(cluster.Handler()), httptest.NewServer(cluster.Handler())
	defer second.Close()
	c, err := client.New(client.Config{Addresses: []string{first.URL, second.URL + "/"}, InOrder: true})
	must(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := c.OpenSession(ctx, client.SessionOptions{TTL: 3 * time.Second})
	must(t, err)
	free := f.occupy("db", 1)
	waits := later(func() (*client.Lease, error) { return s.Acquire(ctx, "db") })
	for f.waiters("db") == 0 {
		runtime.Gosched()
	}
	first.Listener.Close() // else a request may come back before it is gone
	first.CloseClientConnections()
	first.Close()
	if value, err := c.Up(ctx, "a/b", 1); err != nil || value != 2 {
		t.Fatal(value, err)
	}
	free()
	r := <-waits
	if r.err != nil {
		t.Fatal(r.err)
	}
	lone, err := c.Acquire(ctx, "a/b", client.Count(2))
	must(t, err)
	if lone.Err() != nil || r.lease.Err() != nil || len(f.grants("db")) != 2 || len(f.grants("a/b")) != 1 {
		t.Errorf("%v, %v, grants %v, %v", lone.Err(), r.lease.Err(), f.grants("db"), f.grants("a/b"))
	}
	must(t, c.Close(ctx))
	// The goroutine that let Close return may be at its last instruction still.
	left := clientGoroutines()
	for until := time.Now().Add(5 * time.Second); len(left) > 0 && time.Now().Before(until); left = clientGoroutines() {
		runtime.Gosched()
	}
	if len(left) > 0 {
		t.Errorf("still running after Close:\n%s", strings.Join(left, "\n\n"))
	}
	if f.sessions() != 0 || f.available("db") != 1 || f.available("a/b") != 2 {
		t.Error("something is still held")
	}
}

// Seven calls of three seconds succeed, over real connections, beside a node whose
// port accepts connections and never replies.
func TestSilentPort(t *testing.T) {
	cluster := clienttest.Start(t)
	_ = (&node{t, t.Context(), cluster.Client()}).put("db", 0)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the system accepts for it
	must(t, err)
	defer silent.Close()
	second, third := httptest.NewServer(cluster.Handler()), httptest.NewServer(cluster.Handler())
	defer second.Close()
	defer third.Close()
	c, err := client.New(client.Config{Addresses: []string{"http://" + silent.Addr().String(), second.URL, third.URL}, InOrder: true})
	must(t, err)
	for i := range int64(7) {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		value, err := c.Up(ctx, "db", 1)
		cancel()
		if err != nil || value != i+1 {
			t.Errorf("call %d: %d, %v", i+1, value, err)
		}
	}
	if err := c.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
