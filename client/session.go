package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	// defaultTTL is the ttl of sessions and one-call leases that name none.
	defaultTTL = 30 * time.Second
	// withdrawGrace is how long a call whose ctx has ended takes at most to undo what
	// it asked for.
	withdrawGrace = 2 * time.Second
	// driftParts: a deadline is taken to be one part in so many nearer than it is,
	// since the client's clock may go that much slower than the leader's.
	driftParts = 1024
	// rounding is what the nodes' counting in whole milliseconds may hide: a request
	// stamped 17 came before 18.
	rounding = time.Millisecond
)

// SessionOptions says how a session lives.
type SessionOptions struct {
	// TTL is how long the session outlives its last renewal. It is renewed every third
	// of it. Short ones free permits of crashed clients sooner; long ones survive longer
	// outages. 0 means 30 s.
	TTL time.Duration

	// Margin makes the session count as lost that long before its deadline, which
	// leaves time to stop what the leases protect before anyone else can be granted
	// them. At most half of TTL. 0: no margin.
	Margin time.Duration

	// Metadata is shown to people beside what the session holds and waits for: up to
	// 16 pairs, 1,024 bytes in all.
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

// Session is a client's life as the cluster sees it: it holds leases, which end
// with it. A goroutine renews it until Close, or until it is lost. All its methods
// are safe for concurrent use.
type Session struct {
	c       *Client
	id      string
	ttl     time.Duration
	margin  time.Duration
	oneShot bool // made by Client.Acquire, for one lease

	ctx    context.Context // ends when the session does, with why as its cause
	cancel context.CancelCauseFunc
	work   sync.WaitGroup // goroutines; started only under mu while ctx lives

	mu       sync.Mutex
	deadline time.Time // the session certainly lives until then; only moves forward
	renewAt  time.Time
	expiry   *time.Timer       // checks deadline
	claims   map[string]*claim // by semaphore: at most one thing at a time
	failure  error             // of the latest attempt to renew, nil once one succeeded
	ending   *ending           // from Close; nil: not called yet

	listTurn chan struct{} // of capacity 1: held by the WaitList that asks
	listKey  string        // of the next delivery; guarded by listTurn
}

// claim is what a session does with one semaphore: it asks for it, holds it (lease),
// or is letting go of it (leaving).
type claim struct {
	lease   *Lease
	leaving *departure
}

// sessionBody is what a node tells of a session.
type sessionBody struct {
	Session     string `json:"session"`
	TTLMS       int64  `json:"ttl_ms"`
	ExpiresInMS int64  `json:"expires_in_ms"`
	// Leases is nil where a reply does not show them.
	Leases []struct {
		leaseBody
		Revoked bool   `json:"revoked"`
		Reason  string `json:"reason"`
	} `json:"leases"`
}

// OpenSession opens a session and keeps it renewed until its Close, or until it is
// lost. It blocks for one round trip. When it fails without a word from the cluster,
// a session may have been opened nevertheless, which expires by itself.
func (c *Client) OpenSession(ctx context.Context, o SessionOptions) (*Session, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	body := map[string]any{"ttl": milliseconds(o.TTL)}
	if len(o.Metadata) > 0 {
		body["metadata"] = o.Metadata
	}
	for {
		r, err := c.do(ctx, call{method: http.MethodPost, path: []string{"v1", "sessions"}, body: body, key: newKey()})
		if errors.Is(err, ErrOver) {
			continue // opened by an attempt whose reply was lost, and over since
		}
		if err != nil {
			return nil, err
		}
		var opened sessionBody
		if err := r.decode(&opened); err != nil {
			return nil, err
		}
		s, err := c.newSession(opened.Session, o, false, &r, 0, opened.ExpiresInMS)
		if err != nil {
			return nil, err
		}
		return s, s.begin()
	}
}

// newSession makes what keeps a session of the cluster. begin starts it.
func (c *Client) newSession(id string, o SessionOptions, oneShot bool, r *reply, waitedMS, expiresInMS int64) (*Session, error) {
	if id == "" {
		return nil, errors.New("signalbox: a node's reply lacks the session")
	}
	s := &Session{c: c, id: id, ttl: o.TTL, margin: o.Margin, oneShot: oneShot, claims: map[string]*claim{},
		listTurn: make(chan struct{}, 1), listKey: newKey()}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.deadline, s.renewAt = r.deadline(waitedMS, expiresInMS)
	return s, nil
}

// begin starts to renew a new session.
func (s *Session) begin() error {
	s.mu.Lock()
	s.expiry = time.AfterFunc(time.Until(s.deadline.Add(-s.margin)), s.checkDeadline)
	s.work.Go(s.keep)
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
		return join(ErrClosed, s.Close(ctx))
	}
	return nil
}

// deadline answers until when a session certainly lives that this reply tells of,
// by the client's own monotonic clock, and when to renew it. A node counts
// waitedMS from when it got this attempt, which was not before it was sent; a reply
// that repeats an earlier outcome tells that one's wait, and counts for nothing.
func (r *reply) deadline(waitedMS, expiresInMS int64) (deadline, renewAt time.Time) {
	granted := r.sent
	if !r.replayed {
		granted = granted.Add(duration(waitedMS))
	}
	if granted.After(r.received) {
		granted = r.received // no grant is told before it is made
	}
	left := duration(expiresInMS)
	return granted.Add(left - left/driftParts - rounding), granted.Add(left / 3)
}

// duration is a node's number of milliseconds, at most 200 years.
func duration(ms int64) time.Duration {
	const most = 200 * 365 * 24 * time.Hour
	return time.Duration(min(max(ms, 0), int64(most/time.Millisecond))) * time.Millisecond
}

// ID is the session's id in the cluster.
func (s *Session) ID() string { return s.id }

// Deadline is until when the session and its leases live for certain, by this
// process's monotonic clock, if no further renewal succeeds. Renewals move it; it
// does not block.
func (s *Session) Deadline() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deadline
}

// Lost answers a channel that is closed when the session is over: lost, or closed
// by Close. See Lease.Lost.
func (s *Session) Lost() <-chan struct{} { return s.ctx.Done() }

// Err is nil while the session lives; then why it is over: an ErrLost with its
// reason, or ErrClosed.
func (s *Session) Err() error { return context.Cause(s.ctx) }

// Close ends the session, which releases all that it holds, withdraws all that it
// waits for, and ends its goroutine. It goes on through failures and overload until a
// node has confirmed that, or ctx ends: then it returns an error, and a goroutine goes
// on until the session's deadline, when it expires by itself. A ctx without a deadline
// ends after Config.GiveUpAfter. Close returns why the session was lost, if it was, so
// that a nil means that it lived until now. Called again, it waits for the same, by
// its own ctx.
func (s *Session) Close(ctx context.Context) error { return s.await(ctx, s.startEnding()) }

// finish makes the session be over, if it is not yet: everything that depends on it
// ends with this cause.
func (s *Session) finish(cause error) {
	s.mu.Lock()
	s.cancel(cause)
	s.expiry.Stop()
	s.mu.Unlock()
	s.c.mu.Lock()
	delete(s.c.sessions, s)
	s.c.mu.Unlock()
}

// lose makes the session be over without the caller's doing.
func (s *Session) lose(why error) {
	if s.ctx.Err() == nil {
		s.c.log.Warn("session lost", "session", s.id, "error", why)
	}
	s.finish(fmt.Errorf("%w: %w", ErrLost, why))
}

// checkDeadline loses the session if its deadline has passed. It runs beside
// everything else, so that a renewal under way can't delay it.
func (s *Session) checkDeadline() {
	s.mu.Lock()
	left := time.Until(s.deadline.Add(-s.margin))
	if left > 0 && s.ctx.Err() == nil {
		s.expiry.Reset(left)
	}
	failure := s.failure
	s.mu.Unlock()
	if left <= 0 {
		s.lose(join(ErrNotRenewed, failure))
	}
}

// extend takes what a reply tells of the session's life. Every reply bounds the
// deadline from below, so that the latest bound holds.
func (s *Session) extend(r *reply, waitedMS, expiresInMS int64) {
	deadline, _ := r.deadline(waitedMS, expiresInMS)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil || !deadline.After(s.deadline) {
		return
	}
	s.deadline = deadline
	s.expiry.Reset(time.Until(deadline.Add(-s.margin)))
}

// sessionGone reports whether a node said that the session is over. Only a node's
// own word counts: a 404 of anything else says nothing about it.
func sessionGone(err error) bool {
	return errors.Is(err, ErrUnknownSession) || errors.Is(err, ErrExpiredSession)
}
