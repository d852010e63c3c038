package reads

import (
	"encoding/base64"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// Flags are the 64 bits of an item that its clients use as they like.
type Flags uint64

// itemBody is an item, with its value in one of two members.
type itemBody struct {
	Name        string  `json:"name"`
	Value       *string `json:"value,omitempty"` // UTF-8
	ValueBase64 string  `json:"value_base64,omitempty"`
	Flags       Flags   `json:"flags"`
	Session     *string `json:"session"` // that holds it; empty: only admins see its id
	Locks       uint64  `json:"locks"`
	Created     uint64  `json:"created"`
	Version     uint64  `json:"version"`
	DelayMS     int64   `json:"delay_ms,omitempty"` // after which a session may acquire it
}

// FoundItemBody is an item, and the number after which to wait for its next change.
type FoundItemBody struct {
	itemBody
	Index uint64 `json:"index"`
}

// ItemsBody is a page of items, and the number after which to wait for the next change.
type ItemsBody struct {
	Items []itemBody `json:"items"`
	Next  *string    `json:"next"`
	Index uint64     `json:"index"`
}

func newItemBody(m *fsm.Machine, i *fsm.ItemView, nowMS int64, id *access.Identity) itemBody {
	body := itemBody{Name: i.Name, Flags: Flags(i.Flags), Locks: i.Locks, Created: i.Created, Version: i.Version, DelayMS: Left(i.DelayMS, nowMS)}
	if utf8.ValidString(i.Value) {
		body.Value = &i.Value
	} else {
		body.ValueBase64 = base64.StdEncoding.EncodeToString([]byte(i.Value))
	}
	if i.Session != 0 {
		shown := shownID(m, i.Session, id)
		body.Session = &shown
	}
	return body
}

func (api *API) getItem(c echo.Context, q exchange.Query) error {
	text, _ := exchange.PathParam(c, "name")
	name, err := exchange.ItemName("name", text)
	if err != nil {
		return err
	}
	if err := api.x.Rights.MayName(c, name); err != nil {
		return err
	}
	after, err := api.readSince(q)
	if err != nil {
		return err
	}
	if err := api.awaitItems(c, q, name, false, after); err != nil {
		return err
	}
	id := api.x.Rights.Caller(c)
	return api.sendView(c, q, func(m *fsm.Machine, nowMS int64) (any, error) {
		found, ok := m.Item(name)
		if !ok {
			return nil, noItem(name, m.ItemIndex(name))
		}
		return FoundItemBody{newItemBody(m, &found, nowMS, id), m.ItemIndex(name)}, nil
	})
}

func noItem(name string, index uint64) error {
	p := exchange.NewProblem("unknown-item", "No item has this name. Make it with PUT /v1/items/{name}, or wait for it with index and wait.")
	p.Item, p.Index = name, &index
	return p
}

// listItems shows a page of items. A list that waits for a change is allowed only if the caller may read every name
// below the prefix.
func (api *API) listItems(c echo.Context, q exchange.Query) error {
	prefix, limit, from, err := readNamePage(q)
	if err != nil {
		return err
	}
	after, err := api.readSince(q)
	if err != nil {
		return err
	}
	if after.blocks {
		if err := api.x.Rights.MayName(c, prefix); err != nil {
			return err
		}
	}
	if err := api.awaitItems(c, q, prefix, true, after); err != nil {
		return err
	}
	id := api.x.Rights.Caller(c)
	narrowed := id.Narrow(prefix)
	return api.sendView(c, q, func(m *fsm.Machine, nowMS int64) (any, error) {
		return pageOfItems(m, narrowed, from, limit, nowMS, id), nil
	})
}

// pageOfItems returns up to limit of the items below the prefixes whose names come after a name. It returns fewer if
// they have more than pageBytes. Its index is the number of the last change of any item, because to find the last change
// below the prefixes it would have to read all their items.
func pageOfItems(m *fsm.Machine, prefixes []string, after string, limit int, nowMS int64, id *access.Identity) ItemsBody {
	body, bytes := ItemsBody{Items: []itemBody{}, Index: m.ItemsIndex("")}, 0
	for _, prefix := range prefixes {
		for i := range m.ItemsAfter(prefix, after) {
			if len(body.Items) == limit || bytes > pageBytes {
				next := nameCursor(after)
				body.Next = &next
				return body
			}
			after = i.Name
			bytes += memberBytes + len(i.Name) + len(i.Value)
			body.Items = append(body.Items, newItemBody(m, &i, nowMS, id))
		}
	}
	return body
}

// awaitItems blocks until an item is changed or deleted after the change number in after, or the wait is over. The item
// has this name or, with below, its name begins with it. awaitItems returns at once if no change has this number yet, as
// after a restore. Then the caller reads the state, which is as recent as the query requires.
func (api *API) awaitItems(c echo.Context, q exchange.Query, name string, below bool, after since) error {
	if !after.blocks || after.wait == 0 {
		return nil
	}
	if _, err := api.x.Reads.Await(c, q); err != nil {
		return err
	}
	watch := api.x.Node.WatchItems(name, below)
	defer watch.Stop()
	changed := api.itemChanged
	if below {
		changed = api.itemsChanged
	}
	if changed(name, after.index) {
		return api.awaitTurn(c)
	}
	listen := func() (news <-chan struct{}, stop func()) { return watch.News(), func() {} }
	return api.waitFor(c, after.wait, listen, func() bool { return watch.Index() > after.index })
}

// itemChanged reports whether a waiting read must reply: the item changed after `after`, or `after` is above every
// change number that this state has given.
func (api *API) itemChanged(name string, after uint64) (changed bool) {
	api.x.Node.View(func(m *fsm.Machine) { changed = m.ItemIndex(name) > after || m.ItemsIndex("") < after })
	return changed
}

// itemsChanged is itemChanged for the items whose names begin with a prefix.
func (api *API) itemsChanged(prefix string, after uint64) (changed bool) {
	api.x.Node.View(func(m *fsm.Machine) { changed = m.ItemsIndex("") < after })
	return changed || exchange.ItemsChanged(api.x.Node, prefix, after)
}
