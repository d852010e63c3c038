package client_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox/signalbox/test/openapitest"
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
	strip     string        // a part of the query that does not arrive
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

// network carries requests from a client to real nodes, in memory, so that it works in
// virtual time, and makes faults on their way. It compares what passes with the description
// of the API. Safe for concurrent use.
type network struct {
	t    testing.TB
	node func(host string) http.Handler // nil: the node does not run

	mu      sync.Mutex
	log     []sent
	script  func(s sent, nth int) fault // nil: no faults; nth counts from 1
	pending sync.WaitGroup              // handlers
}

// RoundTrip implements http.RoundTripper.
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
	case f.refused || n.node(r.URL.Host) == nil:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("connection refused")}
	case f.lateApply > 0:
		late := r.Clone(context.Background())
		n.pending.Go(func() {
			time.Sleep(f.lateApply) // virtual
			n.serve(httptest.NewRecorder(), late)
		})
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
	recorder, served := httptest.NewRecorder(), make(chan struct{})
	n.pending.Go(func() {
		defer close(served)
		arriving := r.Clone(r.Context())
		arriving.URL.RawQuery = strings.ReplaceAll(r.URL.RawQuery, f.strip, "")
		n.serve(recorder, arriving)
	})
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

// serve has the node carry a request out.
func (n *network) serve(recorder *httptest.ResponseRecorder, r *http.Request) {
	r.Body = cmp.Or(r.Body, io.ReadCloser(http.NoBody))
	recorded := openapitest.Record(r)
	n.node(r.URL.Host).ServeHTTP(recorder, r)
	if r.Context().Err() == nil { // else no caller gets the reply
		openapitest.Check(n.t, r, recorded, recorder)
	}
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
	maps.Copy(recorder.Header(), f.header)
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
