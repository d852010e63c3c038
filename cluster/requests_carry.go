package cluster

import (
	"context"
	"time"
)

const (
	// holdTimeout is how long a command is held while no leader takes it, at
	// multiplier 1.
	holdTimeout = 5 * time.Second
	// outcomeTimeout is how long a command that was sent may stay without any
	// news of it, from the leader or from the local machine, at multiplier 1.
	outcomeTimeout = 5 * time.Second
)

// carrier takes requests to the leader and back.
type carrier struct {
	requests *requests
	router   *router
}

// carry sends requests, in their order, and blocks until each has its outcome: a
// result, or the error that its caller is to be told.
//
// What was not applied because a leader went is sent again once that is certain
// of every request from there on, so that a list stays in its order.
func (c *carrier) carry(ctx context.Context, reqs []*request) []outcome {
	outcomes := make([]outcome, len(reqs))
	for _, q := range reqs {
		q.caller = ctx
	}
	room := c.requests.add(reqs)
	for i := room; i < len(reqs); i++ {
		outcomes[i].err = ErrOverloaded
	}
	trip := trip{carrier: c, ctx: ctx, began: time.Now(), timer: time.NewTimer(c.requests.times.patience(holdTimeout))}
	defer trip.timer.Stop()
	for first := 0; first < room; {
		c.router.send(reqs[first:room])
		refused := true
		for i := first; i < room; i++ {
			outcomes[i] = trip.await(reqs[i])
			if outcomes[i].err == nil && i == first {
				first++
				continue
			}
			refused = refused && outcomes[i].err == errRefused
		}
		if !refused {
			break
		}
	}
	c.conclude(reqs, outcomes)
	return outcomes
}

// conclude makes errors of what was refused for good. The first error stands;
// what was certainly not applied behind it was not tried.
func (c *carrier) conclude(reqs []*request, outcomes []outcome) {
	failed := false
	for i := range outcomes {
		o := &outcomes[i]
		if o.err == errRefused {
			c.requests.drop(reqs[i])
			o.err = ErrNotApplied
		}
		if failed && o.err != nil && !o.open {
			o.err = ErrNotTried
		}
		failed = failed || o.err != nil
	}
}

// trip is one call of carry.
type trip struct {
	carrier *carrier
	ctx     context.Context
	began   time.Time
	timer   *time.Timer
}

// await blocks until a request has an outcome. errRefused stands for one that
// may be sent again, and is answered only while there is time for it.
func (t *trip) await(q *request) outcome {
	for {
		select {
		case got := <-q.outcome:
			if got.err == errRefused && time.Since(t.began) >= t.carrier.requests.times.patience(holdTimeout) {
				return t.giveUp(q, ErrNotApplied)
			}
			return got
		case <-t.ctx.Done():
			return t.giveUp(q, context.Cause(t.ctx))
		case <-t.timer.C:
		}
		state, sentAt, tried := t.carrier.requests.peek(q)
		left := t.carrier.requests.times.patience(holdTimeout) - time.Since(t.began)
		if state == requestSent {
			left = t.carrier.requests.times.patience(outcomeTimeout) - time.Since(sentAt)
		}
		if state == requestSettled || left > 0 {
			t.timer.Reset(max(left, 0))
			continue
		}
		switch {
		case state == requestSent:
			return t.giveUp(q, ErrOutcomeUnknown)
		case tried:
			return t.giveUp(q, ErrNotApplied)
		default:
			return t.giveUp(q, ErrNoLeader)
		}
	}
}

// giveUp ends the wait for a request with an error, unless its outcome has come
// at this very moment.
func (t *trip) giveUp(q *request, err error) outcome {
	was := t.carrier.requests.drop(q)
	t.timer.Reset(0) // for the next request to look at its own time
	if was == requestSettled {
		select {
		case got := <-q.outcome:
			if got.err != errRefused {
				return got
			}
		default:
		}
	}
	return outcome{err: err, open: was == requestSent}
}
