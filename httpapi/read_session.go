package httpapi

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/fsm"
)

func (h *Handler) listSessions(c echo.Context) error {
	q, err := parseQuery(c, readParams("limit", "cursor")...)
	if err != nil {
		return err
	}
	limit, cursor, err := q.page()
	if err != nil {
		return err
	}
	after, err := parseSessionCursor(cursor)
	if err != nil {
		return err
	}
	reading, err := h.reading(c, q)
	if err != nil {
		return err
	}
	return h.sendRead(c, func() (any, error) {
		body := sessionsBody{Sessions: []sessionBody{}}
		h.view(c, func(m *fsm.Machine) {
			found, next := pageOfSessions(m, after, limit)
			for i := range found {
				body.Sessions = append(body.Sessions, viewedSession(m, &found[i], nowOf(m, reading)))
			}
			body.Next = next
		})
		return body, nil
	})
}

// pageOfSessions answers up to limit sessions after an id, fewer when they
// have more than pageRecords or pageBytes, and where to go on.
func pageOfSessions(m *fsm.Machine, after uint64, limit int) (found []fsm.SessionView, next *string) {
	for size := (pageSize{}); ; {
		one := m.Sessions(after, 1)
		if len(one) == 0 {
			return found, nil
		}
		if len(found) == limit || size.records > pageRecords || size.bytes > pageBytes {
			cursor := sessionCursor(after)
			return found, &cursor
		}
		found = append(found, one[0])
		size.add(&one[0], m.WaitList(one[0].ID))
		after = one[0].ID
	}
}

// pageSize is how much some sessions show.
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

func (h *Handler) getSession(c echo.Context) error {
	q, err := parseQuery(c, readParams()...)
	if err != nil {
		return err
	}
	text, _ := pathParam(c, "id")
	id, err := sessionID("session", text)
	if err != nil {
		return err
	}
	reading, err := h.reading(c, q)
	if err != nil {
		return err
	}
	return h.sendRead(c, func() (any, error) {
		var body sessionBody
		h.view(c, func(m *fsm.Machine) {
			var found fsm.SessionView
			if found, err = findSession(m, id); err == nil {
				body = viewedSession(m, &found, nowOf(m, reading))
			}
		})
		return body, err
	})
}

// findSession answers a session, or the refusal that the state machine gives
// for the same id.
func findSession(m *fsm.Machine, id uint64) (fsm.SessionView, error) {
	found, ok := m.Session(id)
	if ok {
		return found, nil
	}
	return found, noSession(m, id)
}

// noSession is the refusal for a session that does not live.
func noSession(m *fsm.Machine, id uint64) *problem {
	result := fsm.Result{Code: fsm.UnknownSession, Session: id}
	switch cause, reason, _ := m.Ended(id); cause {
	case fsm.CauseExpired:
		result.Code = fsm.ExpiredSession
	case fsm.CauseRevoked:
		result.Code, result.Reason = fsm.Revoked, reason
	}
	return refused(&result)
}

// getLease answers whether a session holds a semaphore, or waits for it.
func (h *Handler) getLease(c echo.Context) error {
	q, err := parseQuery(c, readParams("epoch")...)
	if err != nil {
		return err
	}
	var p params
	if err := p.readPath(c); err != nil {
		return err
	}
	if p.epoch, err = q.epoch(); err != nil {
		return err
	}
	reading, err := h.reading(c, q)
	if err != nil {
		return err
	}
	var a answer
	h.view(c, func(m *fsm.Machine) { a = leaseOf(m, &p, nowOf(m, reading)) })
	return h.render(c, a)
}

// leaseOf finds what a session has to do with a semaphore.
func leaseOf(m *fsm.Machine, p *params, nowMS int64) answer {
	if _, err := findSemaphore(m, p.semaphore, p.epoch); err != nil {
		return refusedAnswer(problemOf(err))
	}
	if !m.HasSession(p.session) {
		return refusedAnswer(noSession(m, p.session))
	}
	if l, held := m.Lease(p.session, p.semaphore); held {
		if l.Revoked {
			return refusedAnswer(refused(&fsm.Result{Code: fsm.Revoked, Session: p.session, Subject: p.semaphore,
				Epoch: l.Epoch, Reason: l.Reason}))
		}
		return ok(viewedLease(&l, nowMS))
	}
	if w, waits := m.Request(p.session, p.semaphore); waits {
		return answer{status: http.StatusAccepted, body: viewedRequest(&w, nowMS)}
	}
	return refusedAnswer(refused(&fsm.Result{Code: fsm.NotHeld, Session: p.session, Subject: p.semaphore}))
}
