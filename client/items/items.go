package items

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/internal/calls"
	"github.com/signalbox/signalbox/client/internal/reply"
)

// The refusals of items, besides the refusals of package client. Compare with errors.Is.
var (
	ErrUnknownItem error = calls.Code("unknown-item")
	// ErrDiffers: the item is not in the state that the call requires. The Rule of the client.Error has the reason:
	// "version", "absent", "held", "delay" or "not-holder".
	ErrDiffers error = calls.Code("item-differs")
)

// Item is an item as of one reply. It belongs to the caller.
type Item struct {
	Name    string
	Value   []byte        // up to 512 KiB
	Flags   uint64        // for the use of the clients
	Held    bool          // by a session
	Session string        // id of the session that holds it; "" also if the caller may not see the id
	Locks   uint64        // how many times the item went from no holder to a session
	Created uint64        // log index of the change that created it
	Version uint64        // log index of its last change; 0: there is no such item
	Index   uint64        // index of the state that the reply shows
	Delay   time.Duration // how long no session may acquire it yet
}

// wire is an item in JSON. A value that is not UTF-8 is in base64.
type wire struct {
	Name    string  `json:"name"`
	Text    *string `json:"value,omitempty"`
	Base64  []byte  `json:"value_base64,omitempty"`
	Flags   uint64  `json:"flags"`
	Session *string `json:"session"`
	Locks   uint64  `json:"locks"`
	Created uint64  `json:"created"`
	Version uint64  `json:"version"`
	Index   uint64  `json:"index"`
	DelayMS int64   `json:"delay_ms,omitempty"`
}

// UnmarshalJSON reads an item as the API sends it.
func (i *Item) UnmarshalJSON(data []byte) error {
	var w wire
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*i = Item{Name: w.Name, Value: w.Base64, Flags: w.Flags, Held: w.Session != nil, Locks: w.Locks, Created: w.Created, Version: w.Version,
		Index: w.Index, Delay: time.Duration(w.DelayMS) * time.Millisecond}
	if w.Text != nil {
		i.Value = []byte(*w.Text)
	}
	if i.Held {
		i.Session = *w.Session
	}
	return nil
}

// MarshalJSON writes an item with the API's members, and its value as text or base64, as the API does.
func (i Item) MarshalJSON() ([]byte, error) {
	w := wire{Name: i.Name, Flags: i.Flags, Locks: i.Locks, Created: i.Created, Version: i.Version, Index: i.Index, DelayMS: i.Delay.Milliseconds()}
	if i.Held {
		w.Session = &i.Session
	}
	if text := string(i.Value); utf8.ValidString(text) {
		w.Text = &text
	} else {
		w.Base64 = i.Value
	}
	return json.Marshal(w)
}

// Change is the outcome of a change of an item.
type Change struct {
	Version uint64 `json:"version"`
	Locks   uint64 `json:"locks"`
	Created bool   `json:"created"` // this change created the item
}

// Items sends its calls through a Client, with the Client's errors, time-outs and Close. All its methods are safe for
// concurrent use.
type Items struct {
	client *client.Client
	calls  *calls.Caller
}

// New returns an Items. It sends no request, and needs no Close.
func New(c *client.Client) *Items { return &Items{c, c.Calls()} }

// Option changes one call. The doc comment of each method names the options that it takes; other options are ignored
// or refused.
type Option func(query url.Values, body map[string]any)

// IfVersion makes a Put or Delete fail with ErrDiffers, without effect, unless the item has version n. A Put with
// IfVersion(0) only creates an item: it fails if the item exists.
func IfVersion(n uint64) Option {
	return func(query url.Values, body map[string]any) {
		if body != nil {
			body["if_version"] = n
		} else {
			query.Set("if_version", strconv.FormatUint(n, 10))
		}
	}
}

// Flags gives an item flags in Put, Acquire and Release; without it they are 0.
func Flags(n uint64) Option {
	return func(_ url.Values, body map[string]any) {
		if body != nil {
			body["flags"] = n
		}
	}
}

// call returns a call to the route of an item. If name is "", it is the route of the list.
func call(method, name string) calls.Call {
	k := calls.Call{Method: method, Path: []string{"v1", "items"}, Query: url.Values{}}
	if name != "" {
		k.Path = append(k.Path, name)
	}
	return k
}

// errNoName refuses an empty name before anything is sent, because call would take it for the list.
var errNoName = &client.Error{Status: http.StatusBadRequest, Code: "invalid-request", Title: "The request is not valid",
	Detail: "An item's name has 1 to 512 bytes.", Field: "name"}

// Get reads an item. It fails with ErrUnknownItem if the item does not exist.
func (i *Items) Get(ctx context.Context, name string) (*Item, error) {
	if name == "" {
		return nil, errNoName
	}
	item := new(Item)
	if _, err := i.calls.Read(ctx, call(http.MethodGet, name), item); err != nil {
		return nil, err
	}
	return item, nil
}

// List yields the items whose names begin with prefix, sorted by name. It reads a page at a time. Each page shows the
// state at the time when it was read, so items of two pages may be of different states. An error is yielded last.
func (i *Items) List(ctx context.Context, prefix string) iter.Seq2[*Item, error] {
	k, query := call(http.MethodGet, ""), url.Values{}
	if prefix != "" {
		query.Set("prefix", prefix)
	}
	return reply.Pages(query, func(query url.Values) ([]*Item, string, error) {
		var page struct {
			Items []*Item `json:"items"`
			Next  string  `json:"next"`
			Index uint64  `json:"index"`
		}
		k.Query = query
		_, err := i.calls.Read(ctx, k, &page)
		for _, item := range page.Items {
			item.Index = page.Index
		}
		return page.Items, page.Next, err
	})
}

// Watch yields an item at once, and yields it again after each change. It always yields the newest state: if the item
// changes twice before the loop asks again, the first of the two states is left out. If the item does not exist, Watch
// yields an item of version 0. It ends with an error, for example ctx's error, or when the loop breaks.
func (i *Items) Watch(ctx context.Context, name string) iter.Seq2[*Item, error] {
	return calls.Follow(ctx, call(http.MethodGet, name), func(k calls.Call) (*Item, uint64, calls.Reply, error) {
		item, r, err := i.readOrAbsent(ctx, name, k)
		if err != nil {
			return nil, 0, r, err
		}
		return item, item.Index, r, nil
	})
}

// readOrAbsent reads an item, and returns an item of version 0 if it does not exist.
func (i *Items) readOrAbsent(ctx context.Context, name string, k calls.Call) (*Item, calls.Reply, error) {
	if name == "" {
		return nil, calls.Reply{}, errNoName
	}
	item := new(Item)
	r, err := i.calls.Read(ctx, k, item)
	if !errors.Is(err, ErrUnknownItem) {
		return item, r, err
	}
	*item = Item{Name: name}
	var refusal *client.Error
	if errors.As(err, &refusal) {
		_ = json.Unmarshal(refusal.Members["index"], &item.Index) // 0 if the node does not send it
	}
	return item, r, nil
}

// Put gives an item a value, and creates the item if it does not exist. If a session holds the item, the session still
// holds it afterwards. Put blocks for one round trip; the change is durable on return. Its options are IfVersion and
// Flags.
func (i *Items) Put(ctx context.Context, name string, value []byte, opts ...Option) (Change, error) {
	return i.put(ctx, name, value, map[string]any{}, opts)
}

// Acquire makes a session hold an item, and gives the item a value. It creates the item if it does not exist. It does
// not wait for the item: it fails with ErrDiffers if another session holds it, or if its Delay is not over. Acquire
// blocks for one round trip; the change is durable on return. Its option is Flags.
func (i *Items) Acquire(ctx context.Context, session, name string, value []byte, opts ...Option) (Change, error) {
	return i.put(ctx, name, value, map[string]any{"session": session}, opts)
}

// Release ends a session's hold of an item, and gives the item a value. It fails with ErrDiffers if the session does
// not hold the item. It blocks for one round trip; the change is durable on return. Its option is Flags.
func (i *Items) Release(ctx context.Context, session, name string, value []byte, opts ...Option) (Change, error) {
	return i.put(ctx, name, value, map[string]any{"session": session, "release": true}, opts)
}

func (i *Items) put(ctx context.Context, name string, value []byte, body map[string]any, opts []Option) (done Change, err error) {
	if name == "" {
		return done, errNoName
	}
	if len(value) <= maxText && utf8.Valid(value) {
		body["value"] = string(value)
	} else {
		body["value_base64"] = base64.StdEncoding.EncodeToString(value)
	}
	k := call(http.MethodPut, name)
	for _, o := range opts {
		o(k.Query, body)
	}
	k.Body, k.Key = body, calls.NewKey()
	_, err = i.calls.Read(ctx, k, &done)
	return done, err
}

// Delete removes an item, even if a session holds it. If the item does not exist, it succeeds. It blocks for one round
// trip; the change is durable on return. Its option is IfVersion.
func (i *Items) Delete(ctx context.Context, name string, opts ...Option) error {
	if name == "" {
		return errNoName
	}
	k := call(http.MethodDelete, name)
	for _, o := range opts {
		o(k.Query, nil)
	}
	k.Key = calls.NewKey()
	_, err := i.calls.Do(ctx, k)
	return err
}

// maxText is the largest size, in bytes, of a value that is sent as text; a larger value is sent as base64. In JSON, a
// byte of text may take six bytes ("\u0000"), while a byte in base64 takes 4/3 bytes. A node accepts a body of 1 MiB.
const maxText = 128 << 10
