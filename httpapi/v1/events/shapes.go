package events

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// The JSON shapes of events.

// eventBody has the members of all events. It has semaphore, group, item and session only if the event concerns one.
type eventBody struct {
	Index         uint64 `json:"index"`
	ClusterTimeMS int64  `json:"cluster_time_ms"`
	Semaphore     string `json:"semaphore,omitempty"`
	Group         string `json:"group,omitempty"`
	Epoch         uint64 `json:"epoch,omitempty"`
	Item          string `json:"item,omitempty"`
	Session       string `json:"session,omitempty"`
}

type semaphoreEvent struct {
	eventBody
	Permits  *int64         `json:"permits"` // null: limits of its groups alone
	Offset   int64          `json:"offset"`
	Level    *int32         `json:"level"`
	Metadata exchange.Pairs `json:"metadata"`
	exchange.SettingsBody
}

// groupEvent is the limit of a group that was set for this group alone, or null.
type groupEvent struct {
	eventBody
	Limit *int64 `json:"limit"`
}

type grantedEvent struct {
	eventBody
	Place   uint64 `json:"place,omitempty"` // of the request, where one waited
	Token   uint64 `json:"token,omitempty"`
	Count   int64  `json:"count"`
	Unowned bool   `json:"unowned,omitempty"`
	returnsBody
}

// returnsBody has the slots of permits, and the time until they come back if no lease holds them any more.
type returnsBody struct {
	Slots       exchange.Slots `json:"slots,omitempty"`
	ReturnsInMS *int64         `json:"returns_in_ms,omitempty"`
}

// lostEvent has the permits of a lease that was lost.
type lostEvent struct {
	eventBody
	Token    uint64         `json:"token"`
	Count    int64          `json:"count"`
	Slots    exchange.Slots `json:"slots,omitempty"`
	BackInMS *int64         `json:"back_in_ms"` // null: when somebody frees it
}

type freedEvent struct {
	eventBody
	Token  uint64         `json:"token"`
	Count  int64          `json:"count"`
	Slots  exchange.Slots `json:"slots,omitempty"`
	Reason string         `json:"reason,omitempty"`
}

type settledEvent struct {
	eventBody
	Token       uint64 `json:"token"`
	Count       int64  `json:"count"`
	ReturnsInMS *int64 `json:"returns_in_ms"`
}

// returnedEvent tells of permits that came back.
type returnedEvent struct {
	eventBody
	Count int64          `json:"count"`
	Slots exchange.Slots `json:"slots,omitempty"`
}

type releasedEvent struct {
	eventBody
	Token  uint64 `json:"token"`
	Count  int64  `json:"count"`
	Cause  string `json:"cause"`
	Reason string `json:"reason,omitempty"`
	returnsBody
}

type waitingEvent struct {
	eventBody
	Place   uint64 `json:"place"`
	Count   int64  `json:"count"`
	Mode    string `json:"mode"`
	Unowned bool   `json:"unowned,omitempty"`
	Partial bool   `json:"partial,omitempty"`
	Listed  bool   `json:"listed,omitempty"` // on its session's wait list
}

type withdrawnEvent struct {
	eventBody
	Place uint64 `json:"place"`
	Count int64  `json:"count"`
	Cause string `json:"cause"`
}

type openedEvent struct {
	eventBody
	TTLMS       int64          `json:"ttl_ms"`
	ExpiresInMS int64          `json:"expires_in_ms"`
	OneShot     bool           `json:"one_shot"`
	Metadata    exchange.Pairs `json:"metadata"`
}

type renewedEvent struct {
	eventBody
	TTLMS       int64 `json:"ttl_ms"`
	ExpiresInMS int64 `json:"expires_in_ms"`
}

type endedEvent struct {
	eventBody
	Cause  string `json:"cause"`
	Reason string `json:"reason,omitempty"`
}

type listEvent struct {
	eventBody
	Token   uint64 `json:"token,omitempty"`
	Count   int64  `json:"count,omitempty"`
	Deleted bool   `json:"deleted,omitempty"` // the semaphore
	Cause   string `json:"cause,omitempty"`   // of an end without a grant
}

// itemEvent is a change or a delete of an item, by its number. A client reads the value by the name.
type itemEvent struct {
	eventBody
	Version uint64 `json:"version"`
	Cause   string `json:"cause,omitempty"`
}

// newEvent returns an event's name and body; "" for an effect that clients don't see.
func newEvent(entry *replica.EventEntry, e *fsm.Effect) (name string, body any) {
	with := e.DetailsOrZero()
	event := eventBody{Index: entry.Index, ClusterTimeMS: entry.NowMS, Semaphore: e.Semaphore, Group: with.Group, Epoch: e.Epoch, Item: e.Item}
	if e.Session != 0 {
		event.Session = exchange.FormatSession(e.Session)
	}
	name = e.Kind.String()
	expires := max(0, e.DeadlineMS-entry.NowMS)
	switch e.Kind {
	case fsm.EffectCreated, fsm.EffectChanged:
		return name, newSemaphoreEvent(event, e)
	case fsm.EffectGroupChanged:
		return name, groupEvent{event, exchange.LimitOf(with.Limit)}
	case fsm.EffectDeleted:
		return name, event
	case fsm.EffectGranted:
		return name, grantedEvent{event, e.Place, e.Token, e.Count, e.Unowned, returnsBody{with.Slots, comesBack(with.DueMS, entry.NowMS)}}
	case fsm.EffectReleased:
		switch e.Cause {
		case fsm.CauseExpired, fsm.CauseRevoked:
			name = e.Cause.String()
		case fsm.CauseMaxHold:
			name = fsm.CauseRevoked.String()
		}
		return name, releasedEvent{event, e.Token, e.Count, e.Cause.String(), with.Reason, returnsBody{with.Slots, comesBack(with.DueMS, entry.NowMS)}}
	case fsm.EffectLost:
		return name, lostEvent{event, e.Token, e.Count, with.Slots, comesBack(with.DueMS, entry.NowMS)}
	case fsm.EffectFreed:
		return name, freedEvent{event, e.Token, e.Count, with.Slots, with.Reason}
	case fsm.EffectSettled:
		return name, settledEvent{event, e.Token, e.Count, comesBack(with.DueMS, entry.NowMS)}
	case fsm.EffectReturned:
		return name, returnedEvent{event, e.Count, with.Slots}
	case fsm.EffectWaiting:
		return name, waitingEvent{event, e.Place, e.Count, exchange.ModeName(e.Mode), e.Unowned, e.Partial, e.Listed}
	case fsm.EffectWithdrawn:
		return name, withdrawnEvent{event, e.Place, e.Count, e.Cause.String()}
	case fsm.EffectSessionOpen:
		return name, openedEvent{event, e.TTLMS, expires, e.OneShot, with.Metadata}
	case fsm.EffectSessionRenewed:
		return name, renewedEvent{event, e.TTLMS, expires}
	case fsm.EffectSessionEnded:
		return name, endedEvent{event, e.Cause.String(), with.Reason}
	case fsm.EffectListReady, fsm.EffectListLeft:
		return name, listEvent{event, e.Token, e.Count, e.Cause == fsm.CauseDeleted, e.Cause.String()}
	case fsm.EffectItemChanged, fsm.EffectItemDeleted:
		return name, itemEvent{event, e.Version, e.Cause.String()}
	}
	return "", nil
}

// comesBack returns the time until permits come back, or nil if they are back at once or come back only by a call.
func comesBack(dueMS, nowMS int64) *int64 {
	if dueMS == 0 || dueMS == fsm.NeverMS {
		return nil
	}
	left := max(0, dueMS-nowMS)
	return &left
}

func newSemaphoreEvent(event eventBody, e *fsm.Effect) semaphoreEvent {
	var none fsm.Settings
	with := e.DetailsOrZero()
	settings := cmp.Or(with.Settings, &none)
	return semaphoreEvent{event, exchange.NumberOf(settings, with.Permits), with.Offset, with.Level, with.Metadata, exchange.NewSettingsBody(settings)}
}

// encode returns an event as a server-sent event, or nil for an effect that clients don't see. The JSON is on one line,
// as the format requires.
func encode(entry *replica.EventEntry, ordinal int, e *fsm.Effect) []byte {
	name, body := newEvent(entry, e)
	if name == "" {
		return nil
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "id: %d.%d\nevent: %s\ndata: ", entry.Index, ordinal, name)
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(body) // these shapes can always be encoded; it ends the line
	out.WriteByte('\n')
	return out.Bytes()
}
