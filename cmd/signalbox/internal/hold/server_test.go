//go:build unix

package hold

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"
)

// cutOff says what a cut network does with requests.
type cutOff int

const (
	refuses  cutOff = iota // no connection
	swallows               // a request disappears
	deafens                // requests arrive, replies don't
	cutOffs                // how many there are
)

// oneLease is a cluster with one semaphore of one permit, and the network to it, in memory. It treats time and leases as
// a real cluster does: it cuts off times to whole milliseconds, a session ends at its deadline, and the next client is
// granted the permit at that moment.
type oneLease struct {
	slow time.Duration // the most that a request or a reply takes
	lost int           // of a hundred replies

	mu       sync.Mutex
	chance   *rand.Rand
	start    time.Time
	deadline int64 // of the session, in cluster time; 0: no session is open
	ttlMS    int64
	opened   int       // sessions so far
	held     bool      // by the session
	busy     bool      // another client has the permit
	next     time.Time // when the next one was granted it, after the session had it
	lostFor  int       // the token of a lost hold; 0: the permit is away for no lost lease
	freed    time.Time // when that came back
	cut      bool
	how      cutOff
	changed  chan struct{} // closed at each change, then another
}

func newOneLease(chance *rand.Rand) *oneLease {
	return &oneLease{chance: chance, start: time.Now().Add(-time.Hour), changed: make(chan struct{})}
}

// do changes the state at a moment of cluster time.
func (o *oneLease) do(change func(now int64)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := int64(time.Since(o.start) / time.Millisecond)
	if o.deadline != 0 && o.deadline <= now {
		if o.held {
			o.lostFor = o.opened
		}
		o.end()
	}
	change(now)
	close(o.changed)
	o.changed = make(chan struct{})
}

func (o *oneLease) end() {
	if o.deadline = 0; o.held {
		o.held, o.busy, o.next = false, true, time.Now()
	}
}

func (o *oneLease) renew(now int64) {
	o.deadline = now + o.ttlMS
	at := o.start.Add(time.Duration(o.deadline) * time.Millisecond)
	time.AfterFunc(time.Until(at), func() { o.do(func(int64) {}) })
}

func (o *oneLease) occupy(busy bool) { o.do(func(int64) { o.busy = busy }) }

func (o *oneLease) cutFrom(how cutOff) { o.do(func(int64) { o.cut, o.how = true, how }) }

// grantedAnew is when the next client was granted the permit; zero: there was no such grant yet.
func (o *oneLease) grantedAnew() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.next
}

// late returns the delay of a message in the network.
func (o *oneLease) late() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Duration(o.chance.Int64N(int64(o.slow) + 1))
}

// RoundTrip carries a request to the cluster and its reply back.
func (o *oneLease) RoundTrip(r *http.Request) (*http.Response, error) {
	o.mu.Lock()
	cut, how, lost := o.cut, o.how, o.chance.IntN(100) < o.lost
	o.mu.Unlock()
	switch {
	case cut && how == refuses:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("connection refused")}
	case cut && how == swallows:
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if !passes(r, o.late()) {
		return nil, r.Context().Err()
	}
	status, body := o.serve(r)
	if lost || cut {
		return nil, io.ErrUnexpectedEOF
	}
	if !passes(r, o.late()) {
		return nil, r.Context().Err()
	}
	recorder := httptest.NewRecorder()
	recorder.Header().Set("Content-Type", "application/json")
	if status >= http.StatusBadRequest {
		recorder.Header().Set("Content-Type", "application/problem+json")
	}
	recorder.WriteHeader(status)
	_ = json.NewEncoder(recorder).Encode(body)
	return recorder.Result(), nil
}

func passes(r *http.Request, late time.Duration) bool {
	select {
	case <-time.After(late):
		return true
	case <-r.Context().Done():
		return false
	}
}

// serve is the part of the API that Run needs: POST /v1/sessions; PUT, GET and DELETE of a session; PUT and GET of its
// lease; DELETE of a lost hold.
func (o *oneLease) serve(r *http.Request) (status int, body map[string]any) {
	var request struct{ TTL int64 }
	_ = json.NewDecoder(r.Body).Decode(&request) // an empty body has no ttl
	wait, _ := strconv.ParseInt(r.URL.Query().Get("wait"), 10, 64)
	over := time.NewTimer(time.Duration(wait) * time.Millisecond)
	defer over.Stop()
	parts := strings.Split(r.URL.Path, "/")[2:] // sessions, id, leases, name
	for began := int64(-1); ; {
		o.do(func(now int64) {
			if began < 0 {
				began = now
			}
			status = o.once(now, r.Method, parts, request.TTL)
			body = map[string]any{"session": fmt.Sprint(o.opened), "semaphore": "db", "count": 1, "token": o.opened,
				"expires_in_ms": o.deadline - now, "waited_ms": now - began}
			switch {
			case status == http.StatusNotFound:
				body = map[string]any{"code": "not-lost"}
			case status == http.StatusGone:
				body = map[string]any{"code": "expired-session", "session": parts[1]}
			case r.Method == http.MethodGet && len(parts) == 2 && o.held:
				body["leases"] = []any{map[string]any{"semaphore": "db", "count": 1, "token": o.opened}}
			}
		})
		o.mu.Lock()
		changed := o.changed
		o.mu.Unlock()
		if status != http.StatusAccepted {
			return status, body
		}
		select {
		case <-changed:
		case <-over.C:
			return status, body
		case <-r.Context().Done():
			return status, body
		}
	}
}

// once serves a request by the present state. Status 202 means that the request must be served again later.
func (o *oneLease) once(now int64, method string, parts []string, ttlMS int64) int {
	lease := len(parts) > 2
	switch {
	case parts[0] == "semaphores" && (o.lostFor == 0 || parts[3] != fmt.Sprint(o.lostFor)):
		return http.StatusNotFound
	case parts[0] == "semaphores":
		o.lostFor, o.freed = 0, time.Now()
		return http.StatusNoContent
	case method == http.MethodPost:
		o.opened++
		o.ttlMS, o.held = ttlMS, false
		o.renew(now)
		return http.StatusCreated
	case o.deadline == 0 || parts[1] != fmt.Sprint(o.opened):
		return http.StatusGone
	case method == http.MethodPut && !lease:
		o.renew(now)
	case method == http.MethodPut && !o.held && o.busy:
		return http.StatusAccepted
	case method == http.MethodPut:
		o.held = true
	case method == http.MethodDelete:
		o.end()
		return http.StatusNoContent
	}
	return http.StatusOK
}
