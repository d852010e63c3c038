package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/signalbox/signalbox/client/internal/calls"
	"github.com/signalbox/signalbox/client/internal/reply"
)

// GroupOption names a group.
type GroupOption interface {
	AcquireOption
	LeaseOption
	DownOption
	WaitListOption
}

// Group names the group of a request, in a semaphore with Groups: up to 128 bytes without control characters; by
// default "". A session may have one lease in each group of a semaphore.
func Group(name string) GroupOption { return group(name) }

type group string

func (g group) read(query url.Values) {
	if g != "" {
		query.Set("group", string(g))
	}
}
func (g group) call(k *calls.Call)     { g.read(queryOfCall(k)) }
func (g group) waitList(k *calls.Call) { g.call(k) }

func (g group) acquire(a *acquiring) {
	a.group = string(g)
	g.call(&a.call)
}

func (g group) lease(o *oneShot) { g.down(o) }
func (g group) down(o *oneShot) {
	o.group = string(g)
	g.call(&o.call)
}

// errBadGroup refuses the name of a group that is not UTF-8, because JSON would replace the invalid bytes.
var errBadGroup = &Error{Status: http.StatusBadRequest, Code: "invalid-request", Title: "The request is not valid",
	Detail: "The name of a group is up to 128 bytes of UTF-8 without control characters.", Field: "group"}

// GroupState is a group of a semaphore as of one reply. It belongs to the caller.
type GroupState struct {
	Group string `json:"group"`
	// Limit is how many permits the group may use at a time; nil: no limit. Own reports whether the limit is from
	// SetGroupLimit; otherwise it is PerGroup of the semaphore.
	Limit        *int64        `json:"limit"`
	Own          bool          `json:"own"`
	Used         int64         `json:"used"` // how many permits of the limit are in use
	Held         int64         `json:"held"` // how many permits leases hold
	Waiting      int64         `json:"waiting"`
	GroupsBefore int64         `json:"groups_before"` // groups served before its first request; not with NoTotal
	OldestWait   time.Duration `json:"-"`             // how long its oldest request has waited; 0: no request waits
}

// UnmarshalJSON reads a group as the API sends it.
func (g *GroupState) UnmarshalJSON(data []byte) error {
	type plain GroupState
	return reply.ReadTimes(data, (*plain)(g), reply.Times{"oldest_wait_ms": &g.OldestWait})
}

// MarshalJSON writes a group with the API's members.
func (g GroupState) MarshalJSON() ([]byte, error) {
	type plain GroupState
	return reply.WriteTimes(plain(g), reply.Member("oldest_wait_ms", g.OldestWait))
}

// OnlyWaiting leaves out the groups in which no request waits.
func OnlyWaiting() GroupsOption { return waitingGroups{} }

type waitingGroups struct{}

func (waitingGroups) groups(query url.Values) { query.Set("waiting", "true") }

// groupCall returns a call to the route of one group. The path has "-" for the group "", because a segment can't be
// empty.
func groupCall(method, name, group string) (calls.Call, error) {
	if name == "" {
		return calls.Call{}, errNoName
	}
	if group == "" || strings.HasPrefix(group, "-") {
		group = "-" + group
	}
	return semaphoreCall(method, name, "groups", group), nil
}

// ListGroups yields the groups of a semaphore that a lease or a request names, or that have a limit by SetGroupLimit,
// sorted by name. It reads a page at a time, and each page shows the moment of its reading. An error is yielded last,
// for example ErrUnknownSemaphore.
func (c *Client) ListGroups(ctx context.Context, name string, opts ...GroupsOption) iter.Seq2[*GroupState, error] {
	return reply.Pages(queryOf(opts, GroupsOption.groups), func(query url.Values) ([]*GroupState, string, error) {
		if name == "" {
			return nil, "", errNoName
		}
		var page struct {
			Groups []*GroupState `json:"groups"`
			Next   string        `json:"next"`
		}
		k := semaphoreCall(http.MethodGet, name, "groups")
		k.Query = query
		_, err := c.calls.Read(ctx, k, &page)
		return page.Groups, page.Next, err
	})
}

// GetGroup reads one group of a semaphore. It fails with ErrUnknownGroup if no lease or request names the group and it
// has no limit by SetGroupLimit, or with ErrUnknownSemaphore.
func (c *Client) GetGroup(ctx context.Context, name, group string, opts ...GroupsOption) (*GroupState, error) {
	k, err := groupCall(http.MethodGet, name, group)
	if err != nil {
		return nil, err
	}
	k.Query = queryOf(opts, GroupsOption.groups)
	state := new(GroupState)
	if _, err := c.calls.Read(ctx, k, state); err != nil {
		return nil, err
	}
	return state, nil
}

// SetGroupLimit gives a group its own limit in place of PerGroup. A lower limit takes no lease away; with 0 all
// requests of the group are refused with ErrNever. It blocks for one round trip; the limit is durable on return.
func (c *Client) SetGroupLimit(ctx context.Context, name, group string, limit int64, opts ...CallOption) error {
	return c.putGroup(ctx, name, group, limit, opts)
}

// ClearGroupLimit removes the limit that SetGroupLimit has set, if there is one, so that PerGroup applies again.
func (c *Client) ClearGroupLimit(ctx context.Context, name, group string, opts ...CallOption) error {
	return c.putGroup(ctx, name, group, nil, opts)
}

func (c *Client) putGroup(ctx context.Context, name, group string, limit any, opts []CallOption) error {
	k, err := groupCall(http.MethodPut, name, group)
	if err != nil {
		return err
	}
	k.Body, k.Key = map[string]any{"limit": limit}, calls.NewKey()
	for _, o := range opts {
		o.call(&k)
	}
	_, err = c.calls.Do(ctx, k)
	return err
}
