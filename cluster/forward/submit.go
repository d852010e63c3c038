package forward

import (
	"context"
	"errors"
	"time"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/requests"
)

const (
	// HoldTimeout is how long the router keeps a command while no leader accepts it, at multiplier 1.
	HoldTimeout = 5 * time.Second
	// outcomeTimeout bounds the wait for the outcome of a sent command, from the leader or from this node's machine, at
	// multiplier 1.
	outcomeTimeout = 5 * time.Second
	// readAgain is the pause after a failed attempt to read.
	readAgain = 20 * time.Millisecond
)

// Submit sends requests, in their order, and blocks until each has its outcome: a result, or an error for its caller.
//
// If a leader is lost, Submit sends the requests from the first unapplied request on again. It first makes certain that
// no such request was applied, so that a list keeps its order.
func (r *Router) Submit(ctx context.Context, reqs []*requests.Request) []*requests.Settlement {
	settled := make([]*requests.Settlement, len(reqs))
	room := r.config.Requests.Add(ctx, reqs)
	for i := room; i < len(reqs); i++ {
		settled[i] = &requests.Settlement{Verdict: outcome.Failed.Because(outcome.ErrOverloaded)}
	}
	hold := r.config.Times.Patience(HoldTimeout)
	c := submission{router: r, ctx: ctx, began: time.Now(), hold: hold, timer: time.NewTimer(hold)}
	defer c.timer.Stop()
	for first := 0; first < room; {
		r.send(reqs[first:room])
		again := true
		for i := first; i < room; i++ {
			settled[i] = c.await(reqs[i])
			if settled[i].Fate == outcome.Applied && i == first {
				first++
				continue
			}
			again = again && settled[i].Retryable()
		}
		if !again {
			break
		}
	}
	r.completeRefused(reqs, settled)
	return settled
}

// completeRefused ends the requests whose refusal is final. The first error stays. Later requests that were certainly
// not applied get ErrNotTried.
func (r *Router) completeRefused(reqs []*requests.Request, settled []*requests.Settlement) {
	failed := false
	for i := range settled {
		s := settled[i]
		if s.Retryable() {
			r.config.Requests.Drop(reqs[i])
		}
		if failed && s.Fate != outcome.Applied && s.Fate != outcome.Unknown {
			s.Verdict = outcome.Failed.Because(outcome.ErrNotTried)
		}
		failed = failed || s.Fate != outcome.Applied
	}
}

// submission is one call of Submit.
type submission struct {
	router *Router
	ctx    context.Context
	began  time.Time
	hold   time.Duration // how long requests wait for a leader
	timer  *time.Timer
}

// await blocks until a request has an outcome, or ctx ends. After hold it returns ErrNotApplied instead of a refusal
// that would allow another attempt.
func (c *submission) await(q *requests.Request) *requests.Settlement {
	for {
		select {
		case got := <-q.Settled:
			if got.Retryable() && time.Since(c.began) >= c.hold {
				return c.giveUp(q, outcome.ErrNotApplied)
			}
			return got
		case <-c.ctx.Done():
			return c.giveUp(q, context.Cause(c.ctx))
		case <-c.timer.C:
		}
		state, sentAt, tried := c.router.config.Requests.Progress(q)
		left := c.hold - time.Since(c.began)
		if state == requests.Sent {
			left = c.router.config.Times.Patience(outcomeTimeout) - time.Since(sentAt)
		}
		if state == requests.Settled || left > 0 {
			c.timer.Reset(max(left, 0))
			continue
		}
		switch {
		case state == requests.Sent:
			return c.giveUp(q, outcome.ErrOutcomeUnknown)
		case tried:
			return c.giveUp(q, outcome.ErrNotApplied)
		default:
			return c.giveUp(q, outcome.ErrNoLeader)
		}
	}
}

// giveUp ends the wait for a request with an error, unless the outcome has just come.
func (c *submission) giveUp(q *requests.Request, err error) *requests.Settlement {
	was := c.router.config.Requests.Drop(q)
	c.timer.Reset(0) // so that the next request checks its own deadline
	if was == requests.Settled {
		select {
		case got := <-q.Settled:
			if !got.Retryable() {
				return got
			}
		default:
		}
	}
	if was == requests.Sent {
		return &requests.Settlement{Verdict: outcome.Unknown.Because(err)}
	}
	return &requests.Settlement{Verdict: outcome.Failed.Because(err)}
}

// SubmitHere proposes a request only in a term of this node, and blocks until it is applied. After ErrNotLeader the
// request was not applied.
func (r *Router) SubmitHere(ctx context.Context, t Term, q *requests.Request) error {
	if r.config.Requests.Add(ctx, []*requests.Request{q}) == 0 {
		return outcome.ErrOverloaded
	}
	if back := newLocalRoute(t, &r.config).send([]*requests.Request{q}); len(back) > 0 {
		r.config.Requests.Drop(q)
		return outcome.ErrNotLeader
	}
	select {
	case came := <-q.Settled:
		if came.Retryable() {
			r.config.Requests.Drop(q)
			return outcome.ErrNotLeader
		}
		return came.Err()
	case <-ctx.Done():
		r.config.Requests.Drop(q)
		return context.Cause(ctx)
	}
}

// ReadIndex asks the leader, on any node, until a leader replies. It returns a read index with the leader's reading of
// cluster time: see [lead.Term.ReadIndex]. It fails with ErrDraining when the node closes, and with the cause of ctx.
func (r *Router) ReadIndex(ctx context.Context) (index uint64, nowMS int64, err error) {
	for {
		l, changed := r.currentRoute()
		if l != nil {
			if index, nowMS, err = l.readIndex(ctx); err == nil {
				return index, nowMS, nil
			}
			changed = nil // there is a route, so try it again after a pause
		}
		timer := time.NewTimer(readAgain)
		select {
		case <-changed:
		case <-timer.C:
		case <-r.config.Stopping.Done():
			err = outcome.ErrDraining
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return 0, 0, context.Cause(ctx)
		}
		if errors.Is(err, outcome.ErrDraining) {
			return 0, 0, err
		}
	}
}
