package throttle

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/test/apitest"
	"github.com/signalbox/signalbox/test/throttleclient"
)

func clientOf(pick func() http.Handler) *throttleclient.Client {
	return &throttleclient.Client{BaseURL: "http://throttle", HTTP: &http.Client{Transport: apitest.InMemory(pick)}}
}

func clientAt(s *apitest.Site) *throttleclient.Client {
	return clientOf(func() http.Handler { return s.Handler })
}

// The client turns the replies into the results and errors that its users know.
func TestThrottleClientRequests(t *testing.T) {
	inEachThrottle(t, func(s *apitest.Site) {
		ctx, c := s.Context(), clientAt(s)
		for name, permits := range map[string]string{"A": "2", "/&": "1", "a b": "1", "a%41": "1", "..": "1"} {
			s.Semaphore(name, permits, "")
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
				s := apitest.OnFollower(t, speaks(Config{LingerPercent: percent}))
				s.Semaphore("A", "1", "0")
				thread := &throttleclient.Thread{Client: clientAt(s), Lease: 6 * time.Second, Beat: 6 * time.Second}
				unlock, err := thread.Lock(t.Context(), "A", 1, time.Second)
				if err != nil {
					t.Fatal(err)
				}
				s.Peer("7", "1h")
				thief := s.Later("PUT /peers/7/A?block_for=13s", "1")
				got := <-thief
				if stolen := got.Status == 200; stolen == kept {
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
		c := apitest.NewCluster(t, speaks(Config{LingerPercent: 10}))
		c.Site(true).Semaphore("A", "2", "0")
		// No call under the mutex may take time: a bubble's time stands still while a
		// goroutine waits for a mutex.
		var mu sync.Mutex
		up := maps.Clone(c.APIs)
		set := func(id string, api *httpapi.Handler) {
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
			thread := &throttleclient.Thread{Client: clientOf(at(c.IDs[i%3]))}
			threads.Go(func() { l.run(t.Context(), uint64(i), thread) })
		}
		restart := func(id string, end func()) {
			time.Sleep(2 * time.Second) // virtual
			set(id, nil)
			end()
			delete(c.Nodes, id)
			time.Sleep(2 * time.Second) // virtual
			c.Net.Rejoin(id)
			c.Start(id)
			set(id, c.APIs[id])
			c.AwaitReady()
		}
		for range 2 {
			leader := c.Leader()
			restart(leader, func() { c.Kill(leader) })
		}
		for _, id := range c.IDs {
			restart(id, func() {
				if err := c.Nodes[id].Close(t.Context()); err != nil {
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
		s := c.Site(true)
		if left, err := clientAt(s).Remainder(t.Context(), "A"); left != 2 || err != nil {
			t.Errorf("%d remain, %v", left, err)
		}
		s.Node.View(func(m *fsm.Machine) {
			if _, sessions, _, waiting := m.Counts(); sessions > 9 || waiting != 0 {
				t.Errorf("%d peers and %d requests are left", sessions, waiting)
			}
		})
	})
}
