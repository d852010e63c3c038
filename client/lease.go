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

// Lease is permits held by a session. Its fields never change; all its methods are
// safe for concurrent use.
type Lease struct {
	Semaphore string
	Group     string // of the semaphore, if it has Groups; with ByOwner, the caller's identity
	Session   string // the session that holds it
	Count     int64  // permits
	// Token is larger than the token of every earlier grant of this semaphore. Send it
	// with each write to the resource that the lease protects, and let the resource
	// refuse a token smaller than one it has seen: only that protects against a client
	// that was paused and has not noticed the loss of its lease.
	Token uint64

	slots   []int
	spent   bool
	s       *Session
	claimed target          // that was asked for
	ctx     context.Context // ends with the lease, with the reason as its cause
	cancel  context.CancelCauseFunc
	left    *departure // from Release; guarded by s.mu

	// By MaxHold, the lease is certainly held until ends if its session lives, and over by endedBy unless the cluster
	// had no leader for a while. 0: the lease is held as long as its session lives.
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

// newLease makes the lease of a claim from a reply; s.mu is held, or s is not shared yet.
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
//   - when a node reports it: the session expired, an operator took the lease away, the semaphore was deleted; the last two
//     are noticed with the next renewal, within a third of the ttl;
//   - when Deadline passes, less the Margin of the session, although no node can be asked: from then on the cluster may grant
//     the permits to another client. Before that, an unreachable cluster is no loss. A MaxHold ends it with ErrRevoked and the
//     reason "max-hold";
//   - by Release and by the session's Close, so that goroutines that wait for it go on.
//
// Err has the reason.
func (l *Lease) Lost() <-chan struct{} { return l.ctx.Done() }

// Err is nil while the lease is held, and then the reason for its end: an ErrLost that wraps the
// reason (ErrNotRenewed, ErrRevoked with the operator's words in Error.Reason,
// ErrUnknownSemaphore after a delete, …), or ErrReleased or ErrClosed for the
// caller's own doing.
func (l *Lease) Err() error { return context.Cause(l.ctx) }

// Deadline returns the moment until which the lease is held for certain, by this process's
// monotonic clock, if no further renewal succeeds. Renewals move it, up to the MaxHold of the semaphore; it does
// not block.
func (l *Lease) Deadline() time.Time {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.ends != 0 {
		return l.s.timeOf(min(l.ends, l.s.deadline))
	}
	return l.s.timeOf(l.s.deadline)
}

// Context returns a ctx for the work that the lease protects: it ends with parent,
// and when the lease is over, with Err as its cause. The cancel function must be
// called.
func (l *Lease) Context(parent context.Context) (context.Context, context.CancelFunc) {
	return calls.Both(parent, l.ctx)
}

// Release gives the permits back; from here on the lease counts as over. It goes on through failures and
// overload until a node has confirmed it, or ctx ends: then a goroutine goes on, for a lease of a session as
// long as the session lives, for a one-call lease until it expires at its deadline. It returns why the lease
// was lost, if it was, so that a nil means that it was held until now, but for what an operator or a delete
// took away since the last renewal. Releasing again waits for the same.
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
		l.left = l.s.letGo(nil, l, 0, l.claimed)
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
	return l.s.Close(ctx) // its end, which was asked for already, releases the lease
}

// errWithSession: the release was not confirmed, since the session was closed during it.
var errWithSession = errors.New("left to the end of the session")

// loseLease ends a lease that the cluster has taken away, while its session lives on, and releases it: the
// cluster remembers a revoked lease until then.
func (s *Session) loseLease(l *Lease, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.ctx.Err() != nil {
		return
	}
	s.c.log.Warn("lease lost", "session", s.id, "semaphore", l.Semaphore, "error", why)
	l.cancel(fmt.Errorf("%w: %w", ErrLost, why))
	l.left = s.letGo(nil, l, 0, l.claimed)
}

// maxHoldOver is the refusal with which a node would reply once MaxHold is over.
var maxHoldOver = &Error{Status: http.StatusGone, Code: "revoked", Title: "Revoked", Detail: "It was held for the longest time that the semaphore allows, its max_hold.", Reason: "max-hold"}

// endLeases ends the leases that have been held for as long as they may. Their release waits until the cluster has ended
// them: an earlier release would be a release in time, for which OnLost does not count.
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
		l.left = s.letGo(nil, l, l.endedBy, l.claimed)
	}
}

// departure is the release of semaphores, or the withdrawal of a request for them, by a goroutine that goes on
// until a node confirms it or the session is over.
type departure struct {
	done chan struct{}
	err  error // set before done is closed; nil if the lease or request was still there
}

// await blocks until the departure is over, or ctx ends.
func (d *departure) await(ctx context.Context) error {
	if !calls.Closed(ctx, d.done) {
		return fmt.Errorf("signalbox: not confirmed yet: %w", context.Cause(ctx))
	}
	return d.err
}

// letGo starts to release a lease, or, without one, the lease or place in line of a request; s.mu is held. Until
// it is confirmed, no other request for these targets is sent: the late release could withdraw it. A request that
// may still be on its way to a node, unsure, is settled first. The release begins at notBefore; 0: at once.
func (s *Session) letGo(unsure *calls.Call, lease *Lease, notBefore calls.Moment, targets ...target) *departure {
	d := &departure{done: make(chan struct{})}
	for _, t := range targets {
		s.claims[t] = &claim{leaving: d}
	}
	if s.ctx.Err() != nil { // the end of the session has released everything
		d.err = errWithSession
		close(d.done)
		return d
	}
	s.work.Go(func() {
		if notBefore != 0 {
			_ = calls.Sleep(s.ctx, s.c.calls.Until(notBefore)) // a session that is over has released everything
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

// settle repeats a request under its key, without waiting, until the cluster has it in line or has its outcome,
// so that an attempt that arrives later has no effect. Otherwise it could be carried out after the withdrawal,
// and the session would have a lease unknown to its client.
func (s *Session) settle(k calls.Call) {
	k.Listen, k.Elsewhere, k.Patience = false, true, s.c.calls.Growing(withdrawGrace)
	for round := 1; ; round++ {
		if _, err := s.c.calls.Do(s.ctx, k); !errors.Is(err, ErrUnreachable) || calls.Sleep(s.ctx, calls.BackOff(round)) != nil {
			return
		}
	}
}

// release asks until a node confirms. It names the token of the lease, and carries a key: if the network
// delivers an attempt late or twice, that must not release a later lease, or withdraw a later request.
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
		_ = calls.Sleep(s.ctx, max(calls.BackOff(round), calls.AskedFor(err))) // the next round sees that the session is over
	}
}

// ErrDetached is the Lease.Err of a lease after Detach.
var ErrDetached = errors.New("detached")

// Detach stops the renewal of a lease of Client.Acquire, and Client.Close does not release it. It goes on in
// the cluster until its ttl ends, or until RenewSession and EndSession with Lease.Session. A lease of a Session
// can't be detached.
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
