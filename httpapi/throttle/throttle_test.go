package throttle

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/apitest"
)

// onThrottle is the dialect over a machine, for tests without virtual time.
func onThrottle(t *testing.T, change ...func(*apitest.Config)) (*apitest.Site, *apitest.Node) {
	t.Helper()
	return apitest.OnAPI(t, append([]func(*apitest.Config){exactly}, change...)...)
}

func TestThrottleIsOptional(t *testing.T) {
	a := apitest.New(t)
	for _, line := range []string{"GET /", "GET /peers/", "POST /new_peer", "PUT /peers/7", "GET /remainder?semaphore=A", "GET /favicon.ico"} {
		a.Do(line, "").RefusedWith(404, "unknown-route")
	}
	for _, percent := range []int{-1, 101} {
		if _, err := New(nil, Config{LingerPercent: percent}); err == nil {
			t.Errorf("a linger of %d %% is taken", percent)
		}
	}
}

func TestThrottleBodyLimit(t *testing.T) {
	inEachThrottle(t, func(s *apitest.Site) {
		padded := func(size int) string { return `{"expires_in":"1m"}` + strings.Repeat(" ", size-19) }
		s.Semaphore("A", "1", "0")
		if got := s.Ask("POST /new_peer", padded(4<<10)); got.Status != 200 {
			s.Errorf("4 KiB: %s", got)
		}
		const want = "413 text Failed to buffer the request body: length limit exceeded"
		s.Is(s.Ask("POST /new_peer", padded(4<<10+1)), want)
		r := httptest.NewRequest("POST", "/new_peer", strings.NewReader(padded(4<<10+1)))
		r.ContentLength = -1 // chunked
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.Handler.ServeHTTP(w, r)
		s.Is(apitest.Answer{Status: w.Code, ContentType: w.Header().Get("Content-Type"), Body: w.Body.String(), Header: w.Header().Get}, want)
		s.Is(s.Ask("POST /new_peer", padded(4<<10+1), "Content-Type: text/plain"), "415 text Expected request with `Content-Type: application/json`")
	})
}

func TestThrottleIDInUse(t *testing.T) {
	s, node := onThrottle(t)
	s.Is(s.Ask("POST /new_peer", `{"expires_in":"1m"}`), "200 json 1001")
	node.Set(func() { node.Drawn-- }) // the id is drawn again by the node; here it is refused
	got := s.Ask("POST /new_peer", `{"expires_in":"1m"}`)
	if got.Status != 503 || got.Header("Retry-After") != "1" {
		t.Errorf("an id in use: %s", got)
	}
}

// Lingering lengthens the ttl of each request that has one. Other requests leave the ttl as it is.
func TestThrottleTTLs(t *testing.T) {
	s, node := onThrottle(t, speaks(Config{LingerPercent: 10}))
	s.Semaphore("A", "5", "0")
	ttl := func() int64 {
		switch c := node.Calls[len(node.Calls)-1].Command.(type) {
		case fsm.OpenSession:
			return c.TTLMS
		case fsm.Renew:
			return c.Renewals[0].TTLMS
		case fsm.RestoreSession:
			return c.TTLMS
		case fsm.Acquire:
			return c.TTLMS
		default:
			t.Fatalf("%T", c)
			return 0
		}
	}
	for _, c := range []struct {
		line, body string
		want       int64
	}{
		{"POST /new_peer", `{"expires_in":"300000ms"}`, 330_000},
		{"PUT /peers/1001", `{"expires_in":"100ms"}`, 110},
		{"PUT /peers/1001/A?expires_in=5m", `1`, 330_000},
		{"PUT /peers/1001/A?block_for=0s", `1`, fsm.KeepTTL},
		{"POST /restore", `{"expires_in":"1h","peer_id":7,"acquired":{}}`, 3_630_000},
		{"POST /restore", `{"expires_in":"100years","peer_id":8,"acquired":{}}`, fsm.MaxTTLMS},
		{"PUT /peers/7/A?expires_in=0ms", `1`, 0},
		{"PUT /peers/8", `{"expires_in":"0"}`, 0},
		{"POST /new_peer", `{"expires_in":"0s"}`, 0},
	} {
		if got := s.Ask(c.line, c.body); got.Status != 200 || ttl() != c.want {
			t.Errorf("%s: %s, ttl %d, want %d", c.line, got, ttl(), c.want)
		}
	}
	for id, lives := range map[uint64]bool{1001: true, 7: false, 8: false} {
		node.View(func(m *fsm.Machine) {
			if _, ok := m.Session(id); ok != lives {
				t.Errorf("peer %d lives: %v", id, ok)
			}
		})
	}
}

// throttleRequests has one request for each route that needs the node.
var throttleRequests = map[string]string{
	"POST /new_peer":              `{"expires_in":"1m"}`,
	"PUT /peers/1":                `{"expires_in":"1m"}`,
	"DELETE /peers/1":             ``,
	"GET /peers/":                 ``,
	"GET /peers/1/is_acquired":    ``,
	"PUT /peers/1/A":              `1`,
	"PUT /peers/1/A?block_for=1m": `1`,
	"DELETE /peers/1/A":           ``,
	"GET /remainder?semaphore=A":  ``,
	"POST /restore":               `{"expires_in":"1m","peer_id":7,"acquired":{}}`,
}

// Each failure of the node is status 503, at which the clients repeat the request. It is never 429, a redirect, 410 or
// 504, and never "Unknown peer".
func TestThrottleFailures(t *testing.T) {
	s, node := onThrottle(t)
	for _, err := range []error{outcome.ErrNoLeader, outcome.ErrNotApplied, outcome.ErrDraining, outcome.ErrStorageFull, outcome.ErrSplitState, outcome.ErrOverloaded,
		outcome.ErrOutcomeUnknown, outcome.ErrNotTried, context.DeadlineExceeded} {
		node.Set(func() { node.Fail = fmt.Errorf("wrapped: %w", err) })
		for line, body := range throttleRequests {
			got := s.Ask(line, body)
			if got.Status != 503 || got.ContentType != "text/plain; charset=utf-8" || got.Header("Retry-After") == "" || strings.Contains(got.Body, "wrapped") ||
				!strings.HasSuffix(got.Body, ".") || strings.Contains(got.Body, "Idempotency-Key") {
				t.Errorf("%v: %s: %s, Retry-After %q", err, line, got, got.Header("Retry-After"))
			}
		}
	}
	node.Set(func() { node.Fail = fmt.Errorf("something unforeseen") })
	for line, body := range throttleRequests {
		s.Is(s.Ask(line, body), "500 text This node could not handle the request. Its log says more.")
	}
}

// Refusals by the guards before a route, and the reply after a panic, are plain text too.
func TestThrottleGuards(t *testing.T) {
	s, node := onThrottle(t)
	node.Set(func() { node.Panics = true })
	for line, body := range throttleRequests {
		if strings.HasPrefix(line, "GET ") {
			continue // any page may ask, though it can't see the reply; and the stand-in's reads don't panic
		}
		s.Is(s.Ask(line, body), "500 text This node could not handle the request. Its log says more.")
		s.Is(s.Ask(line, body, "Origin: http://evil.example"),
			"403 text The request comes from a web page of another origin, which this node does not allow. An operator lists origins with --cors-allow.")
	}
	for _, line := range []string{"POST /v1/sessions", "GET /peers//is_acquired", "PUT /restore"} {
		if got := s.Ask(line, `{"ttl":"1m"}`); got.ContentType != "application/problem+json" {
			t.Errorf("%s is not the dialect's: %s", line, got)
		}
	}
}

// Every result of the state machine has a spelling that fits the clients.
func TestThrottleRefusalsAreComplete(t *testing.T) {
	bare := map[fsm.Code]int{fsm.UnknownSemaphore: 400, fsm.Deleted: 400, fsm.UnknownSession: 400, fsm.ExpiredSession: 400, fsm.Revoked: 400,
		fsm.InvalidCount: 400, fsm.Never: 409, fsm.LeaseExists: 409, fsm.Hierarchy: 409, fsm.SessionExists: 409}
	text := map[fsm.Code]int{fsm.Overflow: 409, fsm.LineFull: 409, fsm.Superseded: 409, fsm.LimitReached: 503, fsm.SessionIDTaken: 503}
	// Successes, and results that no command of the dialect has.
	others := map[fsm.Code]bool{fsm.OK: true, fsm.Waiting: true, fsm.NothingReady: true, fsm.Malformed: true, fsm.Unavailable: true, fsm.AlreadyExists: true,
		fsm.EpochMismatch: true, fsm.KeyReused: true, fsm.NotHeld: true, fsm.Withdrawn: true, fsm.MixedLevels: true, fsm.PermitsRequired: true, fsm.VersionMismatch: true, fsm.Over: true, fsm.ItemDiffers: true,
		fsm.NoTotal: true, fsm.RequestsWaiting: true, fsm.NotLost: true, fsm.SlotsNeeded: true, fsm.SlotTaken: true}
	for code := fsm.Code(0); code.String() != "unknown"; code++ {
		got := refusedWith(&fsm.Result{Code: code})
		switch {
		case bare[code] != 0:
			if got.Status != bare[code] || got.ContentType != "" || got.RetryAfter != "" {
				t.Errorf("%v: %+v", code, got)
			}
		case text[code] != 0:
			if got.Status != text[code] || got.ContentType != "text/plain; charset=utf-8" || (got.Status == 503) != (got.RetryAfter != "") {
				t.Errorf("%v: %+v", code, got)
			}
		case !others[code]:
			t.Errorf("%v is not told of", code)
		}
	}
	if got := refusedWith(&fsm.Result{Code: fsm.LeaseExists, Asked: 1, Refusal: &fsm.Refusal{Holding: 2}}); got.Status != 501 {
		t.Errorf("shrinking: %+v", got)
	}
	if got := refusedWith(&fsm.Result{Code: fsm.Hierarchy, Rule: fsm.RuleWaits}); got != errAlreadyPending {
		t.Errorf("waiting for another: %+v", got)
	}
}

func TestThrottleLimits(t *testing.T) {
	limits := fsm.DefaultLimits()
	limits.Sessions, limits.Queue = 2, 1
	for _, leads := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := apitest.NewLimitedCluster(t, limits, exactly).Site(leads)
			s.Peer("1", "1h")
			s.Peer("2", "1h")
			got := s.Ask("POST /new_peer", `{"expires_in":"1m"}`)
			if s.Is(got, "503 text A configured limit is reached: sessions. The request had no effect."); got.Header("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			s.Is(s.Ask("POST /restore", `{"expires_in":"1m","peer_id":3,"acquired":{}}`), "503 text A configured limit is reached: sessions. The request had no effect.")
		})
	}
}

// If a client hangs up, its request still waits: its lock is granted later.
func TestThrottleHangUp(t *testing.T) {
	inEachThrottle(t, func(s *apitest.Site) {
		s.Semaphore("A", "1", "1")
		s.Semaphore("B", "1", "0")
		for _, id := range []string{"1", "2"} {
			s.Peer(id, "1h")
		}
		s.Is(s.Ask("PUT /peers/1/B", "1"), "200 json 1")
		s.Is(s.Ask("PUT /peers/2/A", "1"), "200 json 2")
		for _, line := range []string{"PUT /peers/2/B?block_for=1m", "PUT /peers/2/A?block_for=1m"} { // waits, or holds and waits
			ctx, cancel := context.WithCancel(context.Background())
			gone := make(chan apitest.Answer, 1)
			go func() { gone <- s.AskWith(ctx, line, "1") }()
			synctest.Wait()
			cancel()
			if got := <-gone; got.Status != exchange.StatusGone {
				s.Errorf("%s: %s", line, got)
			}
		}
		s.Is(s.Ask("DELETE /peers/1/B", ""), "200 text Ok")
		s.Is(s.Ask("GET /peers/2/is_acquired", ""), "200 json true")
		s.Is(s.Ask("GET /remainder?semaphore=B", ""), "200 json 0")
	})
}

// A server that shuts down ends blocked requests with 202: the clients repeat them.
func TestThrottleShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.OnFollower(t, exactly)
		s.Semaphore("A", "1", "1")
		s.Semaphore("B", "1", "0")
		for _, id := range []string{"1", "2"} {
			s.Peer(id, "1h")
		}
		s.Is(s.Ask("PUT /peers/1/B", "1"), "200 json 1")
		s.Is(s.Ask("PUT /peers/2/A", "1"), "200 json 2")
		waits := s.Later("PUT /peers/2/B?block_for=1m", "1")
		holds := s.Later("PUT /peers/2/A?block_for=1m", "1")
		began := time.Now()
		s.Node.(*cluster.Node).Drain()
		s.Is(<-waits, "202 json 2")
		s.Handler.EndWaits() // the HTTP server's part
		s.Is(<-holds, "202 json 2")
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
		if got := s.Ask("PUT /peers/2/B?block_for=1m", "1"); got.Status != 503 {
			t.Errorf("a new request while it drains: %s", got)
		}
	})
}

// failingWait is a node whose waits are cut off once they have begun.
type failingWait struct {
	*apitest.Node
	err error
}

func (n *failingWait) Do(ctx context.Context, call calls.Call) (*calls.Reply, error) {
	wait := call.Wait
	call.Wait = 0
	reply, err := n.Node.Do(ctx, call)
	if err == nil && reply.Code == fsm.Waiting && wait > 0 {
		err = n.err
	}
	return reply, err
}

// If a node can't observe a wait any more, the status is 202, since the request keeps its place.
func TestThrottleCutOff(t *testing.T) {
	node := &failingWait{apitest.NewNode(), outcome.ErrNoLeader}
	handler := apitest.NewHandler(t, node, exactly)
	s := &apitest.Site{T: t, Handler: handler, Node: node}
	s.Semaphore("A", "1", "0")
	s.Peer("1", "1h")
	s.Peer("2", "1h")
	s.Is(s.Ask("PUT /peers/1/A", "1"), "200 json 1")
	s.Is(s.Ask("PUT /peers/2/A?block_for=1m", "1"), "202 json 2")
	node.Fail = outcome.ErrNoLeader
	if got := s.Ask("PUT /peers/2/A?block_for=1m", "1"); got.Status != 503 {
		t.Errorf("not even asked for: %s", got)
	}
}

// A list that is longer than one read.
func TestThrottleListsManyPeers(t *testing.T) {
	inEachThrottle(t, func(s *apitest.Site) {
		for _, count := range []int{peersPerView, 1, peersPerView - 1, 5} {
			var opened calls.Reply
			for range count {
				opened = s.Do(fsm.OpenSession{Session: s.Node.DrawSession(), TTLMS: 60_000})
			}
			s.CaughtUp(opened)
			var want []string
			s.Node.View(func(m *fsm.Machine) {
				for _, session := range m.Sessions(0, 1<<20) {
					want = append(want, fmt.Sprintf(`{"id":%d}`, session.ID))
				}
			})
			s.Is(s.Ask("GET /peers/", ""), "200 json ["+strings.Join(want, ",")+"]")
		}
	})
}
