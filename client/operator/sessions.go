package operator

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/internal/calls"
	"github.com/signalbox/signalbox/client/internal/reply"
)

// Session is a session as of one reply. It belongs to the caller.
type Session struct {
	ID        string            `json:"session"`
	OneShot   bool              `json:"one_shot"` // made by client.Client.Acquire
	Metadata  map[string]string `json:"metadata"`
	Leases    []Lease           `json:"leases"`
	Waiting   []Wait            `json:"waiting"` // the first requests, without the wait list; WaitingCount counts all
	TTL       time.Duration     `json:"-"`
	ExpiresIn time.Duration     `json:"-"`

	WaitingCount int64       `json:"waiting_count"`
	WaitList     []ListEntry `json:"waitlist"`
}

// ListEntry is one semaphore on a session's wait list.
type ListEntry struct {
	Semaphore  string        `json:"name"`
	Group      string        `json:"group,omitempty"`
	Epoch      uint64        `json:"epoch"`
	Wanted     int64         `json:"wanted"`
	Granted    int64         `json:"granted"`  // permits to deliver; 0: the entry waits
	Deleted    bool          `json:"deleted"`  // the semaphore was deleted
	Position   int64         `json:"position"` // place in the line, from 1; 0: the entry does not wait
	WaitingFor time.Duration `json:"-"`
}

// UnmarshalJSON reads an entry as the API sends it.
func (e *ListEntry) UnmarshalJSON(data []byte) error {
	type plain ListEntry
	return reply.ReadTimes(data, (*plain)(e), reply.Times{"waiting_ms": &e.WaitingFor})
}

// MarshalJSON writes an entry with the API's members.
func (e ListEntry) MarshalJSON() ([]byte, error) {
	type plain ListEntry
	return reply.WriteTimes(plain(e), reply.Member("waiting_ms", e.WaitingFor))
}

// Wait is one waiting request of a session.
type Wait struct {
	// Semaphores has the counts that the request asks for; if a group is named, Members has them. Wants returns
	// either.
	Semaphores map[string]int64 `json:"semaphores,omitempty"`
	Members    []client.Want    `json:"members,omitempty"`
	Mode       string           `json:"mode"`     // "all" or "any" of the semaphores
	Position   int64            `json:"position"` // place in its first line, from 1
	// GroupsBefore is as in a client.Waiter.
	GroupsBefore int64 `json:"groups_before,omitempty"`
	// BlockedBy, Reason, Obstacles and ObstacleCount are as in a client.Waiter.
	BlockedBy     string            `json:"blocked_by"`
	Reason        string            `json:"reason"`
	Obstacles     []client.Obstacle `json:"obstacles"`
	ObstacleCount int64             `json:"obstacle_count"`
	WaitingFor    time.Duration     `json:"-"` // time since it joined the line
}

// Wants returns what the request asks for, by name and group.
func (w *Wait) Wants() []client.Want {
	wants := slices.Clone(w.Members)
	for name, count := range w.Semaphores {
		wants = append(wants, client.Want{Name: name, Count: count})
	}
	slices.SortFunc(wants, func(a, b client.Want) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Group, b.Group))
	})
	return wants
}

// UnmarshalJSON reads a session as the API sends it.
func (s *Session) UnmarshalJSON(data []byte) error {
	type plain Session
	return reply.ReadTimes(data, (*plain)(s), reply.Times{"ttl_ms": &s.TTL, "expires_in_ms": &s.ExpiresIn})
}

// MarshalJSON writes a session with the API's members.
func (s Session) MarshalJSON() ([]byte, error) {
	type plain Session
	return reply.WriteTimes(plain(s), reply.Member("ttl_ms", s.TTL), reply.Member("expires_in_ms", s.ExpiresIn))
}

// UnmarshalJSON reads a waiting request as the API sends it.
func (w *Wait) UnmarshalJSON(data []byte) error {
	type plain Wait
	return reply.ReadTimes(data, (*plain)(w), reply.Times{"waiting_ms": &w.WaitingFor})
}

// MarshalJSON writes a waiting request with the API's members.
func (w Wait) MarshalJSON() ([]byte, error) {
	type plain Wait
	return reply.WriteTimes(plain(w), reply.Member("waiting_ms", w.WaitingFor))
}

// errNoSession is the refusal of a text that is no id, which would make another path.
var errNoSession = invalid("session", "A session's id is a decimal number.")

// sessionCall is a call to a route of one session.
func sessionCall(method, id string, more ...string) (calls.Call, error) {
	if _, err := strconv.ParseUint(id, 10, 64); err != nil {
		return calls.Call{}, errNoSession
	}
	return calls.Call{Method: method, Path: append([]string{"v1", "sessions", id}, more...)}, nil
}

// ListSessions yields the sessions that the caller may see, by id. It reads a page at a time, and each page shows the
// moment of its reading. An error is yielded last.
func (o *Operator) ListSessions(ctx context.Context, opts ...ReadOption) iter.Seq2[*Session, error] {
	k := calls.Call{Method: http.MethodGet, Path: []string{"v1", "sessions"}}
	return listOf(o, ctx, k, nil, opts, func(p *page) []*Session { return p.Sessions })
}

// GetSession reads any session. If the session is over, it fails with ErrUnknownSession, ErrExpiredSession or
// ErrRevoked.
func (o *Operator) GetSession(ctx context.Context, id string, opts ...ReadOption) (*Session, error) {
	k, err := sessionCall(http.MethodGet, id)
	if err != nil {
		return nil, err
	}
	k.Query = queryOf(opts)
	s := new(Session)
	if _, err = o.calls.Read(ctx, k, s); err != nil {
		return nil, err
	}
	return s, nil
}

// RenewSession renews a session once, for a process that has no client.Session for it. The session then lives for its
// ttl from now, or for the new ttl if that is not 0.
func (o *Operator) RenewSession(ctx context.Context, id string, ttl time.Duration) (expiresIn time.Duration, err error) {
	k, err := sessionCall(http.MethodPut, id)
	if err != nil {
		return 0, err
	}
	body := map[string]any{}
	if ttl != 0 {
		body["ttl"] = calls.Milliseconds(ttl)
	}
	k.Body = body
	var renewed Session
	if _, err := o.calls.Read(ctx, k, &renewed); err != nil {
		return 0, err
	}
	return renewed.ExpiresIn, nil
}

// EndSession ends a session, which releases its leases and withdraws its requests. It returns nil if the session is
// over already, and has no effect on a session of another identity; for that, use RevokeSession.
func (o *Operator) EndSession(ctx context.Context, id string) error {
	k, err := sessionCall(http.MethodDelete, id)
	if err == nil {
		_, err = o.calls.Do(ctx, k)
	}
	return err
}

// RevokeSession ends a session as an operator. Later requests of the session fail with ErrRevoked and the reason. It
// returns nil if the session is over already.
func (o *Operator) RevokeSession(ctx context.Context, id, reason string) error {
	k, err := sessionCall(http.MethodPost, id, "revoke")
	if err != nil {
		return err
	}
	body := map[string]any{}
	if reason != "" {
		body["reason"] = reason
	}
	k.Body, k.Key = body, calls.NewKey()
	_, err = o.calls.Do(ctx, k)
	return err
}

// ListHolders yields all holders of a semaphore, oldest first; a Semaphore has only the first. It reads a page at a
// time, and each page shows the moment of its reading. A lease that lives during the whole walk is yielded once. An
// error is yielded last, for example client.ErrUnknownSemaphore.
func (o *Operator) ListHolders(ctx context.Context, name string, opts ...ReadOption) iter.Seq2[*client.Holder, error] {
	k, err := listCall(name, "holders")
	return listOf(o, ctx, k, err, opts, func(p *page) []*client.Holder { return p.Holders })
}

// ListWaiters yields all waiting requests of a semaphore in their order. Each page has the positions of the moment of
// its reading.
func (o *Operator) ListWaiters(ctx context.Context, name string, opts ...ReadOption) iter.Seq2[*client.Waiter, error] {
	k, err := listCall(name, "waiters")
	return listOf(o, ctx, k, err, opts, func(p *page) []*client.Waiter { return p.Waiters })
}

func listCall(name, list string) (calls.Call, error) {
	if name == "" {
		return calls.Call{}, errNoName
	}
	return calls.Call{Method: http.MethodGet, Path: []string{"v1", "semaphores", name, list}}, nil
}

// page is a page of any list.
type page struct {
	Holders  []*client.Holder `json:"holders"`
	Waiters  []*client.Waiter `json:"waiters"`
	Leases   []*Lease         `json:"leases"`
	Sessions []*Session       `json:"sessions"`
	Next     string           `json:"next"`
}

// listOf yields the members of a list that the call k reads. If refused is not nil, it sends no request and yields
// refused.
func listOf[T any](o *Operator, ctx context.Context, k calls.Call, refused error, opts []ReadOption, members func(*page) []T) iter.Seq2[T, error] {
	return reply.Pages(queryOf(opts), func(query url.Values) ([]T, string, error) {
		if refused != nil {
			return nil, "", refused
		}
		var p page
		k.Query = query
		_, err := o.calls.Read(ctx, k, &p)
		return members(&p), p.Next, err
	})
}
