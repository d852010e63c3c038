package operator

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox/signalbox/client/internal/calls"
	"github.com/signalbox/signalbox/client/internal/reply"
)

// Event is one change of the state, the same on every node. docs/api-events.md lists the members of each kind. It
// belongs to the caller.
type Event struct {
	ID   string `json:"-"` // "index.ordinal", for Since
	Kind string `json:"-"` // "granted", "released", "session-ended", …

	Index       uint64        `json:"index"`
	ClusterTime time.Duration `json:"-"`
	Semaphore   string        `json:"semaphore"`
	Group       string        `json:"group"`
	Item        string        `json:"item"`
	Version     uint64        `json:"version"` // version of the item
	Epoch       uint64        `json:"epoch"`
	Session     string        `json:"session"`

	Place    uint64            `json:"place"`
	Token    uint64            `json:"token"`
	Count    int64             `json:"count"`
	Cause    string            `json:"cause"`
	Reason   string            `json:"reason"`
	Mode     string            `json:"mode"`
	Unowned  bool              `json:"unowned"`
	Partial  bool              `json:"partial"`
	Listed   bool              `json:"listed"`
	Deleted  bool              `json:"deleted"`
	OneShot  bool              `json:"one_shot"`
	Permits  int64             `json:"permits"`
	NoTotal  bool              `json:"-"` // permits are null in JSON
	Offset   int64             `json:"offset"`
	Level    *int32            `json:"level"`
	Metadata map[string]string `json:"metadata"`
	Paused   string            `json:"paused"`
	Limit    *int64            `json:"limit"` // own limit of the group

	TTL       time.Duration `json:"-"`
	ExpiresIn time.Duration `json:"-"`

	Data json.RawMessage `json:"-"` // all members, as the node sent them
}

// ErrHistoryGone is the refusal of events that a node no longer has. Compare with errors.Is.
var ErrHistoryGone error = calls.Code("history-gone")

// EventOption selects events: Since or Last, OfSemaphore, OfPrefix, OfGroup, OfSession, WithoutRenewals. An event must
// match one of the OfSemaphore and OfPrefix options if there are any; it must also match OfGroup and OfSession if they
// are given.
type EventOption func(url.Values)

// Since makes Events begin after the event with this id, or after all events of a log index. Without it Events begins
// with the next event.
func Since(id string) EventOption { return func(q url.Values) { q.Set("since", id) } }

// Last makes Events begin with the last n events that match the other options, 1 to 1,000. The node may have kept
// fewer. It can't be used with Since.
func Last(n int) EventOption { return func(q url.Values) { q.Set("last", strconv.Itoa(n)) } }

// WithoutRenewals leaves out the renewals of sessions.
func WithoutRenewals() EventOption { return func(q url.Values) { q.Set("renewals", "false") } }

// OfSemaphore selects the events of one semaphore or item.
func OfSemaphore(name string) EventOption { return func(q url.Values) { q.Add("name", name) } }

// OfPrefix selects the events of semaphores whose names begin with prefix.
func OfPrefix(prefix string) EventOption { return func(q url.Values) { q.Add("prefix", prefix) } }

// OfSession selects the events of one session. For a session that has ended, Events fails with
// client.ErrUnknownSession unless Since or Last is given.
func OfSession(id string) EventOption { return func(q url.Values) { q.Add("session", id) } }

// eventsIdleTimeout is how long a stream may bring no byte before it fails. Nodes send some every 15 s.
const eventsIdleTimeout = 40 * time.Second

// Events yields the events from now on, or as Since or Last say, until ctx ends or the loop breaks. If a node fails,
// Events goes on at another node, and yields every event once. An error is yielded last, for example ErrHistoryGone if
// the nodes no longer have the next event, so that the caller has to read the state again.
func (o *Operator) Events(ctx context.Context, opts ...EventOption) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		query := url.Values{}
		for _, option := range opts {
			option(query)
		}
		for empty := 0; ; {
			s, err := calls.Open(ctx, o.calls, []string{"v1", "events"}, query, eventsIdleTimeout)
			if err != nil {
				yield(nil, err)
				return
			}
			if query.Get("since") == "" && !query.Has("last") && s.Index > 0 {
				query.Set("since", strconv.FormatUint(s.Index, 10))
			}
			before := query.Get("since")
			going, err := readEvents(s, query, yield)
			_ = s.Close() // the next stream goes on after the last event of this one
			if err != nil || !going {
				if err != nil {
					yield(nil, err)
				}
				return
			}
			if empty++; query.Get("since") != before {
				empty = 1
			}
			if calls.Sleep(ctx, calls.BackOff(empty)) != nil {
				yield(nil, context.Cause(ctx))
				return
			}
		}
	}
}

// readEvents yields the events of one stream, and keeps the last id in query. It reports whether to open another
// stream.
func readEvents(s io.Reader, query url.Values, yield func(*Event, error) bool) (going bool, err error) {
	lines := bufio.NewReader(s)
	var id, kind, data string
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return true, nil // the next stream sends the incomplete event again
		}
		field, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			id = value
		case "event":
			kind = value
		case "data":
			data = value
		}
		if strings.TrimRight(line, "\r\n") != "" {
			continue
		}
		if id != "" {
			query.Set("since", id)
			query.Del("last")
		}
		if data != "" {
			e := &Event{ID: id, Kind: kind, Data: json.RawMessage(data)}
			if err := json.Unmarshal(e.Data, e); err != nil {
				return false, fmt.Errorf("signalbox: the event %s can't be read: %w", id, err)
			}
			if !yield(e, nil) {
				return false, nil
			}
		}
		kind, data = "", ""
	}
}

// UnmarshalJSON reads an event's data as the API sends it.
func (e *Event) UnmarshalJSON(data []byte) error {
	type plain Event
	var total struct{ Permits json.RawMessage }
	if err := json.Unmarshal(data, &total); err != nil {
		return err
	}
	e.NoTotal = string(total.Permits) == "null"
	return reply.ReadTimes(data, (*plain)(e), reply.Times{"cluster_time_ms": &e.ClusterTime, "ttl_ms": &e.TTL, "expires_in_ms": &e.ExpiresIn})
}
