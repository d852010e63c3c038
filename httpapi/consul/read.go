package consul

import (
	"context"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/consul/queues"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// pair is a key as replies show it. An empty value is null.
type pair struct {
	LockIndex   uint64
	Key         string
	Flags       uint64
	Value       []byte
	Session     string `json:",omitempty"`
	CreateIndex uint64
	ModifyIndex uint64
}

func pairOf(i *item) pair {
	p := pair{LockIndex: i.Locks, Key: i.Name, Flags: i.Flags, CreateIndex: i.Created, ModifyIndex: i.Version}
	if i.Value != "" {
		p.Value = []byte(i.Value)
	}
	if i.Session != 0 {
		p.Session = formatSession(i.Session)
	}
	// In a semaphore, the name of a contender's key contains its session id. A placeholder would not hide the id, and
	// would make the client lose its slot.
	if i.hidden && !strings.Contains(i.Name, p.Session) {
		p.Session = hiddenSession
	}
	return p
}

// hiddenSession replaces the id of a session that the caller may not see. No session has this id; clients still read
// that the key is held.
var hiddenSession = formatSession(0)

// item is an item in one state of the machine.
type item struct {
	fsm.ItemView
	hidden bool // the caller may not see the id of the holder
}

// itemFor returns an item for a caller. seesID reports whether the caller may see the ids of sessions of an owner.
func itemFor(m *fsm.Machine, view fsm.ItemView, seesID func(owner string) bool) item {
	i := item{ItemView: view}
	if i.Session != 0 {
		owner, _ := m.OwnerOf(i.Session)
		i.hidden = !seesID(owner)
	}
	return i
}

// keys serves the routes of keys.
type keys struct{ *dialect }

func (k keys) routes() []exchange.Route {
	return []exchange.Route{
		exchange.On("GET", "/v1/kv/*", k.cleaned(k.getKey)),
		exchange.On("PUT", "/v1/kv/*", k.cleaned(k.putKey)),
		exchange.On("DELETE", "/v1/kv/*", k.cleaned(k.deleteKey)),
	}
}

// getKey shows a key, or with recurse or keys all keys that begin with it.
func (k keys) getKey(c echo.Context) error {
	q, err := k.readQuery(c)
	if err != nil {
		return err
	}
	watched := queues.Keys{Name: keyOf(c), Below: q.has("keys") || q.has("recurse")}
	if !watched.Below {
		err = required(watched.Name, "key name")()
	}
	if err == nil {
		err = firstError(q.checkNamespace, q.checkDatacenter, validKey(watched.Name), func() error { return k.Rights.MayName(c, watched.Name) })
	}
	if err != nil {
		return err
	}
	at, err := k.awaitItems(c, &q, watched)
	if err != nil {
		return err
	}
	l := k.newList()
	defer l.done()
	index, r, err := k.show(c, &q, watched, l)
	if err != nil {
		return err
	}
	l.done() // the whole reply counts from here on
	return k.sendRead(c, &q, at, index, r)
}

// awaitItems blocks until this node's state is as recent as a query requires. For a query with an index, it also blocks
// until the index of the keys exceeds it, or the wait is over. The caller then reads the state.
func (k keys) awaitItems(c echo.Context, q *query, watched queues.Keys) (calls.Reading, error) {
	waiting := queues.Query{Keys: watched, Conn: connOf(c), Monitor: q.stale || q.consistent}
	at, err := k.await(c, q, func(ctx context.Context) error {
		k.Reads.View(c, func(m *fsm.Machine) { waiting.After = q.after(m.ItemsIndex("")) })
		return k.queues.Wait(ctx, waiting, func() (done bool, err error) { return k.changed(watched, waiting.After), nil })
	})
	if err == nil && q.index == 0 && !watched.Below && !waiting.Monitor {
		k.queues.AwaitHolder(c.Request().Context(), waiting.Conn, watched.Name)
	}
	return at, err
}

// show builds the reply to a GET of keys, and its index.
func (k keys) show(c echo.Context, q *query, watched queues.Keys, l *list) (index uint64, r reply, err error) {
	if watched.Below {
		if err = k.ReplyMemory.BeginLarge(c.Request().Context()); err != nil {
			return 0, r, err
		}
		defer k.ReplyMemory.EndLarge()
	}
	switch {
	case q.has("keys"):
		index, err = k.walk(c, watched, k.eachName(q, watched.Name, l))
	case !watched.Below && q.has("raw"):
		r = notFound
		index, err = k.walk(c, watched, func(i *item) error {
			r = reply{http.StatusOK, "text/plain", []byte(i.Value)} // the bytes may be of any charset
			return nil
		})
		if header := c.Response().Header(); r.status == http.StatusOK {
			header.Set("X-Content-Type-Options", "nosniff")
			header.Set("Content-Security-Policy", "sandbox")
		}
		return index, r, err
	default:
		index, err = k.walk(c, watched, func(i *item) error { return l.add(pairOf(i)) })
	}
	if l.empty() && (watched.Name != "" || !q.has("keys")) {
		return index, notFound, err
	}
	return index, found(l.bytes()), err
}

// eachName adds names of keys to a list, each name once. It cuts a name behind the first separator that follows the
// prefix: with the separator "/", a/b/c below a/ becomes a/b/.
func (k keys) eachName(q *query, prefix string, l *list) func(i *item) error {
	separator := q.values.Get("separator")
	if separator == "" {
		separator = q.values.Get("seperator") // an old misspelling of Consul's
	}
	last := ""
	return func(i *item) error {
		name := i.Name
		if at := strings.Index(name[len(prefix):], separator); separator != "" && at >= 0 {
			name = name[:len(prefix)+at+len(separator)]
		}
		if name == last {
			return nil
		}
		last = name
		return l.add(name)
	}
}

// pageItems bounds how many items one view of the machine takes.
const pageItems = 1000

// walk calls visit with each of the keys' items, sorted by name, and returns the index of the keys. It reads a long list
// in pages. A change between two pages may be visible although the returned index is older. A client that then waits
// with this index is told of the change at once.
func (k keys) walk(c echo.Context, watched queues.Keys, visit func(i *item) error) (index uint64, err error) {
	seesID := k.Rights.Caller(c).SeesID
	if !watched.Below {
		var found item
		var exists bool
		k.Reads.View(c, func(m *fsm.Machine) {
			var view fsm.ItemView
			view, exists = m.Item(watched.Name)
			found, index = itemFor(m, view, seesID), m.ItemIndex(watched.Name)
		})
		if exists {
			err = visit(&found)
		}
		return index, err
	}
	var last uint64 // the number of the last change anywhere, when the walk began
	k.Reads.View(c, func(m *fsm.Machine) { last = m.ItemsIndex("") })
	if index = last; watched.Name != "" {
		index = exchange.DeletesIndex(k.Node, watched.Name, last)
	}
	after, page := "", make([]item, 0, 16)
	for first := true; first || len(page) == pageItems; first = false {
		page = page[:0]
		k.Reads.View(c, func(m *fsm.Machine) {
			for i := range m.ItemsAfter(watched.Name, after) {
				if page = append(page, itemFor(m, i, seesID)); len(page) == pageItems {
					break
				}
			}
		})
		for i := range page {
			after, index = page[i].Name, max(index, page[i].Version)
			if err := visit(&page[i]); err != nil {
				return 0, err
			}
		}
	}
	return min(index, last), nil
}

// changed reports whether the index of keys is above an index.
func (k keys) changed(watched queues.Keys, index uint64) (changed bool) {
	if watched.Below {
		return exchange.ItemsChanged(k.Node, watched.Name, index)
	}
	k.Node.View(func(m *fsm.Machine) { changed = m.ItemIndex(watched.Name) > index })
	return changed
}
