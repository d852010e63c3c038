package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	// firstPause is how long a call rests after all nodes have failed once; twice as
	// long after each further round.
	firstPause = 50 * time.Millisecond
	// longestPause bounds it.
	longestPause = 2 * time.Second
	// maxReply bounds what is read of a reply.
	maxReply = 64 << 20
)

// call is one request to the cluster: whichever node answers it.
type call struct {
	method string
	path   []string // plain segments
	query  url.Values
	header http.Header
	body   any // nil for none

	// key makes a repeat answer what the first attempt did. With keyOptional the
	// request is safe to repeat without one too, should the cluster have no room for
	// more keys.
	key         string
	keyOptional bool

	until    time.Time            // a node may hold the request until then; zero: it answers at once
	patience func() time.Duration // bounds one attempt beside that; nil: Config.AttemptTimeout does
	maxPause time.Duration        // bounds the pause after failures, Retry-After included; 0: no bound

	failed func(error) // hears of each failed attempt; nil: nobody does
}

// reply is what a node answered, below 400.
type reply struct {
	status         int
	sent, received time.Time // of the attempt that was answered
	replayed       bool      // the answer of an earlier attempt with the same key
	index          uint64    // what the reply reflects; 0 unknown
	body           []byte
}

func (r *reply) decode(into any) error {
	if err := json.Unmarshal(r.body, into); err != nil {
		return fmt.Errorf("signalbox: a node's reply can't be read: %w", err)
	}
	return nil
}

// trial is the state of one call's attempts.
type trial struct {
	failures  int
	internals int       // failures with status 500
	since     time.Time // the first failure
	last      error     // the latest one
	// ambiguous: an attempt that failed may have been carried out nevertheless.
	ambiguous bool
}

// do sends a call until a node answers it, and answers a reply or the refusal. What
// is no answer (no connection, 502, 503, 504, silence) sends it to the next node,
// with the same key, for as long as ctx allows.
func (c *Client) do(ctx context.Context, k call) (reply, error) {
	body, err := encodeBody(k.body)
	if err != nil {
		return reply{}, err
	}
	ctx, end := joined(ctx, c.ctx)
	defer end()
	for t := (trial{}); ; {
		if c.rest(ctx, &t, k.maxPause) != nil || t.tooLong(ctx, c.cfg.GiveUpAfter) {
			return reply{}, t.givenUp(ctx, &k)
		}
		node, _ := c.nodes.pick(time.Now())
		r, err := c.try(ctx, node, &k, body)
		if err == nil {
			c.nodes.worked(node)
			return r, nil
		}
		var refusal *Error
		switch isRefusal := errors.As(err, &refusal); {
		case !isRefusal && ctx.Err() != nil:
			t.ambiguous = t.ambiguous || !notSent(err)
			return reply{}, t.givenUp(ctx, &k)
		case errors.Is(err, errSilent) && time.Until(k.until) > 0:
			// The node may just hold the request; in case it is dead, another one does.
			t.ambiguous = true
			c.nodes.failed(node, time.Time{})
		case isRefusal && refusal.Rule == "keys" && k.keyOptional:
			k.key, k.keyOptional = "", false
		case isRefusal && !t.goesOn(refusal, len(c.nodes.list)):
			c.nodes.worked(node)
			if t.ambiguous && !refusal.final() && k.method != http.MethodGet {
				err = fmt.Errorf("%w (%w)", err, ErrOutcomeUnknown)
			}
			return reply{}, err
		default:
			c.note(&t, node, err)
			if k.failed != nil {
				k.failed(err)
			}
		}
	}
}

// note counts a failed attempt and turns to the next node.
func (c *Client) note(t *trial, node *node, err error) {
	if t.failures++; t.failures == 1 {
		t.since = time.Now()
	}
	t.last = err
	var notBefore time.Time
	var refusal *Error
	if errors.As(err, &refusal) {
		notBefore = time.Now().Add(refusal.RetryAfter)
		t.ambiguous = t.ambiguous || !refusal.nothingDone()
	} else {
		t.ambiguous = t.ambiguous || !notSent(err)
	}
	c.nodes.failed(node, notBefore)
	c.log.Debug("attempt failed, turning to the next node", "node", node.base.Host, "error", err)
}

// goesOn reports whether a refusal is one of this node only, or of this moment.
func (t *trial) goesOn(refusal *Error, nodes int) bool {
	switch refusal.Status {
	case http.StatusRequestTimeout, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusInternalServerError: // a node's fault: the others are asked once each
		t.internals++
		return t.internals < nodes
	}
	return false
}

// tooLong reports whether a call without a deadline has failed for long enough.
func (t *trial) tooLong(ctx context.Context, most time.Duration) bool {
	_, bounded := ctx.Deadline()
	return !bounded && t.failures > 0 && time.Since(t.since) >= most
}

// rest waits as long as the failures so far and the nodes' Retry-After tell. Within
// a round over all nodes there is no pause: the next one may well work. It answers
// ctx's error.
func (c *Client) rest(ctx context.Context, t *trial, most time.Duration) error {
	_, pause := c.nodes.pick(time.Now())
	if t.failures > 0 && t.failures%len(c.nodes.list) == 0 {
		pause = max(pause, backOff(t.failures/len(c.nodes.list)))
	}
	if most > 0 {
		pause = min(pause, most)
	}
	return sleep(ctx, pause)
}

// backOff is the pause after so many rounds: doubling, and between half and all of
// it by chance, so that clients that failed together do not come back together.
func backOff(rounds int) time.Duration {
	full := min(longestPause, firstPause<<min(rounds-1, 10))
	return full/2 + rand.N(full/2)
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// givenUp is the error of a call whose ctx ended.
func (t *trial) givenUp(ctx context.Context, k *call) error {
	err := context.Cause(ctx) // nil: without a deadline, and too long
	if t.last != nil {
		err = join(err, fmt.Errorf("%w: %w", ErrUnreachable, t.last))
	}
	if t.ambiguous && k.method != http.MethodGet && !errors.Is(err, ErrOutcomeUnknown) {
		err = fmt.Errorf("%w (%w)", err, ErrOutcomeUnknown)
	}
	return fmt.Errorf("signalbox: %s: %w", k.name(), err)
}

// join is both errors in one line; either may be nil.
func join(first, second error) error {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return fmt.Errorf("%w: %w", first, second)
}

// name tells a call in an error.
func (k *call) name() string {
	return k.method + " " + (&node{base: &url.URL{}}).url(k.path, nil).EscapedPath()
}

func encodeBody(body any) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("signalbox: %w", err)
	}
	return encoded, nil
}

// try sends a call to one node, once.
func (c *Client) try(ctx context.Context, node *node, k *call, body []byte) (r reply, err error) {
	limit := c.cfg.AttemptTimeout
	if k.patience != nil {
		limit = min(limit, k.patience())
	}
	query := k.query
	if wait := milliseconds(time.Until(k.until)); !k.until.IsZero() && wait > 0 {
		query = url.Values{"wait": {strconv.FormatInt(wait, 10)}}
		for name, values := range k.query {
			query[name] = values
		}
		limit += min(time.Duration(wait)*time.Millisecond, c.cfg.LongestWait)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errSilent)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, k.method, "", bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	request.URL, request.Host = node.url(k.path, query), ""
	c.setHeader(request.Header, k, body)
	r.sent = time.Now()
	response, err := c.http.Do(request)
	if err != nil {
		return reply{}, silence(ctx, err)
	}
	defer response.Body.Close()
	r.body, err = io.ReadAll(io.LimitReader(response.Body, maxReply))
	if err != nil {
		return reply{}, silence(ctx, err)
	}
	r.received, r.status = time.Now(), response.StatusCode
	r.replayed = response.Header.Get("Idempotency-Replayed") == "true"
	r.index, _ = strconv.ParseUint(response.Header.Get("X-Signalbox-Index"), 10, 64)
	if r.status < 200 || r.status >= 300 {
		return reply{}, newError(node, response, &r)
	}
	return r, nil
}

func (c *Client) setHeader(header http.Header, k *call, body []byte) {
	for _, given := range []http.Header{c.cfg.Header, k.header} {
		for name, values := range given {
			header[http.CanonicalHeaderKey(name)] = values
		}
	}
	header.Set("Accept", "application/json, application/problem+json")
	if body != nil {
		header.Set("Content-Type", "application/json")
	}
	if k.key != "" {
		header.Set("Idempotency-Key", k.key)
	}
}

// milliseconds rounds up, so that nothing ends earlier than was asked for.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// silence names an attempt's own time limit as the reason, where it was.
func silence(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		return cause
	}
	return err
}

// notSent reports whether an attempt failed before any of it can have reached a node.
func notSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
