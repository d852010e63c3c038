package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/signalbox/signalbox/client/internal/calls"
)

const (
	// defaultTTL is the ttl of a session or one-call lease whose options do not set a ttl.
	defaultTTL = 30 * time.Second
	// withdrawGrace is how long a call may take to withdraw its request after its ctx has ended.
	withdrawGrace = 2 * time.Second
)

// SessionOptions configures a session.
type SessionOptions struct {
	// TTL is how long the session lives after its last renewal; it is renewed every third of TTL. A short TTL frees
	// the permits of a crashed client sooner, a long TTL survives longer outages. 0 means 30 s.
	TTL time.Duration

	// Margin makes the session count as lost that long before its deadline, so that the work can stop before another
	// client is granted the permits. At most half of TTL. 0: no margin.
	Margin time.Duration

	// Metadata is shown to people with the session's leases and requests: up to 16 pairs, 1,024 bytes in all.
	// The Client adds host, pid and user, see Config.Anonymous.
	Metadata map[string]string
}

func (o *SessionOptions) check() error {
	if o.TTL == 0 {
		o.TTL = defaultTTL
	}
	if o.TTL < time.Millisecond || o.Margin < 0 || o.Margin > o.TTL/2 {
		return errors.New("signalbox: a ttl is at least 1 ms, and a margin at most half of it")
	}
	return nil
}

// Session is a session of the cluster, which holds leases and ends them when it ends. A goroutine renews it until it
// is closed or lost. All its methods are safe for concurrent use.
type Session struct {
	c       *Client
	id      string
	ttl     time.Duration
	margin  time.Duration
	oneShot bool // made by Client.Acquire, for one lease

	ctx    context.Context // ends with the session, with the reason as its cause
	cancel context.CancelCauseFunc
	work   sync.WaitGroup // its goroutines, which are started only under mu and before ctx ends

	mu       sync.Mutex
	deadline calls.Moment // the session certainly lives until then; only moves forward
	renewAt  calls.Moment
	expiry   *time.Timer       // checks deadline
	claims   map[target]*claim // at most one claim for each target
	failure  error             // error of the latest renewal; nil: it succeeded
	ending   *ending           // started by Close; nil: Close was not called

	listTurn chan struct{} // capacity 1; a WaitList fills it while it asks
	listKey  string        // idempotency key of the next delivery; guarded by listTurn
}

// claim is what a session does with a target: it asks for a lease, has a lease, or releases it (leaving).
type claim struct {
	lease   *Lease
	release *pendingRelease
}

// sessionBody is a session in a reply.
type sessionBody struct {
	Session     string `json:"session"`
	TTLMS       int64  `json:"ttl_ms"`
	ExpiresInMS int64  `json:"expires_in_ms"`
	// Leases is nil if the reply does not show leases.
	Leases []struct {
		leaseBody
		Revoked bool   `json:"revoked"`
		Reason  string `json:"reason"`
	} `json:"leases"`
}

// OpenSession opens a session and renews it until it is closed or lost. It blocks for one round trip. If it fails
// without a reply, a session may have been opened; it expires after its ttl.
func (c *Client) OpenSession(ctx context.Context, o SessionOptions) (*Session, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	body := map[string]any{"ttl": calls.Milliseconds(o.TTL)}
	c.describe(body, o.Metadata)
	for {
		var opened sessionBody
		r, err := c.calls.Read(ctx, calls.Call{Method: http.MethodPost, Path: []string{"v1", "sessions"}, Body: body, Key: calls.NewKey(),
			Operation: calls.Operation{Name: "open"}}, &opened)
		if errors.Is(err, ErrOver) {
			continue // an earlier attempt opened a session, which is over
		}
		if err != nil {
			return nil, err
		}
		s, err := c.newSession(opened.Session, o, false, &r, 0, opened.ExpiresInMS)
		if err != nil {
			return nil, err
		}
		return s, s.begin()
	}
}

// newSession makes the Session for a session that the cluster has opened. begin starts its renewal.
func (c *Client) newSession(id string, o SessionOptions, oneShot bool, r *calls.Reply, waitedMS, expiresInMS int64) (*Session, error) {
	if id == "" {
		return nil, errors.New("signalbox: a node's reply lacks the session")
	}
	s := &Session{c: c, id: id, ttl: o.TTL, margin: o.Margin, oneShot: oneShot, claims: map[target]*claim{},
		listTurn: make(chan struct{}, 1), listKey: calls.NewKey()}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.deadline, s.renewAt = r.Deadline(waitedMS, expiresInMS)
	return s, nil
}

// begin starts the renewal of a new session.
func (s *Session) begin() error {
	s.mu.Lock()
	s.expiry = time.AfterFunc(s.nextCheck(), s.checkDeadline)
	s.work.Go(s.keepRenewed)
	s.mu.Unlock()
	s.c.mu.Lock()
	late := s.c.closing.Err() != nil
	if !late {
		s.c.sessions[s] = struct{}{}
	}
	s.c.mu.Unlock()
	if late {
		ctx, cancel := context.WithTimeout(context.Background(), withdrawGrace)
		defer cancel()
		return calls.Join(ErrClosed, s.Close(ctx))
	}
	return nil
}

// ID is the session's id in the cluster.
func (s *Session) ID() string { return s.id }

// Deadline returns the moment until which the session and its leases certainly live, by this process's monotonic
// clock, if no further renewal succeeds. Renewals move it. On Linux a suspension of the machine moves it too, because
// the clock stands still during it. It does not block.
func (s *Session) Deadline() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timeOf(s.deadline)
}

// timeOf returns a moment by this process's monotonic clock.
func (s *Session) timeOf(m calls.Moment) time.Time {
	now := time.Now()
	return now.Add(m.Sub(s.c.calls.At(now)))
}

// Lost returns a channel that is closed when the session is lost or closed. See Lease.Lost.
func (s *Session) Lost() <-chan struct{} { return s.ctx.Done() }

// Err is nil while the session lives. Afterwards it is ErrLost with the reason, or ErrClosed.
func (s *Session) Err() error { return context.Cause(s.ctx) }

// Close ends the session, which releases its leases and withdraws its requests. It repeats the call until a node
// confirms it, or ctx ends. In the latter case it returns an error, and a goroutine goes on until the session expires
// at its deadline. A ctx without a deadline ends after Config.GiveUpAfter. If the session was lost before, Close
// returns the reason. Another call of Close waits for the same outcome.
func (s *Session) Close(ctx context.Context) error { return startEnding(s).await(ctx) }

// finish cancels the session's ctx with cause, and so ends its leases and goroutines.
func (s *Session) finish(cause error) {
	s.mu.Lock()
	s.cancel(cause)
	s.expiry.Stop()
	s.mu.Unlock()
	s.c.mu.Lock()
	delete(s.c.sessions, s)
	s.c.mu.Unlock()
}

// lose ends the session with ErrLost and the reason.
func (s *Session) lose(why error) {
	if s.ctx.Err() == nil {
		s.c.log.Warn("session lost", "session", s.id, "error", why)
	}
	s.finish(fmt.Errorf("%w: %w", ErrLost, why))
}

// checkDeadline ends the session, or single leases, if their deadlines have passed. A timer calls it, because a
// renewal under way could delay a check in keepRenewed.
func (s *Session) checkDeadline() {
	s.mu.Lock()
	left := s.c.calls.Until(s.deadline) - s.margin
	if left > 0 && s.ctx.Err() == nil {
		s.expiry.Reset(s.nextCheck())
	}
	failure := s.failure
	s.mu.Unlock()
	s.endLeases()
	if left <= 0 {
		s.lose(calls.Join(ErrNotRenewed, failure))
	}
}

// checkEvery bounds how late the client notices a suspension of the machine, during which timers stand still.
const checkEvery = time.Second

// nextCheck returns how long to wait until checkDeadline; s.mu is held, or s is not shared yet.
func (s *Session) nextCheck() time.Duration {
	first := s.deadline
	for _, c := range s.claims {
		if l := c.lease; l != nil && l.ends != 0 && l.ctx.Err() == nil {
			first = min(first, l.ends)
		}
	}
	return min(s.c.calls.Until(first)-s.margin, checkEvery)
}

// extend moves the deadline forward with a reply. The session lives at least until the bound of each reply, so the
// latest bound counts.
func (s *Session) extend(r *calls.Reply, waitedMS, expiresInMS int64) {
	deadline, _ := r.Deadline(waitedMS, expiresInMS)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil || deadline <= s.deadline {
		return
	}
	s.deadline = deadline
	s.expiry.Reset(s.nextCheck())
}

// sessionGone reports whether a node reported the end of the session. The 404 of a proxy does not count.
func sessionGone(err error) bool {
	return isAny(err, ErrUnknownSession, ErrExpiredSession)
}

// shortestPatience is the least time for one attempt to renew.
const shortestPatience = 50 * time.Millisecond

// keepRenewed renews the session until it is over.
func (s *Session) keepRenewed() {
	for {
		s.mu.Lock()
		at := s.renewAt
		s.mu.Unlock()
		left := s.c.calls.Until(at)
		if calls.Sleep(s.ctx, min(left, checkEvery)) != nil {
			return
		}
		if left <= checkEvery {
			s.renew()
		}
	}
}

// renew renews the session once, and repeats the attempt while the session lives. It sends no key, because a renewal
// that is applied twice or late only makes the session live longer.
func (s *Session) renew() {
	held := s.held()
	k := calls.Call{
		Method: http.MethodPut, Path: []string{"v1", "sessions", s.id}, Body: struct{}{},
		Patience: s.patience, MaxPause: max(s.ttl/12, time.Millisecond), Failed: s.noteFailure,
	}
	if len(held) > 0 {
		k.Query = url.Values{"leases": {"true"}}
	}
	var renewed sessionBody
	r, err := s.c.calls.Read(s.ctx, k, &renewed)
	if errors.Is(err, ErrInvalidRequest) && k.Query != nil { // the node does not know the query parameter
		k.Query = nil
		r, err = s.c.calls.Read(s.ctx, k, &renewed)
	}
	switch {
	case s.ctx.Err() != nil:
	case sessionGone(err), errors.Is(err, ErrRevoked):
		s.lose(err)
	case err != nil: // another refusal may be temporary, for example a limit
		s.noteFailure(err)
		s.mu.Lock()
		s.renewAt = s.c.calls.Now().Add(max(s.ttl/12, time.Millisecond))
		s.mu.Unlock()
	default:
		s.extend(&r, 0, renewed.ExpiresInMS)
		_, at := r.Deadline(0, renewed.ExpiresInMS)
		s.mu.Lock()
		s.renewAt, s.failure = at, nil
		s.mu.Unlock()
		s.verify(held, &renewed, r.Index, s.c.calls.Until(at))
	}
}

// patience bounds one attempt to renew by a part of the time left, so that there is time for another attempt even if
// nodes are silent.
func (s *Session) patience() time.Duration {
	return max(time.Until(s.Deadline())/4, s.ttl/30, shortestPatience)
}

// noteFailure records why a renewal failed. It logs the first of several failures in a row.
func (s *Session) noteFailure(err error) {
	s.mu.Lock()
	first := s.failure == nil
	s.failure = err
	left := s.c.calls.Until(s.deadline)
	s.mu.Unlock()
	if first {
		s.c.log.Warn("renewal failed, trying on", "session", s.id, "left", left, "error", err)
	}
}

// held returns the leases of the session.
func (s *Session) held() (leases []*Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.claims {
		if c.lease != nil && c.release == nil {
			leases = append(leases, c.lease)
		}
	}
	return leases
}

// verify finds out whether an operator revoked a lease or deleted its semaphore, because neither ends the session. The
// reply to a renewal lists the leases, unless its node was behind; then verify reads the session from any node that
// has applied the renewal. If that read gets no reply in time, the leases stay as they are.
func (s *Session) verify(held []*Lease, shown *sessionBody, index uint64, within time.Duration) {
	if len(held) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, within)
	defer cancel()
	if shown.Leases == nil {
		query := url.Values{}
		if index > 0 {
			query = url.Values{"consistency": {"stale"}, "min_index": {strconv.FormatUint(index, 10)}}
		}
		if _, err := s.c.calls.Read(ctx, calls.Call{Method: http.MethodGet, Path: []string{"v1", "sessions", s.id}, Query: query}, shown); err != nil {
			return // if the session is over, the next renewal fails with the reason
		}
	}
	type grant struct { // this pair is unique among leases
		semaphore string
		token     uint64
	}
	live := map[grant]bool{}
	for _, l := range shown.Leases {
		live[grant{l.Semaphore, l.Token}] = !l.Revoked
	}
	for _, l := range held {
		if !live[grant{l.Semaphore, l.Token}] {
			s.inquire(ctx, l)
		}
	}
}

// inquire asks a node about a lease, and ends the lease if it is gone.
func (s *Session) inquire(ctx context.Context, l *Lease) {
	var shown leaseBody
	query := url.Values{}
	group(l.Group).read(query)
	r, err := s.c.calls.Read(ctx, calls.Call{Method: http.MethodGet, Path: []string{"v1", "sessions", s.id, "leases", l.Semaphore}, Query: query}, &shown)
	switch {
	case err == nil && (r.Status != http.StatusOK || shown.Token != l.Token):
		s.loseLease(l, ErrNotHeld) // the session has another lease or a waiting request in its place
	case over(err):
		s.loseLease(l, err)
	}
}

// over reports whether a node reported that a lease or request is gone.
func over(err error) bool {
	return isAny(err, ErrUnknownSemaphore, ErrUnknownSession, ErrExpiredSession, ErrNotHeld, ErrRevoked, ErrDeleted)
}
