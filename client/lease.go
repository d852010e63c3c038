package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/signalbox/signalbox/client/internal/calls"
)

// Lease is a number of permits that a session holds. Its fields never change; all its methods are safe for concurrent
// use.
type Lease struct {
	Semaphore string
	Group     string // of the semaphore, if it has Groups; with ByOwner, the caller's identity
	Session   string // the session that holds it
	Count     int64  // permits
	// Token is larger than the token of every earlier grant of this semaphore. Send it with each write to the resource
	// that the lease protects, and let the resource refuse a token smaller than one that it has seen. Only this
	// protects against a client that was paused and has not noticed the loss of its lease.
	Token uint64

	slots   []int
	spent   bool
	s       *Session
	claimed target          // the target that the request named
	ctx     context.Context // ends with the lease, with the reason as its cause
	cancel  context.CancelCauseFunc
	left    *pendingRelease // from Release; guarded by s.mu

	// For a semaphore with MaxHold: while its session lives, the lease is certainly held until ends. It is certainly
	// over by endedBy, unless the cluster had no leader for a while. 0: no MaxHold.
	ends, endedBy calls.Moment
}

// leaseBody is a lease in a reply, or a request that waits.
type leaseBody struct {
	Session     string `json:"session"`
	Semaphore   string `json:"semaphore"`
	Group       string `json:"group"`
	Count       int64  `json:"count"`
	Token       uint64 `json:"token"`
	ExpiresInMS int64  `json:"expires_in_ms"`
	WaitedMS    int64  `json:"waited_ms"`
	Slots       []int  `json:"slots"`
	Spent       bool   `json:"spent"`
	EndsInMS    *int64 `json:"ends_in_ms"`
}

// newLease makes the Lease of a granted claim; s.mu is held, or s is not shared yet.
func (s *Session) newLease(r *calls.Reply, b *leaseBody, claimed target) *Lease {
	l := &Lease{Semaphore: b.Semaphore, Group: b.Group, Session: s.id, Count: b.Count, Token: b.Token, slots: b.Slots, spent: b.Spent,
		s: s, claimed: claimed}
	l.ctx, l.cancel = context.WithCancelCause(s.ctx)
	if b.EndsInMS != nil {
		l.ends, _ = r.Deadline(b.WaitedMS, *b.EndsInMS)
		l.endedBy = r.Latest(*b.EndsInMS)
	}
	s.claims[claimed] = &claim{lease: l}
	return l
}

// Lost returns a channel that is closed when the lease is over:
//
//   - when a node reports it: the session expired, an operator revoked the lease, or the semaphore was deleted. A revocation
//     and a delete are noticed with the next renewal, within a third of the ttl;
//   - when Deadline passes, less the Margin of the session, even if no node can be reached, because from then on the cluster
//     may grant the permits to another client. The end by MaxHold has the error ErrRevoked with the reason "max-hold";
//   - by Release and by the session's Close, so that goroutines that wait for it go on.
//
// Err has the reason.
func (l *Lease) Lost() <-chan struct{} { return l.ctx.Done() }

// Err is nil while the lease is held. Afterwards it is ErrReleased, ErrClosed, or ErrLost with a reason:
// ErrNotRenewed, ErrRevoked with the operator's reason in Error.Reason, ErrUnknownSemaphore after a delete, and
// others.
func (l *Lease) Err() error { return context.Cause(l.ctx) }

// Deadline returns the moment until which the lease is certainly held, by this process's monotonic clock, if no
// further renewal succeeds. Renewals move it, up to the MaxHold of the semaphore. It does not block.
func (l *Lease) Deadline() time.Time {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.ends != 0 {
		return l.s.timeOf(min(l.ends, l.s.deadline))
	}
	return l.s.timeOf(l.s.deadline)
}

// Context returns a ctx for the work that the lease protects. It ends with parent and with the lease, in the latter
// case with Err as its cause. The cancel function must be called.
func (l *Lease) Context(parent context.Context) (context.Context, context.CancelFunc) {
	return calls.WithEither(parent, l.ctx)
}

// Release gives the permits back. The lease is over as soon as Release is called. Release repeats the call until a
// node confirms it or ctx ends. In the latter case a goroutine goes on: for a lease of a Session as long as the
// session lives, for a lease of Client.Acquire until its deadline. If the lease was lost before, Release returns the
// reason. A revocation or a delete since the last renewal may go unnoticed. Another call of Release waits for the same
// outcome.
func (l *Lease) Release(ctx context.Context) error {
	if l.s.oneShot {
		l.cancel(ErrReleased)
		err := l.s.Close(ctx)
		if lost := l.Err(); errors.Is(lost, ErrLost) {
			return lost
		}
		return err
	}
	l.s.mu.Lock()
	if l.left == nil && l.ctx.Err() == nil {
		l.cancel(ErrReleased)
		l.left = l.s.startRelease(nil, l, 0, l.claimed)
	}
	left := l.left
	l.s.mu.Unlock()
	if err := l.Err(); errors.Is(err, ErrLost) {
		return err
	}
	if left != nil {
		if err := left.await(ctx); !errors.Is(err, errWithSession) {
			return err
		}
	}
	return l.s.Close(ctx) // the end of the session, which is under way, releases the lease
}

// errWithSession: the session was closed before the release was confirmed, and its end releases the lease.
var errWithSession = errors.New("left to the end of the session")

// loseLease ends a lease that the cluster has taken away from a session that still lives. It also releases the lease,
// because the cluster remembers a revoked lease until its release.
func (s *Session) loseLease(l *Lease, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.ctx.Err() != nil {
		return
	}
	s.c.log.Warn("lease lost", "session", s.id, "semaphore", l.Semaphore, "error", why)
	l.cancel(fmt.Errorf("%w: %w", ErrLost, why))
	l.left = s.startRelease(nil, l, 0, l.claimed)
}

// maxHoldOver is the refusal with which a node replies after MaxHold.
var maxHoldOver = &Error{Status: http.StatusGone, Code: "revoked", Title: "Revoked", Detail: "It was held for the longest time that the semaphore allows, its max_hold.", Reason: "max-hold"}

// endLeases ends the leases whose MaxHold is over. It releases them only once the cluster has ended them too, because
// the cluster would take an earlier release for a regular one, to which OnLost does not apply.
func (s *Session) endLeases() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.claims {
		l := c.lease
		if l == nil || l.ends == 0 || l.ctx.Err() != nil || s.c.calls.Until(l.ends) > s.margin {
			continue
		}
		s.c.log.Warn("lease lost", "session", s.id, "semaphore", l.Semaphore, "error", maxHoldOver)
		l.cancel(fmt.Errorf("%w: %w", ErrLost, maxHoldOver))
		l.left = s.startRelease(nil, l, l.endedBy, l.claimed)
	}
}

// pendingRelease is the release of leases, or the withdrawal of a request. A goroutine repeats it until a node confirms
// it or the session is over.
type pendingRelease struct {
	done chan struct{}
	err  error // set before done is closed; nil if the lease or request was still there
}

// await blocks until the release is over, or ctx ends.
func (d *pendingRelease) await(ctx context.Context) error {
	if !calls.Closed(ctx, d.done) {
		return fmt.Errorf("signalbox: not confirmed yet: %w", context.Cause(ctx))
	}
	return d.err
}

// startRelease starts to release a lease or, if lease is nil, to withdraw a request that may wait or have been granted;
// s.mu is held. Until the release is confirmed, claim sends no other request for these targets, because the late
// release could withdraw that request. If unsure is not nil, this call may still be on its way to a node, so
// startRelease settles it first. The release begins at notBefore; 0: at once.
func (s *Session) startRelease(unsure *calls.Call, lease *Lease, notBefore calls.Moment, targets ...target) *pendingRelease {
	d := &pendingRelease{done: make(chan struct{})}
	for _, t := range targets {
		s.claims[t] = &claim{release: d}
	}
	if s.ctx.Err() != nil { // the end of the session releases the targets
		d.err = errWithSession
		close(d.done)
		return d
	}
	s.work.Go(func() {
		if notBefore != 0 {
			_ = calls.Sleep(s.ctx, s.c.calls.Until(notBefore)) // after the end of the session, no release is needed
		}
		if unsure != nil {
			s.settle(*unsure)
		}
		for _, t := range targets {
			token := uint64(0)
			if lease != nil {
				t, token = target{lease.Semaphore, lease.Group}, lease.Token
			}
			if err := s.release(t, token); err != nil {
				d.err = err
			}
		}
		s.mu.Lock()
		for _, t := range targets {
			delete(s.claims, t)
		}
		s.mu.Unlock()
		close(d.done)
	})
	return d
}

// settle repeats a request with its key, without waiting, until the cluster has it in line or has recorded its
// outcome. After that an attempt that arrives late has no effect. Without settle, the attempt could be carried out
// after the withdrawal, and the session would have a lease that its client does not know.
func (s *Session) settle(k calls.Call) {
	k.Listen, k.OtherNode, k.Patience = false, true, s.c.calls.Growing(withdrawGrace)
	for round := 1; ; round++ {
		if _, err := s.c.calls.Do(s.ctx, k); !errors.Is(err, ErrUnreachable) || calls.Sleep(s.ctx, calls.BackOff(round)) != nil {
			return
		}
	}
}

// release repeats the release until a node confirms it. It sends the token of the lease and a key, so that an attempt
// that the network delivers late or twice can't release a later lease or withdraw a later request.
func (s *Session) release(t target, token uint64) error {
	k := calls.Call{Method: http.MethodDelete, Path: []string{"v1", "sessions", s.id, "leases", t.semaphore}, Query: url.Values{},
		Key: calls.NewKey(), KeyOptional: true, Patience: s.c.calls.Growing(withdrawGrace), Operation: calls.Operation{Name: "release", Semaphore: t.semaphore, Session: s.id}}
	if token != 0 {
		k.Query.Set("token", strconv.FormatUint(token, 10))
	}
	group(t.group).read(k.Query)
	for round := 1; ; round++ {
		_, err := s.c.calls.Do(s.ctx, k)
		switch {
		case err == nil:
			return nil
		case s.ctx.Err() != nil:
			if errors.Is(s.Err(), ErrLost) {
				return s.Err()
			}
			return errWithSession
		case sessionGone(err):
			s.lose(err)
			return s.Err()
		case over(err):
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
		s.c.log.Warn("release not confirmed, trying on", "session", s.id, "semaphore", t.semaphore, "error", err)
		_ = calls.Sleep(s.ctx, max(calls.BackOff(round), calls.AskedFor(err))) // the next round notices the end of s.ctx
	}
}

// ErrDetached is what Lease.Err returns after Detach.
var ErrDetached = errors.New("detached")

// Detach stops the renewal of a lease of Client.Acquire; Client.Close then does not release it. The lease lives in the
// cluster until its ttl ends. To renew or end it, call RenewSession and EndSession of package operator with
// Lease.Session. A lease of a Session can't be detached.
func (l *Lease) Detach() error {
	if !l.s.oneShot {
		return fmt.Errorf("signalbox: the lease of %s belongs to a session, which is kept", l.Semaphore)
	}
	if err := l.Err(); err != nil {
		return err
	}
	l.s.finish(ErrDetached)
	l.s.work.Wait()
	return nil
}
