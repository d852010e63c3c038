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
)

const (
	// keptFor is how long a request or a grant is kept for the next acquire of the same permits.
	keptFor = 2 * time.Minute
	// placeTimeout bounds the read of a request's place.
	placeTimeout = 2 * time.Second
	// maxListed bounds the semaphores of a list, maxWhy the holders and the waiting requests of a semaphore.
	maxListed, maxWhy = 100, 10
	maxClientName     = 64 // bytes
)

// target is what the session has at most one request or lease of.
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
	opening chan struct{} // of capacity 1: held by the call that opens a session

	mu       sync.Mutex
	client   string             // name of the client, for people
	session  *signalbox.Session // nil: no acquire yet
	requests map[target]*request
}

// request is one acquire, from the call that asks first to the release. p.mu guards all but the channel.
type request struct {
	count     int64
	withdraw  context.CancelFunc
	done      chan struct{} // closed once lease and err are set
	lease     *signalbox.Lease
	err       error
	callers   int       // calls that wait for it
	delivered bool      // a call has replied with the lease
	keptUntil time.Time // while there are neither callers nor a delivery
}

func newPermits(c *signalbox.Client, ttl time.Duration) *permits {
	return &permits{c: c, ttl: ttl, opening: make(chan struct{}, 1), requests: map[target]*request{}}
}

// nameClient sets the name under which people see the session.
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
	for !utf8.ValidString(p.client) { // a rune was cut
		p.client = p.client[:len(p.client)-1]
	}
}

// openSession returns the session, which it opens if there is none, or if it was lost.
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
		p.session = s // state: the one before was lost
		p.mu.Unlock()
	}
	return s, err
}

// acquire waits for a grant for as long as wait. The request goes on when the call returns before.
func (p *permits) acquire(ctx context.Context, t target, count int64, wait time.Duration) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
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

// joinRequest makes a call wait for the request for a target, which it begins if there is none.
func (p *permits) joinRequest(ctx context.Context, t target, count int64) (*request, error) {
	s, err := p.openSession(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.requests[t]; r != nil && r.over() {
		p.forget(t, r)
	}
	r := p.requests[t]
	switch {
	case r == nil:
		r = p.beginRequest(s, t, count)
	case r.count != count:
		return nil, fmt.Errorf("this server holds or waits for %d of %s: release them before you acquire %d", r.count, t, count)
	}
	r.callers++
	return r, nil
}

// over reports whether a request was refused, or its lease is lost.
func (r *request) over() bool { return r.err != nil || r.lease != nil && r.lease.Err() != nil }

// beginRequest asks the cluster in the background; p.mu is held.
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

// leaveRequest is the end of a call's wait: it returns the grant of the request, or nil while there
// is none. The last call that leaves without a grant starts the time for which the request is kept.
func (p *permits) leaveRequest(ctx context.Context, t target, r *request) (any, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.callers--
	cancelled := errors.Is(ctx.Err(), context.Canceled) // then there is no reply
	switch {
	case p.requests[t] != r:
		return nil, errors.New("the request was withdrawn")
	case r.err != nil:
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
		granted["next"] = "Call settle with what was really used; the permits come back by themselves."
	}
	return granted, nil
}

// expire gives a request back that no call has joined for keptFor.
func (p *permits) expire(t target, r *request) {
	p.mu.Lock()
	abandoned := p.requests[t] == r && r.callers == 0 && !r.delivered && !time.Now().Before(r.keptUntil)
	if abandoned {
		p.forget(t, r)
	}
	p.mu.Unlock()
	if abandoned {
		_ = r.giveBack(context.Background()) // else the session's end does
	}
}

// forget removes a request; p.mu is held.
func (p *permits) forget(t target, r *request) {
	r.withdraw()
	if p.requests[t] == r {
		delete(p.requests, t)
	}
}

// describePlace tells where a request waits.
func (p *permits) describePlace(t target) object {
	place := object{"state": "waiting", "semaphore": t.semaphore, "group": t.group,
		"next": "Call acquire again with the same arguments: the request keeps its place. Or call release to withdraw it."}
	ctx, cancel := context.WithTimeout(context.Background(), placeTimeout)
	defer cancel()
	s, err := p.c.Get(ctx, t.semaphore, signalbox.Stale(), signalbox.Waiters(maxListed))
	if err != nil {
		return place // the request goes on all the same
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

// release gives back a lease, or withdraws a request.
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

// giveBack ends a forgotten request, and its lease.
func (r *request) giveBack(ctx context.Context) error {
	<-r.done // a request that is withdrawn ends within 2 s
	if r.lease == nil {
		return nil
	}
	if err := r.lease.Err(); err != nil {
		return fmt.Errorf("the permits were lost before, and others may have them: %w", err)
	}
	return r.lease.Release(ctx)
}

// settle corrects what a lease of a semaphore with a window has spent.
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
	return object{"settled": settled, "semaphore": t.semaphore, "group": t.group, "used": used}, nil
}

// list shows semaphores, and what this server has of them.
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

// why shows a semaphore, its holders, and why requests wait.
func (p *permits) why(ctx context.Context, name string) (any, error) {
	return p.c.Get(ctx, name, signalbox.Holders(maxWhy), signalbox.Waiters(maxWhy))
}

// end withdraws all requests and ends the session, with its leases.
func (p *permits) end(ctx context.Context) {
	p.mu.Lock()
	s := p.session
	for t, r := range p.requests {
		p.forget(t, r)
	}
	p.mu.Unlock()
	if s != nil && s.Err() == nil {
		_ = s.Close(ctx) // else it ends after its ttl
	}
}
