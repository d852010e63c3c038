package consul

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/fsm"
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

func pairOf(i *fsm.ItemView) pair {
	p := pair{LockIndex: i.Locks, Key: i.Name, Flags: i.Flags, CreateIndex: i.Created, ModifyIndex: i.Version}
	if i.Value != "" {
		p.Value = []byte(i.Value)
	}
	if i.Session != 0 {
		p.Session = formatSession(i.Session)
	}
	return p
}

// span is what a query shows: the key of a name or, with below, all keys that begin so.
type span struct {
	name  string
	below bool
}

// getKey shows a key, or with recurse or keys all that begin with it.
func (d *dialect) getKey(c echo.Context) error {
	q, err := d.query(c)
	if err != nil {
		return err
	}
	of := span{keyOf(c), q.has("keys") || q.has("recurse")}
	if !of.below {
		err = needed(of.name, "key name")()
	}
	if err == nil {
		err = steps(q.namespace, q.place, validKey(of.name), func() error { return d.MayName(c, of.name) })
	}
	if err != nil {
		return err
	}
	at, err := d.awaitItems(c, &q, of)
	if err != nil {
		return err
	}
	l := d.newList()
	defer l.done()
	index, r, err := d.show(c, &q, of, l)
	if err != nil {
		return err
	}
	l.done() // the whole reply counts from here on
	return d.sendRead(c, &q, at, index, r)
}

// show builds the reply to a GET of keys, and its index.
func (d *dialect) show(c echo.Context, q *asked, of span, l *list) (index uint64, r reply, err error) {
	switch {
	case q.has("keys"):
		index, err = d.walk(c, of, d.eachName(q, of.name, l))
	case !of.below && q.has("raw"):
		r = notFound
		index, err = d.walk(c, of, func(i *fsm.ItemView) error {
			r = reply{http.StatusOK, plainText, []byte(i.Value)}
			return nil
		})
		if header := c.Response().Header(); r.status == http.StatusOK {
			header.Set("X-Content-Type-Options", "nosniff")
			header.Set("Content-Security-Policy", "sandbox")
		}
		return index, r, err
	default:
		index, err = d.walk(c, of, func(i *fsm.ItemView) error { return l.add(pairOf(i)) })
	}
	if l.empty() && (of.name != "" || !q.has("keys")) {
		return index, notFound, err
	}
	return index, found(l.end()), err
}

// eachName adds the names of keys to a list, up to and with the first separator behind the
// prefix, each once.
func (d *dialect) eachName(q *asked, prefix string, l *list) func(i *fsm.ItemView) error {
	separator := q.values.Get("separator")
	if separator == "" {
		separator = q.values.Get("seperator") // an old misspelling of Consul's
	}
	last := ""
	return func(i *fsm.ItemView) error {
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

// pageItems bounds how many items one look at the machine takes.
const pageItems = 1000

// walk calls visit with each item of a span in the order of names, and returns the span's
// index. It looks at a long list in pages. What has changed between two of them may show,
// though the index is from before it: a client that waits with the index hears of it at once.
func (d *dialect) walk(c echo.Context, of span, visit func(i *fsm.ItemView) error) (index uint64, err error) {
	if !of.below {
		var item fsm.ItemView
		var exists bool
		d.View(c, func(m *fsm.Machine) {
			item, exists = m.Item(of.name)
			index = m.ItemIndex(of.name)
		})
		if exists {
			err = visit(&item)
		}
		return index, err
	}
	var last uint64 // the number of the last change anywhere, when the walk began
	after, page := "", make([]fsm.ItemView, 0, 16)
	for first := true; first || len(page) == pageItems; first = false {
		page = page[:0]
		d.View(c, func(m *fsm.Machine) {
			if first {
				last = m.ItemsIndex("")
				if index = m.DeletesIndex(of.name); of.name == "" {
					index = last
				}
			}
			for i := range m.ItemsAfter(of.name, after) {
				if page = append(page, i); len(page) == pageItems {
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

// indexOf returns the index of a span.
func (d *dialect) indexOf(c echo.Context, of span) (index uint64) {
	index, _ = d.walk(c, of, func(*fsm.ItemView) error { return nil }) // visit never fails
	return index
}
