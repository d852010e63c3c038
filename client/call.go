package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/signalbox/signalbox/client/internal/nodes"
)

const (
	// firstPause is how long a call rests after all nodes have failed once; twice as
	// long after each further round.
	firstPause = 50 * time.Millisecond
	// longestPause bounds it.
	longestPause = 2 * time.Second
	// maxReply bounds how much of a reply is read.
	maxReply = 64 << 20
)

// call is one request to the cluster, to whichever node replies.
type call struct {
	method string
	path   []string // plain segments
	query  url.Values
	header http.Header
	body   any // may be nil

	// key makes a repeat return the outcome of the first attempt. With keyOptional the
	// request is safe to repeat without one too, should the cluster have no room for
	// more keys.
	key         string
	keyOptional bool

	// until is the end of a wait that the request names to the cluster: a node may hold
	// the request for all of it. Zero: no such wait.
	until time.Time
	// listen lets a node hold the request for as long as the attempt allows: the reply
	// is then that there is no outcome yet.
	listen   bool
	longest  time.Duration        // bounds an attempt that a node may hold; 0: no further bound
	patience func() time.Duration // bounds an attempt beside its wait; nil: Config.AttemptTimeout alone
	maxPause time.Duration        // bounds the pause after failures, Retry-After included; 0: no bound

	elsewhere bool // begin at another node than the one that worked last
	unsure    bool // an earlier call with the same key may have been carried out
	outlives  bool // the Client's Close does not end the call

	failed func(error) // is called with each failed attempt; may be nil
}

// waits reports whether a node may hold the request.
func (k *call) waits() bool { return k.listen || !k.until.IsZero() }

// reply is a node's reply, with a status below 300.
type reply struct {
	status         int
	sent, received time.Time     // of the attempt that succeeded
	wait           time.Duration // how long that attempt allowed the node to hold it
	node           *nodes.Node   // asked last
	replayed       bool          // the outcome of an earlier attempt with the same key
	index          uint64        // of the state that the reply reflects; 0 unknown
	body           []byte
}

// early reports whether a node replied before the end of the wait that it was allowed,
// or was not allowed to wait.
func (r *reply) early() bool { return r.wait == 0 || r.received.Sub(r.sent) < r.wait }

func (r *reply) decode(into any) error {
	if err := json.Unmarshal(r.body, into); err != nil {
		return fmt.Errorf("signalbox: a node's reply can't be read: %w", err)
	}
	return nil
}

// trial is the state of one call's attempts.
type trial struct {
	failures int
	ofNodes  int           // refusals that are one node's, of which each node may make one
	since    time.Time     // the first failure
	last     error         // the latest one
	pause    time.Duration // the least before the next attempt, at whichever node
	// ambiguous: an attempt that failed may have been carried out nevertheless.
	ambiguous bool
}

// errHeld ends a call with until: a node has not replied within its share of the
// time, which may be because it holds the request.
var errHeld = errors.New("no reply yet")

// caller sends calls to the nodes, and turns to the next node when one fails. It knows
// no sessions and leases. Safe for concurrent use.
type caller struct {
	cfg     Config // complete, see New
	http    *http.Client
	ownHTTP bool
	log     *slog.Logger
	nodes   *nodes.List

	ctx    context.Context // ends with the Client's Close
	cancel context.CancelCauseFunc
}

// do sends a call until it has a reply or a refusal, and returns that. After a failure
// (no connection, 502, 503, 504, silence) it asks the next node, with the same key, for
// as long as ctx allows. Each node may take its share of the time, see allow. The node
// of the reply is the one asked last, also with an error.
func (c *caller) do(ctx context.Context, k call) (reply, error) {
	var body []byte
	if k.body != nil {
		var err error
		if body, err = json.Marshal(k.body); err != nil {
			return reply{}, fmt.Errorf("signalbox: %w", err)
		}
	}
	if !k.outlives {
		var end func()
		ctx, end = joined(ctx, c.ctx)
		defer end()
	}
	for t := (trial{ambiguous: k.unsure}); ; {
		node, err := c.next(ctx, &t, &k)
		if err != nil || t.tooLong(ctx, c.cfg.GiveUpAfter) {
			return reply{}, t.givenUp(ctx, &k)
		}
		a := c.allow(ctx, &k, &t)
		r, err := c.try(ctx, node, &k, body, a)
		if err == nil {
			c.nodes.Worked(node)
			return r, nil
		}
		if err = c.judge(ctx, &t, &k, node, a, err); err != nil {
			return reply{node: node}, err
		}
	}
}

// read is do, and decodes the reply into a value that is not nil.
func (c *caller) read(ctx context.Context, k call, into any) (reply, error) {
	r, err := c.do(ctx, k)
	if err == nil && into != nil {
		err = r.decode(into)
	}
	return r, err
}

// judge decides about a failed attempt: it returns nil for another one, or the error
// to end the call with.
func (c *caller) judge(ctx context.Context, t *trial, k *call, node *nodes.Node, a allowance, err error) error {
	var refusal *Error
	switch isRefusal := errors.As(err, &refusal); {
	case !isRefusal && ctx.Err() != nil:
		t.ambiguous = t.ambiguous || !notSent(err)
		c.hungUp(ctx, t, node, a)
		return t.givenUp(ctx, k)
	case errors.Is(err, errSilent) && !k.until.IsZero() && a.total < a.wait+shortestShare/2:
		return errHeld
	case isRefusal && refusal.Rule == "keys" && k.keyOptional:
		k.key, k.keyOptional = "", false
	case isRefusal && !t.goesOn(refusal, c.nodes.Len()):
		if refusal.ofNode() {
			c.nodes.Failed(node, time.Now().Add(refusal.RetryAfter), false) // the next call begins elsewhere
		} else {
			c.nodes.Worked(node)
		}
		if t.ambiguous && !refusal.final() && k.method != http.MethodGet {
			err = fmt.Errorf("%w (%w)", err, ErrOutcomeUnknown)
		}
		return err
	default:
		c.note(t, k, node, err)
		if k.failed != nil {
			k.failed(err)
		}
	}
	return nil
}

// note counts a failed attempt and turns to the next node.
func (c *caller) note(t *trial, k *call, node *nodes.Node, err error) {
	if t.failures++; t.failures == 1 {
		t.since = time.Now()
	}
	t.last = err
	var notBefore time.Time
	var refusal *Error
	if errors.As(err, &refusal) {
		notBefore = time.Now().Add(refusal.RetryAfter)
		t.ambiguous = t.ambiguous || !refusal.noEffect()
		if refusal.Is(ErrOverloaded) { // all nodes share one leader: another node is no help
			t.pause = refusal.RetryAfter + rand.N(refusal.RetryAfter/4+1)
			if k.waits() {
				t.since = time.Now() // the cluster is there; the wait goes on
			}
		}
	} else {
		t.ambiguous = t.ambiguous || !notSent(err)
	}
	c.nodes.Failed(node, notBefore, errors.Is(err, errSilent))
	c.log.Debug("attempt failed, turning to the next node", "node", node.Host(), "error", err)
}

// hungUp turns to the next node if a call's ctx ended although the node had time to
// reply: a deadline that passed, or silence beyond the wait that it was allowed.
func (c *caller) hungUp(ctx context.Context, t *trial, node *nodes.Node, a allowance) {
	silent := time.Since(a.began)-a.wait >= shortestShare/2
	if silent || a.wait == 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		c.nodes.Failed(node, time.Time{}, silent)
		if t.last == nil {
			t.last = errSilent
		}
	}
}

// goesOn reports whether to try again: the refusal is of this node only, or of this
// moment.
func (t *trial) goesOn(refusal *Error, all int) bool {
	switch refusal.Status {
	case http.StatusRequestTimeout, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusTooManyRequests:
		if !refusal.ofNode() {
			return false
		}
	case http.StatusInternalServerError:
	default:
		return false
	}
	t.ofNodes++ // a node's fault, or its own limit: the others are asked once each
	return t.ofNodes < all
}

// tooLong reports whether a call without a deadline has failed for long enough.
func (t *trial) tooLong(ctx context.Context, most time.Duration) bool {
	_, bounded := ctx.Deadline()
	return !bounded && t.failures > 0 && time.Since(t.since) >= most
}

// next returns the node to ask, after the pause that the failures so far and the nodes'
// Retry-After demand. Within a round over all nodes there is no pause: the next one may
// well work. It fails with ctx's error.
func (c *caller) next(ctx context.Context, t *trial, k *call) (*nodes.Node, error) {
	elsewhere := k.elsewhere && t.failures == 0
	_, pause := c.nodes.Pick(time.Now(), elsewhere)
	if t.failures > 0 && t.failures%c.nodes.Len() == 0 {
		pause = max(pause, backOff(t.failures/c.nodes.Len()))
	}
	pause, t.pause = max(pause, t.pause), 0
	if k.maxPause > 0 {
		pause = min(pause, k.maxPause)
	}
	if err := sleep(ctx, pause); err != nil {
		return nil, err
	}
	node, _ := c.nodes.Pick(time.Now(), elsewhere)
	return node, nil
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
	return fmt.Errorf("signalbox: %s %s: %w", k.method, nodes.Path(k.path), err)
}

// join joins two errors into one line; either may be nil.
func join(first, second error) error {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return fmt.Errorf("%w: %w", first, second)
}

// closeIdle closes connections that no request uses, unless they are the user's.
func (c *caller) closeIdle() {
	if c.ownHTTP {
		c.http.CloseIdleConnections()
	}
}
