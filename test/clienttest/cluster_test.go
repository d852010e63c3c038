package clienttest_test

import (
	"errors"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
	"github.com/signalbox/signalbox/test/clienttest"
)

func made(t *testing.T, c *client.Client, name string, permits int64) {
	t.Helper()
	if _, _, err := c.Put(t.Context(), name, client.Permits(permits)); err != nil {
		t.Fatal(err)
	}
}

// TestProcesses: clients are processes of one cluster, and clusters of different tests share
// no state.
func TestProcesses(t *testing.T) {
	cluster, other := clienttest.Start(t), clienttest.Start(t)
	first, second := cluster.Client(), cluster.Client()
	made(t, first, "db", 1)
	held, err := first.Acquire(t.Context(), "db")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.TryAcquire(t.Context(), "db"); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("the permit of another process: %v", err)
	}
	if _, err := other.Client().Get(t.Context(), "db"); !errors.Is(err, client.ErrUnknownSemaphore) {
		t.Errorf("in another cluster: %v", err)
	}
	if err := operator.New(second).Revoke(t.Context(), "db", held.Session, "test", 0); err != nil {
		t.Fatal(err)
	}
	next, err := second.Acquire(t.Context(), "db")
	if err != nil || next.Token <= held.Token {
		t.Errorf("after the revocation: %+v, %v", next, err)
	}
}

// TestHandler: the node can be served at an address.
func TestHandler(t *testing.T) {
	cluster := clienttest.Start(t)
	server := httptest.NewServer(cluster.Handler())
	defer server.Close()
	c, err := client.New(client.Config{Addresses: []string{server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	made(t, c, "db", 3)
	if s, err := cluster.Client().Get(t.Context(), "db"); err != nil || s.Permits != 3 {
		t.Errorf("%+v, %v", s, err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestCutOff: while clients are cut off the node goes on, and the permits of a lost lease go to
// the next request.
func TestCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clienttest.Start(t)
		c := cluster.Client()
		made(t, c, "db", 1)
		held, err := c.Acquire(t.Context(), "db", client.TTL(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // virtual: it is renewed
		if held.Err() != nil {
			t.Fatal(held.Err())
		}
		cluster.CutOff()
		<-held.Lost()
		time.Sleep(time.Minute) // virtual: the lease ends
		cluster.Rejoin()
		next, err := c.Acquire(t.Context(), "db")
		if err != nil || next.Token <= held.Token {
			t.Errorf("after the loss: %+v, %v", next, err)
		}
		for e, err := range operator.New(c).Events(t.Context(), operator.OfSemaphore("db"), operator.Since("0")) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == "expired" && e.Session == held.Session {
				break
			}
		}
	})
}
