package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
)

const (
	// keptFor is how long an unused request or grant waits for the next acquire of the same permits.
	keptFor = 2 * time.Minute
	// placeTimeout bounds the read of a request's place in the line.
	placeTimeout = 2 * time.Second
	// maxListed bounds the semaphores of list. maxWhy bounds the holders and the waiting requests of why.
	maxListed, maxWhy = 100, 10
	maxClientName     = 64 // bytes
)

// target is a semaphore and a group. The session has at most one request or lease for each target.
type target struct{ semaphore, group string }

func (t target) String() string {
	if t.group == "" {
		return t.semaphore
	}
	return t.semaphore + " (" + t.group + ")"
}

func (t target) compare(other target) int {
	return cmp.Or(strings.Compare(t.semaphore, other.semaphore), strings.Compare(t.group, other.group))
}

// permits are the requests and the leases of the server's session.
type permits struct {
	c       *signalbox.Client
	ttl     time.Duration
	opening chan struct{} // capacity 1; full while a call opens the session

	mu       sync.Mutex
	client   string             // name of the MCP client, shown to people
	session  *signalbox.Session // nil before the first acquire
	requests map[target]*request
}

// request is a request for permits, from the first acquire to the release. p.mu guards all fields but done.
type request struct {
	count     int64
	withdraw  context.CancelFunc
	done      chan struct{} // closed once lease and err are set
	lease     *signalbox.Lease
	err       error
	callers   int       // number of calls that wait for the request
	delivered bool      // a call has returned the lease
	keptUntil time.Time // end of keptFor, while no call waits and no call has returned the lease
}

func newPermits(c *signalbox.Client, ttl time.Duration) *permits {
	return &permits{c: c, ttl: ttl, opening: make(chan struct{}, 1), requests: map[target]*request{}}
}

// nameClient sets the name of the client in the session's metadata.
func (p *permits) nameClient(name string) {
	plain := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, name)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.client = plain[:min(len(plain), maxClientName)]
	for !utf8.ValidString(p.client) { // remove a rune that was cut
		p.client = p.client[:len(p.client)-1]
	}
}

// openSession returns the session. If there is no session, or if it was lost, it opens a new session.
func (p *permits) openSession(ctx context.Context) (*signalbox.Session, error) {
	select {
	case p.opening <- struct{}{}:
		defer func() { <-p.opening }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p.mu.Lock()
	s, metadata := p.session, map[string]string{"tool": "signalbox mcp"}
	if p.client != "" {
		metadata["client"] = p.client
	}
	p.mu.Unlock()
	if s != nil && s.Err() == nil {
		return s, nil
	}
	s, err := p.c.OpenSession(ctx, signalbox.SessionOptions{TTL: p.ttl, Metadata: metadata})
	if err == nil {
		p.mu.Lock()
		p.session = s // state: the earlier session was lost
		p.mu.Unlock()
	}
	return s, err
}

// acquire waits for a grant for at most wait. The request continues after that.
func (p *permits) acquire(ctx context.Context, t target, count int64, wait time.Duration) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err := p.checkLease(ctx, t); err != nil {
		return nil, err
	}
	r, err := p.joinRequest(ctx, t, count)
	if err != nil {
		return nil, err
	}
	select {
	case <-r.done:
	case <-ctx.Done():
	}
	granted, err := p.leaveRequest(ctx, t, r)
	if granted == nil && err == nil {
		return p.describePlace(t), nil
	}
	return granted, err
}

// checkLease asks the cluster whether the lease of a target is still held, since the session notices a revocation or the
// delete of a semaphore only with its next renewal. If the lease was lost, checkLease releases it, and returns why.
func (p *permits) checkLease(ctx context.Context, t target) error {
	p.mu.Lock()
	r := p.requests[t]
	if r == nil || r.over() || r.lease == nil {
		p.mu.Unlock()
		return nil // joinRequest tells how the request ended
	}
	lease := r.lease
	p.mu.Unlock()
	shown, err := operator.New(p.c).GetSession(ctx, lease.Session)
	ended := errors.Is(err, signalbox.ErrUnknownSession) || errors.Is(err, signalbox.ErrExpiredSession) || errors.Is(err, signalbox.ErrRevoked)
	if err != nil && !ended {
		return fmt.Errorf("it is not known whether the permits of %s are still held: %w", t, err)
	}
	loss := errors.New("the permits were lost before, and others may have them")
	if i := slices.IndexFunc(shown.Leases, func(l operator.Lease) bool { return l.Semaphore == lease.Semaphore && l.Token == lease.Token }); i >= 0 {
		held := shown.Leases[i]
		if !held.Revoked {
			return nil
		}
		if held.Reason != "" {
			loss = fmt.Errorf("%w: %s", loss, held.Reason)
		}
	}
	p.mu.Lock()
	forgotten := p.requests[t] != r // another call has released it
	p.forget(t, r)
	p.mu.Unlock()
	if forgotten {
		return nil
	}
	_ = r.giveBack(ctx) // after an error, the session continues to release it
	return loss
}

// joinRequest returns the request for a target, on which the caller then waits. If there is no request yet, it begins
// one. If the earlier request was refused, or its lease was lost, joinRequest returns that outcome instead, once: for
// example, a model whose request was superseded must decide itself whether to supersede the newer request.
func (p *permits) joinRequest(ctx context.Context, t target, count int64) (*request, error) {
	s, err := p.openSession(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.requests[t]
	switch {
	case r != nil && r.over():
		p.forget(t, r)
		return nil, r.outcome()
	case r == nil:
		r = p.beginRequest(s, t, count)
	case r.count != count:
		return nil, fmt.Errorf("this server holds or waits for %d of %s: release them before you acquire %d", r.count, t, count)
	}
	r.callers++
	return r, nil
}

// over reports whether a request was refused, or its lease was lost.
func (r *request) over() bool { return r.err != nil || r.lease != nil && r.lease.Err() != nil }

// outcome returns why a request is over.
func (r *request) outcome() error {
	if r.err != nil {
		return r.err
	}
	return fmt.Errorf("the permits were lost before, and others may have them: %w", r.lease.Err())
}

// beginRequest sends a request to the cluster in the background. The caller holds p.mu.
func (p *permits) beginRequest(s *signalbox.Session, t target, count int64) *request {
	ctx, withdraw := context.WithCancel(context.Background())
	r := &request{count: count, withdraw: withdraw, done: make(chan struct{})}
	p.requests[t] = r
	go func() {
		lease, err := s.Acquire(ctx, t.semaphore, signalbox.Count(count), signalbox.Group(t.group))
		p.mu.Lock()
		defer p.mu.Unlock()
		r.lease, r.err = lease, err
		close(r.done)
	}()
	return r
}

// leaveRequest ends a call's wait. It returns the grant, or nil if the request still waits. After the last call, the
// request is kept for keptFor.
func (p *permits) leaveRequest(ctx context.Context, t target, r *request) (any, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.callers--
	cancelled := errors.Is(ctx.Err(), context.Canceled) // a cancelled call gets no reply
	switch {
	case p.requests[t] != r:
		return nil, errors.New("the request was withdrawn")
	case r.err != nil && !cancelled:
		p.forget(t, r)
		return nil, r.err
	case r.lease == nil || cancelled && !r.delivered:
		if r.callers == 0 {
			r.keptUntil = time.Now().Add(keptFor)
			time.AfterFunc(keptFor, func() { p.expire(t, r) })
		}
		return nil, nil
	}
	r.delivered = true
	granted := object{"state": "granted", "semaphore": t.semaphore, "group": t.group, "count": r.lease.Count, "token": r.lease.Token}
	if slots := r.lease.Slots(); slots != nil {
		granted["slots"] = slots
	}
	if r.lease.Spent() {
		granted["next"] = "Call settle once with what was really used; the permits come back by themselves. Until then, acquire returns this same grant."
	}
	return granted, nil
}

// expire releases a request, or its lease, if no call has joined it for keptFor.
func (p *permits) expire(t target, r *request) {
	p.mu.Lock()
	abandoned := p.requests[t] == r && r.callers == 0 && !r.delivered && !time.Now().Before(r.keptUntil)
	if abandoned {
		p.forget(t, r)
	}
	p.mu.Unlock()
	if abandoned {
		_ = r.giveBack(context.Background()) // after an error, the end of the session releases it
	}
}

// forget removes a request. The caller holds p.mu.
func (p *permits) forget(t target, r *request) {
	r.withdraw()
	if p.requests[t] == r {
		delete(p.requests, t)
	}
}

// describePlace describes where in the line a request waits.
func (p *permits) describePlace(t target) object {
	place := object{"state": "waiting", "semaphore": t.semaphore, "group": t.group,
		"next": "Call acquire again with the same arguments: the request keeps its place. Or call release to withdraw it."}
	ctx, cancel := context.WithTimeout(context.Background(), placeTimeout)
	defer cancel()
	s, err := p.c.Get(ctx, t.semaphore, signalbox.Stale(), signalbox.Waiters(maxListed))
	if err != nil {
		return place // the place is not known; the request still waits
	}
	p.mu.Lock()
	id := p.session.ID()
	p.mu.Unlock()
	for _, w := range s.Waiters {
		if w.Session == id && (w.Group == t.group || s.Groups == signalbox.ByOwner) {
			place["position"], place["why"] = w.Position, w.Reason
		}
	}
	return place
}

// release releases a lease, or withdraws a request.
func (p *permits) release(ctx context.Context, t target) (any, error) {
	p.mu.Lock()
	r := p.requests[t]
	if r == nil {
		p.mu.Unlock()
		return nil, fmt.Errorf("this server neither holds nor waits for permits of %s", t)
	}
	p.forget(t, r)
	p.mu.Unlock()
	if err := r.giveBack(ctx); err != nil {
		return nil, err
	}
	return object{"state": "released", "semaphore": t.semaphore, "group": t.group}, nil
}

// giveBack releases the lease of a request after forget.
func (r *request) giveBack(ctx context.Context) error {
	<-r.done // a withdrawn request ends within 2 s
	if r.lease == nil {
		return nil
	}
	if r.lease.Err() != nil {
		return r.outcome()
	}
	return r.lease.Release(ctx)
}

// settle corrects what a lease has used of the window of its semaphore, and releases the lease, so that the next acquire
// spends permits again.
func (p *permits) settle(ctx context.Context, t target, used int64) (any, error) {
	p.mu.Lock()
	r := p.requests[t]
	ok := r != nil && r.delivered
	p.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("this server holds no permits of %s: acquire an estimate before", t)
	}
	settled, err := r.lease.Settle(ctx, used)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.forget(t, r)
	p.mu.Unlock()
	_ = r.giveBack(ctx) // after an error, the session continues to release it
	return object{"settled": settled, "semaphore": t.semaphore, "group": t.group, "used": used}, nil
}

// list shows semaphores, and the leases and requests of this server.
func (p *permits) list(ctx context.Context, prefix string) (any, error) {
	found, mine := []*signalbox.Semaphore{}, []object{}
	for s, err := range p.c.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		if found = append(found, s); len(found) == maxListed {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range slices.SortedFunc(maps.Keys(p.requests), target.compare) {
		r := p.requests[t]
		state := object{"semaphore": t.semaphore, "group": t.group, "count": r.count, "state": "waiting"}
		switch {
		case r.lease != nil && r.lease.Err() != nil:
			state["state"], state["why"] = "lost", r.lease.Err().Error()
		case r.lease != nil && !r.delivered:
			state["state"] = "granted: call acquire to have it"
		case r.lease != nil:
			state["state"], state["token"] = "granted", r.lease.Token
		case r.err != nil:
			state["state"], state["why"] = "refused", r.err.Error()
		}
		mine = append(mine, state)
	}
	return object{"semaphores": found, "mine": mine}, nil
}

// why shows a semaphore with its holders and waiting requests.
func (p *permits) why(ctx context.Context, name string) (any, error) {
	return p.c.Get(ctx, name, signalbox.Holders(maxWhy), signalbox.Waiters(maxWhy))
}

// end withdraws all requests, and ends the session with its leases.
func (p *permits) end(ctx context.Context) {
	p.mu.Lock()
	s := p.session
	for t, r := range p.requests {
		p.forget(t, r)
	}
	p.mu.Unlock()
	if s != nil && s.Err() == nil {
		_ = s.Close(ctx) // after an error, the session ends after its ttl
	}
}
