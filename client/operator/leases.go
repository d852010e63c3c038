package operator

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/signalbox/signalbox/client/internal/calls"
	"github.com/signalbox/signalbox/client/internal/reply"
)

// Lease is one lease of a session.
type Lease struct {
	Semaphore string `json:"semaphore"`
	Group     string `json:"group,omitempty"`
	Count     int64  `json:"count"`
	Token     uint64 `json:"token"`
	// Revoked reports that the lease was revoked; it stays until its session releases it or ends. Reason is the
	// operator's.
	Revoked   bool          `json:"revoked,omitempty"`
	Reason    string        `json:"reason,omitempty"`
	Slots     []int         `json:"slots,omitempty"`
	Spent     bool          `json:"spent,omitempty"` // see client.Lease.Spent
	ExpiresIn time.Duration `json:"-"`
}

// UnmarshalJSON reads a lease as the API sends it.
func (l *Lease) UnmarshalJSON(data []byte) error {
	type plain Lease
	return reply.ReadTimes(data, (*plain)(l), reply.Times{"expires_in_ms": &l.ExpiresIn})
}

// MarshalJSON writes a lease with the API's members.
func (l Lease) MarshalJSON() ([]byte, error) {
	type plain Lease
	return reply.WriteTimes(plain(l), reply.Member("expires_in_ms", l.ExpiresIn))
}

// ListLeases yields the leases of a session, oldest first, a page at a time. Use it for a session with too many leases
// for one reply. It fails like GetSession.
func (o *Operator) ListLeases(ctx context.Context, id string, opts ...ReadOption) iter.Seq2[*Lease, error] {
	k, err := sessionCall(http.MethodGet, id, "leases")
	return listOf(o, ctx, k, err, opts, func(p *page) []*Lease { return p.Leases })
}

// ReleaseLease releases the lease of a session, or withdraws its waiting request. If token is not 0, it releases only
// the lease with that token.
func (o *Operator) ReleaseLease(ctx context.Context, id, name string, token uint64, opts ...LeaseOption) error {
	if name == "" {
		return errNoName
	}
	k, err := sessionCall(http.MethodDelete, id, "leases", name)
	if err != nil {
		return err
	}
	k.Query = url.Values{}
	if token != 0 {
		k.Query.Set("token", strconv.FormatUint(token, 10))
	}
	for _, option := range opts {
		option(k.Query)
	}
	k.Key, k.KeyOptional = calls.NewKey(), true
	_, err = o.calls.Do(ctx, k)
	return err
}

// Revoke takes one lease away from a session, as an operator. The permits are available at once. Later requests of the
// session about the lease fail with ErrRevoked and the reason. The holder may go on for a while, but the token of the
// next grant fences it. If epoch is not 0, Revoke has no effect on a later semaphore of the same name.
func (o *Operator) Revoke(ctx context.Context, name, session, reason string, epoch uint64, opts ...LeaseOption) error {
	if name == "" {
		return errNoName
	}
	if _, err := sessionCall(http.MethodDelete, session); err != nil {
		return err
	}
	k := calls.Call{Method: http.MethodDelete, Path: []string{"v1", "semaphores", name, "holders", session}, Query: url.Values{}, Key: calls.NewKey()}
	if reason != "" {
		k.Query.Set("reason", reason)
	}
	if epoch != 0 {
		k.Query.Set("epoch", strconv.FormatUint(epoch, 10))
	}
	for _, option := range opts {
		option(k.Query)
	}
	_, err := o.calls.Do(ctx, k)
	return err
}

// Settle reports how many permits the lease with this token has really spent, as client.Lease.Settle does. The caller
// must check that the lease is Spent, because Settle of another lease gives permits back.
func (o *Operator) Settle(ctx context.Context, id, name string, token uint64, used int64, opts ...LeaseOption) (settled bool, err error) {
	if name == "" {
		return false, errNoName
	}
	k, err := sessionCall(http.MethodPatch, id, "leases", name)
	if err != nil {
		return false, err
	}
	k.Query, k.Body, k.Key = url.Values{"token": {strconv.FormatUint(token, 10)}}, map[string]any{"count": used}, calls.NewKey()
	for _, option := range opts {
		option(k.Query)
	}
	var body struct {
		Settled bool `json:"settled"`
	}
	_, err = o.calls.Read(ctx, k, &body)
	return body.Settled, err
}
