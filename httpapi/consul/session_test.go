package consul_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/consul"
	"github.com/signalbox/signalbox/test/apitest"
)

// TestSessionsLiveTwiceTheirTTL: a session lives for twice its TTL, or longer than its TTL by the configured share. A
// renewal gives the whole time again.
func TestSessionsLiveTwiceTheirTTL(t *testing.T) {
	for percent, lives := range map[int]time.Duration{0: 10 * time.Second, 50: 15 * time.Second, 100: 20 * time.Second} {
		t.Run(fmt.Sprint(percent), func(t *testing.T) {
			apitest.InEachPlace(t, func(s *apitest.Site) {
				id := open(s, `{"TTL":"10s","LockDelay":0}`)
				s.Advance(lives - time.Second)
				if got := s.Ask("PUT /v1/session/renew/"+id, ""); got.Status != 200 {
					s.Fatalf("%s", got)
				}
				s.Advance(lives - time.Second)
				if got := s.Ask("GET /v1/session/info/"+id, ""); !strings.Contains(got.Body, id) {
					s.Errorf("%v after its renewal: %s", lives-time.Second, got)
				}
				s.Advance(2 * time.Second)
				s.Is(s.Ask("GET /v1/session/info/"+id, ""), "200 json []")
				s.Is(s.Ask("PUT /v1/session/renew/"+id, ""), "404 text Session id '"+id+"' not found")
			}, asConsulWith(consul.Config{LingerPercent: percent}))
		})
	}
	inEachConsul(t, func(s *apitest.Site) {
		id := open(s, `{}`)
		s.Advance(5 * time.Minute)
		if got := s.Ask("PUT /v1/session/renew/"+id, ""); got.Status != 200 {
			s.Errorf("a session without a TTL after five minutes: %s", got)
		}
	})
}

// TestSessionEnds: when a session ends, by destroy or by expiry, the same step releases or deletes the keys that it
// holds. No session can acquire these keys before the delay is over; plain writes can change them.
func TestSessionEnds(t *testing.T) {
	for name, end := range map[string]func(s *apitest.Site, id string){
		"destroyed": func(s *apitest.Site, id string) {
			s.Is(s.Ask("PUT /v1/session/destroy/"+strings.ToUpper(id), "{"), yes)
		},
		"expired": func(s *apitest.Site, _ string) { s.Advance(21 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			inEachConsul(t, func(s *apitest.Site) {
				released := open(s, `{"TTL":"10s","LockDelay":"5s"}`)
				deleted := open(s, `{"TTL":"10s","LockDelay":"5s","Behavior":"delete"}`)
				next := open(s, `{"TTL":"1h"}`)
				s.Is(s.Ask("PUT /v1/kv/r?flags=3&acquire="+released, "mine"), yes)
				s.Is(s.Ask("PUT /v1/kv/s?acquire="+released, ""), yes)
				s.Is(s.Ask("PUT /v1/kv/d?acquire="+strings.ToUpper(deleted), "mine"), yes)
				if got := keyOf(s, "d"); got.Session != deleted {
					s.Errorf("held by %s, opened as %s", got.Session, deleted)
				}
				before := keyOf(s, "r")
				end(s, released)
				if got := keyOf(s, "r"); got.Session != "" || string(got.Value) != "mine" || got.Flags != 3 || got.LockIndex != 1 || got.ModifyIndex <= before.ModifyIndex || got.ModifyIndex != keyOf(s, "s").ModifyIndex {
					s.Errorf("after the end: %+v, before %+v", got, before)
				}
				if name == "destroyed" {
					end(s, deleted)
				}
				s.Is(s.Ask("GET /v1/kv/d", ""), "404 bare")
				for _, key := range []string{"r", "d"} {
					s.Is(s.Ask("PUT /v1/kv/"+key+"?acquire="+next, "other"), no)
					s.Is(s.Ask("PUT /v1/kv/"+key+"?acquire=", "other"), no) // the delay is checked first
					s.Is(s.Ask("PUT /v1/kv/"+key, "plain"), yes)
					s.Is(s.Ask("DELETE /v1/kv/"+key, ""), yes)
					s.Is(s.Ask("PUT /v1/kv/"+key+"?cas=0", "anew"), yes)
					s.Is(s.Ask("PUT /v1/kv/"+key+"?acquire="+next, "other"), no)
				}
				s.Advance(6 * time.Second)
				for key, locks := range map[string]uint64{"r": 1, "d": 1, "s": 2} {
					s.Is(s.Ask("PUT /v1/kv/"+key+"?acquire="+next, "other"), yes)
					if got := keyOf(s, key); got.Session != next || got.LockIndex != locks {
						s.Errorf("after the delay: %+v", got)
					}
				}
			})
		})
	}
}

// TestDelaysAndSessionsOutliveALeader: the death of a leader neither ends nor restarts a delay
// or the time of a session.
func TestDelaysAndSessionsOutliveALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := apitest.NewCluster(t, asConsul)
		s := c.Site(false)
		ended, next, short := open(s, `{"LockDelay":"30s"}`), open(s, `{}`), open(s, `{"TTL":"15s"}`)
		s.Is(s.Ask("PUT /v1/kv/k?acquire="+ended, ""), yes)
		s.Is(s.Ask("PUT /v1/session/destroy/"+ended, ""), yes)
		s.Advance(20 * time.Second)
		c.Kill(c.Leader())
		s.Advance(6 * time.Second)
		s.Is(s.Ask("PUT /v1/kv/k?acquire="+next, ""), no)
		if got := s.Ask("GET /v1/session/info/"+short, ""); !strings.Contains(got.Body, short) {
			s.Errorf("a session of 15 s, doubled, after 26 s: %s", got)
		}
		s.Advance(14 * time.Second) // cluster time stood still while there was no leader
		s.Is(s.Ask("PUT /v1/kv/k?acquire="+next, ""), yes)
		s.Is(s.Ask("GET /v1/session/info/"+short, ""), "200 json []")
	})
}

// TestNativeSessions: a session of the native API may hold a key, and is in no list of this dialect.
func TestNativeSessions(t *testing.T) {
	inEachConsul(t, func(s *apitest.Site) {
		s.CaughtUp(s.Do(fsm.OpenSession{Session: 1<<63 + 10, TTLMS: 60_000}))
		s.CaughtUp(s.Do(fsm.OpenHolder{Session: 11, TTLMS: 60_000, About: "consul node=n1"}))
		const id = "5369676e-616c-626f-8000-00000000000a"
		s.Is(s.Ask("PUT /v1/kv/k?acquire="+id, ""), yes)
		if got := keyOf(s, "k"); got.Session != id {
			s.Errorf("%+v", got)
		}
		s.Is(s.Ask("GET /v1/session/info/"+id, ""), "200 json []")
		s.Is(s.Ask("GET /v1/session/list", ""), "200 json []")
		s.Is(s.Ask("PUT /v1/session/renew/"+id, ""), "404 text Session id '"+id+"' not found")
		s.Is(s.Ask("PUT /v1/session/destroy/"+id, ""), yes)
		if got := keyOf(s, "k"); got.Session != "" {
			s.Errorf("%+v", got)
		}
	})
}

// TestSessionIndex: the index of sessions is the last change at which a session was opened or ended. A query with this
// index waits.
func TestSessionIndex(t *testing.T) {
	inEachConsul(t, func(s *apitest.Site) {
		indexOf := func(got apitest.Answer) string { return got.Header("X-Consul-Index") }
		if got := indexOf(s.Ask("GET /v1/session/list", "")); got != "1" {
			s.Errorf("without a session: %s", got)
		}
		id := open(s, `{}`)
		s.Is(s.Ask("PUT /v1/kv/elsewhere", "1"), yes)
		first := indexOf(s.Ask("GET /v1/session/info/"+id, ""))
		waiting := s.Later("GET /v1/session/list?wait=1m&index="+first, "")
		s.Is(s.Ask("PUT /v1/kv/elsewhere", "2"), yes)
		s.Advance(time.Second)
		if len(waiting) > 0 {
			s.Errorf("a change of a key ended the wait: %s", <-waiting)
		}
		s.Is(s.Ask("PUT /v1/session/destroy/"+id, ""), yes)
		s.Advance(time.Second)
		if synctest.Wait(); len(waiting) == 0 {
			s.Error("the end of a session did not end the wait")
		}
		got := <-waiting
		s.Is(got, "200 json []")
		if indexOf(got) <= first {
			s.Errorf("index %s after %s", indexOf(got), first)
		}
	})
}
