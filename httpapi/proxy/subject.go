package proxy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/signalbox/signalbox/client/cells"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// subject is what a request is about. A request with the zero subject goes to the cell of the prefix "".
type subject struct {
	names    []string
	sessions []string // ids in decimal
	below    *string  // all names with this beginning
	cluster  bool     // a whole cluster
	whole    func(a *routedRequest) error
}

// cellOf returns the cell that gets the request: the cell of /cells/N if the path begins so, else the cell that has all
// names and the session of the subject. Through /cells/N it refuses names of other cells: both cells could grant the
// same permits.
func (a *routedRequest) cellOf(s subject) (*cells.Cell, error) {
	if a.chosen == nil {
		return a.table.cellOf(s)
	}
	for _, name := range s.names {
		if owner := a.table.OfName(name); owner != a.chosen {
			return nil, otherCell(fmt.Sprintf("%q is of cell %d: through /cells/%d it can be read, set, given back and deleted alone.",
				shown(name), owner.Number, a.chosen.Number), name)
		}
	}
	return a.chosen, nil
}

// isAdministrative reports whether a request neither grants nor counts permits (down, up), nor changes an item. Cell N
// accepts such a request below /cells/N even if the name belongs to another cell, for example while a prefix moves.
func (a *routedRequest) isAdministrative() bool {
	path := segments(a.r.URL)
	isSetting := path[0] == "v1" && path[1] == "semaphores" && path[3] != "leases" && path[3] != "down" && path[3] != "up"
	return isSafe(a.r) || a.r.Method == http.MethodDelete || isSetting
}

// cellOf returns the cell that has all names and sessions of a subject.
func (t *table) cellOf(s subject) (c *cells.Cell, err error) {
	if s.cluster {
		return nil, t.oneCluster()
	}
	named := ""
	for i, name := range s.names {
		owner := t.OfName(name)
		if i > 0 && owner != c {
			return nil, otherCell(fmt.Sprintf("%q is of cell %d, and %q of cell %d: ask for them in two requests.", shown(named), c.Number, shown(name), owner.Number), named, name)
		}
		c, named = owner, name
	}
	if s.below != nil {
		below, other := t.OfNamesBelow(*s.below)
		if below != nil && c == nil {
			c = below
		}
		if below == nil || below != c {
			return nil, otherCell(fmt.Sprintf("Names that begin with %q are of several cells: ask for a longer prefix, or put /cells/N before the path.", shown(*s.below)), *s.below, cmp.Or(other, named))
		}
	}
	first := ""
	for _, text := range s.sessions {
		id, valid := exchange.ParseDigits(text)
		if !valid {
			continue // the node refuses it
		}
		owner := t.OfSession(id)
		switch {
		case owner == nil && c == nil:
			return nil, otherCell(fmt.Sprintf("The id of session %s tells no cell: put /cells/N before the path, where N is its cell.", text))
		case owner == nil: // the names decide
		case c == nil:
			c, first = owner, text
		case owner != c && named != "":
			p := otherCell(fmt.Sprintf("Session %s is of cell %d, and %q of cell %d: open a session there with POST /cells/%d/v1/sessions.",
				text, owner.Number, shown(named), c.Number, c.Number), named)
			p.Session = text
			return nil, p
		case owner != c:
			return nil, otherCell(fmt.Sprintf("Session %s is of cell %d, and session %s of cell %d.", first, c.Number, text, owner.Number))
		}
	}
	if c == nil {
		c = t.OfName("")
	}
	return c, nil
}

// otherCell is the refusal of a request that no single cell can serve.
func otherCell(detail string, names ...string) *exchange.Problem {
	p := exchange.NewProblem("other-cell", detail)
	for _, name := range names {
		p.Names = append(p.Names, strings.ToValidUTF8(name, "\uFFFD"))
	}
	return p
}

func shown(name string) string { return exchange.Ellipsis(name) }

// oneCluster is the refusal of a request about a whole cluster.
func (t *table) oneCluster() error {
	var numbers []string
	for _, c := range t.All() {
		numbers = append(numbers, strconv.Itoa(c.Number))
	}
	return otherCell("This request is about a whole cluster: put /cells/N before the path, where N is one of " + strings.Join(numbers, ", ") + ".")
}

// subject reads what the request is about.
func (a *routedRequest) subject() (subject, error) {
	path := segments(a.r.URL)
	switch path[0] {
	case "v1":
		return a.native(path[1:])
	case "terraform", "semaphore", "new_peer", "peers", "remainder", "restore":
		return a.dialect(path)
	case "metrics", "ui":
		return subject{cluster: true}, nil
	}
	return subject{}, nil
}

// segments returns the decoded segments of a path, followed by an empty segment.
func segments(u *url.URL) []string {
	path := strings.Split(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	for i, segment := range path {
		if plain, err := url.PathUnescape(segment); err == nil {
			path[i] = plain
		}
	}
	return append(path, "", "", "", "")
}

// native reads a request of the native API, or of a dialect whose paths begin with /v1/.
func (a *routedRequest) native(path []string) (subject, error) {
	name, post := path[1], a.r.Method == http.MethodPost
	switch path[0] {
	case "semaphores":
		switch {
		case name == "" && post:
			members, err := a.members()
			return subject{names: notEmpty(textOf(members["name"]))}, err
		case name == "" && isSafe(a.r):
			return a.listOf(semaphoreList), nil
		case path[2] == "holders" && path[3] != "":
			return subject{names: []string{name}, sessions: []string{path[3]}}, nil
		}
		return subject{names: notEmpty(name)}, nil
	case "items":
		return a.item(name)
	case "sessions":
		return a.session(path[1:])
	case "batch":
		return subject{whole: (*routedRequest).batch}, nil
	case "events":
		return a.eventsOf(), nil
	case "cluster", "snapshot":
		return subject{cluster: true}, nil
	}
	return a.dialect(append([]string{"v1"}, path...))
}

func (a *routedRequest) item(name string) (subject, error) {
	switch {
	case name == "": // the index of the list is of one cell
		beginning := a.r.URL.Query().Get("prefix")
		return subject{below: &beginning}, nil
	case a.r.Method != http.MethodPut:
		return subject{names: []string{name}}, nil
	}
	members, err := a.members()
	return subject{names: []string{name}, sessions: notEmpty(textOf(members["session"]))}, err
}

// session reads a request below /v1/sessions.
func (a *routedRequest) session(path []string) (subject, error) {
	id, below, name, post := path[0], path[1], path[2], a.r.Method == http.MethodPost
	s := subject{sessions: notEmpty(id)}
	switch {
	case id == "" && isSafe(a.r):
		return a.listOf(sessionList), nil
	case post && below == "waitlist":
		return s, nil // what the list has
	case below == "leases" || below == "waitlist":
		s.names = notEmpty(name)
	case post && (below == "acquire" || below == "restore"):
		members, err := a.members()
		s.names = namesIn(members["semaphores"], members["leases"])
		return s, err
	}
	return s, nil
}

// namesIn returns the names of the members of lists.
func namesIn(lists ...json.RawMessage) (names []string) {
	for _, list := range lists {
		var wants []map[string]json.RawMessage
		_ = json.Unmarshal(list, &wants) // the node refuses what is no list
		for _, want := range wants {
			names = append(names, notEmpty(textOf(want["name"]))...)
		}
	}
	return names
}

// notEmpty returns a list that has the text, or no list for "": the node then refuses the empty name.
func notEmpty(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}
