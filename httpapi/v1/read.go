package v1

import (
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

func (api *API) listSemaphores(c echo.Context) error {
	q, err := exchange.ParseQuery(c, exchange.ReadParams("prefix", "limit", "cursor")...)
	if err != nil {
		return err
	}
	prefix, err := q.Prefix()
	if err != nil {
		return err
	}
	limit, cursor, err := readPage(q)
	if err != nil {
		return err
	}
	after, err := parseNameCursor(cursor)
	if err != nil {
		return err
	}
	narrowed := api.x.Caller(c).Narrow(prefix)
	return api.sendView(c, q, func(m *fsm.Machine, _ int64) (any, error) {
		var found []fsm.SemaphoreView
		for _, allowed := range narrowed {
			found = append(found, m.Semaphores(allowed, after, limit+1-len(found))...)
		}
		body := semaphoresBody{Semaphores: []semaphoreBody{}}
		if len(found) > limit {
			found = found[:limit]
			next := nameCursor(found[limit-1].Name)
			body.Next = &next
		}
		for i := range found {
			body.Semaphores = append(body.Semaphores, newSemaphoreBody(&found[i]))
		}
		return body, nil
	})
}

// sendView sends the body that build makes of a state as recent as the query requires.
// nowMS is the cluster time from which it computes durations.
func (api *API) sendView(c echo.Context, q exchange.Query, build func(m *fsm.Machine, nowMS int64) (any, error)) error {
	reading, err := api.x.Reading(c, q)
	if err != nil {
		return err
	}
	return api.x.SendRead(c, func() (body any, err error) {
		api.x.View(c, func(m *fsm.Machine) { body, err = build(m, exchange.NowOf(m, reading)) })
		return body, err
	})
}

// semaphoreQuery has the parameters of a GET of one semaphore.
type semaphoreQuery struct {
	name             string
	epoch            uint64 // 0: any
	holders, waiters int
	blocking         bool
	index            uint64 // waits for a change after it
	wait             time.Duration
}

func (api *API) readSemaphoreQuery(c echo.Context, q exchange.Query) (s semaphoreQuery, err error) {
	name, _ := exchange.PathParam(c, "name")
	if s.name, err = exchange.SemaphoreName("name", name); err != nil {
		return s, err
	}
	if err = api.x.MayName(c, s.name); err != nil {
		return s, err
	}
	if s.epoch, err = q.Epoch(); err != nil {
		return s, err
	}
	holders, err := q.Number("holders", defaultPage, 0, maxPage)
	if err != nil {
		return s, err
	}
	waiters, err := q.Number("waiters", defaultPage, 0, maxPage)
	if err != nil {
		return s, err
	}
	s.holders, s.waiters = int(holders), int(waiters)
	if s.index, err = q.Number("index", 0, 0, 1<<63-1); err != nil {
		return s, err
	}
	waitMS, err := q.WaitMS(api.x.Config.MaxWait.Milliseconds())
	_, s.blocking = q.Text("index")
	if _, waits := q.Text("wait"); waits && !s.blocking {
		return s, exchange.Invalid("wait", "A wait needs an index to wait for a change of.")
	}
	s.wait = time.Duration(waitMS) * time.Millisecond
	return s, err
}

func (api *API) getSemaphore(c echo.Context) error {
	q, err := exchange.ParseQuery(c, exchange.ReadParams("epoch", "holders", "waiters", "index", "wait")...)
	if err != nil {
		return err
	}
	s, err := api.readSemaphoreQuery(c, q)
	if err != nil {
		return err
	}
	if s.blocking {
		if err := api.awaitChange(c, q, s); err != nil {
			return err
		}
	}
	id := api.x.Caller(c)
	return api.sendView(c, q, func(m *fsm.Machine, nowMS int64) (any, error) {
		found, err := findSemaphore(m, s.name, s.epoch)
		if err != nil {
			return nil, err
		}
		if tag := etagOf(&found); tag != "" {
			c.Response().Header().Set("ETag", tag)
		}
		return viewedSemaphore(m, found, s.holders, s.waiters, nowMS, id), nil
	})
}

// findSemaphore returns a semaphore, or the refusal that the state machine gives for
// the same name and epoch.
func findSemaphore(m *fsm.Machine, name string, epoch uint64) (fsm.SemaphoreView, error) {
	found, ok := m.Semaphore(name)
	switch {
	case !ok:
		return found, exchange.Refused(&fsm.Result{Code: fsm.UnknownSemaphore, Subject: name})
	case epoch != 0 && epoch != found.Epoch:
		return found, exchange.Refused(&fsm.Result{Code: fsm.EpochMismatch, Subject: name, Epoch: found.Epoch})
	}
	return found, nil
}

// awaitChange blocks until the semaphore was modified after s.index, or is gone, or the
// wait is over. It returns at once if s.index is above the confirmed index, as after a
// restore. The caller then reads the state.
func (api *API) awaitChange(c echo.Context, q exchange.Query, s semaphoreQuery) error {
	reading, err := api.x.Reading(c, q)
	if err != nil {
		return err
	}
	if s.index > reading.Index || s.wait == 0 || api.changedSince(s) {
		return nil
	}
	if err := api.events.BeginQuery(); err != nil {
		return err
	}
	defer api.events.EndQuery()
	end := time.NewTimer(s.wait)
	defer end.Stop()
	for {
		changed, stop := api.x.Node.Changed(s.name)
		if api.changedSince(s) {
			stop()
			return nil
		}
		more := false
		select {
		case <-changed:
			more = true
		case <-end.C:
		case <-api.x.Closing():
		case <-c.Request().Context().Done():
		}
		stop()
		if !more {
			return c.Request().Context().Err()
		}
	}
}

// changedSince reports whether a blocking query has a change to show.
func (api *API) changedSince(s semaphoreQuery) (changed bool) {
	api.x.Node.View(func(m *fsm.Machine) {
		found, err := findSemaphore(m, s.name, s.epoch)
		changed = err != nil || found.ModifiedIndex > s.index
	})
	return changed
}

func (api *API) listSessions(c echo.Context) error {
	q, err := exchange.ParseQuery(c, exchange.ReadParams("limit", "cursor")...)
	if err != nil {
		return err
	}
	limit, cursor, err := readPage(q)
	if err != nil {
		return err
	}
	after, err := parseSessionCursor(cursor)
	if err != nil {
		return err
	}
	id := api.x.Caller(c)
	return api.sendView(c, q, func(m *fsm.Machine, nowMS int64) (any, error) {
		found, next := pageOfSessions(m, id, after, limit)
		body := sessionsBody{Sessions: []sessionBody{}, Next: next}
		for i := range found {
			body.Sessions = append(body.Sessions, viewedSession(m, &found[i], nowMS, id))
		}
		return body, nil
	})
}

// pageOfSessions returns up to limit of the sessions after an id that the identity may
// find, and the cursor of the next page. A page has fewer if they have more than
// pageRecords or pageBytes, or if the identity may not find most of pageLooks sessions.
func pageOfSessions(m *fsm.Machine, id *access.Identity, after uint64, limit int) (found []fsm.SessionView, next *string) {
	size := pageSize{}
	for looks := 0; ; looks++ {
		ids := m.SessionIDs(after, 1)
		if len(ids) == 0 {
			return found, nil
		}
		if len(found) == limit || looks == pageLooks || size.records > pageRecords || size.bytes > pageBytes {
			cursor := sessionCursor(after)
			return found, &cursor
		}
		after = ids[0]
		if owner, _ := m.OwnerOf(after); id.FindsSession(owner) {
			one, _ := m.Session(after)
			found = append(found, one)
			size.add(&one, m.WaitList(after))
		}
	}
}

// pageSize counts the records and bytes of the sessions of a page.
type pageSize struct{ records, bytes int }

func (p *pageSize) add(s *fsm.SessionView, list []fsm.WaitListView) {
	for _, pair := range s.Metadata {
		p.bytes += len(pair.Key) + len(pair.Value)
	}
	for i := range s.Leases {
		p.records++
		p.bytes += len(s.Leases[i].Semaphore) + len(s.Leases[i].Reason)
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

func (api *API) getSession(c echo.Context) error {
	q, err := exchange.ParseQuery(c, exchange.ReadParams()...)
	if err != nil {
		return err
	}
	text, _ := exchange.PathParam(c, "id")
	id, err := exchange.SessionID("session", text)
	if err != nil {
		return err
	}
	caller := api.x.Caller(c)
	return api.sendView(c, q, func(m *fsm.Machine, nowMS int64) (any, error) {
		found, ok := m.Session(id)
		if !ok || !caller.SeesSession(found.Owner) {
			return nil, noSession(m, id, caller)
		}
		return viewedSession(m, &found, nowMS, caller), nil
	})
}

// noSession returns the refusal of the state machine for a session that does not live, or
// that the caller may not find.
func noSession(m *fsm.Machine, id uint64, caller *access.Identity) *exchange.Problem {
	result := fsm.Result{Code: fsm.UnknownSession, Session: id}
	if owner, _ := m.OwnerOf(id); !caller.SeesSession(owner) {
		return exchange.Refused(&result)
	}
	switch cause, reason, _ := m.Ended(id); cause {
	case fsm.CauseExpired:
		result.Code = fsm.ExpiredSession
	case fsm.CauseRevoked:
		result.Code, result.Reason = fsm.Revoked, reason
	}
	return exchange.Refused(&result)
}

// getLease shows the lease or the waiting request of a session for a semaphore.
func (api *API) getLease(c echo.Context) error {
	q, err := exchange.ParseQuery(c, exchange.ReadParams("epoch")...)
	if err != nil {
		return err
	}
	var p params
	if err := p.readPath(c); err != nil {
		return err
	}
	if p.epoch, err = q.Epoch(); err != nil {
		return err
	}
	if err := api.x.MayName(c, p.semaphore); err != nil {
		return err
	}
	reading, err := api.x.Reading(c, q)
	if err != nil {
		return err
	}
	var a answer
	api.x.View(c, func(m *fsm.Machine) { a = leaseOf(m, &p, api.x.Caller(c), exchange.NowOf(m, reading)) })
	return api.render(c, a)
}

// leaseOf finds the lease or the waiting request of a session for a semaphore.
func leaseOf(m *fsm.Machine, p *params, caller *access.Identity, nowMS int64) answer {
	if _, err := findSemaphore(m, p.semaphore, p.epoch); err != nil {
		return refusedAnswer(exchange.ProblemOf(err))
	}
	owner, _ := m.OwnerOf(p.session)
	if !m.HasSession(p.session) || !caller.SeesSession(owner) {
		return refusedAnswer(noSession(m, p.session, caller))
	}
	if l, held := m.Lease(p.session, p.semaphore); held {
		if l.Revoked {
			return refusedAnswer(exchange.Refused(&fsm.Result{Code: fsm.Revoked, Session: p.session, Subject: p.semaphore,
				Epoch: l.Epoch, Reason: l.Reason}))
		}
		return ok(viewedLease(&l, nowMS))
	}
	if w, waits := m.Request(p.session, p.semaphore); waits {
		return answer{status: http.StatusAccepted, body: viewedRequest(&w, nowMS, caller)}
	}
	return refusedAnswer(exchange.Refused(&fsm.Result{Code: fsm.NotHeld, Session: p.session, Subject: p.semaphore}))
}

const (
	defaultPage = 100
	maxPage     = 1000
	// pageRecords and pageBytes bound a page of sessions, since a single session may
	// have thousands of leases and requests, with long names. A page ends early, after
	// the session that exceeds one of them.
	pageRecords = 10_000  // leases, semaphores of requests, and entries
	pageBytes   = 4 << 20 // of text, not counting escapes
	pageLooks   = 10_000  // sessions, others' included
)

// A cursor is the last member of the page before, encoded so that clients don't build
// on it: a kind, then the name or the id.
const (
	cursorName    byte = 'n'
	cursorSession byte = 's'
)

var cursorText = base64.RawURLEncoding.Strict()

func nameCursor(last string) string {
	return cursorText.EncodeToString(append([]byte{cursorName}, last...))
}

func sessionCursor(last uint64) string {
	return cursorText.EncodeToString(binary.BigEndian.AppendUint64([]byte{cursorSession}, last))
}

// decodeCursor reads a cursor of a kind in its only spelling: base64 skips line ends.
func decodeCursor(kind byte, cursor string) []byte {
	data, err := cursorText.DecodeString(cursor)
	if err != nil || len(data) == 0 || data[0] != kind || cursorText.EncodeToString(data) != cursor {
		return nil
	}
	return data[1:]
}

// parseNameCursor returns the name after which the page begins; "" for the first page.
func parseNameCursor(cursor string) (after string, err error) {
	if after = string(decodeCursor(cursorName, cursor)); cursor != "" && !fsm.ValidName(after) {
		return "", badCursor()
	}
	return after, nil
}

// parseSessionCursor returns the id after which the page begins; 0 for the first page.
func parseSessionCursor(cursor string) (after uint64, err error) {
	if id := decodeCursor(cursorSession, cursor); len(id) == 8 {
		after = binary.BigEndian.Uint64(id)
	}
	if cursor != "" && after == 0 {
		return 0, badCursor()
	}
	return after, nil
}

func badCursor() error {
	return exchange.Invalid("cursor", "This is not a cursor of this list. Pass the value of next, unchanged.")
}

// readPage reads ?limit= and ?cursor=.
func readPage(q exchange.Query) (limit int, cursor string, err error) {
	n, err := q.Number("limit", defaultPage, 1, maxPage)
	if err != nil {
		return 0, "", err
	}
	cursor, given := q.Text("cursor")
	if given && cursor == "" {
		return 0, "", badCursor()
	}
	return int(n), cursor, nil
}
