package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/signalbox/signalbox/client/internal/calls"
	"github.com/signalbox/signalbox/client/internal/reply"
)

// Semaphore is a semaphore as of one reply. It belongs to the caller.
type Semaphore struct {
	Name      string            `json:"name"`
	Permits   int64             `json:"permits"`   // the declared capacity; 0 with NoTotal
	Offset    int64             `json:"offset"`    // the sum of the changes by Up, Down and SetValue
	Held      int64             `json:"held"`      // permits held by leases
	Available int64             `json:"available"` // Permits + Offset - Held - Returning; 0 with NoTotal
	Level     *int32            `json:"level"`     // may be nil
	Metadata  map[string]string `json:"metadata"`
	// Epoch is unique among the semaphores that have had this name.
	Epoch uint64 `json:"epoch"`
	// Settings counts the changes of permits, level, metadata and the settings below.
	Settings uint64 `json:"settings"`
	// ModifiedIndex is the log index of the last change of permits, offset, leases or waiters.
	ModifiedIndex uint64 `json:"modified_index"`
	// Holders and Waiters are the first holders and waiters, as many as the options of the same names allow. List leaves
	// them out. HolderCount and WaiterCount are the numbers of all holders and waiters.
	Holders     []Holder `json:"holders,omitzero"`
	Waiters     []Waiter `json:"waiters,omitzero"`
	HolderCount int64    `json:"holder_count"`
	WaiterCount int64    `json:"waiter_count"`
	// The optional settings have the names of the options that set them. A zero value means that the setting is not set.
	NoTotal    bool          `json:"-"` // permits and available are null in JSON
	Groups     string        `json:"groups,omitempty"`
	PerGroup   int64         `json:"per_group,omitempty"`
	Paused     string        `json:"paused,omitempty"`
	MaxWaiting int64         `json:"max_waiting,omitempty"`
	WhenFull   string        `json:"when_full,omitempty"`
	HeadStart  time.Duration `json:"-"`
	Window     time.Duration `json:"-"`
	Cooldown   time.Duration `json:"-"`
	OnLost     string        `json:"on_lost,omitempty"` // Quarantine, or a duration; "": Release
	MaxHold    time.Duration `json:"-"`
	Slots      bool          `json:"slots,omitempty"`
	// GroupsCount is the number of groups that ListGroups yields; nil without Groups.
	GroupsCount *int64 `json:"groups_count,omitempty"`
	// Sweeping reports that a change of PerGroup has not reached all groups yet.
	Sweeping bool `json:"sweeping,omitempty"`
	// Returning is the number of permits that come back later, without a lease. The first of them come back after
	// NextReturnIn. LostCount is the number of lost leases that have permits among them, see ListLost.
	Returning    int64         `json:"returning,omitempty"`
	NextReturnIn time.Duration `json:"-"`
	LostCount    int64         `json:"lost_count,omitempty"`
}

// Holder is one lease of a semaphore.
type Holder struct {
	Session  string            `json:"session"`
	Group    string            `json:"group,omitempty"`
	Count    int64             `json:"count"`
	Token    uint64            `json:"token"`
	Metadata map[string]string `json:"metadata"` // metadata of the session
	// Revoked reports that the lease was revoked; it stays until its session releases it or ends. Reason is the
	// operator's.
	Revoked   bool          `json:"revoked,omitempty"`
	Reason    string        `json:"reason,omitempty"`
	Slots     []int         `json:"slots,omitempty"`
	Spent     bool          `json:"spent,omitempty"` // see Lease.Spent
	HeldFor   time.Duration `json:"-"`               // time since the grant
	ExpiresIn time.Duration `json:"-"`
}

// Waiter is one waiting request of a semaphore.
type Waiter struct {
	Session  string `json:"session"`
	Group    string `json:"group,omitempty"`
	Count    int64  `json:"count"`
	Position int64  `json:"position"` // place in the line of its group; 1 is served next
	// GroupsBefore is how many groups are served before its group.
	GroupsBefore int64             `json:"groups_before,omitempty"`
	WaitingFor   time.Duration     `json:"-"`
	ExpiresIn    time.Duration     `json:"-"`        // time until the session expires
	Metadata     map[string]string `json:"metadata"` // metadata of the session
	// BlockedBy is the code of the reason why the request waits: "not-enough-available", "behind-others",
	// "other-semaphore", "paused", "group-limit", "other-groups", "returning" or "elsewhere". Reason is a text for
	// people.
	BlockedBy string `json:"blocked_by"`
	Reason    string `json:"reason"`
	// Obstacles are the first lines in which the request can't be served now. ObstacleCount counts all of them.
	Obstacles     []Obstacle `json:"obstacles"`
	ObstacleCount int64      `json:"obstacle_count"`
	// Unowned reports that the request takes permits without a lease, as a Down or a wait list's entry does.
	Unowned bool `json:"unowned"`
}

// Obstacle is a line in which a waiter can't be served now.
type Obstacle struct {
	Semaphore string `json:"semaphore"`
	Group     string `json:"group,omitempty"`
	BlockedBy string `json:"blocked_by"` // as in a Waiter
	Needs     int64  `json:"needs"`
	Available int64  `json:"available"`
	Limit     *int64 `json:"limit,omitempty"` // limit of the group and how much of it is used, if the limit is the reason
	Used      *int64 `json:"used,omitempty"`
}

// UnmarshalJSON reads a semaphore as the API sends it.
func (s *Semaphore) UnmarshalJSON(data []byte) error {
	type plain Semaphore
	members := struct {
		*plain
		Permits *int64 `json:"permits"`
	}{plain: (*plain)(s)}
	if err := reply.ReadTimes(data, &members, s.times()); err != nil {
		return err
	}
	if s.NoTotal = members.Permits == nil; !s.NoTotal {
		s.Permits = *members.Permits
	}
	return nil
}

// times returns the durations by the names of their members.
func (s *Semaphore) times() reply.Times {
	return reply.Times{"head_start_ms": &s.HeadStart, "window_ms": &s.Window, "cooldown_ms": &s.Cooldown, "max_hold_ms": &s.MaxHold,
		"next_return_in_ms": &s.NextReturnIn}
}

// MarshalJSON writes a semaphore with the API's members.
func (s Semaphore) MarshalJSON() ([]byte, error) {
	type plain Semaphore
	var members any = plain(s)
	if s.NoTotal {
		members = struct {
			plain
			Permits   *int64 `json:"permits"`
			Available *int64 `json:"available"`
		}{plain: plain(s)}
	}
	var durations []reply.Named
	times := s.times()
	for _, member := range slices.Sorted(maps.Keys(times)) {
		if d := *times[member]; d != 0 {
			durations = append(durations, reply.Member(member, d))
		}
	}
	return reply.WriteTimes(members, durations...)
}

// UnmarshalJSON reads a holder as the API sends it.
func (h *Holder) UnmarshalJSON(data []byte) error {
	type plain Holder
	return reply.ReadTimes(data, (*plain)(h), reply.Times{"held_ms": &h.HeldFor, "expires_in_ms": &h.ExpiresIn})
}

// MarshalJSON writes a holder with the API's members.
func (h Holder) MarshalJSON() ([]byte, error) {
	type plain Holder
	return reply.WriteTimes(plain(h), reply.Member("held_ms", h.HeldFor), reply.Member("expires_in_ms", h.ExpiresIn))
}

// UnmarshalJSON reads a waiter as the API sends it.
func (w *Waiter) UnmarshalJSON(data []byte) error {
	type plain Waiter
	return reply.ReadTimes(data, (*plain)(w), reply.Times{"waiting_ms": &w.WaitingFor, "expires_in_ms": &w.ExpiresIn})
}

// MarshalJSON writes a waiter with the API's members.
func (w Waiter) MarshalJSON() ([]byte, error) {
	type plain Waiter
	return reply.WriteTimes(plain(w), reply.Member("waiting_ms", w.WaitingFor), reply.Member("expires_in_ms", w.ExpiresIn))
}

// errNoName refuses an empty name, because its path would be another route.
var errNoName = &Error{Status: http.StatusBadRequest, Code: "invalid-request", Title: "The request is not valid",
	Detail: "A semaphore's name has 1 to 512 bytes.", Field: "name"}

// semaphoreCall returns a call to a route of one semaphore.
func semaphoreCall(method, name string, more ...string) calls.Call {
	return calls.Call{Method: method, Path: append([]string{"v1", "semaphores", name}, more...)}
}

// Create makes a semaphore, or returns the existing semaphore unchanged; created tells which. It blocks for one round
// trip; the semaphore is durable on return.
func (c *Client) Create(ctx context.Context, name string, permits int64, opts ...CreateOption) (_ *Semaphore, created bool, err error) {
	body := map[string]any{"name": name, "permits": permits}
	for _, o := range opts {
		o.create(body)
	}
	return c.putSemaphore(ctx, calls.Call{Method: http.MethodPost, Path: []string{"v1", "semaphores"}, Body: body})
}

// Put creates a semaphore, which needs Permits, or changes the settings that the options name. More permits serve
// waiters at once. With fewer permits than leases hold, no lease ends, but no permit is granted until enough permits
// have come back. It blocks for one round trip; the change is durable on return.
func (c *Client) Put(ctx context.Context, name string, opts ...PutOption) (_ *Semaphore, created bool, err error) {
	if name == "" {
		return nil, false, errNoName
	}
	k, body := semaphoreCall(http.MethodPut, name), map[string]any{}
	for _, o := range opts {
		o.put(&k, body)
	}
	k.Body = body
	return c.putSemaphore(ctx, k)
}

func (c *Client) putSemaphore(ctx context.Context, k calls.Call) (*Semaphore, bool, error) {
	k.Key = calls.NewKey()
	s := new(Semaphore)
	r, err := c.calls.Read(ctx, k, s)
	if err != nil {
		return nil, false, err
	}
	return s, r.Status == http.StatusCreated, nil
}

// Get reads a semaphore with its holders and waiters. The state is current unless Stale is given. It fails with
// ErrUnknownSemaphore if the semaphore does not exist.
func (c *Client) Get(ctx context.Context, name string, opts ...ReadOption) (*Semaphore, error) {
	k := semaphoreCall(http.MethodGet, name)
	k.Query = queryOf(opts, ReadOption.read)
	s, _, err := c.getSemaphore(ctx, name, k)
	return s, err
}

func (c *Client) getSemaphore(ctx context.Context, name string, k calls.Call) (*Semaphore, calls.Reply, error) {
	if name == "" {
		return nil, calls.Reply{}, errNoName
	}
	s := new(Semaphore)
	r, err := c.calls.Read(ctx, k, s)
	if err != nil {
		return nil, r, err
	}
	return s, r, nil
}

func queryOf[Option any](opts []Option, set func(Option, url.Values)) url.Values {
	query := url.Values{}
	for _, o := range opts {
		set(o, query)
	}
	return query
}

// List yields the semaphores whose names begin with prefix, sorted by name. It reads a page at a time, and each page
// shows the moment of its reading. A semaphore that is created or deleted during the walk may be missed. An error is
// yielded last.
func (c *Client) List(ctx context.Context, prefix string, opts ...ListOption) iter.Seq2[*Semaphore, error] {
	query := queryOf(opts, ListOption.list)
	if prefix != "" {
		query.Set("prefix", prefix)
	}
	return reply.Pages(query, func(query url.Values) ([]*Semaphore, string, error) {
		var page struct {
			Semaphores []*Semaphore `json:"semaphores"`
			Next       string       `json:"next"`
		}
		_, err := c.calls.Read(ctx, calls.Call{Method: http.MethodGet, Path: []string{"v1", "semaphores"}, Query: query}, &page)
		return page.Semaphores, page.Next, err
	})
}

// Delete deletes a semaphore. Its leases end, and its waiters fail with ErrDeleted. It fails with ErrUnknownSemaphore
// if the semaphore does not exist.
func (c *Client) Delete(ctx context.Context, name string, opts ...CallOption) error {
	_, err := c.change(ctx, semaphoreCall(http.MethodDelete, name), opts)
	return err
}

// Up adds permits, and returns how many are available after waiters were served. It fails with ErrOverflow if the sum
// would exceed 64 bits.
func (c *Client) Up(ctx context.Context, name string, count int64, opts ...CallOption) (value int64, err error) {
	k := semaphoreCall(http.MethodPost, name, "up")
	k.Body, k.Operation = map[string]any{"count": count}, calls.Operation{Name: "up", Semaphore: name}
	return c.change(ctx, k, opts)
}

// SetValue sets the number of available permits, and returns how many are left after waiters were served.
func (c *Client) SetValue(ctx context.Context, name string, value int64, opts ...CallOption) (after int64, err error) {
	k := semaphoreCall(http.MethodPut, name, "value")
	k.Body, k.Operation = map[string]any{"value": value}, calls.Operation{Name: "set", Semaphore: name}
	return c.change(ctx, k, opts)
}

// change makes a call whose reply has a value or is empty.
func (c *Client) change(ctx context.Context, k calls.Call, opts []CallOption) (int64, error) {
	if k.Path[2] == "" {
		return 0, errNoName
	}
	for _, o := range opts {
		o.call(&k)
	}
	k.Key = calls.NewKey()
	r, err := c.calls.Do(ctx, k)
	if err != nil || r.Status == http.StatusNoContent {
		return 0, err
	}
	var body struct {
		Value *int64 `json:"value"`
	}
	if err := r.Decode(&body); err != nil {
		return 0, err
	}
	if body.Value == nil {
		return 0, errors.New("signalbox: a node's reply lacks the value")
	}
	return *body.Value, nil
}

// Taken is the result of a Down.
type Taken struct {
	Granted int64 `json:"granted"` // how many permits were taken; fewer than asked for only with Partial
	Value   int64 `json:"value"`   // how many permits were available right after
}

// Down takes permits without a lease, so only an Up brings them back. It waits in the same queue as all requests until
// it is granted or ctx ends. It takes the permits once, even if the call is repeated. A wait longer than
// Config.MaxWait starts again at the end of the queue. Like Session.Acquire, it may first send a try that does not
// wait, so its place dates from its second HTTP request.
//
// If ctx ends just as the permits are granted, Down returns them with a nil error, because otherwise they would be
// lost. If no permits were taken in time, it fails with ctx's error and ErrUnavailable; if no node could tell within 2
// s, with ErrOutcomeUnknown. The cluster's refusals end it at once.
func (c *Client) Down(ctx context.Context, name string, n int64, opts ...DownOption) (Taken, error) {
	return c.take(ctx, name, n, opts, false)
}

// TryDown is Down without waiting. It fails with ErrUnavailable if the permits (with Partial, any permit) are not
// available, or other requests wait for them.
func (c *Client) TryDown(ctx context.Context, name string, n int64, opts ...DownOption) (Taken, error) {
	return c.take(ctx, name, n, opts, true)
}

func (c *Client) take(ctx context.Context, name string, n int64, opts []DownOption, try bool) (taken Taken, err error) {
	if name == "" {
		return taken, errNoName
	}
	o := oneShot{call: semaphoreCall(http.MethodPost, name, "down"), body: map[string]any{"count": n}, try: try}
	o.call.Operation = calls.Operation{Name: "down", Semaphore: name}
	for _, option := range opts {
		option.down(&o)
	}
	o.empty = func(r *calls.Reply) bool { return r.Decode(&taken) == nil && taken.Granted == 0 }
	ctx, end, err := c.wait(ctx)
	if err != nil {
		return taken, err
	}
	defer end()
	r, err := c.once(ctx, &o)
	if err != nil && !gone(err) {
		late, settled := c.settle(ctx, &o)
		switch {
		case settled == nil && !o.empty(&late):
			r, err = late, nil
		case settled == nil, errors.Is(settled, ErrUnavailable):
			err = notInTime(ctx, err)
		case !errors.Is(err, ErrOutcomeUnknown):
			err = fmt.Errorf("%w (%w)", err, ErrOutcomeUnknown)
		}
	}
	if err == nil {
		err = r.Decode(&taken)
	}
	if err != nil {
		return Taken{}, fmt.Errorf("signalbox: down %s: %w", name, err)
	}
	return taken, nil
}

// Watch yields a semaphore now and again after each change of its permits, offset, leases or waiters. It yields the
// newest state, so it may leave out some of several quick changes. If a node fails, it goes on at another node. It
// ends with an error, for example ErrUnknownSemaphore once the semaphore is deleted, or when the loop breaks.
func (c *Client) Watch(ctx context.Context, name string, opts ...ReadOption) iter.Seq2[*Semaphore, error] {
	k := semaphoreCall(http.MethodGet, name)
	k.Query = queryOf(opts, ReadOption.read)
	return calls.Follow(ctx, k, func(k calls.Call) (*Semaphore, uint64, calls.Reply, error) {
		s, r, err := c.getSemaphore(ctx, name, k)
		if err != nil {
			return nil, 0, r, err
		}
		return s, s.ModifiedIndex, r, nil
	})
}
