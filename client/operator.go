package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/signalbox/signalbox/client/internal/calls"
)

// The sessions of other processes: to look at, to renew or end for their owners, and to
// revoke as an operator. OpenSession makes a session of one's own.

// SessionInfo is a session as of one reply. It belongs to the caller.
type SessionInfo struct {
	ID        string            `json:"session"`
	OneShot   bool              `json:"one_shot"` // made by a one-call acquire
	Metadata  map[string]string `json:"metadata"`
	Leases    []LeaseInfo       `json:"leases"`
	Waiting   []WaitInfo        `json:"waiting"` // the first, without those of the wait list; WaitingCount is of all
	TTL       time.Duration     `json:"-"`
	ExpiresIn time.Duration     `json:"-"`

	WaitingCount int64       `json:"waiting_count"`
	WaitList     []ListEntry `json:"waitlist"`
}

// ListEntry is one semaphore on a session's wait list.
type ListEntry struct {
	Semaphore  string        `json:"name"`
	Epoch      uint64        `json:"epoch"`
	Wanted     int64         `json:"wanted"`
	Granted    int64         `json:"granted"`  // to be delivered; 0: it waits
	Deleted    bool          `json:"deleted"`  // the semaphore
	Position   int64         `json:"position"` // in the line, from 1; 0: it does not wait
	WaitingFor time.Duration `json:"-"`
}

// UnmarshalJSON reads an entry as the API sends it.
func (e *ListEntry) UnmarshalJSON(data []byte) error {
	type plain ListEntry
	return readTimes(data, (*plain)(e), times{"waiting_ms": &e.WaitingFor})
}

// MarshalJSON writes an entry with the API's members.
func (e ListEntry) MarshalJSON() ([]byte, error) {
	type plain ListEntry
	return writeTimes(plain(e), named{"waiting_ms", e.WaitingFor})
}

// LeaseInfo is one lease of a session.
type LeaseInfo struct {
	Semaphore string `json:"semaphore"`
	Count     int64  `json:"count"`
	Token     uint64 `json:"token"`
	// Revoked leases stay until their session releases them or ends; Reason is the
	// operator's.
	Revoked   bool          `json:"revoked,omitempty"`
	Reason    string        `json:"reason,omitempty"`
	ExpiresIn time.Duration `json:"-"`
}

// WaitInfo is one waiting request of a session.
type WaitInfo struct {
	Semaphores map[string]int64 `json:"semaphores"` // the counts that it asks for
	Mode       string           `json:"mode"`       // "all" or "any" of them
	Position   int64            `json:"position"`   // in its first line, from 1
	// BlockedBy, Reason, Obstacles and ObstacleCount are as of a Waiter.
	BlockedBy     string        `json:"blocked_by"`
	Reason        string        `json:"reason"`
	Obstacles     []Obstacle    `json:"obstacles"`
	ObstacleCount int64         `json:"obstacle_count"`
	WaitingFor    time.Duration `json:"-"` // since it joined the line
}

// UnmarshalJSON reads a session as the API sends it.
func (s *SessionInfo) UnmarshalJSON(data []byte) error {
	type plain SessionInfo
	return readTimes(data, (*plain)(s), times{"ttl_ms": &s.TTL, "expires_in_ms": &s.ExpiresIn})
}

// MarshalJSON writes a session with the API's members.
func (s SessionInfo) MarshalJSON() ([]byte, error) {
	type plain SessionInfo
	return writeTimes(plain(s), named{"ttl_ms", s.TTL}, named{"expires_in_ms", s.ExpiresIn})
}

// UnmarshalJSON reads a lease as the API sends it.
func (l *LeaseInfo) UnmarshalJSON(data []byte) error {
	type plain LeaseInfo
	return readTimes(data, (*plain)(l), times{"expires_in_ms": &l.ExpiresIn})
}

// MarshalJSON writes a lease with the API's members.
func (l LeaseInfo) MarshalJSON() ([]byte, error) {
	type plain LeaseInfo
	return writeTimes(plain(l), named{"expires_in_ms", l.ExpiresIn})
}

// UnmarshalJSON reads a waiting request as the API sends it.
func (w *WaitInfo) UnmarshalJSON(data []byte) error {
	type plain WaitInfo
	return readTimes(data, (*plain)(w), times{"waiting_ms": &w.WaitingFor})
}

// MarshalJSON writes a waiting request with the API's members.
func (w WaitInfo) MarshalJSON() ([]byte, error) {
	type plain WaitInfo
	return writeTimes(plain(w), named{"waiting_ms", w.WaitingFor})
}

// errNoSession is the refusal of an id that is none, which would make another path.
var errNoSession = &Error{Status: http.StatusBadRequest, Code: "invalid-request", Title: "The request is not valid",
	Detail: "A session's id is a decimal number.", Field: "session"}

// sessionCall is a call to a route of one session.
func sessionCall(method, id string, more ...string) (calls.Call, error) {
	if _, err := strconv.ParseUint(id, 10, 64); err != nil {
		return calls.Call{}, errNoSession
	}
	return calls.Call{Method: method, Path: append([]string{"v1", "sessions", id}, more...)}, nil
}

// ListSessions goes through the sessions that the Client may see, by id, a page at a time. Each
// page is as of the moment it is read. An error is the last thing it yields.
func (c *Client) ListSessions(ctx context.Context, opts ...ListOption) iter.Seq2[*SessionInfo, error] {
	return pages(opts, func(query url.Values) ([]*SessionInfo, string, error) {
		var page struct {
			Sessions []*SessionInfo `json:"sessions"`
			Next     string         `json:"next"`
		}
		_, err := c.calls.Read(ctx, calls.Call{Method: http.MethodGet, Path: []string{"v1", "sessions"}, Query: query}, &page)
		return page.Sessions, page.Next, err
	})
}

// GetSession reads any session. ErrUnknownSession, ErrExpiredSession or ErrRevoked if it
// is over.
func (c *Client) GetSession(ctx context.Context, id string, opts ...ReadListOption) (*SessionInfo, error) {
	k, err := sessionCall(http.MethodGet, id)
	if err != nil {
		return nil, err
	}
	k.Query = url.Values{}
	for _, o := range opts {
		o.list(k.Query)
	}
	s := new(SessionInfo)
	if _, err = c.calls.Read(ctx, k, s); err != nil {
		return nil, err
	}
	return s, nil
}

// RenewSession renews a session once, for a process that does not keep it by a Session:
// it lives for its ttl from now, or for a new ttl unless that is 0.
func (c *Client) RenewSession(ctx context.Context, id string, ttl time.Duration) (expiresIn time.Duration, err error) {
	k, err := sessionCall(http.MethodPut, id)
	if err != nil {
		return 0, err
	}
	body := map[string]any{}
	if ttl != 0 {
		body["ttl"] = calls.Milliseconds(ttl)
	}
	k.Body = body
	var renewed SessionInfo
	if _, err := c.calls.Read(ctx, k, &renewed); err != nil {
		return 0, err
	}
	return renewed.ExpiresIn, nil
}

// EndSession ends a session, which releases its leases and withdraws its requests. It is
// no error that the session is over, or belongs to another identity that the Client may not
// end: see RevokeSession.
func (c *Client) EndSession(ctx context.Context, id string) error {
	k, err := sessionCall(http.MethodDelete, id)
	if err == nil {
		_, err = c.calls.Do(ctx, k)
	}
	return err
}

// ReleaseLease releases the lease of a session, or withdraws its waiting request. With a token
// that is not 0 it releases the lease of that token alone.
func (c *Client) ReleaseLease(ctx context.Context, id, name string, token uint64) error {
	if name == "" {
		return errNoName
	}
	k, err := sessionCall(http.MethodDelete, id, "leases", name)
	if err != nil {
		return err
	}
	if token != 0 {
		k.Query = url.Values{"token": {strconv.FormatUint(token, 10)}}
	}
	k.Key, k.KeyOptional = calls.NewKey(), true
	_, err = c.calls.Do(ctx, k)
	return err
}

// Revoke takes one lease away from a session, as an operator: the permits are available at
// once, and later requests of the session about the lease fail with ErrRevoked and the
// reason. The holder may go on for a while: the next grant's token fences it.
func (c *Client) Revoke(ctx context.Context, name, session, reason string, opts ...CallOption) error {
	if _, err := sessionCall(http.MethodDelete, session); err != nil {
		return err
	}
	k := semaphoreCall(http.MethodDelete, name, "holders", session)
	k.Query = url.Values{}
	if reason != "" {
		k.Query.Set("reason", reason)
	}
	_, err := c.change(ctx, k, opts)
	return err
}

// RevokeSession ends a session as an operator. Its later requests fail with ErrRevoked
// and the reason. It is no error that the session is over.
func (c *Client) RevokeSession(ctx context.Context, id, reason string) error {
	k, err := sessionCall(http.MethodPost, id, "revoke")
	if err != nil {
		return err
	}
	body := map[string]any{}
	if reason != "" {
		body["reason"] = reason
	}
	k.Body, k.Key = body, calls.NewKey()
	_, err = c.calls.Do(ctx, k)
	return err
}

// ErrDetached is the Lease.Err of a lease that Detach has left to itself.
var ErrDetached = errors.New("detached")

// Detach leaves a lease of Client.Acquire to itself: it is renewed no more, and not
// released by Client.Close. It goes on in the cluster until its ttl ends, or until
// RenewSession and EndSession with Lease.Session. A lease of a Session can't be detached.
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

// WithLease acquires, calls fn, and releases. The ctx of fn ends when the lease is lost. It
// returns the error of fn, together with that of the lease if it was lost meanwhile.
func (c *Client) WithLease(ctx context.Context, name string, fn func(ctx context.Context, lease *Lease) error, opts ...LeaseOption) error {
	lease, err := c.Acquire(ctx, name, opts...)
	if err != nil {
		return err
	}
	work, stop := lease.Context(ctx)
	defer stop()
	released := false
	release := func() error {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseGrace)
		defer cancel()
		released = true
		return lease.Release(end)
	}
	defer func() {
		if !released { // fn has panicked
			_ = release()
		}
	}()
	err = fn(work, lease)
	if late := release(); errors.Is(late, ErrLost) {
		err = errors.Join(err, late)
	}
	return err
}

// releaseGrace bounds how long WithLease waits for a node to confirm the release, which
// goes on in the background after that.
const releaseGrace = 5 * time.Second
