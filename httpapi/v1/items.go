package v1

import (
	"encoding/base64"
	"strings"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/strictjson"
	"github.com/signalbox/signalbox/httpapi/v1/reads"
)

// itemBodyBytes bounds the body of a change of an item, which has a value of up to 512 KiB in base64.
const itemBodyBytes = 1 << 20

const (
	fieldBytes = fieldValue | fieldBase64 // the two forms of an item's value
	fieldTerms = fieldAbout | fieldOnEndItems | fieldItemDelay
)

// opItem is the route that puts, acquires or releases an item. In a batch these are three operations.
var opItem = operation{
	path:  fieldItem,
	body:  fieldBytes | fieldFlags | fieldIfVersion | fieldSession | fieldRelease,
	large: true,
}

// itemOperation returns the operation that the body of a request to opItem selects.
func itemOperation(p *params) (*operation, error) {
	hasSession := p.present.has(fieldSession)
	switch {
	case p.release && !hasSession:
		return nil, exchange.Invalid("session", "A release names the session that holds the item.")
	case hasSession && p.present.has(fieldIfVersion):
		return nil, exchange.Invalid("if_version", "Give if_version or session, not both: with a session, the change depends on whether the session holds the item.")
	case p.release:
		return &opItemRelease, nil
	case hasSession:
		return &opItemAcquire, nil
	}
	return &opItemPut, nil
}

var opItemPut = operation{
	name: "item-put",
	path: fieldItem,
	body: fieldBytes | fieldFlags | fieldIfVersion,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.ItemPut{Name: p.item, Value: p.bytes, Flags: p.flags, Version: ifVersion(p)}
	},
	response: itemResponse,
}

var opItemAcquire = operation{
	name:    "item-acquire",
	path:    fieldItem | fieldSession,
	body:    fieldBytes | fieldFlags,
	expires: true,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.ItemAcquire{Name: p.item, Value: p.bytes, Flags: p.flags, Session: p.session}
	},
	response: func(p *params, r *calls.Reply) response {
		resp := itemResponse(p, r)
		expires := reads.Left(r.DeadlineMS, r.NowMS)
		resp.body = changedItemBody{changedItem(p, r), exchange.FormatSession(r.Session), &expires}
		return resp
	},
}

var opItemRelease = operation{
	name: "item-release",
	path: fieldItem | fieldSession,
	body: fieldBytes | fieldFlags,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.ItemRelease{Name: p.item, Value: p.bytes, Flags: p.flags, Session: p.session}
	},
	response: itemResponse,
}

var opItemDelete = operation{
	name:  "item-delete",
	path:  fieldItem,
	query: fieldIfVersion,
	command: func(p *params, _ exchange.Commands) fsm.Command {
		return fsm.ItemDelete{Name: p.item, Version: ifVersion(p)}
	},
	response: noContent,
}

func ifVersion(p *params) fsm.Change[uint64] {
	return fsm.Change[uint64]{Given: p.present.has(fieldIfVersion), Value: uint64(p.ifVersion)}
}

// itemChange has the members of the reply to every change of an item.
type itemChange struct {
	Name    string `json:"name"`
	Version uint64 `json:"version"`
	Locks   uint64 `json:"locks"`
	Created bool   `json:"created"` // this request created the item
}

// changedItemBody is the reply to a change of an item. After an acquire it has the session too.
type changedItemBody struct {
	itemChange
	Session     string `json:"session,omitempty"`
	ExpiresInMS *int64 `json:"expires_in_ms,omitempty"`
}

func changedItem(p *params, r *calls.Reply) itemChange {
	return itemChange{Name: p.item, Version: r.Version, Locks: r.Locks, Created: r.Created}
}

func itemResponse(p *params, r *calls.Reply) response {
	body := changedItemBody{itemChange: changedItem(p, r)}
	if r.Created {
		return created(body, exchange.ItemPath(p.item))
	}
	return ok(body)
}

func checkNumber(p *params) error {
	if p.textual {
		return exchange.Invalid("value", naturalForm)
	}
	return nil
}

// checkBytes checks the value of an item, which is a text or base64.
func checkBytes(p *params) error {
	switch {
	case p.present&fieldBytes == 0:
		return exchange.Invalid("value", "An item needs a value, as a text, or value_base64.")
	case p.present.has(fieldBytes):
		return exchange.Invalid("value_base64", "Give value or value_base64, not both.")
	case p.present.has(fieldValue) && !p.textual:
		return exchange.Invalid("value", "The value of an item is a text. Other bytes go into value_base64.")
	case len(p.bytes) > fsm.MaxValueBytes:
		return exchange.Invalid("value", "The value of an item has up to 524,288 bytes.")
	}
	return nil
}

// checkTerms refuses a session that has terms for its items together with metadata or on_end.
func checkTerms(p *params) error {
	if p.present&fieldTerms != 0 && p.present&(fieldMetadata|fieldOnEnd) != 0 {
		return exchange.Invalid(firstName(p.present&fieldTerms), "A session with about, on_end_items or item_delay takes neither metadata nor on_end.")
	}
	return nil
}

func readItem(p *params, name string, v strictjson.Value) (err error) {
	text, _ := v.Text() // "" for other JSON values, which is not a valid name
	p.item, err = exchange.ItemName(name, text)
	return err
}

// readValue reads a value: the number of a semaphore or the text of an item. In a batch the operation may not be known
// yet, so checkNumber and checkBytes check the type later.
func readValue(p *params, name string, v strictjson.Value) error {
	if p.bytes, p.textual = v.Text(); p.textual {
		return nil
	}
	if v.IsNull() {
		return exchange.Invalid(name, "This is null, where a value is needed.")
	}
	return readNatural(func(p *params) *int64 { return &p.value })(p, name, v)
}

func readBase64(p *params, name string, v strictjson.Value) error {
	text, ok := v.Text()
	data, err := base64.StdEncoding.Strict().DecodeString(text)
	if !ok || err != nil || strings.ContainsAny(text, "\r\n") {
		return exchange.Invalid(name, "This is not base64, padded, in the alphabet with + and /.")
	}
	p.bytes = string(data)
	return nil
}

func readFlags(p *params, name string, v strictjson.Value) error {
	var ok bool
	if p.flags, ok = exchange.ParseDigits(string(v)); !ok {
		return exchange.Invalid(name, "Flags are a whole number from 0 to 18446744073709551615.")
	}
	return nil
}

func readAbout(p *params, name string, v strictjson.Value) error {
	var ok bool
	if p.about, ok = v.Text(); !ok || len(p.about) > fsm.MaxAboutBytes {
		return exchange.Invalid(name, "An about is a text of up to 8,192 bytes.")
	}
	return nil
}

func readItemDelay(p *params, name string, v strictjson.Value) error {
	ms, ok := exchange.JSONDuration(v, fsm.MaxItemDelayMS)
	if !ok {
		return exchange.Invalid(name, "An item_delay is "+exchange.DurationForm+", from 0 to 1m.")
	}
	p.itemDelayMS = ms
	return nil
}
