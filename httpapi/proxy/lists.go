package proxy

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/v1/reads"
)

// list is a list of the native API.
type list struct {
	field      string // the field of the body that has the members
	cursorKind byte
	// keyOf returns the key by which a member is ordered. In each cell and in the merged list the members are in the
	// order of these bytes, so one cursor serves all cells.
	keyOf  func(member json.RawMessage) (key string)
	byName bool // each key is a name, which belongs to one cell
}

var semaphoreList = &list{"semaphores", reads.CursorName, func(member json.RawMessage) string {
	return textOf(membersOf(member)["name"])
}, true}

var sessionList = &list{"sessions", reads.CursorSession, func(member json.RawMessage) string {
	id, _ := exchange.ParseDigits(textOf(membersOf(member)["session"]))
	return string(binary.BigEndian.AppendUint64(nil, id))
}, false}

// listOf returns the subject of a list: the cell that has all names with its prefix, or all cells.
func (a *routedRequest) listOf(l *list) subject {
	if l.byName {
		if c, _ := a.table.OfNamesBelow(a.r.URL.Query().Get("prefix")); c != nil {
			beginning := a.r.URL.Query().Get("prefix")
			return subject{below: &beginning}
		}
	}
	return subject{whole: func(a *routedRequest) error { return a.listAll(l) }}
}

// listed is a member of a list.
type listed struct {
	key    string
	member json.RawMessage
}

// listAll sends a page of the merged lists of all cells. It leaves out a name that a cell lists and that the file of
// cells assigns to another cell, for example while the name moves.
func (a *routedRequest) listAll(l *list) error {
	query := a.r.URL.Query()
	if query.Has("min_index") {
		return otherCell("An index is of one cell: put /cells/N before the path, or leave min_index out.")
	}
	replies, err := a.askAll(a.r.URL.RawQuery)
	if err != nil || replies == nil {
		return err
	}
	limit, err := strconv.Atoi(query.Get("limit"))
	if err != nil { // the cells have refused other texts
		limit = reads.DefaultPage
	}
	var all []listed
	reached := "" // the last key that all cells have reached; "": all are at their ends
	for _, r := range replies {
		page := membersOf(r.body)
		members, next, err := l.read(page)
		if err != nil {
			return err
		}
		for _, m := range members {
			if !l.byName || a.table.OfName(m.key).Number == r.cell {
				all = append(all, m)
			}
		}
		if next != "" && (reached == "" || next < reached) {
			reached = next
		}
	}
	slices.SortFunc(all, func(a, b listed) int { return cmp.Compare(a.key, b.key) })
	body := map[string]any{"next": nil}
	members := []json.RawMessage{}
	last := reached // the key after which the next page begins
	for _, m := range all {
		if reached != "" && m.key > reached {
			break
		}
		if len(members) == limit {
			last = all[limit-1].key
			break
		}
		members = append(members, m.member)
	}
	if last != "" {
		body["next"] = reads.EncodeCursor(l.cursorKind, []byte(last))
	}
	body[l.field] = members
	return a.sendJSON(body)
}

// read reads the members of a page. next is the key after which the next page begins, or "" if there is no next page.
func (l *list) read(page map[string]json.RawMessage) (members []listed, next string, err error) {
	var raw []json.RawMessage
	if json.Unmarshal(page[l.field], &raw) != nil {
		return nil, "", exchange.ErrInternal
	}
	for _, m := range raw {
		members = append(members, listed{l.keyOf(m), m})
	}
	if cursor := textOf(page["next"]); cursor != "" {
		if next = string(reads.DecodeCursor(l.cursorKind, cursor)); next == "" {
			return nil, "", exchange.ErrInternal
		}
	}
	return members, next, nil
}

// sendJSON sends a body that the proxy made.
func (a *routedRequest) sendJSON(body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	header := a.w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(text)+1))
	header.Set(exchange.HeaderRequest, a.r.Header.Get(exchange.HeaderRequest))
	if a.w.WriteHeader(http.StatusOK); a.r.Method != http.MethodHead {
		_, _ = a.w.Write(append(text, '\n')) // the client's matter
	}
	return nil
}
