package reads_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/apitest"
)

// ask sends a read that waits, and returns once it watches items.
func ask(a *apitest.API, line string) <-chan apitest.Reply {
	before := a.Gauge("signalbox_blocking_queries_open")
	waiting := a.GoDo("GET "+line, "")
	for a.Gauge("signalbox_blocking_queries_open") == before {
		select {
		case got := <-waiting:
			a.Fatalf("%s does not wait: %d %s", line, got.Status, got.Text)
		default:
		}
	}
	return waiting
}

// A read that begins to wait below a prefix with many items looks for a change in all of them, in steps. It finds a
// change of the last item.
func TestWaitForAPrefixOfMany(t *testing.T) {
	a := apitest.New(t)
	commands := make([]fsm.Command, 25_001)
	for i := range commands {
		commands[i] = fsm.ItemPut{Name: fmt.Sprintf("b/%05d", i)}
	}
	a.Begin(commands...)
	a.Must(201, "PUT /v1/items/a", `{"value":"1"}`)
	a.Do("GET /v1/items?prefix=b/&index=25001&wait=20ms&limit=1", "").Is(200, "index=25002")
	a.Must(200, "PUT /v1/items/b%2F25000", `{"value":"1"}`)
	a.Do("GET /v1/items?prefix=b/&index=25002&wait=60s&limit=1", "").Is(200, "index=25003")
}

func TestWaitForItemsEnds(t *testing.T) {
	a := apitest.New(t, func(cfg *apitest.Config) { cfg.Exchange.MaxWatchers = 1 })
	ctx, hangUp := context.WithCancel(t.Context())
	done := make(chan apitest.Reply, 1)
	go func() {
		done <- a.Send(httptest.NewRequest("GET", "/v1/items/a?index=0&wait=60s", nil).WithContext(ctx))
	}()
	for a.Gauge("signalbox_blocking_queries_open") == 0 {
	}
	a.Do("GET /v1/items?index=0&wait=60s", "").RefusedWith(429, "limit-reached", "rule=watchers")
	hangUp()
	if got := <-done; got.Status != exchange.StatusGone {
		t.Errorf("status %d after a hang-up", got.Status)
	}
	waiting := ask(a, "/v1/items?index=0&wait=60s")
	a.Handler.EndWaits()
	(<-waiting).Is(200, "items=[]")
}

func TestConsistencyOfItems(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/items/a", `{"value":"1"}`)
	for _, path := range []string{"/v1/items/a", "/v1/items"} {
		a.Do("GET "+path+"?consistency=stale&min_index=1&index=1&wait=1ms", "").Is(200)
		if a.Node.LastRead != (calls.Consistency{Stale: true, MinIndex: 1}) {
			t.Errorf("%s: read %+v", path, a.Node.LastRead)
		}
		a.Node.Fail = outcome.ErrNoLeader
		a.Do("GET "+path, "").RefusedWith(503, "no-leader")
		a.Do("GET "+path+"?index=0&wait=60s", "").RefusedWith(503, "no-leader")
		a.Node.Fail = nil
	}
}

// At the end of a wait the node confirms its state again. If it has lost its leader meanwhile, it does not show an old
// state.
func TestWaitForItemsConfirmsItsEnd(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/items/a", `{"value":"1"}`)
	waiting := ask(a, "/v1/items/a?index=1&wait=200ms")
	a.Node.Set(func() { a.Node.Fail = outcome.ErrNoLeader })
	(<-waiting).RefusedWith(503, "no-leader")
}

// Each node of a cluster wakes its own readers, whichever node got the change.
func TestWaitForItemsOnFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := apitest.NewCluster(t)
		leader := &apitest.API{T: t, Handler: site.APIs[site.Leader()]}
		for _, id := range site.IDs {
			a := &apitest.API{T: t, Handler: site.APIs[id]}
			index := leader.Do("GET /v1/items", "").Is(200).Member("index")
			item := a.GoDo("GET /v1/items/b%2F1?wait=60s&index="+index, "")
			below := a.GoDo("GET /v1/items?prefix=b/&wait=60s&index="+index, "")
			synctest.Wait()
			time.Sleep(time.Second) // virtual: they wait
			leader.Do("PUT /v1/items/b%2F1", `{"value":"for `+id+`"}`)
			began := time.Now()
			(<-item).Is(200, "value=for "+id)
			(<-below).Is(200, "items.length=1", "items.0.value=for "+id)
			if took := time.Since(began); took > time.Second {
				t.Errorf("%s: heard after %v", id, took)
			}
			if n := a.Gauge("signalbox_blocking_queries_open"); n != 0 {
				t.Errorf("%s: %d queries are left", id, n)
			}
			idle := time.Now()
			a.Do("GET /v1/items/b%2F1?wait=30s&index="+a.Do("GET /v1/items", "").Member("index"), "").Is(200, "value=for "+id)
			if took := time.Since(idle); took < 30*time.Second || took > 31*time.Second {
				t.Errorf("%s: a wait of 30 s ended after %v", id, took)
			}
		}
	})
}
