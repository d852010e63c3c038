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

// The values of OnLost, besides durations such as "30s".
const (
	Release    = "release"    // the permits come back at once, as after any other end of a lease
	Quarantine = "quarantine" // the permits come back with a call of FreeLost
)

// duration makes the named setting; a duration of 0 clears it.
func duration(name string, d time.Duration) SettingOption {
	return optional(name, calls.Milliseconds(d))
}

// Window makes permits come back at a fixed time after their grant to a request or a Down, no matter when the lease
// ends. So within any time of this length at most the semaphore's permits are granted, for example 600 a minute. The
// lease is only a receipt, see Lease.Spent. 100 ms to 31 days; 0: no window.
func Window(d time.Duration) SettingOption { return duration("window", d) }

// Cooldown delays the return of permits after the end of their lease, for up to 24 h; 0: no cooldown.
func Cooldown(d time.Duration) SettingOption { return duration("cooldown", d) }

// OnLost says when the permits of a lost lease come back. A lease is lost if its session is not renewed, or if its
// MaxHold ends. when is Release, Quarantine, or a duration such as "30s", up to 24 h, after which they come back. "" is
// Release.
func OnLost(when string) SettingOption { return optional("on_lost", when) }

// MaxHold is the longest time that a lease is held, even if its session is renewed: 1 s to 100 years; 0: no limit.
// After that the lease is revoked, with ErrRevoked and the reason "max-hold".
func MaxHold(d time.Duration) SettingOption { return duration("max_hold", d) }

// Slots makes each lease tell which of the semaphore's permits it has, see Lease.Slots.
func Slots(on bool) SettingOption { return optional("slots", on) }

// LostHold is the permits of a lost lease that have not come back yet, see OnLost. It belongs to the caller.
type LostHold struct {
	Token   uint64 `json:"token"`
	Session string `json:"session"` // "" if the caller may not see it
	Group   string `json:"group,omitempty"`
	Count   int64  `json:"count"`
	Slots   []int  `json:"slots,omitempty"`
	// BackIn is the time until the permits come back; nil: they come back with a call of FreeLost.
	BackIn   *time.Duration    `json:"-"`
	LostFor  time.Duration     `json:"-"`        // time since the end of the lease
	Metadata map[string]string `json:"metadata"` // metadata of the session
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

// ListLost yields the lost holds of a semaphore, ordered by token. It reads a page at a time, and each page shows the
// moment of its reading. An error is yielded last, for example ErrUnknownSemaphore.
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

// FreeLost returns the permits of a lost lease at once. The identity that had the lease may call it once its work has
// stopped; other identities need the scope admin. It fails with ErrNotLost if the permits have come back already. It
// blocks for one round trip.
func (c *Client) FreeLost(ctx context.Context, name string, token uint64, reason string, opts ...CallOption) error {
	k := semaphoreCall(http.MethodDelete, name, "lost", strconv.FormatUint(token, 10))
	if reason != "" {
		k.Query = url.Values{"reason": {reason}}
	}
	_, err := c.change(ctx, k, opts)
	return err
}

// Slots returns the numbers, from 0 and ascending, of the permits that the lease has until it ends; nil unless the
// semaphore has Slots.
func (l *Lease) Slots() []int { return l.slots }

// Spent reports whether the lease is a receipt, of a semaphore with a Window: its permits come back after the Window,
// and Release gives no permits back.
func (l *Lease) Spent() bool { return l.spent }

// Settle says how many permits a Spent lease has really used, 0 to 2^53. The number may be below or above the granted
// or earlier settled number; available permits change by the difference at once. settled is false if the permits have
// come back already. Settle fails for a lease that is not Spent. It blocks for one round trip.
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
