package proxy

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/client/cells"
	"github.com/signalbox/signalbox/client/credentials"
)

// nodes are the nodes of a cell.
type nodes struct {
	cell      int
	bases     []*url.URL
	current   atomic.Int32 // the node to ask first
	transport http.RoundTripper
	log       hclog.Logger
}

// newNodes reads the addresses. The first node to ask is drawn at random, so that proxies use different nodes.
func newNodes(c cells.Cell, transport http.RoundTripper, log hclog.Logger) (*nodes, error) {
	n := &nodes{cell: c.Number, transport: transport, log: log}
	for _, text := range c.Nodes {
		base, err := credentials.ParseAddress(text)
		if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.RawQuery != "" || base.Fragment != "" || base.User != nil {
			return nil, fmt.Errorf("cell %d: a node has no base URL as https://host:port, without a user", c.Number)
		}
		base.Path, base.RawPath = strings.TrimRight(base.Path, "/"), strings.TrimRight(base.RawPath, "/")
		n.bases = append(n.bases, base)
	}
	n.current.Store(rand.Int32N(int32(len(n.bases))))
	return n, nil
}

// attemptError is the error of the last attempt at a node.
type attemptError struct {
	error
	sent bool // the node may have got the request
}

func (e *attemptError) Unwrap() error { return e.error }

// RoundTrip sends a request to a node. After a failure, later requests go to the next node, and this request is sent to
// it as well if it may be repeated. A reply that reports a fault of the node goes to the client, who decides whether to
// repeat the request; only later requests go to the next node.
func (n *nodes) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set(cells.Header, strconv.Itoa(n.cell)) // r is a copy
	sent := false                                    // a node may have got the request, and failed
	for left := len(n.bases) - 1; ; left-- {
		response, err := n.attempt(r)
		if err == nil && (!sent || isSafe(r) || response.StatusCode < http.StatusInternalServerError) {
			return response, nil
		}
		if err == nil { // the refusal does not tell the outcome of the earlier attempt
			response.Body.Close()
			return nil, &attemptError{fmt.Errorf("an earlier attempt had no reply, a later one %s", response.Status), true}
		}
		sent = sent || err.sent
		err.sent = sent
		if left == 0 || r.Context().Err() != nil || sent && !mayRepeat(r) {
			return nil, err
		}
	}
}

// attempt sends a request to the current node.
func (n *nodes) attempt(r *http.Request) (*http.Response, *attemptError) {
	at := n.current.Load()
	base, connected := n.bases[at], false
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }}
	sent := r.WithContext(httptrace.WithClientTrace(r.Context(), trace))
	u := *r.URL
	sent.URL, u.Scheme, u.Host = &u, base.Scheme, base.Host
	u.Path, u.RawPath = base.Path+r.URL.Path, base.EscapedPath()+r.URL.EscapedPath()
	switch {
	case r.Body == nil:
	case r.GetBody != nil:
		sent.Body, _ = r.GetBody() // of bytes in memory: never fails
	default:
		sent.Body = io.NopCloser(r.Body) // the transport closes the body of an attempt
	}
	response, err := n.transport.RoundTrip(sent)
	if err == nil && response.StatusCode < http.StatusInternalServerError && response.Header.Get(cells.Header) == "" {
		return response, nil
	}
	n.current.CompareAndSwap(at, (at+1)%int32(len(n.bases)))
	if err == nil {
		if number := response.Header.Get(cells.Header); number != "" {
			n.log.Error("a node has refused a request: the file has it in the wrong cell", "cell", n.cell, "node", base.Host, "cell_of_node", number)
		}
		return response, nil
	}
	if r.Context().Err() == nil {
		n.log.Warn("a node did not reply", "cell", n.cell, "node", base.Host, "error", err)
	}
	return nil, &attemptError{err, connected}
}

// mayRepeat reports whether a request that a node may have got may be sent again.
func mayRepeat(r *http.Request) bool {
	inMemory := r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
	return inMemory && (isSafe(r) || r.Header.Get("Idempotency-Key") != "")
}

func isSafe(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
}
