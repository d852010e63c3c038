package httpapi_test

import (
	"bytes"
	"context"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/httpapi/consul"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/apitest"
)

// TestWatchersWorkInTurns: of many watchers that one change wakes, whatever they wait with, the last is served
// later than the first, also where the change was there before they came. Requests that waited for it still count
// as watchers while they wait for their turn.
func TestWatchersWorkInTurns(t *testing.T) {
	for path, waits := range map[string]bool{"/v1/semaphores/a?wait=1m&index=2": true, "/v1/semaphores/a?wait=1m&index=1": false, "/v1/items/i?wait=1m&index=1": true,
		"/v1/items/i?wait=1m&index=0": false, "/v1/items?prefix=i&wait=1m&index=1": true, "/v1/kv/i?wait=1m&index=1&stale": true, "/v1/events": true} {
		synctest.Test(t, func(t *testing.T) {
			a := apitest.New(t, func(cfg *apitest.Config) {
				cfg.Dialects["consul"] = func(x *exchange.Exchange) (exchange.Dialect, error) { return consul.New(x, consul.Config{}) }
			})
			a.Must(201, "PUT /v1/semaphores/a", `{"permits":1}`)
			a.Must(200, "POST /v1/semaphores/a/up", "")
			a.Must(201, "PUT /v1/items/i", `{"value":"1"}`)
			many := 400 * runtime.GOMAXPROCS(0)
			replies := make(chan int, many)
			began := time.Now()
			for range many {
				go func() {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					w := &firstEvent{httptest.NewRecorder(), cancel}
					a.Handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", path, nil))
					replies <- w.Code
				}()
			}
			synctest.Wait()
			a.Must(200, "POST /v1/semaphores/a/up", "")
			a.Must(200, "PUT /v1/items/i", `{"value":"2"}`)
			synctest.Wait()
			watchers := a.Gauge("signalbox_blocking_queries_open") + a.Gauge("signalbox_consul_queries_open") + a.Gauge("signalbox_event_streams_open")
			if left := many - len(replies); waits && watchers != left {
				t.Errorf("%s: %v of %d requests that wait for their turn count as watchers", path, watchers, left)
			}
			for range many {
				if status := <-replies; status != 200 {
					t.Fatalf("%s: %d", path, status)
				}
			}
			if took := time.Since(began); took < 2*time.Millisecond || took > time.Second {
				t.Errorf("%s: %d watchers are served within %v", path, many, took)
			}
		})
	}
}

// firstEvent is a client that leaves a stream once it has received an event.
type firstEvent struct {
	*httptest.ResponseRecorder
	leave func()
}

func (w *firstEvent) Write(text []byte) (int, error) {
	if bytes.Contains(text, []byte("event: ")) {
		w.leave()
	}
	return w.ResponseRecorder.Write(text)
}

// TestWatchersOfAnIdentity: streams, waits and Consul's queries of an identity count together, up to the limit of
// its token, or half of the node's.
func TestWatchersOfAnIdentity(t *testing.T) {
	tokens := limitedTokens(t, "watchers = 2", client{"ci", access.Read, ""}, client{"db", access.Admin, ""})
	synctest.Test(t, func(t *testing.T) {
		a := apitest.New(t, func(cfg *apitest.Config) {
			cfg.Exchange.Tokens, cfg.Exchange.MaxWatchers = tokens, 5
			cfg.Dialects["consul"] = func(x *exchange.Exchange) (exchange.Dialect, error) { return consul.New(x, consul.Config{}) }
		})
		a.Must(201, "PUT /v1/semaphores/a", `{"permits":1}`, as("db"))
		for who, limit := range map[string]int{"ci": 2, "db": 3} {
			for i, path := range []string{"/v1/events", "/v1/kv/a?index=1&wait=1m", "/v1/semaphores/a?index=1&wait=1m"} {
				if i < limit {
					request := httptest.NewRequestWithContext(t.Context(), "GET", path, nil)
					request.Header.Set("Authorization", strings.TrimPrefix(as(who), "Authorization: "))
					go a.Handler.ServeHTTP(httptest.NewRecorder(), request)
					synctest.Wait()
				}
			}
			a.Do("GET /v1/semaphores/a?index=1&wait=1m", "", as(who)).RefusedWith(429, "limit-reached", "rule=owner-watchers")
			a.Do("GET /v1/events", "", as(who)).RefusedWith(429, "limit-reached", "rule=owner-watchers")
			if got := a.Do("GET /v1/kv/a?index=1&wait=1m", "", as(who)); got.Status != 500 || !strings.Contains(got.Text, "watchers") {
				t.Errorf("Consul: %d %s", got.Status, got.Text)
			}
			<-time.After(2 * time.Minute) // virtual: their waits are over
			a.Do("GET /v1/semaphores/a?index=1&wait=1s", "", as(who)).Is(200)
		}
		a.Handler.EndWaits()
	})
}
