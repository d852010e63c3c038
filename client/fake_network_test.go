package client_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// fault is what happens to one HTTP request.
type fault struct {
	refused   bool // no connection
	hang      bool // it disappears
	lose      bool // it is carried out, and the reply is lost
	status    int  // a proxy replies with it, and the request has no effect
	code      string
	rule      string // of the limit, in that reply
	header    http.Header
	there     time.Duration // latency of the request
	back      time.Duration // and of the reply
	text      string        // a body that is no problem of Signalbox's
	lateApply time.Duration // carried out that long after the caller gave up
}

// sent is one HTTP request as the transport saw it.
type sent struct {
	at           time.Time
	host         string
	method, path string // the path as encoded, with its query
	key          string
}

// network carries requests from a client to the fake, in memory, so that it works in
// virtual time. Safe for concurrent use.
type network struct {
	fake *fake

	mu      sync.Mutex
	log     []sent
	script  func(s sent, nth int) fault // nil: no faults; nth counts from 1
	pending sync.WaitGroup              // handlers
}

// RoundTrip is that of http.RoundTripper.
func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	s := sent{time.Now(), r.URL.Host, r.Method, r.URL.EscapedPath(), r.Header.Get("Idempotency-Key")}
	if r.URL.RawQuery != "" {
		s.path += "?" + r.URL.RawQuery
	}
	n.mu.Lock()
	n.log = append(n.log, s)
	var f fault
	if n.script != nil {
		f = n.script(s, len(n.log))
	}
	n.mu.Unlock()
	switch {
	case f.refused:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("connection refused")}
	case f.lateApply > 0:
		n.applyLate(r, f.lateApply)
		fallthrough
	case f.hang:
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if err := pass(r.Context(), f.there); err != nil {
		return nil, err
	}
	if f.status != 0 {
		return f.response(r), nil
	}
	recorder := httptest.NewRecorder()
	served := make(chan struct{})
	n.pending.Add(1)
	go func() {
		defer n.pending.Done()
		n.fake.ServeHTTP(recorder, r)
		close(served)
	}()
	select {
	case <-served:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if f.lose {
		return nil, io.ErrUnexpectedEOF
	}
	if err := pass(r.Context(), f.back); err != nil {
		return nil, err
	}
	return recorder.Result(), nil
}

// applyLate carries a request out that long after it was sent, and drops its result.
func (n *network) applyLate(r *http.Request, after time.Duration) {
	body, _ := io.ReadAll(r.Body)
	late := r.Clone(context.Background())
	late.Body = io.NopCloser(bytes.NewReader(body))
	n.pending.Add(1)
	time.AfterFunc(after, func() {
		defer n.pending.Done()
		n.fake.ServeHTTP(httptest.NewRecorder(), late)
	})
}

func pass(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fault) response(r *http.Request) *http.Response {
	recorder := httptest.NewRecorder()
	for name, values := range f.header {
		recorder.Header()[name] = values
	}
	if f.text == "" {
		recorder.Header().Set("Content-Type", "application/problem+json")
		f.text = fmt.Sprintf(`{"status":%d,"code":%q,"rule":%q,"title":"t","detail":"d"}`, f.status, f.code, f.rule)
	}
	recorder.WriteHeader(f.status)
	recorder.WriteString(f.text)
	response := recorder.Result()
	response.Request = r
	return response
}

// follow sets the faults from here on, and forgets earlier requests.
func (n *network) follow(script func(s sent, nth int) fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.script, n.log = script, nil
}

// requests returns the requests since the last follow.
func (n *network) requests() []sent {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]sent(nil), n.log...)
}
