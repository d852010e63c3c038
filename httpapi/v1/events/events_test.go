package events_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/apitest"
	"github.com/signalbox/signalbox/test/hostile"
)

// inEvents runs a test in virtual time. A session holds a semaphore and another session waits for it: the entries 1 to
// 5.
func inEvents(t *testing.T, test func(a *apitest.API), change ...func(*apitest.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := apitest.New(t, change...)
		a.Must(201, "PUT /v1/semaphores/db", `{"permits":1,"metadata":{"k":"v"}}`)
		a.Must(201, "POST /v1/sessions", `{"ttl":"30s","metadata":{"host":"w1"}}`)
		a.Must(200, "PUT /v1/sessions/1001/leases/db", "")
		a.Must(201, "POST /v1/sessions", `{"ttl":"1m"}`)
		a.Must(202, "PUT /v1/sessions/1002/leases/db", "")
		test(a)
	})
}

var allOfEvents = []string{"1.1 created", "2.1 session-opened", "3.1 granted", "4.1 session-opened", "5.1 waiting"}

func TestEventsTellWhatHappens(t *testing.T) {
	inEvents(t, func(a *apitest.API) {
		w := watchEvents(t, a.Handler, "?since=0")
		synctest.Wait()
		w.is(allOfEvents...)
		a.Node.Advance(30_000)
		a.Must(204, "DELETE /v1/semaphores/db/holders/1002?reason=drill", "")
		a.Must(200, "PUT /v1/sessions/1002", `{"ttl":"2m"}`)
		a.Must(204, "DELETE /v1/sessions/1002/leases/db", "")
		a.Must(204, "DELETE /v1/semaphores/db", "")
		synctest.Wait()
		w.is(append(allOfEvents, "6.1 expired", "6.2 session-ended", "6.3 granted", "7.1 revoked", "8.1 session-renewed",
			"9.1 released", "10.1 deleted")...)
		events, last := w.told()
		for i, want := range []string{
			`{"index":1,"cluster_time_ms":0,"semaphore":"db","epoch":1,"permits":1,"offset":0,"level":null,"metadata":{"k":"v"}}`,
			`{"index":2,"cluster_time_ms":0,"session":"1001","ttl_ms":30000,"expires_in_ms":30000,"one_shot":false,"metadata":{"host":"w1"}}`,
			`{"index":3,"cluster_time_ms":0,"semaphore":"db","epoch":1,"session":"1001","token":1,"count":1}`,
			`{"index":4,"cluster_time_ms":0,"session":"1002","ttl_ms":60000,"expires_in_ms":60000,"one_shot":false,"metadata":{}}`,
			`{"index":5,"cluster_time_ms":0,"semaphore":"db","epoch":1,"session":"1002","place":1,"count":1,"mode":"all"}`,
			`{"index":6,"cluster_time_ms":30000,"semaphore":"db","epoch":1,"session":"1001","token":1,"count":1,"cause":"expired"}`,
			`{"index":6,"cluster_time_ms":30000,"session":"1001","cause":"expired"}`,
			`{"index":6,"cluster_time_ms":30000,"semaphore":"db","epoch":1,"session":"1002","place":1,"token":2,"count":1}`,
			`{"index":7,"cluster_time_ms":30000,"semaphore":"db","epoch":1,"session":"1002","token":2,"count":1,"cause":"revoked","reason":"drill"}`,
			`{"index":8,"cluster_time_ms":30000,"session":"1002","ttl_ms":120000,"expires_in_ms":120000}`,
			`{"index":9,"cluster_time_ms":30000,"semaphore":"db","epoch":1,"session":"1002","token":2,"count":0,"cause":"released"}`,
			`{"index":10,"cluster_time_ms":30000,"semaphore":"db","epoch":1}`,
		} {
			if i >= len(events) || events[i].data != want {
				t.Errorf("event %d: %+v\nwant %s", i, events[i], want)
			}
		}
		if last != "10.1" {
			t.Errorf("the last id is %q", last)
		}
		w.stop()
	})
}

func TestEventsResume(t *testing.T) {
	inEvents(t, func(a *apitest.API) {
		a.Node.Advance(30_000) // entry 6 has three events
		entry6 := []string{"6.1 expired", "6.2 session-ended", "6.3 granted"}
		for _, c := range []struct {
			query, header string
			want          []string
		}{
			{"", "", nil},
			{"?since=5", "", entry6},
			{"?since=6", "", nil},
			{"?since=6.1", "", entry6[1:]},
			{"", "Last-Event-ID: 6.2", entry6[2:]},
			{"", "Last-Event-ID: 6.3", nil},
			{"", "Last-Event-ID: 6.99", nil},
			{"?since=0", "Last-Event-ID: 6.2", entry6[2:]}, // a browser that comes back
		} {
			var headers []string
			if c.header != "" {
				headers = append(headers, c.header)
			}
			w := watchEvents(t, a.Handler, c.query, headers...)
			synctest.Wait()
			w.is(c.want...)
			if got := w.got.Header().Get(exchange.HeaderIndex); got != "6" {
				t.Errorf("%+v: index %s", c, got)
			}
			w.stop()
		}
		w := watchEvents(t, a.Handler, "")
		synctest.Wait()
		if _, last := w.told(); last != "6" {
			t.Errorf("a new stream begins after %q", last)
		}
		w.stop()
	})
}

// TestEventsBeginWithTheLast: a stream begins with the last events of a filter, however far back they are, and goes on
// from there. renewals=false leaves out renewals.
func TestEventsBeginWithTheLast(t *testing.T) {
	inEvents(t, func(a *apitest.API) {
		for i := range 600 {
			a.Must(200, "PUT /v1/sessions/1002", fmt.Sprintf(`{"ttl":%d}`, 61_000+i))
		}
		for query, want := range map[string][]string{
			"?last=2&name=db": {"3.1 granted", "5.1 waiting"}, "?last=1&session=1001": {"3.1 granted"}, "?last=9&name=db": {"1.1 created", "3.1 granted", "5.1 waiting"},
			"?last=2": {"604.1 session-renewed", "605.1 session-renewed"}, "?last=2&renewals=false": {"4.1 session-opened", "5.1 waiting"}, "?last=3&name=other": nil,
			"?last=1&renewals=true": {"605.1 session-renewed"}, "?since=603&renewals=false": nil,
		} {
			a.Node.StatusNow.Leader = "" // the stream needs no leader
			w := watchEvents(t, a.Handler, query)
			synctest.Wait()
			w.is(want...)
			w.stop()
		}
		w := watchEvents(t, a.Handler, "?last=1&name=db", "Last-Event-ID: 3.1")
		synctest.Wait()
		w.is("5.1 waiting")
		a.Must(204, "DELETE /v1/semaphores/db", "")
		synctest.Wait()
		if events, _ := w.told(); len(events) < 2 {
			t.Errorf("it does not go on: %+v", events)
		}
		w.stop()
	})
}

func TestEventsFilters(t *testing.T) {
	inEvents(t, func(a *apitest.API) {
		a.Must(201, "PUT /v1/semaphores/job%2F1", `{"permits":1}`)
		a.Must(201, "PUT /v1/semaphores/z", `{"permits":1}`)
		for query, want := range map[string][]string{
			"?name=db":                      {"1.1 created", "3.1 granted", "5.1 waiting"},
			"?name=db&name=z":               {"1.1 created", "3.1 granted", "5.1 waiting", "7.1 created"},
			"?prefix=job/":                  {"6.1 created"},
			"?prefix=job/&name=z":           {"6.1 created", "7.1 created"},
			"?session=1002":                 {"4.1 session-opened", "5.1 waiting"},
			"?session=1001&name=db":         {"3.1 granted"},
			"?session=1001&name=z":          nil,
			"?name=d":                       nil,
			"?consistency=stale&name=job/1": {"6.1 created"},
			"?min_index=3&session=1001":     {"2.1 session-opened", "3.1 granted"},
		} {
			w := watchEvents(t, a.Handler, query+"&since=0")
			synctest.Wait()
			w.is(want...)
			w.stop()
		}
		w := watchEvents(t, a.Handler, "?name=none")
		time.Sleep(15*time.Second - 1) // virtual
		a.Must(200, "PUT /v1/sessions/1001", `{"ttl":"1h"}`)
		synctest.Wait()
		if _, last := w.told(); last != "7" {
			t.Errorf("the last id is %q", last)
		}
		time.Sleep(time.Second) // virtual: the keep-alive
		synctest.Wait()
		if _, last := w.told(); last != "8" {
			t.Errorf("a filter that lets nothing through leaves its client at %q", last)
		}
		w.stop()
	})
}

// TestEventsOfAnEndedSession: a stream of future events of a session that has ended would never have an event, so it is
// refused. Events that are kept can be read.
func TestEventsOfAnEndedSession(t *testing.T) {
	inEvents(t, func(a *apitest.API) {
		a.Node.Advance(30_000) // ends session 1001
		a.Do("HEAD /v1/events?session=77&name=db", "").Is(404)
		if a.Do("HEAD /v1/events?session=1001", "").Is(404); !t.Failed() { // else the stream has no end
			a.Do("GET /v1/events?session=1001", "").RefusedWith(404, "unknown-session", "session=1001")
		}
		for _, query := range []string{"session=1002", "session=1001&consistency=stale", "session=1001&last=5", "session=1001&since=0"} {
			a.Do("HEAD /v1/events?"+query, "").Is(200)
		}
	})
}

func TestEventsGone(t *testing.T) {
	inEvents(t, func(a *apitest.API) {
		a.Node.Set(func() { a.Node.Floor = 3 })
		a.Do("GET /v1/events?since=2", "").RefusedWith(410, "history-gone",
			"detail=Events after this one are gone: a node keeps only the latest, and none from before a restore. Read the state again, and follow from its index. This node has the events after 3.")
		a.Do("GET /v1/events", "", "Last-Event-ID: 2.1").RefusedWith(410, "history-gone")
		a.Do("HEAD /v1/events?since=2", "").Is(410)
		a.Do("GET /v1/events?since=6", "").RefusedWith(410, "history-gone") // never was, anywhere
		a.Do("GET /v1/events?since=9223372036854775807.1", "").RefusedWith(410, "history-gone")
		a.Do("HEAD /v1/events?since=3", "").Is(200)
		if open := a.Gauge("signalbox_event_streams_open"); open != 0 {
			t.Errorf("%d streams are left behind", open)
		}

		waits := watchEvents(t, a.Handler, "?since=6.1&consistency=stale") // another node may have it
		a.Node.Advance(30_000)
		synctest.Wait()
		waits.is("6.2 session-ended", "6.3 granted")
		a.Node.Set(func() { a.Node.Floor = 99 }) // it has read too slowly
		a.Must(200, "PUT /v1/sessions/1002", `{"ttl":"1h"}`)
		<-waits.ended
		waits.is("6.2 session-ended", "6.3 granted")
		a.Node.Set(func() { a.Node.Fail = outcome.ErrNoLeader })
		a.Do("GET /v1/events", "").RefusedWith(503, "no-leader")
	})
}

// TestEventsHostile: requests that are refused.
func TestEventsHostile(t *testing.T) {
	list := hostile.Begin(t, "events")
	refused := func(name, line string, status int, code, field string, headers ...string) {
		list.Case(name, func(t *testing.T) {
			inEvents(t, func(a *apitest.API) {
				before := a.Node.State(a.T)
				got := a.Do(line, "", headers...).RefusedWith(status, code)
				if field != "" && got.Member("field") != field || a.Node.State(a.T) != before {
					a.Errorf("field %q, want %q; the state is %s", got.Member("field"), field, a.Node.State(a.T))
				}
			})
		})
	}
	for _, id := range []string{"", " ", "x", "-1", "+1", "01", "1.0", "1.", ".1", "1.-1", "1.01", "1.2.3", "1e3", "0x1", "1,2",
		"9223372036854775808", "18446744073709551616", "1.2147483648", "1.99999999999999999999", "١", "1\u00a0", "null",
		strings.Repeat("9", 10_000), strings.Repeat("1.", 5_000), "1' OR 1=1", "../1", "%31", "1;2", "\x00"} {
		refused(fmt.Sprintf("Last-Event-ID: %.20q of %d bytes", id, len(id)), "GET /v1/events", 400, "invalid-request", "Last-Event-ID", "Last-Event-ID: "+id)
	}
	refused("Last-Event-ID twice", "GET /v1/events", 400, "invalid-request", "Last-Event-ID", "Last-Event-ID: 1", "Last-Event-ID: 2")
	for query, field := range map[string]string{
		"since=": "since", "since=x": "since", "since=1&since=2": "since", "since=-0": "since", "session=0": "session",
		"session=abc": "session", "session=1&session=2": "session", "name=": "name", "name=db&name=%00": "name",
		"prefix=%ff": "prefix", "semaphore=db": "semaphore", "consistency=strong": "consistency", "wait=1s": "wait",
		"last=0": "last", "last=1001": "last", "last=1&since=1": "last", "renewals=no": "renewals",
	} {
		refused("query: "+query, "GET /v1/events?"+query, 400, "invalid-request", field)
	}
	refused("another method", "POST /v1/events", 405, "method-not-allowed", "")
	refused("a slash behind", "GET /v1/events/", 404, "unknown-route", "")
}

func TestEventsLimit(t *testing.T) {
	inEvents(t, func(a *apitest.API) {
		first, second := watchEvents(t, a.Handler, ""), watchEvents(t, a.Handler, "")
		synctest.Wait()
		got := a.Do("GET /v1/events", "").RefusedWith(429, "limit-reached", "rule=watchers")
		if got.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		if page := a.Do("GET /metrics", "").Text; !strings.Contains(page, "signalbox_event_streams_open 2\n") {
			t.Error("the gauge does not say 2")
		}
		first.stop()
		third := watchEvents(t, a.Handler, "")
		synctest.Wait()
		third.is()
		second.stop()
		third.stop()
		if page := a.Do("GET /metrics", "").Text; !strings.Contains(page, "signalbox_event_streams_open 0\n") {
			t.Error("the gauge does not say 0")
		}
	}, func(cfg *apitest.Config) { cfg.Exchange.MaxWatchers = 2 })
}

func TestEventsEndWithTheServer(t *testing.T) {
	inEvents(t, func(a *apitest.API) {
		w := watchEvents(t, a.Handler, "")
		synctest.Wait()
		began := time.Now()
		a.Handler.EndWaits()
		<-w.ended
		if took := time.Since(began); took > 0 {
			t.Errorf("it ends after %v, in virtual time", took)
		}
		w.is()
		a.Do("GET /v1/events", "").RefusedWith(503, "draining")
	})
}
