package client

import (
	"context"
	"net/http"
	"time"

	"github.com/signalbox/signalbox/client/internal/calls"
)

// SettingOption sets an optional setting of a semaphore: NoTotal, Groups, PerGroup, Paused, MaxWaiting, WhenFull,
// HeadStart, Window, Cooldown, OnLost, MaxHold, Slots. Settings without an option stay as they are. A node refuses
// contradictory settings with ErrInvalidRequest, and Error.Field names the setting.
type SettingOption interface {
	PutOption
	CreateOption
}

type setting struct {
	name  string
	value any // nil clears it
}

func (o setting) put(_ *calls.Call, body map[string]any) { o.create(body) }
func (o setting) create(body map[string]any)             { body[o.name] = o.value }

// optional makes a setting that is cleared if value is the zero value.
func optional[T comparable](name string, value T) SettingOption {
	var none T
	if value == none {
		return setting{name, nil}
	}
	return setting{name, value}
}

// The values of Groups.
const (
	ByRequest = "request" // the group is the group that the request names, see Group
	ByOwner   = "owner"   // the group is the caller's identity; Group is ignored
)

// The values of WhenFull.
const (
	Refuse     = "refuse"      // a further request fails with ErrLineFull
	DropOldest = "drop-oldest" // a further request waits, and the first request fails with ErrSuperseded
)

// NoTotal replaces Permits, and the permits of Create: the semaphore has no limit over all its groups, only a limit for
// each group. It needs Groups and PerGroup. Up, Down, SetValue and wait lists fail with ErrNoTotal. A Put that changes
// NoTotal fails with ErrRequestsWaiting while any request waits.
func NoTotal() SettingOption { return setting{"permits", nil} }

// Groups divides the requests of a semaphore into groups, which are served in turn. by is ByRequest, ByOwner, or ""
// for no groups. A Put that changes Groups fails with ErrRequestsWaiting while any request waits.
func Groups(by string) SettingOption { return optional("groups", by) }

// PerGroup is the limit of each group for which Client.SetGroupLimit has set no limit; 0: no limit.
func PerGroup(permits int64) SettingOption { return optional("per_group", permits) }

// Paused stops grants, see Client.Pause; "" resumes them.
func Paused(reason string) SettingOption { return optional("paused", reason) }

// MaxWaiting bounds the requests that wait in a line, or in each group's line: 1 to 100,000; 0: no bound.
func MaxWaiting(requests int) SettingOption { return optional("max_waiting", requests) }

// WhenFull decides what happens to a request that comes when MaxWaiting requests wait: Refuse or DropOldest; "" means
// Refuse.
func WhenFull(rule string) SettingOption { return optional("when_full", rule) }

// HeadStartOption sets a head start.
type HeadStartOption interface {
	SettingOption
	AcquireOption
	LeaseOption
	DownOption
}

// HeadStart gives a request the place in line that it would have if it had come that much earlier. As a setting of a
// semaphore it is the longest head start that a request may get, up to 24 h; 0: no head start.
func HeadStart(d time.Duration) HeadStartOption { return headStart(d) }

type headStart time.Duration

func (d headStart) put(_ *calls.Call, body map[string]any) { d.create(body) }
func (d headStart) create(body map[string]any) {
	optional("head_start", calls.Milliseconds(time.Duration(d))).create(body)
}
func (d headStart) acquire(a *acquiring) { d.ask(a.body) }
func (d headStart) lease(o *oneShot)     { d.ask(o.body) }
func (d headStart) down(o *oneShot)      { d.ask(o.body) }
func (d headStart) ask(body map[string]any) {
	body["head_start"] = calls.Milliseconds(time.Duration(d))
}

// Pause stops the grants of a semaphore. reason is up to 1 KiB that its clients see. Requests keep their places, and
// leases live on. A semaphore with NoTotal can't be paused; use SetGroupLimit. It fails with ErrUnknownSemaphore if
// the semaphore does not exist. It blocks for one round trip; the pause is durable on return.
func (c *Client) Pause(ctx context.Context, name, reason string, opts ...CallOption) error {
	return c.pause(ctx, name, setting{"paused", reason}, opts)
}

// Resume ends a Pause, if there is one, and serves waiters. Otherwise it is like Pause.
func (c *Client) Resume(ctx context.Context, name string, opts ...CallOption) error {
	return c.pause(ctx, name, Paused(""), opts)
}

func (c *Client) pause(ctx context.Context, name string, o SettingOption, opts []CallOption) error {
	if name == "" {
		return errNoName
	}
	body := map[string]any{}
	o.create(body)
	k := semaphoreCall(http.MethodPatch, name)
	k.Body = body
	for _, option := range opts {
		option.call(&k)
	}
	_, _, err := c.putSemaphore(ctx, k)
	return err
}
