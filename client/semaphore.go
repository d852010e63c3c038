package client

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
)

// Semaphore is a semaphore as a node told it. It belongs to the caller.
type Semaphore struct {
	Name      string            `json:"name"`
	Permits   int64             `json:"permits"`   // the declared capacity
	Offset    int64             `json:"offset"`    // moved by Up, Down and SetValue
	Held      int64             `json:"held"`      // by leases
	Available int64             `json:"available"` // Permits + Offset - Held
	Level     *int32            `json:"level"`     // nil: none
	Metadata  map[string]string `json:"metadata"`
	// Epoch tells this semaphore from earlier and later ones of the same name.
	Epoch uint64 `json:"epoch"`
	// ModifiedIndex rises with every change of permits, offset, leases or waiters.
	ModifiedIndex uint64 `json:"modified_index"`
	// Holders and Waiters are the first of each, see the options of the same names;
	// List leaves them out. The counts are of all.
	Holders     []Holder `json:"holders"`
	Waiters     []Waiter `json:"waiters"`
	HolderCount int64    `json:"holder_count"`
	WaiterCount int64    `json:"waiter_count"`
}

// Holder is one lease of a semaphore.
type Holder struct {
	Session     string            `json:"session"`
	Count       int64             `json:"count"`
	Token       uint64            `json:"token"`
	HeldMS      int64             `json:"held_ms"`
	ExpiresInMS int64             `json:"expires_in_ms"`
	Metadata    map[string]string `json:"metadata"` // the session's
}

// Waiter is one waiting request of a semaphore.
type Waiter struct {
	Session     string            `json:"session"`
	Count       int64             `json:"count"`
	Position    int64             `json:"position"` // from 1, the next one
	WaitingMS   int64             `json:"waiting_ms"`
	ExpiresInMS int64             `json:"expires_in_ms"` // the session
	Metadata    map[string]string `json:"metadata"`      // the session's
	// BlockedBy is why it waits, as a code: "not-enough-available", "behind-others" or
	// "other-semaphore". Reason says it to people.
	BlockedBy string `json:"blocked_by"`
	Reason    string `json:"reason"`
	// Obstacles are the first of the lines in which it can't be served now, of all that
	// it wants. ObstacleCount is of all.
	Obstacles     []Obstacle `json:"obstacles"`
	ObstacleCount int64      `json:"obstacle_count"`
	// Unowned waiters take permits that nobody owns: a Down, or a wait list's entry.
	Unowned bool `json:"unowned"`
}

// Obstacle is one line in which a waiter can't be served now.
type Obstacle struct {
	Semaphore string `json:"semaphore"`
	BlockedBy string `json:"blocked_by"` // as of a Waiter
	Needs     int64  `json:"needs"`
	Available int64  `json:"available"`
}

// errNoName is the refusal of an empty name, which would make another path.
var errNoName = &Error{Status: http.StatusBadRequest, Code: "invalid-request", Title: "The request is not valid",
	Detail: "A semaphore's name has 1 to 512 bytes.", Field: "name"}

// semaphoreCall is a call to a route of one semaphore.
func semaphoreCall(method, name string, more ...string) call {
	return call{method: method, path: append([]string{"v1", "semaphores", name}, more...)}
}

// Create makes a semaphore, or answers the one there is, unchanged: created tells
// which. It blocks for one round trip; the semaphore is durable on return.
func (c *Client) Create(ctx context.Context, name string, permits int64, opts ...CreateOption) (_ *Semaphore, created bool, err error) {
	body := map[string]any{"name": name, "permits": permits}
	for _, o := range opts {
		o.create(body)
	}
	return c.putSemaphore(ctx, call{method: http.MethodPost, path: []string{"v1", "semaphores"}, body: body})
}

// Put creates a semaphore, for which Permits is needed, or changes what the options
// name and leaves the rest. More permits serve waiters at once; fewer than are held
// take nothing away, but nothing is granted until enough came back. It blocks for
// one round trip; the change is durable on return.
func (c *Client) Put(ctx context.Context, name string, opts ...PutOption) (_ *Semaphore, created bool, err error) {
	if name == "" {
		return nil, false, errNoName
	}
	k, body := semaphoreCall(http.MethodPut, name), map[string]any{}
	for _, o := range opts {
		o.put(&k, body)
	}
	k.body = body
	return c.putSemaphore(ctx, k)
}

func (c *Client) putSemaphore(ctx context.Context, k call) (*Semaphore, bool, error) {
	k.key = newKey()
	r, err := c.do(ctx, k)
	if err != nil {
		return nil, false, err
	}
	s := new(Semaphore)
	if err := r.decode(s); err != nil {
		return nil, false, err
	}
	return s, r.status == http.StatusCreated, nil
}

// Get reads a semaphore with its holders and waiters: as of now, unless the options
// allow less. ErrUnknownSemaphore if there is none.
func (c *Client) Get(ctx context.Context, name string, opts ...ReadOption) (*Semaphore, error) {
	k := semaphoreCall(http.MethodGet, name)
	k.query = readQuery(opts)
	s, _, err := c.getSemaphore(ctx, name, k)
	return s, err
}

func (c *Client) getSemaphore(ctx context.Context, name string, k call) (*Semaphore, reply, error) {
	if name == "" {
		return nil, reply{}, errNoName
	}
	r, err := c.do(ctx, k)
	if err != nil {
		return nil, r, err
	}
	s := new(Semaphore)
	return s, r, r.decode(s)
}

func readQuery(opts []ReadOption) url.Values {
	query := url.Values{}
	for _, o := range opts {
		o.read(query)
	}
	return query
}

// List goes through the semaphores whose names begin with prefix, by name, a page at
// a time. Each page is as of the moment it is read; a semaphore made or deleted
// meanwhile may be missed. An error is the last thing it yields.
func (c *Client) List(ctx context.Context, prefix string, opts ...ListOption) iter.Seq2[*Semaphore, error] {
	return func(yield func(*Semaphore, error) bool) {
		query := url.Values{}
		for _, o := range opts {
			o.list(query)
		}
		if prefix != "" {
			query.Set("prefix", prefix)
		}
		for {
			var page struct {
				Semaphores []*Semaphore `json:"semaphores"`
				Next       string       `json:"next"`
			}
			r, err := c.do(ctx, call{method: http.MethodGet, path: []string{"v1", "semaphores"}, query: query})
			if err == nil {
				err = r.decode(&page)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for _, s := range page.Semaphores {
				if !yield(s, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			query.Set("cursor", page.Next)
		}
	}
}

// Delete deletes a semaphore: its leases are over, its waiters end with ErrDeleted.
// ErrUnknownSemaphore if there is none.
func (c *Client) Delete(ctx context.Context, name string, opts ...CallOption) error {
	_, err := c.change(ctx, semaphoreCall(http.MethodDelete, name), opts)
	return err
}

// Up adds permits that nobody owns, and answers how many are available after the
// grants that this caused. ErrOverflow if that left 64 bits.
func (c *Client) Up(ctx context.Context, name string, count int64, opts ...CallOption) (value int64, err error) {
	k := semaphoreCall(http.MethodPost, name, "up")
	k.body = map[string]any{"count": count}
	return c.change(ctx, k, opts)
}

// SetValue makes that many permits available, and answers how many are after the
// grants that this caused.
func (c *Client) SetValue(ctx context.Context, name string, value int64, opts ...CallOption) (after int64, err error) {
	k := semaphoreCall(http.MethodPut, name, "value")
	k.body = map[string]any{"value": value}
	return c.change(ctx, k, opts)
}

// change does what answers a value, or nothing.
func (c *Client) change(ctx context.Context, k call, opts []CallOption) (int64, error) {
	if k.path[2] == "" {
		return 0, errNoName
	}
	for _, o := range opts {
		o.call(&k)
	}
	k.key = newKey()
	r, err := c.do(ctx, k)
	if err != nil || r.status == http.StatusNoContent {
		return 0, err
	}
	var answer struct {
		Value *int64 `json:"value"`
	}
	if err := r.decode(&answer); err != nil {
		return 0, err
	}
	if answer.Value == nil {
		return 0, errors.New("signalbox: a node's reply lacks the value")
	}
	return *answer.Value, nil
}
