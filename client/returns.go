package client

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/signalbox/signalbox/client/internal/calls"
	"github.com/signalbox/signalbox/client/internal/reply"
)

// The values of OnLost, beside durations as "30s".
const (
	Release    = "release"    // at once, as after any other end of a lease
	Quarantine = "quarantine" // when FreeLost says so
)

// duration is a setting that a duration of 0 clears.
func duration(name string, d time.Duration) SettingOption {
	return optional(name, calls.Milliseconds(d))
}

// Window makes grants spend permits: what a request or a Down is granted comes back so long after the grant, and
// neither earlier nor later by the end of its lease, which is a receipt, see Lease.Spent. So in no time of this length
// are more permits granted than there are: "600 a minute". 100 ms to 31 days; 0: no window.
func Window(d time.Duration) SettingOption { return duration("window", d) }

// Cooldown keeps away what a lease gives up, for up to 24 h; 0: no cooldown.
func Cooldown(d time.Duration) SettingOption { return duration("cooldown", d) }

// OnLost says when permits come back whose lease ended because its session was not renewed or after MaxHold: Release,
// Quarantine, or after a duration such as "30s", up to 24 h. "" is Release.
func OnLost(when string) SettingOption { return optional("on_lost", when) }

// MaxHold is the longest time that a lease is held, however often its session is renewed: 1 s to 100 years. The lease
// is then revoked, as by an operator: ErrRevoked, reason "max-hold". 0: no bound.
func MaxHold(d time.Duration) SettingOption { return duration("max_hold", d) }

// Slots makes leases say which of the permits they have, see Lease.Slots.
func Slots(on bool) SettingOption { return optional("slots", on) }

// LostHold is what a lease held that ended unasked, as of one reply, see OnLost. It belongs to the caller.
type LostHold struct {
	Token   uint64 `json:"token"`
	Session string `json:"session"` // "" if the caller may not see it
	Group   string `json:"group,omitempty"`
	Count   int64  `json:"count"`
	Slots   []int  `json:"slots,omitempty"`
	// BackIn is the time until the permits come back; nil: when FreeLost says so.
	BackIn   *time.Duration    `json:"-"`
	LostFor  time.Duration     `json:"-"`        // since the end of the lease
	Metadata map[string]string `json:"metadata"` // the session's
}

// UnmarshalJSON reads a lost hold as the API sends it.
func (l *LostHold) UnmarshalJSON(data []byte) error {
	type plain LostHold
	back := time.Duration(-1)
	if err := reply.ReadTimes(data, (*plain)(l), reply.Times{"lost_ms": &l.LostFor, "back_in_ms": &back}); err != nil {
		return err
	}
	if l.BackIn = nil; back >= 0 {
		l.BackIn = &back
	}
	return nil
}

// MarshalJSON writes a lost hold with the API's members.
func (l LostHold) MarshalJSON() ([]byte, error) {
	type plain LostHold
	if l.BackIn == nil {
		return reply.WriteTimes(struct {
			plain
			BackInMS *int64 `json:"back_in_ms"`
		}{plain: plain(l)}, reply.Member("lost_ms", l.LostFor))
	}
	return reply.WriteTimes(plain(l), reply.Member("lost_ms", l.LostFor), reply.Member("back_in_ms", *l.BackIn))
}

// ListLost goes through the lost holds of a semaphore by their tokens, a page at a time. Each page is as of the moment
// it is read. An error is yielded last: ErrUnknownSemaphore if the semaphore does not exist.
func (c *Client) ListLost(ctx context.Context, name string, opts ...ListOption) iter.Seq2[*LostHold, error] {
	return reply.Pages(queryOf(opts, ListOption.list), func(query url.Values) ([]*LostHold, string, error) {
		if name == "" {
			return nil, "", errNoName
		}
		var page struct {
			Lost []*LostHold `json:"lost"`
			Next string      `json:"next"`
		}
		k := semaphoreCall(http.MethodGet, name, "lost")
		k.Query = query
		_, err := c.calls.Read(ctx, k, &page)
		return page.Lost, page.Next, err
	})
}

// FreeLost brings back now what a lost lease held. Whoever had the lease may do so once its work has stopped; another
// identity needs the scope admin. ErrNotLost if it came back already. It blocks for one round trip.
func (c *Client) FreeLost(ctx context.Context, name string, token uint64, reason string, opts ...CallOption) error {
	k := semaphoreCall(http.MethodDelete, name, "lost", strconv.FormatUint(token, 10))
	if reason != "" {
		k.Query = url.Values{"reason": {reason}}
	}
	_, err := c.change(ctx, k, opts)
	return err
}

// Slots returns which of the permits the lease has, ascending from 0, in a semaphore with Slots; the lease has
// them until it ends.
func (l *Lease) Slots() []int { return l.slots }

// Spent reports whether the lease is a receipt: its semaphore has a Window, so that its permits come back by
// themselves, and Release gives no permits back.
func (l *Lease) Spent() bool { return l.spent }

// Settle says how many permits a receipt has really spent, 0 to 2^53, fewer or more than before: what comes back
// changes by the difference, at once. settled is false if the permits have come back already. It blocks for one round
// trip. An error if the lease is no receipt.
func (l *Lease) Settle(ctx context.Context, used int64) (settled bool, err error) {
	if !l.spent {
		return false, errors.New("signalbox: only what was spent in a window can be settled")
	}
	query := url.Values{"token": {strconv.FormatUint(l.Token, 10)}}
	group(l.Group).read(query)
	var body struct {
		Settled bool `json:"settled"`
	}
	_, err = l.s.c.calls.Read(ctx, calls.Call{Method: http.MethodPatch, Path: []string{"v1", "sessions", l.Session, "leases", l.Semaphore},
		Query: query, Body: map[string]any{"count": used}, Key: calls.NewKey()}, &body)
	return body.Settled, err
}
