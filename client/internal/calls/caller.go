package calls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/signalbox/signalbox/client/credentials"
	"github.com/signalbox/signalbox/client/internal/nodes"
)

// Config configures a Caller. Addresses, Log, the times and Refused are needed.
type Config struct {
	Addresses   []string     // base URLs of the nodes, in the order to ask them
	HTTPClient  *http.Client // nil: the Caller makes one
	Header      http.Header  // sent with every request
	Credentials credentials.Config
	Log         *slog.Logger // gets failed attempts, at debug, and at warn that no node replies

	AttemptTimeout time.Duration // bounds one attempt, its wait not included
	LongestWait    time.Duration // bounds the wait of one attempt
	GiveUpAfter    time.Duration // when to end a call without a deadline that no node could carry out

	Suspended func() time.Duration // how long the machine was suspended, since any time; nil: read from the system

	// Refused makes the error that users get for a refusal.
	Refused func(*Refusal) error
}

// retryState is the state of one call's attempts.
type retryState struct {
	failures int
	since    time.Time     // when the first attempt failed, or the cluster last said that it is overloaded
	last     error         // the latest failure
	pause    time.Duration // the least pause before the next attempt, at any node
	// ofNodes counts the refusals by a node's own rule or certificate. The call ends once each node has refused it. If a
	// node held the call before it failed, the count starts again.
	ofNodes int
	// ambiguous reports whether a failed attempt may have been carried out.
	ambiguous bool
}

// Caller sends calls to the nodes, and turns to the next node when one fails.
type Caller struct {
	cfg     Config
	http    *http.Client
	ownHTTP bool
	nodes   *nodes.List
	outage  outage

	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc

	mu        sync.Mutex
	gatherers map[*nodes.Node]*gatherer
}

// New makes a Caller. It sends no request. It fails for addresses that are not base URLs, and for credentials that
// can't be read or must not be sent to an address.
func New(cfg Config) (*Caller, error) {
	list, err := nodes.Parse(cfg.Addresses)
	if err != nil {
		return nil, err
	}
	if cfg.Suspended == nil {
		cfg.Suspended = suspended
	}
	c := &Caller{cfg: cfg, nodes: list, outage: outage{log: cfg.Log, nodes: list}, ownHTTP: cfg.HTTPClient == nil, gatherers: map[*nodes.Node]*gatherer{}}
	if c.http, err = httpClient(&cfg, list.Bases()); err != nil {
		return nil, err
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c, nil
}

// Close ends the calls under way with a cause, and all later calls, except calls with OutlivesCaller. It does not
// wait for them to return.
func (c *Caller) Close(cause error) { c.cancel(cause) }

// Refused returns the error that users get for a refusal.
func (c *Caller) Refused(r *Refusal) error { return c.cfg.Refused(r) }

// CloseIdle closes connections that no request uses, except the connections of a user's HTTPClient.
func (c *Caller) CloseIdle() {
	if c.ownHTTP {
		c.http.CloseIdleConnections()
	}
}

// Distrust makes calls ask the other nodes first, until the node has replied to a request. It is for a node that left
// a request without a reply.
func (c *Caller) Distrust(node *nodes.Node) { c.nodes.MarkFailed(node, time.Time{}, true) }

// Do sends a call until it has a reply or a refusal. After a failure (no connection, 502, 503, 504, silence) it asks
// the next node, with the same key, until ctx ends. allow decides how long each attempt may take. Reply.Node is set
// even with an error; with a refusal, the reply also has the times of its attempt.
func (c *Caller) Do(ctx context.Context, k Call) (Reply, error) {
	var body []byte
	if k.Body != nil {
		var err error
		if body, err = json.Marshal(k.Body); err != nil {
			return Reply{}, fmt.Errorf("signalbox: %w", err)
		}
	}
	if !k.OutlivesCaller {
		var end func()
		ctx, end = WithEither(ctx, c.ctx)
		defer end()
	}
	for state := (retryState{ambiguous: k.Unsure}); ; {
		node, err := c.next(ctx, &state, &k)
		if err != nil || state.tooLong(ctx, c.cfg.GiveUpAfter) {
			return Reply{}, state.giveUpError(ctx, &k)
		}
		a := c.allow(ctx, &k, &state)
		r, err := c.try(ctx, node, &k, body, a)
		if ctx.Err() == nil {
			c.outage.noteAttempt(a.began, err, c.deadlineOf(ctx))
		}
		if err == nil {
			c.nodes.MarkWorked(node, a.began)
			return r, nil
		}
		if err = c.judge(ctx, &state, &k, node, a, err); err != nil {
			return Reply{Node: node, Sent: c.At(a.began), Received: c.Now(), Wait: a.wait, Unsure: state.ambiguous}, err
		}
	}
}

// Read is Do, and decodes the reply into a value, unless that is nil.
func (c *Caller) Read(ctx context.Context, k Call, into any) (Reply, error) {
	r, err := c.Do(ctx, k)
	if err == nil && into != nil {
		err = r.Decode(into)
	}
	return r, err
}

// judge decides about a failed attempt: it returns nil for another attempt, or the error to end the call with.
func (c *Caller) judge(ctx context.Context, state *retryState, k *Call, node *nodes.Node, a allowance, err error) error {
	var refusal *Refusal
	switch isRefusal := errors.As(err, &refusal); {
	case !isRefusal && ctx.Err() != nil:
		state.ambiguous = state.ambiguous || !notSent(err)
		c.markUnanswered(ctx, state, node, a, err)
		return state.giveUpError(ctx, k)
	case errors.Is(err, errSilent) && !notSent(err) && !k.Until.IsZero() && a.total < a.wait+shortestShare/2:
		return ErrHeld
	case isRefusal && refusal.Rule == "keys" && k.KeyOptional:
		k.Key, k.KeyOptional = "", false
	case isRefusal && !state.mayRetry(refusal, c.nodes.Len()):
		if refusal.ofNode() {
			c.nodes.MarkFailed(node, time.Now().Add(refusal.RetryAfter), false) // the next call begins at another node
		} else {
			c.nodes.MarkWorked(node, a.began)
		}
		if state.ambiguous && !refusal.final() && k.Method != http.MethodGet {
			err = fmt.Errorf("%w (%w)", err, ErrOutcomeUnknown)
		}
		return err
	default:
		c.countFailure(state, k, node, a, err)
		if k.Failed != nil {
			k.Failed(err)
		}
		if k.NoRepeat && state.ambiguous {
			return state.giveUpError(ctx, k)
		}
		if isCertificateError(err) {
			if state.ofNodes++; state.ofNodes >= c.nodes.Len() {
				return state.giveUpError(ctx, k)
			}
		}
	}
	return nil
}

// countFailure counts a failed attempt and turns to the next node.
func (c *Caller) countFailure(state *retryState, k *Call, node *nodes.Node, a allowance, err error) {
	if state.failures++; state.failures == 1 {
		state.since = time.Now()
	}
	if state.last = err; errors.Is(err, errSilent) {
		state.last = fmt.Errorf("%s: %w", node, err)
	}
	var notBefore time.Time
	var refusal *Refusal
	if errors.As(err, &refusal) {
		notBefore = time.Now().Add(refusal.RetryAfter)
		state.ambiguous = state.ambiguous || !refusal.noEffect()
		if refusal.Code == "overloaded" { // another node would ask the same leader
			state.pause = refusal.RetryAfter + rand.N(refusal.RetryAfter/4+1)
			if k.waits() || k.RepeatOverloaded {
				state.since = time.Now() // the cluster is reachable, so the wait goes on
			}
		}
	} else {
		state.ambiguous = state.ambiguous || !notSent(err)
	}
	if heldBy(refusal, err, time.Since(a.began)) {
		state.ofNodes = 0 // because a call may wait through several restarts of its nodes
	}
	c.nodes.MarkFailed(node, notBefore, errors.Is(err, errSilent))
	c.cfg.Log.Debug("attempt failed, turning to the next node", "node", node.Host(), "error", err)
}

// minHeld is how long an attempt must last before we conclude that the node held the call, and did not refuse it at
// once.
const minHeld = time.Second

// heldBy reports whether the node held the call and then stopped. duration is how long the attempt was under way.
func heldBy(refusal *Refusal, err error, duration time.Duration) bool {
	if refusal != nil {
		return refusal.Code == "draining"
	}
	return duration >= minHeld && !notSent(err) && !errors.Is(err, errSilent)
}

// markUnanswered makes later calls prefer the next node if ctx ended although this node had time to reply. The node had
// time if the call's deadline has passed, or if the node was silent for longer than the allowed wait. The wait counts
// only if the request was sent.
func (c *Caller) markUnanswered(ctx context.Context, state *retryState, node *nodes.Node, a allowance, err error) {
	if errors.Is(err, errUntried) {
		return
	}
	reason := errSilent
	if notSent(err) {
		a.wait, reason = 0, errUnconnected
	}
	silent := time.Since(a.began)-a.wait >= shortestShare/2
	if silent || a.wait == 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		c.nodes.MarkFailed(node, time.Time{}, silent)
		if state.last == nil {
			state.last = fmt.Errorf("%s: %w", node, reason)
		}
	}
}

// mayRetry reports whether another attempt may succeed: the refusal is by this node only, or temporary.
func (state *retryState) mayRetry(refusal *Refusal, all int) bool {
	switch refusal.Status {
	case http.StatusRequestTimeout, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusInternalServerError:
	default:
		if !refusal.ofNode() {
			return false
		}
	}
	state.ofNodes++ // a fault or a rule of this node: each other node is asked once
	return state.ofNodes < all
}

// tooLong reports whether a call without a deadline has failed for the limit.
func (state *retryState) tooLong(ctx context.Context, limit time.Duration) bool {
	_, bounded := ctx.Deadline()
	return !bounded && state.failures > 0 && time.Since(state.since) >= limit
}

// next returns the node to ask, after the pause that the failures and the nodes' Retry-After require. Within a round
// over all nodes there is no pause, because the next node may work. If ctx ends, it fails with ctx's error.
func (c *Caller) next(ctx context.Context, state *retryState, k *Call) (*nodes.Node, error) {
	elsewhere := k.OtherNode && state.failures == 0
	_, pause := c.nodes.Pick(time.Now(), elsewhere)
	if state.failures > 0 && state.failures%c.nodes.Len() == 0 {
		pause = max(pause, BackOff(state.failures/c.nodes.Len()))
	}
	pause, state.pause = max(pause, state.pause), 0
	if k.MaxPause > 0 {
		pause = min(pause, k.MaxPause)
	}
	if err := Sleep(ctx, pause); err != nil {
		return nil, err
	}
	node, _ := c.nodes.Pick(time.Now(), elsewhere)
	return node, nil
}

func (state *retryState) giveUpError(ctx context.Context, k *Call) error {
	err := context.Cause(ctx) // nil: ctx has not ended, but GiveUpAfter has passed
	if state.last != nil {
		err = Join(err, fmt.Errorf("%w: %w", ErrUnreachable, state.last))
	}
	if state.ambiguous && k.Method != http.MethodGet && !errors.Is(err, ErrOutcomeUnknown) {
		err = fmt.Errorf("%w (%w)", err, ErrOutcomeUnknown)
	}
	return fmt.Errorf("signalbox: %s %s: %w", k.Method, nodes.Path(k.Path), err)
}
