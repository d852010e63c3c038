package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/signalbox/signalbox/client/internal/calls"
	"github.com/signalbox/signalbox/client/internal/nodes"
)

// oneShot is a request that names no session: a one-call acquire, or a down. The cluster makes a session, which
// ends with the request or with its lease.
type oneShot struct {
	call  calls.Call
	body  map[string]any
	count int64
	group string
	life  SessionOptions // of the lease
	try   bool
	// empty reports whether a reply stands for no grant; nil: no reply does.
	empty func(*calls.Reply) bool
}

// Acquire waits until it is granted a lease, or ctx ends: the shortest way to hold one semaphore. The lease is
// renewed until its Release, or until it is lost. The wait keeps its place in the queue across failures of
// nodes and connections, for up to Config.MaxWait; a longer wait starts again at the end: use a Session if that
// matters. When ctx ends, the request is withdrawn, which takes at most 2 s more; failing that, the cluster
// forgets it at ctx's deadline.
//
// Its place in the queue dates from its second request if it first tries without waiting, as Session.Acquire does.
// It fails as Session.Acquire does.
func (c *Client) Acquire(ctx context.Context, name string, opts ...LeaseOption) (*Lease, error) {
	return c.acquireOnce(ctx, name, opts, false)
}

// TryAcquire is Acquire without waiting: ErrUnavailable if the permits can't be
// had now, or others wait for them.
func (c *Client) TryAcquire(ctx context.Context, name string, opts ...LeaseOption) (*Lease, error) {
	return c.acquireOnce(ctx, name, opts, true)
}

func (c *Client) acquireOnce(ctx context.Context, name string, opts []LeaseOption, try bool) (*Lease, error) {
	if name == "" {
		return nil, errNoName
	}
	o := oneShot{call: semaphoreCall(http.MethodPost, name, "leases"), body: map[string]any{}, count: 1, try: try}
	o.call.Operation = calls.Operation{Name: "acquire-once", Semaphore: name}
	for _, option := range opts {
		option.lease(&o)
	}
	if err := o.life.check(); err != nil {
		return nil, err
	}
	o.body["count"], o.body["ttl"] = o.count, calls.Milliseconds(o.life.TTL)
	c.describe(o.body, o.life.Metadata)
	ctx, end, err := c.wait(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	for {
		r, err := c.once(ctx, &o)
		var granted leaseBody
		if err == nil {
			err = r.Decode(&granted)
		}
		switch {
		case errors.Is(err, ErrOver):
			continue // granted to an attempt whose reply was lost, and over since
		case err != nil && !gone(err):
			if r, late := c.settle(ctx, &o); late == nil && r.Decode(&granted) == nil {
				c.endSession(ctx, granted.Session) // granted after all, but the caller has given up
				err = notInTime(ctx, err)
			} else if errors.Is(late, ErrUnavailable) {
				err = notInTime(ctx, err)
			}
			fallthrough
		case err != nil:
			return nil, fmt.Errorf("signalbox: acquire %s: %w", name, err)
		}
		return c.newOneShot(&o, &r, &granted)
	}
}

// notInTime is the error of a wait that ctx ended, and that was then withdrawn.
func notInTime(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), ErrUnavailable)
}

// newOneShot is the lease of a granted one-call acquire.
func (c *Client) newOneShot(o *oneShot, r *calls.Reply, granted *leaseBody) (*Lease, error) {
	s, err := c.newSession(granted.Session, o.life, true, r, granted.WaitedMS, granted.ExpiresInMS)
	if err != nil {
		return nil, err
	}
	l := s.newLease(r, granted, target{granted.Semaphore, granted.Group})
	return l, s.begin()
}

// gone reports whether a refusal proves that no request waits.
func gone(err error) bool {
	return !errors.Is(err, ErrOutcomeUnknown) && (settled(err) || isAny(err, ErrLimitReached, ErrKeyReused))
}

// once makes the request until it is granted or refused. Unless the semaphore is contended, it begins with a
// try, which may share a request with other calls.
func (c *Client) once(ctx context.Context, o *oneShot) (calls.Reply, error) {
	o.call.Body, o.call.Longest = o.body, o.life.TTL*2/3 // a grant is noticed before it lapses
	if line := (target{o.call.Operation.Semaphore, o.group}); o.try || !c.contention.expected(line) {
		o.call.Key, o.call.Try, o.call.Until = calls.NewKey(), !o.try, time.Time{}
		r, err := c.inLine(ctx, o)
		if errors.Is(err, ErrUnavailable) {
			c.contention.add(line)
		}
		if o.try || !errors.Is(err, ErrUnavailable) {
			return r, err
		}
		o.call.Try = false
	}
	return c.await(ctx, o)
}

// await makes a request that waits until it is granted or refused. The first attempt names the whole wait, for
// which the cluster keeps the request in line; its repeats join it there. After that wait, await makes a new
// request, unless ctx is over too.
func (c *Client) await(ctx context.Context, o *oneShot) (calls.Reply, error) {
	for early := 0; ; {
		o.call.Key = calls.NewKey()
		began, last := time.Now(), false
		o.call.Until = began.Add(c.cfg.MaxWait)
		if deadline, bounded := ctx.Deadline(); bounded && !deadline.After(o.call.Until) {
			o.call.Until, last = deadline, true
		}
		r, err := c.inLine(ctx, o)
		if errors.Is(err, errNotInLine) {
			continue
		}
		if !errors.Is(err, ErrUnavailable) {
			return r, err
		}
		if last {
			return r, fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
		}
		if early++; time.Since(began) >= time.Until(o.call.Until) {
			early = 0
		} else if calls.Sleep(ctx, calls.BackOff(early)) != nil {
			return r, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// errNotInLine: the first node that got a request never had it carried out.
var errNotInLine = errors.New("not in line")

// inLine makes a request and repeats it, with the same key, until it has ended.
//
// A node that got the whole wait may be silent because it holds the request, or because it is dead. Another
// node can find out: the same request without a wait gets its place in the reply if it is in line; if not, its
// outcome is recorded under the key, so that the request of the silent node can't be carried out any more.
func (c *Client) inLine(ctx context.Context, o *oneShot) (calls.Reply, error) {
	k := o.call
	var held *nodes.Node
	for round := 1; ; {
		r, err := c.calls.Do(ctx, k)
		if err == nil && r.Status != http.StatusAccepted && o.empty != nil && o.empty(&r) {
			err = ErrUnavailable
		}
		switch {
		case errors.Is(err, calls.ErrHeld):
			held = r.Node
			k.Until, k.Elsewhere, k.Unsure = time.Time{}, true, true
			continue
		case err == nil && r.Status == http.StatusAccepted:
		case held != nil && errors.Is(err, ErrUnavailable) && time.Now().Before(o.call.Until):
			if r.Node != held {
				c.calls.Distrust(held)
			}
			return r, errNotInLine
		default:
			return r, err
		}
		if k.Listen && !r.Early() {
			round = 1
		} else if held == nil { // a node that stops sends its waiters elsewhere early
			if calls.Sleep(ctx, calls.BackOff(round)) != nil {
				return r, context.Cause(ctx)
			}
			round++
		}
		held, k.Until, k.Elsewhere, k.Unsure, k.Listen = nil, time.Time{}, false, true, true
	}
}

// settle finds out, for a caller that no longer waits, how the request ended, and ends it if it has not, so
// that no request stays behind. It asks again with the same key, so that the reply has the outcome of the
// request, however old, and begins at another node: the node that has the request may be silent.
func (c *Client) settle(ctx context.Context, o *oneShot) (r calls.Reply, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawGrace)
	defer cancel()
	o.call.Until, o.call.Elsewhere = time.Time{}, true
	for range 3 { // waiting, or unsure; ended; confirmed
		r, err = c.calls.Do(ctx, o.call)
		session := ""
		var refusal *Error
		if errors.As(err, &refusal) && refusal.Is(ErrUnavailable) {
			session = refusal.Session
		} else if err == nil && r.Status == http.StatusAccepted {
			var granted leaseBody
			if err = r.Decode(&granted); err == nil {
				session, err = granted.Session, ErrUnavailable
			}
		}
		if session == "" || !c.endSession(ctx, session) {
			break
		}
	}
	return r, err
}

// endSession ends a session that is of no more use, and reports whether a node confirmed it.
func (c *Client) endSession(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawGrace)
	defer cancel()
	_, err := c.calls.Do(ctx, calls.Call{Method: http.MethodDelete, Path: []string{"v1", "sessions", id}, Operation: endOf(id)})
	return err == nil
}

// WithLease acquires, calls fn, and releases. The ctx of fn ends when the lease is lost. It returns the error
// of fn, together with the lease's if the lease was lost before fn returned.
func (c *Client) WithLease(ctx context.Context, name string, fn func(ctx context.Context, lease *Lease) error, opts ...LeaseOption) error {
	lease, err := c.Acquire(ctx, name, opts...)
	if err != nil {
		return err
	}
	work, stop := lease.Context(ctx)
	defer stop()
	release := sync.OnceValue(func() error {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseGrace)
		defer cancel()
		return lease.Release(end)
	})
	defer func() { _ = release() }() // fn may panic
	err = fn(work, lease)
	if late := release(); errors.Is(late, ErrLost) {
		err = errors.Join(err, late)
	}
	return err
}

// releaseGrace bounds how long WithLease waits for a node to confirm the release, which goes on in the
// background after that.
const releaseGrace = 5 * time.Second
