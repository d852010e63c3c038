package calls

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/signalbox/signalbox/client/credentials"
	"github.com/signalbox/signalbox/client/internal/nodes"
)

// shortestShare is the least part of a call's time for one attempt, because a healthy node needs some time too. A call
// with less time left makes one attempt.
const shortestShare = 500 * time.Millisecond

// maxReply bounds how many bytes of a reply are read.
const maxReply = 64 << 20

// allowance is the time that one attempt may take.
type allowance struct {
	began time.Time
	total time.Duration // until the attempt is given up
	wait  time.Duration // how long the node may hold the request
}

// allow returns the time for the next attempt: the time left, divided by the number of nodes that have not failed yet.
// So nodes that accept requests and never reply leave time for the other nodes. For a ctx without a deadline, and with
// one node, only Config.AttemptTimeout and Config.LongestWait are bounds.
func (c *Caller) allow(ctx context.Context, k *Call, state *retryState) allowance {
	a := allowance{began: time.Now()}
	left, share := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	if deadline, bounded := ctx.Deadline(); bounded {
		left = deadline.Sub(a.began)
		count := c.nodes.Len()
		share = max(left/time.Duration(count-state.failures%count), shortestShare)
	}
	patience := c.cfg.AttemptTimeout
	if k.Patience != nil {
		patience = min(patience, k.Patience())
	}
	if k.MaxAttempt > 0 {
		share = min(share, max(k.MaxAttempt, shortestShare))
	}
	if !k.waits() || k.Listen && state.failures > 0 { // after a failure, a quick attempt finds a node that replies
		a.total = min(patience, share)
		return a
	}
	if a.wait = max(k.Until.Sub(a.began), 0); !k.Listen {
		a.total = min(min(a.wait, c.cfg.LongestWait)+patience, share)
		return a
	}
	a.total = min(c.cfg.LongestWait+patience, share)
	a.wait = a.total - min(patience, max(a.total/4, shortestShare/2))
	if a.total >= left { // this is the last attempt
		a.total, a.wait = left+shortestShare, min(left, c.cfg.LongestWait)
	}
	return a
}

// Growing returns a Patience for a call that goes on in the background after its caller has waited for short. In the
// first round over all nodes each node gets an equal part of short. In each further round it gets twice as long, since a
// healthy node may just be slow.
func (c *Caller) Growing(short time.Duration) func() time.Duration {
	attempts, count := 0, c.nodes.Len()
	return func() time.Duration {
		rounds := attempts / count
		attempts++
		return max(short/time.Duration(count), shortestShare) << min(rounds, 6)
	}
}

func (c *Caller) try(ctx context.Context, node *nodes.Node, k *Call, body []byte, a allowance) (Reply, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, a.total, errSilent)
	defer cancel()
	sendSeparately := func() (Reply, error) { return c.request(ctx, node, k, body, a) }
	if k.shareable() {
		return c.gathererFor(node).try(ctx, k, body, sendSeparately)
	}
	return sendSeparately()
}

func (c *Caller) request(ctx context.Context, node *nodes.Node, k *Call, body []byte, a allowance) (r Reply, err error) {
	query := k.Query
	if wait := Milliseconds(a.wait); wait > 0 {
		query = url.Values{"wait": {strconv.FormatInt(wait, 10)}}
		for name, values := range k.Query {
			query[name] = values
		}
	}
	request, err := http.NewRequestWithContext(ctx, k.Method, "", bytes.NewReader(body))
	if err != nil {
		return Reply{}, err
	}
	request.URL, request.Host = node.URL(k.Path, query), ""
	c.setHeader(request, node, k, body)
	r.Sent, r.Wait, r.Node = c.Now(), a.wait, node
	response, err := c.send(request)
	if err != nil {
		return Reply{}, silence(ctx, err)
	}
	defer response.Body.Close()
	r.Body, err = io.ReadAll(io.LimitReader(response.Body, maxReply))
	if err != nil {
		return Reply{}, silence(ctx, err)
	}
	r.Received, r.Status = c.Now(), response.StatusCode
	r.Replayed = response.Header.Get("Idempotency-Replayed") == "true"
	r.Index, _ = strconv.ParseUint(response.Header.Get("X-Signalbox-Index"), 10, 64)
	if r.Status < 200 || r.Status >= 300 {
		return Reply{}, c.newRefusal(response.Header, &r)
	}
	return r, nil
}

func (c *Caller) setHeader(request *http.Request, node *nodes.Node, k *Call, body []byte) {
	header := request.Header
	if user := node.User(); user != nil {
		password, _ := user.Password()
		request.SetBasicAuth(user.Username(), password)
	}
	for _, extra := range []http.Header{c.cfg.Header, k.Header} {
		for name, values := range extra {
			header[http.CanonicalHeaderKey(name)] = values
		}
	}
	header.Set("Accept", "application/json, application/problem+json")
	if body != nil {
		header.Set("Content-Type", "application/json")
	}
	if k.Key != "" {
		header.Set("Idempotency-Key", k.Key)
	}
}

// send sends a request. If ctx ended while the request still waited for a connection, the error also wraps errUnsent.
// The HTTP client's error does not tell this, so send traces the connection. If the user's RoundTripper reports no
// connections, send does not know, and the request counts as sent.
func (c *Caller) send(request *http.Request) (*http.Response, error) {
	var wanted, got atomic.Bool
	seen := &httptrace.ClientTrace{
		GetConn: func(string) { wanted.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { got.Store(true) },
	}
	response, err := c.http.Do(request.WithContext(httptrace.WithClientTrace(request.Context(), seen)))
	if err != nil && request.Context().Err() != nil && wanted.Load() && !got.Load() {
		err = fmt.Errorf("%w (%w)", err, errUnsent)
	}
	return response, err
}

// silence returns errSilent instead of err if the attempt ran into its own time limit.
func silence(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); !errors.Is(cause, errSilent) {
		return err
	}
	if errors.Is(err, errUnsent) {
		return errUnconnected
	}
	return errSilent
}

// httpClient returns a copy of the user's HTTP client, or a new one, with the credentials.
func httpClient(cfg *Config, addresses []*url.URL) (*http.Client, error) {
	h := &http.Client{}
	if cfg.HTTPClient != nil {
		*h = *cfg.HTTPClient
	}
	if h.CheckRedirect == nil { // because a redirected POST may arrive as a GET
		h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	switch base := h.Transport; {
	case cfg.HTTPClient == nil:
		h.Transport = ownTransport()
	case base == nil:
		h.Transport = http.DefaultTransport
	}
	if cfg.HTTPClient != nil && cfg.Credentials.HasTLS() {
		return nil, errors.New("the certificates belong into the HTTP client that was given")
	}
	var err error
	h.Transport, err = credentials.New(cfg.Credentials, addresses, h.Transport)
	return h, err
}

func ownTransport() *http.Transport {
	// Keep-alive probes find a dead node within 20 s, even for a request that waits for a minute.
	dialer := &net.Dialer{Timeout: 3 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 2}}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		TLSHandshakeTimeout:   5 * time.Second,
		IdleConnTimeout:       45 * time.Second, // nodes close idle connections after 2 minutes, proxies after 60 s
		MaxIdleConnsPerHost:   64,
		ForceAttemptHTTP2:     true,
		ExpectContinueTimeout: time.Second,
	}
}

// notSent reports whether an attempt failed before a node could read the request.
func notSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || isCertificateError(err) || errors.Is(err, errUnsent)
}

// isCertificateError reports whether the client or the node refused the certificate of the other side. Another node may
// have a valid certificate.
func isCertificateError(err error) bool {
	var untrusted *tls.CertificateVerificationError
	var op *net.OpError
	return errors.As(err, &untrusted) || errors.As(err, &op) && op.Op == "remote error" && strings.Contains(op.Error(), "certificate")
}
