package mcp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	signalbox "github.com/signalbox/signalbox/client"
)

const (
	// keptFor is how long a request or a grant is kept for the next acquire of the same permits.
	keptFor = 2 * time.Minute
	// shown bounds the semaphores of a list, and firsts the holders and the waiting requests of a semaphore.
	shown, firsts = 100, 10
)

// target is what the session has at most one request or lease of.
type target struct{ semaphore, group string }

func (t target) String() string {
	if t.group == "" {
		return t.semaphore
	}
	return t.semaphore + " (" + t.group + ")"
}

// permits are the requests and the leases of the server's session.
type permits struct {
	c   *signalbox.Client
	ttl time.Duration

	opening sync.Mutex // one call opens a session

	mu       sync.Mutex
	client   string             // name of the client, for people
	session  *signalbox.Session // nil: no acquire yet, or the session was lost
	requests map[target]*request
}

// request is one acquire, from the call that asks first to the release.
type request struct {
	count    int64
	withdraw context.CancelFunc
	done     chan struct{} // closed once lease and err are set
	lease    *signalbox.Lease
	err      error
	taken    bool        // an acquire has replied with the lease
	expiry   *time.Timer // gives back what no acquire asks for any more
}

func newPermits(c *signalbox.Client, ttl time.Duration) *permits {
	return &permits{c: c, ttl: ttl, requests: map[target]*request{}}
}

// nameClient sets the name under which people see the session.
func (p *permits) nameClient(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.client = name
}

// living returns the session, which it opens if there is none.
func (p *permits) living(ctx context.Context) (*signalbox.Session, error) {
	p.opening.Lock()
	defer p.opening.Unlock()
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
		p.session = s
		p.mu.Unlock()
	}
	return s, err
}

// acquire waits for a grant for as long as wait. The request goes on when the call returns before.
func (p *permits) acquire(ctx context.Context, t target, count int64, wait time.Duration) (any, error) {
	r, err := p.request(ctx, t, count)
	if err != nil {
		return nil, err
	}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	select {
	case <-r.done:
	case <-timeout.C:
	case <-ctx.Done():
	}
	granted, err := p.outcome(t, r)
	if granted == nil && err == nil {
		return p.place(ctx, t), nil
	}
	return granted, err
}

// outcome returns the grant of a request, or nil while it waits; it waits on for the next acquire.
func (p *permits) outcome(t target, r *request) (any, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.requests[t] != r {
		return nil, errors.New("the request was withdrawn")
	}
	switch {
	case r.err != nil:
		p.forget(t, r)
		return nil, r.err
	case r.lease == nil:
		r.expiry.Reset(keptFor)
		return nil, nil
	}
	r.taken = true
	r.expiry.Stop()
	granted := object{"state": "granted", "semaphore": t.semaphore, "group": t.group, "count": r.lease.Count, "token": r.lease.Token}
	if slots := r.lease.Slots(); slots != nil {
		granted["slots"] = slots
	}
	if r.lease.Spent() {
		granted["next"] = "Call settle with what was really used; the permits come back by themselves."
	}
	return granted, nil
}

// request returns the request for a target, which it begins if there is none.
func (p *permits) request(ctx context.Context, t target, count int64) (*request, error) {
	s, err := p.living(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.requests[t]; r != nil {
		lost := r.lease != nil && r.lease.Err() != nil
		switch {
		case lost:
			p.forget(t, r)
		case r.count != count:
			return nil, fmt.Errorf("this server holds or waits for %d of %s: release them before you acquire %d", r.count, t, count)
		default:
			return r, nil
		}
	}
	asking, withdraw := context.WithCancel(context.Background())
	r := &request{count: count, withdraw: withdraw, done: make(chan struct{})}
	r.expiry = time.AfterFunc(keptFor, func() { p.expire(t, r) })
	p.requests[t] = r
	go func() {
		lease, err := s.Acquire(asking, t.semaphore, signalbox.Count(count), signalbox.Group(t.group))
		p.mu.Lock()
		defer p.mu.Unlock()
		r.lease, r.err = lease, err
		close(r.done)
	}()
	return r, nil
}

// forget removes a request; p.mu is held.
func (p *permits) forget(t target, r *request) {
	r.expiry.Stop()
	r.withdraw()
	if p.requests[t] == r {
		delete(p.requests, t)
	}
}

// expire gives back what no acquire has asked for since keptFor.
func (p *permits) expire(t target, r *request) {
	p.mu.Lock()
	taken := r.taken
	if !taken {
		p.forget(t, r)
	}
	p.mu.Unlock()
	if !taken {
		_ = r.giveBack(context.Background()) // else the session's end does
	}
}

// place tells where a request waits.
func (p *permits) place(ctx context.Context, t target) object {
	waits := object{"state": "waiting", "semaphore": t.semaphore, "group": t.group,
		"next": "Call acquire again with the same arguments: the request keeps its place. Or call release to withdraw it."}
	s, err := p.c.Get(ctx, t.semaphore, signalbox.Stale(), signalbox.Waiters(shown))
	if err != nil {
		return waits // the request goes on all the same
	}
	p.mu.Lock()
	id := p.session.ID()
	p.mu.Unlock()
	for _, w := range s.Waiters {
		if w.Session == id && (w.Group == t.group || s.Groups == signalbox.ByOwner) {
			waits["position"], waits["why"] = w.Position, w.Reason
		}
	}
	return waits
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
	granted := r != nil && r.lease != nil
	p.mu.Unlock()
	if !granted {
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
		if found = append(found, s); len(found) == shown {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for t, r := range p.requests {
		state := object{"semaphore": t.semaphore, "group": t.group, "count": r.count, "state": "waiting"}
		switch {
		case r.lease != nil && r.lease.Err() != nil:
			state["state"], state["why"] = "lost", r.lease.Err().Error()
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
	return p.c.Get(ctx, name, signalbox.Holders(firsts), signalbox.Waiters(firsts))
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
