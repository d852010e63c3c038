package consul_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/test/apitest"
)

// indexOf returns the index of a reply.
func indexOf(got apitest.Answer) string { return got.Header("X-Consul-Index") }

// later sends a query with the present index, and returns once it waits.
func later(s *apitest.Site, target string) <-chan apitest.Answer {
	s.Helper()
	got := s.Ask("GET "+target, "")
	return s.Later(fmt.Sprintf("GET %s&index=%s", target, indexOf(got)), "")
}

// TestIndexes: the index of a reply is the number of the last change of what the reply shows, deletes included. A query
// that waits with this index ends with the next such change, and with no other change.
func TestIndexes(t *testing.T) {
	targets := []string{"/v1/kv/p/a?wait=1m", "/v1/kv/p/none?wait=1m", "/v1/kv/p/?recurse&wait=1m", "/v1/kv/p/a?keys&wait=1m", "/v1/kv/q?recurse&wait=1m", "/v1/kv/?keys&wait=1m"}
	inEachConsul(t, func(s *apitest.Site) {
		s.Is(s.Ask("PUT /v1/kv/p/a", "1"), yes) // change 1
		for _, c := range []struct{ line, ends string }{
			{"PUT /v1/kv/p/a", "x.xx.x"}, // which of the targets it ends
			{"PUT /v1/kv/p/b/c", "..x..x"},
			{"PUT /v1/kv/p/none", ".xx..x"},
			{"DELETE /v1/kv/p/none", ".xx..x"},
			{"PUT /v1/kv/p/none?cas=1", "......"}, // false
			{"PUT /v1/kv/p/a?flags=0", "......"},  // nothing differs
			{"DELETE /v1/kv/p/", "......"},        // nothing is there
			{"PUT /v1/kv/qq", "....xx"},
			{"DELETE /v1/kv/q?recurse", "....xx"},
			{"DELETE /v1/kv/p?recurse", "x.xx.x"},
			{"PUT /v1/kv/r", ".....x"},
		} {
			var before []string
			var waiting []<-chan apitest.Answer
			for _, target := range targets {
				before = append(before, indexOf(s.Ask("GET "+target, "")))
				waiting = append(waiting, later(s, target))
			}
			if got := s.Ask(c.line, "2"); got.Status != 200 {
				s.Fatalf("%s: %s", c.line, got)
			}
			s.Advance(time.Second) // less than the wait
			synctest.Wait()
			ended := ""
			for t := range targets {
				mark := "."
				if len(waiting[t]) > 0 {
					mark = "x"
					if got := <-waiting[t]; indexOf(got) == before[t] || indexOf(got) != indexOf(s.Ask("GET "+targets[t], "")) {
						s.Errorf("%s: %s went from %s to %s", c.line, targets[t], before[t], indexOf(got))
					}
				} else if now := indexOf(s.Ask("GET "+targets[t], "")); now != before[t] {
					s.Errorf("%s: %s has gone from %s to %s, and the wait goes on", c.line, targets[t], before[t], now)
				}
				ended += mark
			}
			if ended != c.ends {
				s.Errorf("%s ended %s, want %s", c.line, ended, c.ends)
			}
			s.Advance(time.Minute)
			synctest.Wait()
			for t := range targets {
				if ended[t] == '.' {
					<-waiting[t]
				}
			}
		}
	})
}

// TestWaits: how long a query waits for a change that does not come.
func TestWaits(t *testing.T) {
	const readsLast = 3100 * time.Millisecond // at no moment at which the guard reads, too
	for query, want := range map[string]time.Duration{
		"index=0&wait=5s": 0, "wait=5s": 0, "index=1&wait=250ms": 250 * time.Millisecond, "index=1": 5 * time.Minute, "index=1&wait=0s": 5 * time.Minute,
		"index=1&wait=-3s": 5 * time.Minute, "index=1&wait=72h": 10 * time.Minute, "index=18446744073709551615&wait=2s": 2 * time.Second,
		"index=1&wait=3100ms&stale": readsLast, "index=1&wait=3100ms&consistent": readsLast,
	} {
		t.Run(query, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, node := onConsul(t)
				s.Is(s.Ask("PUT /v1/kv/a", "x"), yes)
				for _, target := range []string{"/v1/kv/a?raw&", "/v1/kv/b?recurse&", "/v1/session/list?"} {
					began := time.Now()
					if got := s.Ask("GET "+target+query, ""); got.Status != 200 && got.Status != 404 || indexOf(got) != "1" {
						t.Errorf("%s, index %s", got, indexOf(got))
					}
					if took := time.Since(began); took != want {
						t.Errorf("%s took %v, want %v", target, took, want)
					}
				}
				if stale := strings.HasSuffix(query, "&stale"); want == readsLast && node.LastRead.Stale != stale {
					t.Errorf("at the end of the wait the state was not confirmed: %v", node.LastRead.Stale)
				}
			})
		})
	}
}

// TestWaitingQueriesDoNotPoll: a query that waits for a minute reads the state only at its beginning and its end, and
// checks for a leader every 5 s.
func TestWaitingQueriesDoNotPoll(t *testing.T) {
	for _, target := range []string{"/v1/kv/a?", "/v1/kv/a?recurse&", "/v1/session/list?"} {
		synctest.Test(t, func(t *testing.T) {
			s, node := onConsul(t)
			before := node.Reads.Load()
			s.Ask("GET "+target+"index=1&wait=1m", "")
			if reads := node.Reads.Load() - before; reads > 20 {
				t.Errorf("%s: %d reads in a minute", target, reads)
			}
		})
	}
}

// TestWaitsAreBoundedByTheNode: --max-wait bounds the wait of a query.
func TestWaitsAreBoundedByTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := onConsul(t, func(cfg *apitest.Config) { cfg.Exchange.MaxWait = 7 * time.Second })
		began := time.Now()
		s.Is(s.Ask("GET /v1/kv/a?index=1", ""), "404 bare")
		if took := time.Since(began); took != 7*time.Second {
			t.Errorf("waited %v", took)
		}
	})
}

// TestWaitsEnd: a wait ends with the present state when the server shuts down, and when the client hangs up.
func TestWaitsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := onConsul(t)
		s.Is(s.Ask("PUT /v1/kv/a", "x"), yes)
		key, sessions := s.Later("GET /v1/kv/a?raw&index=1", ""), s.Later("GET /v1/session/list?index=1", "")
		gone, hangUp := context.WithCancel(t.Context())
		left := make(chan apitest.Answer, 1)
		go func() { left <- s.AskWith(gone, "GET /v1/kv/a?index=1", "") }()
		synctest.Wait()
		hangUp()
		if got := <-left; got.Status != 499 {
			t.Errorf("hung up: %s", got)
		}
		s.Handler.EndWaits()
		s.Is(<-key, "200 raw x")
		s.Is(<-sessions, "200 json []")
	})
}

// TestCutOffNodeEndsWaits: a node that has known no leader for 5 s ends the waits with an error, so that holders do not
// believe that all is well. A wait that ends by its time fails as well.
func TestCutOffNodeEndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := apitest.NewCluster(t, asConsul)
		s := c.Site(false)
		s.Is(s.Ask("PUT /v1/kv/a", "y"), yes)
		s.Is(s.Ask("PUT /v1/kv/a", "x"), yes)
		var waiting []<-chan apitest.Answer
		for _, query := range []string{"?consistent&index=2", "?stale&index=2", "?index=2", "?index=2&wait=4s"} {
			waiting = append(waiting, s.Later("GET /v1/kv/a"+query, ""))
		}
		s.Advance(time.Second) // until they have read
		cut := s.Node.Status().Node
		began := time.Now()
		c.Net.Isolate(cut)
		for i, w := range waiting {
			s.Is(<-w, "500 text No cluster leader")
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("query %d ended after %v", i, took)
			}
		}
		c.Net.Rejoin(cut)
		c.AwaitReady()
		s.Is(s.Ask("GET /v1/kv/a?consistent&raw", ""), "200 raw x")
	})
}

// TestLeaderDiesBesideWaits: when the leader dies, a query goes on waiting at a node that finds the next leader.
func TestLeaderDiesBesideWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := apitest.NewCluster(t, asConsul)
		s := c.Site(false)
		s.Is(s.Ask("PUT /v1/kv/a", "x"), yes)
		waiting := s.Later("GET /v1/kv/a?consistent&raw&index=1", "")
		c.Kill(c.Leader())
		s.Advance(20 * time.Second)
		if len(waiting) > 0 {
			t.Fatalf("ended by an election: %s", <-waiting)
		}
		s.Is(s.Ask("PUT /v1/kv/a", "y"), yes)
		s.Is(<-waiting, "200 raw y")
	})
}

// TestTooManyWait: a query beyond the bound gets status 500. The metric counts the waiting queries.
func TestTooManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := apitest.New(t, asConsul, func(cfg *apitest.Config) { cfg.Exchange.MaxWatchers = 2 })
		s := &apitest.Site{T: t, Handler: a.Handler, Node: a.Node}
		first, second := s.Later("GET /v1/kv/a?index=1&wait=1m", ""), s.Later("GET /v1/session/list?index=1&wait=1m", "")
		if got := a.Gauge("signalbox_consul_queries_open"); got != 2 {
			t.Errorf("%d wait", got)
		}
		got := s.Ask("GET /v1/kv/a?index=1&wait=1m", "")
		if got.Status != 500 || got.Header("Retry-After") != "1" {
			t.Errorf("%s", got)
		}
		s.Is(s.Ask("GET /v1/kv/a", ""), "404 bare")
		<-first
		<-second
		if got := a.Gauge("signalbox_consul_queries_open"); got != 0 {
			t.Errorf("%d wait", got)
		}
	})
}

// TestIndexOfALongList: a query of a list of many pages is woken by a change anywhere in it, even if the query's index
// is old. It waits while only other keys change.
func TestIndexOfALongList(t *testing.T) {
	s, _ := onConsul(t)
	const last = 2999
	for i := range last + 1 {
		s.Do(fsm.ItemPut{Name: fmt.Sprintf("p/%04d", i)})
	}
	for _, i := range []int{0, 999, 1000, 1001, last} {
		for _, query := range []string{"recurse", "keys"} {
			index := indexOf(s.Ask("GET /v1/kv/p/?"+query, ""))
			s.Do(fsm.ItemPut{Name: "q", Value: index})
			if got := s.Ask("GET /v1/kv/p/?wait=10ms&index="+index+"&"+query, ""); indexOf(got) != index {
				t.Errorf("index %s after %s: another key has changed", indexOf(got), index)
			}
			s.Do(fsm.ItemPut{Name: fmt.Sprintf("p/%04d", i), Value: index})
			s.Do(fsm.ItemPut{Name: "q", Value: "newer"})
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			got := s.AskWith(ctx, "GET /v1/kv/p/?wait=1m&index="+index+"&"+query, "")
			cancel()
			if got.Status != 200 || indexOf(got) == index {
				t.Fatalf("key %d, %s: %d, index %s after %s", i, query, got.Status, indexOf(got), index)
			}
		}
	}
}

// TestTurns: a release wakes the first query in line at once, and the others one after another. It wakes all monitors at
// once.
func TestTurns(t *testing.T) {
	inEachConsul(t, func(s *apitest.Site) {
		id := open(s, `{}`)
		s.Is(s.Ask("PUT /v1/kv/l?acquire="+id, ""), yes)
		index := indexOf(s.Ask("GET /v1/kv/l", ""))
		ended := make(chan string, 10)
		ask := func(name, query string) {
			go func() {
				got := s.Ask("GET /v1/kv/l?wait=1m&index="+index+query, "")
				ended <- fmt.Sprintf("%s %d", name, got.Status)
			}()
			synctest.Wait()
		}
		for i := range 3 {
			ask(fmt.Sprint("contender ", i), "")
		}
		ask("monitor", "&consistent")
		s.Is(s.Ask("PUT /v1/kv/l?release="+id, ""), yes)
		synctest.Wait()
		order := ""
		for range 4 {
			order += <-ended + ", "
		}
		if order != "monitor 200, contender 0 200, contender 1 200, contender 2 200, " && order != "contender 0 200, monitor 200, contender 1 200, contender 2 200, " {
			s.Errorf("%s", order)
		}
	})
}

// TestTakenKeysWithoutALeader: without a leader, an acquire of a key that another session holds sends no command.
func TestTakenKeysWithoutALeader(t *testing.T) {
	s, node := onConsul(t)
	s.Is(s.Ask("PUT /v1/kv/l?acquire="+open(s, `{}`), ""), yes)
	other := open(s, `{}`)
	node.Set(func() { node.Fail, node.Panics = outcome.ErrNoLeader, true }) // a command would panic
	s.Is(s.Ask("PUT /v1/kv/l?acquire="+other, ""), "500 text No cluster leader")
}

// TestWaitingValuesAreCounted: while a contender waits, its value counts for the memory of bodies.
func TestWaitingValuesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := apitest.NewCluster(t, asConsul, func(cfg *apitest.Config) { cfg.Exchange.BodyMemory = 1 << 20 })
		s := c.Site(false)
		cut := s.Node.Status().Node
		c.Net.Isolate(cut)
		value := strings.Repeat("x", 500<<10)
		first, second := s.Later("PUT /v1/kv/a?cas=0", value), s.Later("PUT /v1/kv/a?cas=0", value)
		if len(first)+len(second) > 0 {
			t.Fatal("a write ended without a leader")
		}
		if got := s.Ask("PUT /v1/kv/a?cas=0", value); got.Status != 500 || !strings.Contains(got.Body, "--max-body-memory") {
			t.Errorf("the third value, with room for two: %s", got)
		}
		c.Net.Rejoin(cut)
		<-first
		<-second
	})
}

// TestLongListsDoNotHoldTheMachine: if a list changes while it is read, its index does not exceed what its pages show.
func TestLongListsDoNotHoldTheMachine(t *testing.T) {
	s, _ := onConsul(t)
	for i := range 3000 {
		s.Do(fsm.ItemPut{Name: fmt.Sprintf("p/%04d", i)})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 2000 {
			s.Do(fsm.ItemPut{Name: fmt.Sprintf("p/%04d", i%3000), Value: fmt.Sprint(i)})
		}
	}()
	for reading := true; reading; {
		select {
		case <-done:
			reading = false
		default:
		}
		got := s.Ask("GET /v1/kv/p/?recurse", "")
		index := uint64(0)
		if _, err := fmt.Sscan(indexOf(got), &index); err != nil {
			t.Fatal(err)
		}
		older := map[string]pair{}
		for _, p := range shownPairs(s, got) {
			older[p.Key] = p
		}
		for _, now := range shownPairs(s, s.Ask("GET /v1/kv/p/?recurse", "")) { // what it missed is newer than its index
			if was := older[now.Key]; was.ModifyIndex != now.ModifyIndex && now.ModifyIndex <= index {
				t.Fatalf("index %d, and %s of %d shows as of %d", index, now.Key, now.ModifyIndex, was.ModifyIndex)
			}
		}
	}
}
