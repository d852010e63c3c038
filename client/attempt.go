package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/signalbox/signalbox/client/internal/nodes"
)

// shortestShare bounds from below what one attempt may take of a call's time: a
// healthy node needs some, and a call with less time left has one attempt.
const shortestShare = 500 * time.Millisecond

// allowance is the time that one attempt may take.
type allowance struct {
	began time.Time
	total time.Duration // until the attempt is given up
	wait  time.Duration // for which the node may hold the request
}

// allow returns the time for the next attempt: the share of its node in the time that
// is left. Before the first failure the share is the time divided by all nodes, then by
// all but one, and so on, so that nodes which accept requests and never reply leave
// their shares to the others. Without a deadline, or with one node, the only bounds are
// Config.AttemptTimeout and Config.LongestWait.
func (c *caller) allow(ctx context.Context, k *call, t *trial) allowance {
	a := allowance{began: time.Now()}
	left, share := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	if deadline, bounded := ctx.Deadline(); bounded {
		left = deadline.Sub(a.began)
		count := c.nodes.Len()
		share = max(left/time.Duration(count-t.failures%count), shortestShare)
	}
	patience := c.cfg.AttemptTimeout
	if k.patience != nil {
		patience = min(patience, k.patience())
	}
	if !k.waits() || k.listen && t.failures > 0 { // after a failure, first see which node replies
		a.total = min(patience, share)
		return a
	}
	if k.longest > 0 {
		share = min(share, max(k.longest, shortestShare))
	}
	if a.wait = max(k.until.Sub(a.began), 0); !k.listen {
		a.total = min(min(a.wait, c.cfg.LongestWait)+patience, share)
		return a
	}
	a.total = min(c.cfg.LongestWait+patience, share)
	a.wait = a.total - min(patience, max(a.total/4, shortestShare/2))
	if a.total >= left { // there is no time for another attempt
		a.total, a.wait = left+shortestShare, min(left, c.cfg.LongestWait)
	}
	return a
}

// growing returns the patience of a call whose caller waits for a short time, and which
// goes on after that: each node gets a share of withdrawGrace, and then twice as long
// in each round over all nodes, since healthy ones may be slow too.
func (c *caller) growing() func() time.Duration {
	attempts, count := 0, c.nodes.Len()
	return func() time.Duration {
		rounds := attempts / count
		attempts++
		return max(withdrawGrace/time.Duration(count), shortestShare) << min(rounds, 6)
	}
}

// try sends a call to one node, once.
func (c *caller) try(ctx context.Context, node *nodes.Node, k *call, body []byte, a allowance) (r reply, err error) {
	query := k.query
	if wait := milliseconds(a.wait); wait > 0 {
		query = url.Values{"wait": {strconv.FormatInt(wait, 10)}}
		for name, values := range k.query {
			query[name] = values
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, a.total, errSilent)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, k.method, "", bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	request.URL, request.Host = node.URL(k.path, query), ""
	c.setHeader(request.Header, k, body)
	r.sent, r.wait, r.node = time.Now(), a.wait, node
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

func (c *caller) setHeader(header http.Header, k *call, body []byte) {
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

// milliseconds rounds up, so that no wait ends earlier than was asked for.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// silence replaces the error of an attempt that ran into its own time limit.
func silence(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		return cause
	}
	return err
}

// notSent reports whether an attempt failed before a byte can have reached a node.
func notSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
