package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/signalbox/signalbox/client/internal/calls"
)

// Want is one member of an AcquireAll or AcquireAny.
type Want struct {
	Name  string `json:"name"`
	Count int64  `json:"count"` // 0 means 1
	Group string `json:"group,omitempty"`

	// HeadStart places the whole request in its lines as if it had been made that much earlier. Each semaphore limits
	// it by its own HeadStart. The largest HeadStart of the wants counts for all of them.
	HeadStart time.Duration `json:"-"`
}

// target is a group of a semaphore. A session has at most one lease or waiting request for each target.
type target struct{ semaphore, group string }

func (w *Want) target() target { return target{w.Name, w.Group} }

// acquiring is one acquire call of a session, until it is granted or given up.
type acquiring struct {
	call  calls.Call
	body  map[string]any
	count int64 // of Acquire and TryAcquire
	group string
	wants []Want
	many  bool
	try   bool
}

// Acquire waits until the session is granted the semaphore, or ctx ends. It waits in the cluster's queue,
// strictly first come, first served, and keeps its place across failures of nodes and connections. While it
// waits the session is renewed; when ctx ends, the request is withdrawn, which takes at most 2 s more.
//
// Acquire first sends a try that does not wait. If the permits are not available, a second request joins the queue, so
// a request that another client sends between the two is served first. Acquire leaves the try out within a second
// after this Client found the semaphore without available permits.
//
// If the request was not granted in time, it fails with ctx's error and ErrUnavailable; if no node replied, with ctx's
// error and ErrUnreachable; if the session was lost during the wait, with ErrLost; if this session already holds or
// waits for the semaphore, with ErrLeaseExists. The cluster's refusals end it at once: ErrNever, ErrHierarchy,
// ErrUnknownSemaphore, ErrDeleted, ErrLimitReached, ErrLineFull, ErrSuperseded and others. After ErrLineFull and
// ErrSuperseded a caller should not ask again in a loop.
func (s *Session) Acquire(ctx context.Context, name string, opts ...AcquireOption) (*Lease, error) {
	return s.acquireOne(ctx, name, opts, false)
}

// TryAcquire is Acquire without waiting. It fails with ErrUnavailable if the permits are not available or other
// requests wait for them.
func (s *Session) TryAcquire(ctx context.Context, name string, opts ...AcquireOption) (*Lease, error) {
	return s.acquireOne(ctx, name, opts, true)
}

func (s *Session) acquireOne(ctx context.Context, name string, opts []AcquireOption, try bool) (*Lease, error) {
	a := acquiring{body: map[string]any{}, count: 1, try: try}
	a.call = calls.Call{Method: http.MethodPut, Path: []string{"v1", "sessions", s.id, "leases", name}}
	for _, o := range opts {
		o.acquire(&a)
	}
	a.wants = []Want{{Name: name, Count: a.count, Group: a.group}}
	a.body["count"] = a.count
	a.call.Body = a.body
	a.call.Operation = calls.Operation{Name: "acquire", Semaphore: name, Session: s.id}
	leases, err := s.acquire(ctx, &a)
	if err != nil {
		return nil, err
	}
	return leases[0], nil
}

// AcquireAll is like Acquire, for several semaphores: the session is granted all of them in one step, and holds no
// permits of any before that. The leases are in the order of wants. At most one of the wants may be of a semaphore
// that has both Groups and a number of permits.
func (s *Session) AcquireAll(ctx context.Context, wants ...Want) ([]*Lease, error) {
	return s.acquireMany(ctx, "all", wants)
}

// AcquireAny is like Acquire, for one of several semaphores: the first available one in the order of wants.
func (s *Session) AcquireAny(ctx context.Context, wants ...Want) (*Lease, error) {
	leases, err := s.acquireMany(ctx, "any", wants)
	if err != nil {
		return nil, err
	}
	return leases[0], nil
}

func (s *Session) acquireMany(ctx context.Context, mode string, wants []Want) ([]*Lease, error) {
	a := acquiring{many: true, wants: make([]Want, len(wants))}
	var headStart time.Duration
	for i, w := range wants {
		if a.wants[i] = w; w.Count == 0 {
			a.wants[i].Count = 1
		}
		headStart = max(headStart, w.HeadStart)
	}
	body := map[string]any{"semaphores": a.wants, "mode": mode}
	if headStart > 0 {
		body["head_start"] = calls.Milliseconds(headStart)
	}
	a.call = calls.Call{Method: http.MethodPost, Path: []string{"v1", "sessions", s.id, "acquire"}, Body: body}
	return s.acquire(ctx, &a)
}

func (a *acquiring) names() (names []string) {
	for _, w := range a.wants {
		names = append(names, w.Name)
	}
	return names
}

func (a *acquiring) targets() (targets []target) {
	for i := range a.wants {
		targets = append(targets, a.wants[i].target())
	}
	return targets
}

// unclaim removes the claims of an acquire; s.mu is held.
func (s *Session) unclaim(a *acquiring) {
	for _, t := range a.targets() {
		delete(s.claims, t)
	}
}

// acquire claims the targets, asks the cluster, and on failure withdraws the request or removes the claims.
func (s *Session) acquire(ctx context.Context, a *acquiring) ([]*Lease, error) {
	if err := s.claim(ctx, a); err != nil {
		return nil, fmt.Errorf("signalbox: acquire %s: %w", strings.Join(a.names(), ", "), err)
	}
	leases, err := s.ask(ctx, a)
	if err == nil {
		return leases, nil
	}
	if sessionGone(err) {
		s.lose(err)
	}
	s.mu.Lock()
	if lost := s.Err(); lost != nil || settled(err) {
		s.unclaim(a)
		s.mu.Unlock()
		if lost != nil {
			err = lost
		}
		return nil, fmt.Errorf("signalbox: acquire %s: %w", strings.Join(a.names(), ", "), err)
	}
	var unsure *calls.Call
	if errors.Is(err, ErrOutcomeUnknown) {
		unsure = &a.call
	}
	left := s.startRelease(unsure, nil, 0, a.targets()...)
	s.mu.Unlock()
	return nil, fmt.Errorf("signalbox: acquire %s: %w", strings.Join(a.names(), ", "), afterwards(ctx, left, err))
}

// afterwards waits for the withdrawal of a request that failed with err because ctx ended. If a node confirms the
// withdrawal, the cluster was reachable, so the error is ErrUnavailable.
func afterwards(ctx context.Context, left *pendingRelease, err error) error {
	if ctx.Err() == nil {
		return err
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawGrace)
	defer cancel()
	switch {
	case left.await(grace) == nil:
		return fmt.Errorf("%w: %w", context.Cause(ctx), ErrUnavailable)
	case errors.Is(err, ErrUnreachable):
		return err
	}
	return fmt.Errorf("%w: %w", err, ErrUnreachable)
}

// settled reports whether a refusal proves that the request does not wait in the cluster.
func settled(err error) bool {
	return isAny(err, ErrUnavailable, ErrNever, ErrHierarchy, ErrLeaseExists, ErrUnknownSemaphore, ErrDeleted, ErrPreconditionFailed, ErrInvalidRequest,
		ErrLineFull, ErrSuperseded, ErrNoTotal)
}

// claim reserves the targets of an acquire. It first waits until earlier releases of these targets are confirmed. It
// refuses a target that another call uses with ErrLeaseExists, because two users of one lease would release each other's
// permits.
func (s *Session) claim(ctx context.Context, a *acquiring) error {
	for {
		left, err := s.tryClaim(a)
		if left == nil {
			return err
		}
		if !calls.Closed(ctx, left.done) {
			return context.Cause(ctx)
		}
	}
}

// tryClaim reserves all targets or no target. If a target is still being released, it returns the release to wait
// for.
func (s *Session) tryClaim(a *acquiring) (*pendingRelease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, s.Err()
	}
	seen := map[target]bool{}
	for _, t := range a.targets() {
		if t.semaphore == "" {
			return nil, errNoName
		}
		if !utf8.ValidString(t.group) { // JSON would replace the invalid bytes
			return nil, errBadGroup
		}
		if c := s.claims[t]; c != nil && c.release != nil {
			return c.release, nil
		} else if c != nil || seen[t] {
			return nil, leaseExists(t.semaphore)
		}
		seen[t] = true
	}
	for t := range seen {
		s.claims[t] = &claim{}
	}
	return nil, nil
}

func leaseExists(name string) error {
	return &Error{Status: http.StatusConflict, Code: "lease-exists", Title: "Held or requested differently", Semaphore: name,
		Detail: "This session holds the semaphore, or waits for it, already. Release that first, or use another session."}
}

// setTry chooses between a request that does not wait (try) and a request that a node holds until the grant.
func (a *acquiring) setTry(try bool) {
	if a.call.Query == nil {
		a.call.Query = url.Values{}
	}
	a.call.Query.Del("try")
	if try {
		a.call.Query.Set("try", "true")
	}
	a.call.Listen, a.call.RepeatOverloaded = !try, try && !a.try
}

// ask repeats the request until it is granted or refused, or ctx ends. The cluster sees all repeats as one request,
// with one place in line. Unless the semaphore is contended, a try goes first, which may share an HTTP request with
// other calls.
func (s *Session) ask(ctx context.Context, a *acquiring) ([]*Lease, error) {
	ctx, end := calls.WithEither(ctx, s.ctx)
	defer end()
	a.call.Key, a.call.KeyOptional = calls.NewKey(), true
	line := target{a.call.Operation.Semaphore, a.group} // has no name if there are several wants
	a.setTry(a.try || line.semaphore != "" && !s.c.contention.expected(line))
	waits := false // a node said that the request waits
	for early := 0; ; {
		r, err := s.c.calls.Do(ctx, a.call)
		switch {
		case err == nil && r.Status != http.StatusAccepted:
			return s.grant(a, &r)
		case errors.Is(err, ErrUnavailable) && !a.call.Listen:
			s.c.contention.add(line)
			if a.try {
				return nil, err
			}
			a.call.Key = calls.NewKey()
			a.setTry(false)
			continue
		case errors.Is(err, ErrOver): // an earlier attempt was granted a lease, which is over
			a.call.Key = calls.NewKey()
		case err == nil:
			waits = true
		case !waits || !errors.Is(err, ErrLimitReached):
			return nil, err
		}
		// A node that is about to stop replies to its waiters early. Without a pause they would ask again in a tight
		// loop.
		if early++; err == nil && !a.try && !r.Early() {
			early = 0
		} else if calls.Sleep(ctx, max(calls.BackOff(early), calls.AskedFor(err))) != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// grant makes the leases from a reply.
func (s *Session) grant(a *acquiring, r *calls.Reply) ([]*Lease, error) {
	var granted struct {
		leaseBody
		Leases []leaseBody `json:"leases"`
	}
	if err := r.Decode(&granted); err != nil {
		return nil, err
	}
	if !a.many {
		granted.Leases = []leaseBody{granted.leaseBody}
	}
	if len(granted.Leases) == 0 {
		return nil, errors.New("signalbox: a node's reply lacks the lease")
	}
	for i := range granted.Leases {
		s.extend(r, granted.Leases[i].WaitedMS, granted.Leases[i].ExpiresInMS)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, s.Err()
	}
	for i := range granted.Leases {
		if s.holds(&granted.Leases[i]) {
			return nil, leaseExists(granted.Leases[i].Semaphore)
		}
	}
	s.unclaim(a) // all: "any" has several claims and one lease
	leases := make([]*Lease, len(granted.Leases))
	for i := range granted.Leases {
		b := &granted.Leases[i]
		leases[i] = s.newLease(r, b, a.claimed(b))
	}
	s.expiry.Reset(s.nextCheck())
	return leases, nil
}

// claimed returns the target that the caller asked for, from the lease that was granted. They differ with ByOwner,
// where the granted group is the caller's identity.
func (a *acquiring) claimed(b *leaseBody) target {
	granted := target{b.Semaphore, b.Group}
	if targets := a.targets(); !slices.Contains(targets, granted) {
		for _, t := range targets {
			if t.semaphore == b.Semaphore {
				return t
			}
		}
	}
	return granted
}

// holds reports whether the session already has this lease; s.mu is held. With ByOwner, requests that name different
// groups get the same lease.
func (s *Session) holds(b *leaseBody) bool {
	for _, c := range s.claims {
		if c.lease != nil && c.lease.Semaphore == b.Semaphore && c.lease.Token == b.Token {
			return true
		}
	}
	return false
}
