package reads

import (
	"encoding/base64"
	"encoding/binary"
	"slices"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

const (
	DefaultPage = 100  // members of a page, unless the client asks for another number
	MaxPage     = 1000 // members of a page at most
	// pageRecords and pageBytes bound a page of sessions, since one session may have thousands of leases and requests,
	// with long names. The page ends after the session that exceeds a bound. Pages of holders, waiters and leases end
	// before they exceed pageBytes, but a page of holders or leases has at least one member.
	pageRecords = 10_000  // leases, semaphores of requests, entries of wait lists, and items
	pageBytes   = 4 << 20 // of text, not counting escapes
	pageVisits  = 10_000  // sessions, including those that the caller may not find
)

// A cursor is a kind and a position in a list. The position is the name, id, token or place of the last member of the
// previous page; for groups, it is the name of the first member of the next page. A cursor is encoded so that clients
// don't build on its form.
const (
	CursorName    byte = 'n' // of a semaphore or an item
	CursorSession byte = 's'
	cursorHolder  byte = 'h'
	cursorWaiter  byte = 'w'
	cursorLease   byte = 'l'
	cursorGroup   byte = 'g'
	cursorLost    byte = 't'
)

var cursorText = base64.RawURLEncoding.Strict()

// EncodeCursor returns the cursor of a kind for the page after last, which is a name, or an id in 8 bytes, big-endian.
// The members of a list are in the order of these bytes.
func EncodeCursor(kind byte, last []byte) string {
	return cursorText.EncodeToString(append([]byte{kind}, last...))
}

func nameCursor(last string) string { return EncodeCursor(CursorName, []byte(last)) }

func numberCursor(kind byte, last uint64) *string {
	text := EncodeCursor(kind, binary.BigEndian.AppendUint64(nil, last))
	return &text
}

// DecodeCursor returns the bytes that EncodeCursor got as last, or nil if the text is not a cursor of this kind. It
// accepts only the exact text of EncodeCursor: base64 would skip newlines.
func DecodeCursor(kind byte, cursor string) []byte {
	data, err := cursorText.DecodeString(cursor)
	if err != nil || len(data) == 0 || data[0] != kind || cursorText.EncodeToString(data) != cursor {
		return nil
	}
	return data[1:]
}

func parseNameCursor(cursor string) (after string, err error) {
	if after = string(DecodeCursor(CursorName, cursor)); cursor != "" && !fsm.ValidName(after) {
		return "", badCursor()
	}
	return after, nil
}

// parseNumberCursor returns the id, token or place after which the page begins; 0 for the first page.
func parseNumberCursor(kind byte, cursor string) (after uint64, err error) {
	if number := DecodeCursor(kind, cursor); len(number) == 8 {
		after = binary.BigEndian.Uint64(number)
	}
	if cursor != "" && after == 0 {
		return 0, badCursor()
	}
	return after, nil
}

func groupCursor(first string) *string {
	text := EncodeCursor(cursorGroup, []byte(first))
	return &text
}

// parseGroupCursor returns the group with which the page begins; "" for the first page.
func parseGroupCursor(cursor string) (first string, err error) {
	first = string(DecodeCursor(cursorGroup, cursor))
	if cursor != "" && (first == "" || !fsm.ValidGroup(first)) {
		return "", badCursor()
	}
	return first, nil
}

// placeCursor has the rank, the place and then the group of a waiting request.
func placeCursor(last fsm.LinePlace) *string {
	data := binary.BigEndian.AppendUint64([]byte{cursorWaiter}, uint64(last.RankMS))
	data = binary.BigEndian.AppendUint64(data, last.Place)
	text := cursorText.EncodeToString(append(data, last.Group...))
	return &text
}

// parsePlaceCursor returns the place after which the page begins; zero for the first page.
func parsePlaceCursor(cursor string) (after fsm.LinePlace, err error) {
	if cursor == "" {
		return after, nil
	}
	data := DecodeCursor(cursorWaiter, cursor)
	if len(data) < 16 {
		return after, badCursor()
	}
	after = fsm.LinePlace{Group: string(data[16:]), RankMS: int64(binary.BigEndian.Uint64(data)), Place: binary.BigEndian.Uint64(data[8:])}
	if after.Place == 0 || !fsm.ValidGroup(after.Group) {
		return after, badCursor()
	}
	return after, nil
}

func badCursor() error {
	return exchange.Invalid("cursor", "This is not a cursor of this list. Pass the value of next, unchanged.")
}

// readPage reads ?limit= and ?cursor=.
func readPage(q exchange.Query) (limit int, cursor string, err error) {
	n, err := q.Number("limit", DefaultPage, 1, MaxPage)
	if err != nil {
		return 0, "", err
	}
	cursor, present := q.Text("cursor")
	if present && cursor == "" {
		return 0, "", badCursor()
	}
	return int(n), cursor, nil
}

// readNamePage is readPage for a list of names, with ?prefix=.
func readNamePage(q exchange.Query) (prefix string, limit int, after string, err error) {
	if prefix, err = q.Prefix(); err != nil {
		return "", 0, "", err
	}
	limit, cursor, err := readPage(q)
	if err == nil {
		after, err = parseNameCursor(cursor)
	}
	return prefix, limit, after, err
}

// readNumberPage is readPage for a list whose cursors have numbers.
func readNumberPage(q exchange.Query, kind byte) (limit int, after uint64, err error) {
	limit, cursor, err := readPage(q)
	if err == nil {
		after, err = parseNumberCursor(kind, cursor)
	}
	return limit, after, err
}

// pageOfSessions returns up to limit of the sessions after an id, and the cursor of the next page. It leaves out
// sessions that the identity may not find. A page is short if the sessions exceed pageRecords or pageBytes, or if
// pageVisits sessions were read.
func pageOfSessions(m *fsm.Machine, id *access.Identity, after uint64, limit int) (found []fsm.SessionView, next *string) {
	size := pageSize{}
	for visited := 0; ; visited++ {
		ids := m.SessionIDs(after, 1)
		if len(ids) == 0 {
			return found, nil
		}
		if len(found) == limit || visited == pageVisits || size.records > pageRecords || size.bytes > pageBytes {
			return found, numberCursor(CursorSession, after)
		}
		after = ids[0]
		if owner, _ := m.OwnerOf(after); id.FindsSession(owner) {
			session, _ := m.Session(after)
			found = append(found, session)
			size.add(&session, m.WaitList(after))
			size.addItems(m, after)
		}
	}
}

// pageSize counts the records and bytes of the sessions of a page.
type pageSize struct{ records, bytes int }

func (p *pageSize) add(s *fsm.SessionView, list []fsm.WaitListView) {
	p.bytes += pairBytes(s.Metadata)
	for i := range s.Leases {
		p.records++
		p.bytes += len(s.Leases[i].Semaphore) + len(s.Leases[i].Reason) + slotBytes(s.Leases[i].DetailsOrZero().Slots)
	}
	for i := range s.Waiting {
		w := &s.Waiting[i]
		p.records += len(w.Wants)
		for _, want := range w.Wants {
			p.bytes += len(want.Semaphore)
		}
		for _, o := range w.Obstacles {
			p.bytes += len(o.Semaphore)
		}
	}
	for i := range list {
		p.records++
		p.bytes += len(list[i].Semaphore)
	}
}

// addItems counts the items of a session, and the text about it.
func (p *pageSize) addItems(m *fsm.Machine, session uint64) {
	holder, _ := m.Holder(session)
	p.bytes += len(holder.About)
	for _, name := range m.HeldItems(session) {
		p.records++
		p.bytes += len(name)
	}
}

// part is a semaphore, or one of its groups.
type part struct {
	name    string
	group   string
	grouped bool // a group is named
	waiting bool // list only groups in which requests wait
}

// holders returns up to limit leases after a token. more reports whether there is a next page; it begins after the token
// next.
func (p *part) holders(m *fsm.Machine, after uint64, limit int) (found []fsm.LeaseView, next uint64, more bool) {
	if p.grouped {
		return m.HoldersOf(p.name, p.group, after, limit)
	}
	found = m.Holders(p.name, after, limit+1)
	if more = len(found) > limit; more {
		found = found[:limit]
	}
	if next = after; len(found) > 0 {
		next = found[len(found)-1].Token
	}
	return found, next, more
}

func (p *part) waiters(m *fsm.Machine, after fsm.LinePlace, limit int) []fsm.RequestView {
	if p.grouped {
		return m.WaitersOf(p.name, p.group, after, limit)
	}
	return m.Waiters(p.name, after, limit)
}

// pageOfHolders returns up to limit of the holders after a token. It returns fewer if they have more than pageBytes.
func pageOfHolders(m *fsm.Machine, scope part, after uint64, limit int, nowMS int64, id *access.Identity) HoldersBody {
	body, bytes := HoldersBody{Holders: []holderBody{}}, 0
	found, next, more := scope.holders(m, after, limit)
	for i := range found {
		l := &found[i]
		bytes += memberBytes + pairBytes(l.Metadata) + len(l.Reason) + slotBytes(l.DetailsOrZero().Slots)
		if i > 0 && bytes > pageBytes {
			next, more = found[i-1].Token, true
			break
		}
		body.Holders = append(body.Holders, holderBody{Session: shownID(m, l.Session, id), Group: l.DetailsOrZero().Group, Count: l.Count, Token: l.Token,
			HeldMS: Left(nowMS, l.GrantedMS), ExpiresInMS: Left(l.DeadlineMS, nowMS), Metadata: l.Metadata,
			RevokedBody: RevokedBody{l.Revoked, l.Reason}, TimesBody: NewTimesBody(&l.Grant, nowMS)})
	}
	if more {
		body.Next = numberCursor(cursorHolder, next)
	}
	return body
}

// pageOfWaiters returns up to limit of the waiting requests after a place. It returns fewer if they have more than
// pageBytes.
func pageOfWaiters(m *fsm.Machine, scope part, after fsm.LinePlace, limit int, nowMS int64, id *access.Identity) WaitersBody {
	body, bytes := WaitersBody{Waiters: []waiterBody{}}, 0
	for _, w := range scope.waiters(m, after, limit+1) {
		w.Obstacles = slices.DeleteFunc(w.Obstacles, func(o fsm.Obstacle) bool { return !id.Sees(o.Semaphore) })
		waiter := waiterBody{Session: shownID(m, w.Session, id), Group: w.Group, Position: w.Position, GroupsBefore: w.Ahead,
			WaitingMS: Left(nowMS, w.EnqueuedMS), ExpiresInMS: Left(w.DeadlineMS, nowMS), Metadata: w.Metadata,
			blockedBody: newBlockedBody(m, &w, scope.name), Unowned: w.Unowned}
		for _, want := range w.Wants {
			if want.Semaphore == scope.name && want.Group == w.Group {
				waiter.Count = want.Count
			}
		}
		bytes += memberBytes + pairBytes(w.Metadata) + waiter.bytes()
		if len(body.Waiters) == limit || bytes > pageBytes {
			body.Next = placeCursor(after)
			break
		}
		after = fsm.LinePlace{Group: w.Group, RankMS: w.RankMS, Place: w.Place}
		body.Waiters = append(body.Waiters, waiter)
	}
	return body
}

// pageOfLeases returns up to limit of a session's leases after a token, of those that an identity may see. It returns
// fewer if they have more than pageBytes.
func pageOfLeases(m *fsm.Machine, session, after uint64, limit int, nowMS int64, id *access.Identity) HeldLeasesBody {
	body, bytes := HeldLeasesBody{Leases: []HeldBody{}}, 0
	for l := range m.LeasesAfter(session, after) {
		if !id.Sees(l.Semaphore) {
			continue
		}
		bytes += memberBytes + len(l.Semaphore) + len(l.Reason) + slotBytes(l.DetailsOrZero().Slots)
		if len(body.Leases) == limit || len(body.Leases) > 0 && bytes > pageBytes {
			body.Next = numberCursor(cursorLease, after)
			break
		}
		after = l.Token
		body.Leases = append(body.Leases, HeldBody{viewedLease(&l, nowMS), RevokedBody{l.Revoked, l.Reason}})
	}
	return body
}
