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

// oneShot is a request that names no session: of Client.Acquire, or of Down. The cluster makes a session for it, which
// ends with the request or with its lease.
type oneShot struct {
	call  calls.Call
	body  map[string]any
	count int64
	group string
	life  SessionOptions // options of the session that holds the lease
	try   bool
	// empty reports whether a reply says that no permits were granted; nil: every reply is a grant.
	empty func(*calls.Reply) bool
}

// Acquire waits until it is granted a lease, or ctx ends. It is the shortest way to hold permits of one semaphore. The
// lease is renewed until its Release, or until it is lost. The wait keeps its place in the queue across failures of
// nodes and connections, for up to Config.MaxWait. After that it starts again at the end of the queue; a Session keeps
// its place longer. When ctx ends, the request is withdrawn, which takes at most 2 s more. If no node confirms that,
// the cluster forgets the request at ctx's deadline.
//
// Like Session.Acquire, it may first send a try that does not wait, so its place in the queue dates from its second
// HTTP request. It fails like Session.Acquire.
func (c *Client) Acquire(ctx context.Context, name string, opts ...LeaseOption) (*Lease, error) {
	return c.acquireOnce(ctx, name, opts, false)
}

// TryAcquire is Acquire without waiting. It fails with ErrUnavailable if the permits are not available or other
// requests wait for them.
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
			continue // an earlier attempt was granted a lease, which is over
		case err != nil && !gone(err):
			if r, late := c.settle(ctx, &o); late == nil && r.Decode(&granted) == nil {
				c.endSession(ctx, granted.Session) // the request was granted, but the caller has given up
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

// notInTime returns the error of a wait that was withdrawn because ctx ended.
func notInTime(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), ErrUnavailable)
}

// newOneShot makes the Lease of a granted Client.Acquire.
func (c *Client) newOneShot(o *oneShot, r *calls.Reply, granted *leaseBody) (*Lease, error) {
	s, err := c.newSession(granted.Session, o.life, true, r, granted.WaitedMS, granted.ExpiresInMS)
	if err != nil {
		return nil, err
	}
	l := s.newLease(r, granted, target{granted.Semaphore, granted.Group})
	return l, s.begin()
}

// gone reports whether a refusal proves that the request does not wait in the cluster.
func gone(err error) bool {
	return !errors.Is(err, ErrOutcomeUnknown) && (settled(err) || isAny(err, ErrLimitReached, ErrKeyReused))
}

// once makes the request until it is granted or refused. Unless the semaphore is contended, it begins with a try,
// which may share an HTTP request with other calls.
func (c *Client) once(ctx context.Context, o *oneShot) (calls.Reply, error) {
	o.call.Body, o.call.MaxAttempt = o.body, o.life.TTL*2/3 // so that a grant is noticed before its ttl ends
	if line := (target{o.call.Operation.Semaphore, o.group}); o.try || !c.contention.expected(line) {
		o.call.Key, o.call.RepeatOverloaded, o.call.Until = calls.NewKey(), !o.try, time.Time{}
		r, err := c.inLine(ctx, o)
		if errors.Is(err, ErrUnavailable) {
			c.contention.add(line)
		}
		if o.try || !errors.Is(err, ErrUnavailable) {
			return r, err
		}
		o.call.RepeatOverloaded = false
	}
	return c.await(ctx, o)
}

// await makes a request that waits until it is granted or refused. The first attempt names the time of the wait, for
// which the cluster keeps the request in line; its repeats join it there. After MaxWait, await makes a new request
// unless ctx has ended.
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

// errNotInLine: the first attempt was never carried out, so the request is not in line.
var errNotInLine = errors.New("not in line")

// inLine makes a request and repeats it with the same key, until it is granted, refused or over.
//
// A node that is silent may hold the request, or be dead. inLine finds out at another node, with the same request but
// without a wait. If the request is in line, the reply says so. If not, its outcome is recorded under the key, so that
// the first node can't carry it out later.
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
			k.Until, k.OtherNode, k.Unsure = time.Time{}, true, true
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
		} else if held == nil { // a node that is about to stop replies early
			if calls.Sleep(ctx, calls.BackOff(round)) != nil {
				return r, context.Cause(ctx)
			}
			round++
		}
		held, k.Until, k.OtherNode, k.Unsure, k.Listen = nil, time.Time{}, false, true, true
	}
}

// settle finds out how the request of a caller that no longer waits ended, and ends it if it still waits. It asks with
// the same key, so that it gets the outcome of the request. It begins at another node, because the node that has the
// request may be silent.
func (c *Client) settle(ctx context.Context, o *oneShot) (r calls.Reply, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawGrace)
	defer cancel()
	o.call.Until, o.call.OtherNode = time.Time{}, true
	for range 3 { // at most: find it waiting or unsure, end it, confirm the end
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

// endSession ends a session that is not needed any more, and reports whether a node confirmed the end.
func (c *Client) endSession(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawGrace)
	defer cancel()
	_, err := c.calls.Do(ctx, calls.Call{Method: http.MethodDelete, Path: []string{"v1", "sessions", id}, Operation: endOf(id)})
	return err == nil
}

// WithLease acquires a lease, calls fn, and releases the lease. The ctx of fn ends when the lease is lost. It returns
// the error of fn, together with the lease's Err if the lease was lost before fn returned.
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
	defer func() { _ = release() }() // also if fn panics
	err = fn(work, lease)
	if late := release(); errors.Is(late, ErrLost) {
		err = errors.Join(err, late)
	}
	return err
}

// releaseGrace bounds how long WithLease waits for the release, which goes on in the background.
const releaseGrace = 5 * time.Second
