package nodered

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/httpapi/callback"
	"github.com/signalbox/signalbox/test/apitest"
	"github.com/signalbox/signalbox/test/noderedclient"
)

// nodeREDClient asks the handlers that pick returns, one for each address.
func nodeREDClient(pick ...func() http.Handler) *noderedclient.Client {
	c := &noderedclient.Client{HTTP: &http.Client{Transport: byHost(pick)}}
	for i := range pick {
		c.Addresses = append(c.Addresses, fmt.Sprintf("http://node%d", i))
	}
	return c
}

// byHost carries requests to node0, node1 ….
type byHost []func() http.Handler

func (hosts byHost) RoundTrip(r *http.Request) (*http.Response, error) {
	for i, pick := range hosts {
		if r.URL.Host == fmt.Sprintf("node%d", i) {
			return apitest.InMemory(pick).RoundTrip(r)
		}
	}
	return nil, errors.New("no such host")
}

func TestNodeREDClientRequests(t *testing.T) {
	inEachNodeRED(t, func(s *apitest.Site) {
		ctx, c := s.Context(), nodeREDClient(func() http.Handler { return s.Handler })
		check := func(what string, got, err any, want string) {
			s.Helper()
			if text := fmt.Sprint(got, " ", err); text != want {
				s.Errorf("%s: %s, want %s", what, text, want)
			}
		}
		for _, name := range []string{"n", "/&", "a b", "a%2541", "..", `^Rem2("22")`, "up", "value", "__proto__"} {
			_, err := c.Up(ctx, name)
			check("up of nothing", "", err, " semaphore not found")
			created, err := c.Create(ctx, name, 1)
			check("create "+name, created, err, "true <nil>")
			created, err = c.Create(ctx, name, 9)
			check("create again "+name, created, err, "false <nil>")
			value, err := c.Up(ctx, name)
			check("up "+name, value, err, "2 <nil>")
			value, err = c.Down(ctx, name)
			check("down "+name, value, err, "1 <nil>")
			value, err = c.Down(ctx, name)
			check("down "+name, value, err, "0 <nil>")
			_, err = c.Down(ctx, name)
			check("down at 0 "+name, "", err, " semaphore locked")
			value, err = c.Value(ctx, name)
			check("value "+name, value, err, "0 <nil>")
			check("delete "+name, "", c.Delete(ctx, name), " <nil>")
			check("delete again "+name, "", c.Delete(ctx, name), " semaphore not found")
			_, err = c.Value(ctx, name)
			check("value of nothing", "", err, " semaphore not found")
		}
		_, err := c.Create(ctx, "n", -1)
		check("create below 0", "", err, " status 400: Value needs to be positive")
	})
}

// Clients on all nodes count exactly while one leader after the other dies.
func TestNodeREDClientsThroughElections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := apitest.NewCluster(t, asNodeRED)
		var pick []func() http.Handler
		up := map[string]*atomic.Pointer[httpapi.Handler]{} // the handler that listens; nil: the node is down
		for _, id := range nodes.IDs {
			at := &atomic.Pointer[httpapi.Handler]{}
			at.Store(nodes.APIs[id])
			up[id] = at
			pick = append(pick, func() http.Handler {
				if h := at.Load(); h != nil {
					return h
				}
				return nil
			})
		}
		var keys atomic.Int64
		var moved atomic.Int64
		client := func(first int) *noderedclient.Client {
			c := nodeREDClient(pick...)
			c.Addresses = append(c.Addresses[first:], c.Addresses[:first]...)
			c.Key = func() string { return fmt.Sprintf("node-red-client-%d", keys.Add(1)) }
			return c
		}
		if created, err := client(0).Create(t.Context(), "n", 100); !created || err != nil {
			t.Fatal(created, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for i := range 6 {
			running.Go(func() {
				for ctx.Err() == nil {
					c := client(i % 3)
					if _, err := c.Down(t.Context(), "n"); err != nil {
						t.Error(err)
					}
					if _, err := c.Up(t.Context(), "n"); err != nil {
						t.Error(err)
					}
					moved.Add(1)
					time.Sleep(10 * time.Millisecond) // virtual: the pace of the work
				}
			})
		}
		for range 2 {
			time.Sleep(2 * time.Second) // virtual
			leader := nodes.Leader()
			up[leader].Store(nil)
			nodes.Kill(leader)
			time.Sleep(5 * time.Second) // virtual
			nodes.Net.Rejoin(leader)
			nodes.Start(leader)
			up[leader].Store(nodes.APIs[leader])
			nodes.AwaitReady()
		}
		stop()
		running.Wait()
		value, err := client(0).Value(t.Context(), "n")
		if err != nil || value != 100 || moved.Load() < 300 {
			t.Errorf("value %d, %v after %d rounds", value, err, moved.Load())
		}
	})
}

// A client that could not have a permit is called back over real HTTP when it can,
// and calls again.
func TestNodeREDCalledBack(t *testing.T) {
	called := make(chan string, 4)
	hook := newHook(t, called)
	sender, err := callback.New([]string{hook})
	if err != nil {
		t.Fatal(err)
	}
	s, node := onNodeRED(t, asNodeREDWith(Config{CheckCallback: sender.Check}))
	s.Is(s.Ask("POST /semaphore", `{"name":"n","value":0}`), `200 utf8json {"name":"n","value":0}`)
	s.Is(s.Ask("POST /semaphore/down", `{"name":"n","callback":"http://127.0.0.1:1/"}`),
		"400 text callback: This service does not call that host and port: its operator lists what it may call.")
	got := s.Ask("POST /semaphore/down", `{"name":"n","callback":"http://`+hook+`/free"}`)
	s.Is(got, "409 text Semaphore locked")
	s.Is(s.Ask("POST /semaphore/up", `{"name":"n"}`), `200 utf8json {"name":"n","value":1}`)
	var due []fsm.NoticeView
	node.View(func(m *fsm.Machine) { due = m.DueNotices() })
	if len(due) != 1 {
		t.Fatalf("%d notices are due", len(due))
	}
	if err := sender.Notify(t.Context(), due[0]); err != nil {
		t.Fatal(err)
	}
	if text, want := <-called, `/free {"id":`+got.Header("X-Signalbox-Notice")+`,"name":"n","value":1,"reason":"available"}`; text != want {
		t.Errorf("called with %s, want %s", text, want)
	}
	s.Is(s.Ask("POST /semaphore/down", `{"name":"n"}`), `200 utf8json {"name":"n","value":0}`)
}

// newHook serves on a port of this host, sends the path and body of each request to
// called, and returns its host:port.
func newHook(t *testing.T, called chan<- string) string {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		called <- r.URL.Path + " " + string(body)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}
