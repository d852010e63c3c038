package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// shortestPatience bounds from below how long one attempt to renew may take.
const shortestPatience = 50 * time.Millisecond

// keep renews the session until it is over.
func (s *Session) keep() {
	for {
		s.mu.Lock()
		at := s.renewAt
		s.mu.Unlock()
		if sleep(s.ctx, time.Until(at)) != nil {
			return
		}
		s.renew()
	}
}

// renew renews the session once, trying for as long as it lives. A renewal needs no
// key: one that is applied twice, or late, only makes the session live longer.
func (s *Session) renew() {
	held := s.held()
	k := call{
		method: http.MethodPut, path: []string{"v1", "sessions", s.id}, body: struct{}{},
		patience: s.patience, maxPause: max(s.ttl/12, time.Millisecond), failed: s.noteFailure,
	}
	if len(held) > 0 {
		k.query = url.Values{"leases": {"true"}}
	}
	r, err := s.c.do(s.ctx, k)
	if errors.Is(err, ErrInvalidRequest) && k.query != nil { // a node that does not know the parameter
		k.query = nil
		r, err = s.c.do(s.ctx, k)
	}
	var renewed sessionBody
	if err == nil {
		err = r.decode(&renewed)
	}
	switch {
	case s.ctx.Err() != nil:
	case sessionGone(err), errors.Is(err, ErrRevoked):
		s.lose(err)
	case err != nil: // refused for another reason: it may pass, as a limit does
		s.noteFailure(err)
		s.renewNext(time.Now().Add(max(s.ttl/12, time.Millisecond)))
	default:
		s.extend(&r, 0, renewed.ExpiresInMS)
		_, at := r.deadline(0, renewed.ExpiresInMS)
		s.renewNext(at)
		s.noteSuccess()
		s.verify(held, &renewed, r.index, at)
	}
}

// patience bounds one attempt to renew: by a part of what is left, so that there is
// always time for more of them, whichever nodes are silent and until when.
func (s *Session) patience() time.Duration {
	return max(time.Until(s.Deadline())/4, s.ttl/30, shortestPatience)
}

func (s *Session) renewNext(at time.Time) {
	s.mu.Lock()
	s.renewAt = at
	s.mu.Unlock()
}

// noteFailure remembers why a renewal did not succeed, and logs the first of a row.
func (s *Session) noteFailure(err error) {
	s.mu.Lock()
	first := s.failure == nil
	s.failure = err
	left := time.Until(s.deadline)
	s.mu.Unlock()
	if first {
		s.c.log.Warn("renewal failed, trying on", "session", s.id, "left", left, "error", err)
	}
}

func (s *Session) noteSuccess() {
	s.mu.Lock()
	s.failure = nil
	s.mu.Unlock()
}

// held answers the leases that the session has.
func (s *Session) held() (leases []*Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.claims {
		if c.lease != nil && c.leaving == nil {
			leases = append(leases, c.lease)
		}
	}
	return leases
}

// verify finds out whether an operator took a lease away, or its semaphore was
// deleted: neither ends the session. The reply to the renewal shows the leases, unless
// its node was behind: then a read of the session does, by a node that only has to be
// as recent as the renewal. A read that gets no reply in time means nothing.
func (s *Session) verify(held []*Lease, shown *sessionBody, index uint64, until time.Time) {
	if len(held) == 0 {
		return
	}
	ctx, cancel := context.WithDeadline(s.ctx, until)
	defer cancel()
	if shown.Leases == nil {
		query := url.Values{}
		if index > 0 {
			query = url.Values{"consistency": {"stale"}, "min_index": {strconv.FormatUint(index, 10)}}
		}
		r, err := s.c.do(ctx, call{method: http.MethodGet, path: []string{"v1", "sessions", s.id}, query: query})
		if err != nil || r.decode(shown) != nil {
			return // if the session is gone, the next renewal fails with the reason
		}
	}
	tokens := map[string]uint64{}
	for _, l := range shown.Leases {
		if !l.Revoked {
			tokens[l.Semaphore] = l.Token
		}
	}
	for _, l := range held {
		if tokens[l.Semaphore] != l.Token {
			s.inquire(ctx, l)
		}
	}
}

// inquire asks why a lease is gone, and loses it if it is.
func (s *Session) inquire(ctx context.Context, l *Lease) {
	r, err := s.c.do(ctx, call{method: http.MethodGet, path: []string{"v1", "sessions", s.id, "leases", l.Semaphore}})
	var refusal *Error
	var shown leaseBody
	switch {
	case err == nil && r.decode(&shown) == nil && r.status == http.StatusOK && shown.Token == l.Token:
		return
	case err == nil:
		err = ErrNotHeld // another lease, or a waiting request, has taken its place
	case !errors.As(err, &refusal) || !over(err):
		return
	}
	s.loseLease(l, err)
}

// over reports whether a node said that nothing of a lease or request is left.
func over(err error) bool {
	for _, end := range []error{ErrUnknownSemaphore, ErrUnknownSession, ErrExpiredSession, ErrNotHeld, ErrRevoked, ErrDeleted} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}
