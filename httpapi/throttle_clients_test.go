package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/throttleclient"
)

// inMemory carries requests to a handler that is asked for each time; nil: the
// connection is refused.
type inMemory func() http.Handler

func (pick inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	handler := pick()
	if handler == nil {
		return nil, errors.New("connection refused")
	}
	inner := httptest.NewRequestWithContext(r.Context(), r.Method, r.URL.RequestURI(), r.Body)
	inner.Header = r.Header
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, inner)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

func clientOf(pick func() http.Handler) *throttleclient.Client {
	return &throttleclient.Client{BaseURL: "http://throttle", HTTP: &http.Client{Transport: inMemory(pick)}}
}

func (s *throttleSite) client() *throttleclient.Client {
	return clientOf(func() http.Handler { return s.handler })
}

// The client makes of the answers what its users know.
func TestThrottleClientRequests(t *testing.T) {
	inEachPlace(t, func(s *throttleSite) {
		ctx, c := s.Context(), s.client()
		for name, permits := range map[string]string{"A": "2", "/&": "1", "a b": "1", "a%41": "1", "..": "1"} {
			s.semaphore(name, permits, "")
		}
		check := func(what string, got, want any) {
			s.Helper()
			if fmt.Sprint(got) != fmt.Sprint(want) {
				s.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		id, err := c.NewPeer(ctx, 5*time.Minute)
		check("new peer", err, nil)
		other, err := c.NewPeer(ctx, 5*time.Minute)
		check("another peer", err, nil)
		for _, name := range []string{"/&", "a b", "a%41", ".."} {
			acquired, err := c.Acquire(ctx, id, name, 1, -1, 5*time.Minute)
			check("acquire "+name, fmt.Sprint(acquired, err), "true <nil>")
			left, err := c.Remainder(ctx, name)
			check("remainder of "+name, fmt.Sprint(left, err), "0 <nil>")
			acquired, err = c.Acquire(ctx, other, name, 1, 0, -1)
			check("acquire "+name+" again", fmt.Sprint(acquired, err), "false <nil>")
			check("release "+name, c.ReleaseLock(ctx, id, name), nil)
			acquired, err = c.IsAcquired(ctx, other)
			check("is acquired "+name, fmt.Sprint(acquired, err), "true <nil>")
		}
		check("heartbeat", c.Heartbeat(ctx, id, time.Minute), nil)
		check("unknown peer", c.Heartbeat(ctx, 99, time.Minute), throttleclient.ErrUnknownPeer)
		_, err = c.Acquire(ctx, id, "A", 3, -1, -1)
		check("never", err, "Lock can never be acquired. Lock asks for count 3 yet full count is only 2.")
		_, err = c.Acquire(ctx, id, "A", 0, -1, -1)
		check("zero", err, "Lock count must be a positive number. Found: 0.")
		_, err = c.Remainder(ctx, "nothing")
		check("unknown semaphore", err, "Unknown semaphore")
		_, err = c.Acquire(ctx, id, "A", 2, -1, -1)
		check("two", err, nil)
		_, err = c.Acquire(ctx, id, "A", 1, -1, -1)
		check("shrink", err, "status 501: Shrinking the count of an existing lock is currently not implemented.")
		check("delete", c.Release(ctx, id), nil)
		check("restore", c.Restore(ctx, id, map[string]int64{"A": 1}, time.Minute), nil)
		check("restore otherwise", c.Restore(ctx, id, map[string]int64{"A": 2}, time.Minute), "Restore is not allowed to change existing peers.")
	})
}

// What the client repeats, how often and with which pauses, and what it does not.
func TestThrottleClientRetries(t *testing.T) {
	const all = "4s 4s 4s 8s 16s 32s 32s 32s 32s"
	for status, want := range map[int]struct {
		pauses string
		err    string
	}{
		0: {all, "connection refused"}, 408: {all, "status 408"}, 444: {all, "status 444"}, 499: {all, "status 499"}, 500: {all, "status 500"},
		502: {all, "status 502"}, 503: {all, "status 503"}, 504: {all, "status 504"}, 599: {all, "status 599"},
		501: {"", "status 501"}, 505: {"", "status 505"}, 507: {"", "status 507"}, 511: {"", "status 511"},
		400: {"", "no"}, 409: {"", "no"}, 404: {"", "status 404"}, 410: {"", "status 410"}, 422: {"", "status 422"}, 429: {"", "status 429"},
	} {
		var pauses []string
		c := clientOf(func() http.Handler {
			if status == 0 {
				return nil
			}
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, "no")
			})
		})
		c.Pause = func(_ context.Context, d time.Duration) error {
			pauses = append(pauses, d.String())
			return nil
		}
		err := c.Heartbeat(t.Context(), 1, time.Minute)
		if strings.Join(pauses, " ") != want.pauses || err == nil || !strings.Contains(err.Error(), want.err) {
			t.Errorf("%d: pauses %v, %v", status, pauses, err)
		}
	}
}

// The client's default beats at the moment when its lease ends: without lingering
// the lock goes to another one for a while, with it it is kept.
func TestThrottleLingerKeepsTheLock(t *testing.T) {
	for percent, kept := range map[int]bool{0: false, 10: true} {
		t.Run(fmt.Sprintf("%d percent", percent), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := onFollower(t, func(cfg *Config) { cfg.Throttle = &Throttle{LingerPercent: percent} })
				s.semaphore("A", "1", "0")
				thread := &throttleclient.Thread{Client: s.client(), Lease: 6 * time.Second, Beat: 6 * time.Second}
				unlock, err := thread.Lock(t.Context(), "A", 1, time.Second)
				if err != nil {
					t.Fatal(err)
				}
				s.peer("7", "1h")
				thief := s.later("PUT /peers/7/A?block_for=13s", "1")
				got := <-thief
				if stolen := got.status == 200; stolen == kept {
					t.Errorf("another one got: %s", got)
				}
				if err := unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// lockers are threads that lock and unlock without end, at three nodes, and count
// how many are inside.
type lockers struct {
	t       *testing.T
	mu      sync.Mutex
	inside  map[uint64]bool
	most    int
	rounds  int
	stopped bool
}

func (l *lockers) run(ctx context.Context, name uint64, thread *throttleclient.Thread) {
	for {
		l.mu.Lock()
		stopped := l.stopped
		l.mu.Unlock()
		if stopped {
			return
		}
		unlock, err := thread.Lock(ctx, "A", 1, -1)
		if err != nil {
			l.t.Errorf("thread %d: lock: %v", name, err)
			return
		}
		l.mu.Lock()
		l.inside[name] = true
		l.most = max(l.most, len(l.inside))
		l.rounds++
		l.mu.Unlock()
		time.Sleep(50 * time.Millisecond) // virtual: the work
		l.mu.Lock()
		delete(l.inside, name)
		l.mu.Unlock()
		if err := unlock(ctx); err != nil {
			l.t.Errorf("thread %d: unlock: %v", name, err)
			return
		}
	}
}

// Unmodified clients go on through a leader's death and a rolling restart, each at
// one node, without an error reaching their users, and never too many inside.
func TestThrottleClientsOutliveLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newThrottleCluster(t, func(cfg *Config) { cfg.Throttle = &Throttle{LingerPercent: 10} })
		c.site(true).semaphore("A", "2", "0")
		// Nothing that takes time is done under the mutex: a bubble's time stands
		// still while anybody waits for one.
		var mu sync.Mutex
		up := maps.Clone(c.apis)
		set := func(id string, api *Handler) {
			mu.Lock()
			defer mu.Unlock()
			up[id] = api
		}
		at := func(id string) func() http.Handler {
			return func() http.Handler {
				mu.Lock()
				defer mu.Unlock()
				if up[id] == nil {
					return nil
				}
				return up[id]
			}
		}
		l := &lockers{t: t, inside: map[uint64]bool{}}
		var threads sync.WaitGroup
		for i := range 9 {
			thread := &throttleclient.Thread{Client: clientOf(at(c.ids[i%3]))}
			threads.Go(func() { l.run(t.Context(), uint64(i), thread) })
		}
		restart := func(id string, end func()) {
			time.Sleep(2 * time.Second) // virtual
			set(id, nil)
			end()
			delete(c.nodes, id)
			time.Sleep(2 * time.Second) // virtual
			c.net.Rejoin(id)
			c.start(id)
			set(id, c.apis[id])
			c.awaitReady()
		}
		for range 2 {
			leader := c.leader()
			restart(leader, func() { c.kill(leader) })
		}
		for _, id := range c.ids {
			restart(id, func() {
				if err := c.nodes[id].Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(5 * time.Second) // virtual
		l.mu.Lock()
		l.stopped = true
		l.mu.Unlock()
		threads.Wait()
		if l.most > 2 || l.rounds < 100 {
			t.Errorf("%d inside at once, %d rounds", l.most, l.rounds)
		}
		t.Logf("%d rounds", l.rounds)
		s := c.site(true)
		if left, err := s.client().Remainder(t.Context(), "A"); left != 2 || err != nil {
			t.Errorf("%d remain, %v", left, err)
		}
		s.node.View(func(m *fsm.Machine) {
			if _, sessions, _, waiting := m.Counts(); sessions > 9 || waiting != 0 {
				t.Errorf("%d peers and %d requests are left", sessions, waiting)
			}
		})
	})
}
