package reads_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/apitest"
)

func TestConsistency(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	for _, path := range []string{"/v1/semaphores/db", "/v1/semaphores", "/v1/sessions"} {
		got := a.Do("GET "+path, "").Is(200)
		if a.Node.LastRead != (calls.Consistency{}) || got.Header.Get(exchange.HeaderLastContact) != "" || got.Header.Get(exchange.HeaderIndex) != "1" {
			t.Errorf("%s: default read %+v, head %v", path, a.Node.LastRead, got.Header)
		}
		got = a.Do("GET "+path+"?consistency=stale", "").Is(200)
		if !a.Node.LastRead.Stale || got.Header.Get(exchange.HeaderLastContact) != "42" {
			t.Errorf("%s: stale read %+v, head %v", path, a.Node.LastRead, got.Header)
		}
		a.Do("GET "+path+"?min_index=1", "").Is(200)
		if a.Node.LastRead.MinIndex != 1 {
			t.Errorf("%s: read %+v", path, a.Node.LastRead)
		}
		a.Do("GET "+path+"?consistency=strong", "").RefusedWith(400, "invalid-request", "field=consistency")
		a.Do("GET "+path+"?min_index=-1", "").RefusedWith(400, "invalid-request", "field=min_index")
	}
	for query, consistency := range map[string]calls.Consistency{
		"consistency=linearizable": {Linearizable: true}, "consistency=linearizable&min_index=7": {Linearizable: true, MinIndex: 7},
		"consistency=stale&min_index=7": {Stale: true, MinIndex: 7},
	} {
		if a.Do("GET /v1/semaphores?"+query, "").Is(200); a.Node.LastRead != consistency {
			t.Errorf("?%s: read %+v", query, a.Node.LastRead)
		}
	}
	a.Node.Fail = fmt.Errorf("index 99 has not come to this node: %w", outcome.ErrBehind)
	if got := a.Do("GET /v1/semaphores/db?min_index=99", "").RefusedWith(503, "behind", "index=1"); got.Header.Get(exchange.HeaderIndex) != "1" {
		t.Errorf("head %v", got.Header)
	}
	a.Node.Fail = outcome.ErrNoLeader
	if got := a.Do("GET /v1/semaphores/db", "").RefusedWith(503, "no-leader"); got.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After with no-leader")
	}
	a.Do("GET /v1/semaphores/db?consistency=stale", "").Is(200)
}

func TestBlockingQueryEnds(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	ctx, hangUp := context.WithCancel(context.Background())
	done := make(chan apitest.Reply, 1)
	go func() {
		done <- a.Send(httptest.NewRequest("GET", "/v1/semaphores/db?index=1&wait=60s", nil).WithContext(ctx))
	}()
	a.Node.AwaitWatcher("db")
	hangUp()
	if got := <-done; got.Status != exchange.StatusGone {
		t.Errorf("status %d after a hang-up", got.Status)
	}
	if len(a.Node.Watchers["db"]) != 0 {
		t.Error("the watcher is left behind")
	}
	waiting := a.GoDo("GET /v1/semaphores/db?index=1&wait=60s", "")
	a.Node.AwaitWatcher("db")
	a.Handler.EndWaits()
	(<-waiting).Is(200, "modified_index=1")
}

// Blocking queries that wait count as watchers, together with streams of events. Queries that do not have to wait always
// get their reply.
func TestBlockingQueriesAreBounded(t *testing.T) {
	a := apitest.New(t, func(cfg *apitest.Config) { cfg.Exchange.MaxWatchers = 2 })
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	ctx, hangUp := context.WithCancel(context.Background())
	w := httptest.NewRecorder()
	streamed := make(chan struct{})
	go func() {
		defer close(streamed)
		a.Handler.ServeHTTP(w, httptest.NewRequest("GET", "/v1/events", nil).WithContext(ctx))
	}()
	for a.Gauge("signalbox_event_streams_open") == 0 {
		runtime.Gosched()
	}
	waiting := a.GoDo("GET /v1/semaphores/db?index=1&wait=60s", "")
	a.Node.AwaitWatcher("db")
	got := a.Do("GET /v1/semaphores/db?index=1&wait=60s", "").RefusedWith(429, "limit-reached", "rule=watchers")
	if got.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	a.Do("GET /v1/events", "").RefusedWith(429, "limit-reached", "rule=watchers")
	for _, query := range []string{"index=0&wait=60s", "index=1", "index=99&wait=60s"} {
		a.Do("GET /v1/semaphores/db?"+query, "").Is(200)
	}
	if page := a.Do("GET /metrics", "").Text; !strings.Contains(page, "signalbox_blocking_queries_open 1\n") {
		t.Error("the gauge does not say 1")
	}
	a.Must(200, "POST /v1/semaphores/db/up", "")
	(<-waiting).Is(200)
	waiting = a.GoDo("GET /v1/semaphores/db?index=2&wait=60s", "")
	a.Node.AwaitWatcher("db") // there is room again
	a.Handler.EndWaits()
	(<-waiting).Is(200)
	hangUp()
	<-streamed
	if page := a.Do("GET /metrics", "").Text; !strings.Contains(page, "signalbox_blocking_queries_open 0\n") {
		t.Error("the gauge does not say 0")
	}
}
