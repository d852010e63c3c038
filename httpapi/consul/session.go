package consul

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// idPrefix begins the ids of all sessions: the name of this program in hexadecimal.
const idPrefix = "5369676e-616c-626f-"

// formatSession returns the id of a session in the form of a UUID.
func formatSession(id uint64) string {
	return fmt.Sprintf("%s%04x-%012x", idPrefix, id>>48, id&(1<<48-1))
}

// parseSession reads an id in upper or lower case. For any other text ok is false, and id 0.
func parseSession(text string) (id uint64, ok bool) {
	if len(text) != len(idPrefix)+17 || !strings.EqualFold(text[:len(idPrefix)], idPrefix) {
		return 0, false
	}
	high, low := text[len(idPrefix):len(idPrefix)+4], text[len(idPrefix)+5:]
	id, err := strconv.ParseUint(high+low, 16, 64)
	if err != nil || text[len(idPrefix)+4] != '-' {
		return 0, false
	}
	return id, id != 0
}

// sessionBody is a session as replies show it.
type sessionBody struct {
	ID            string
	Name          string
	Node          string
	LockDelay     int64 // nanoseconds
	Behavior      string
	TTL           string
	NodeChecks    []string
	ServiceChecks []string
	CreateIndex   uint64
	ModifyIndex   uint64
}

// shown returns a session for a reply. ok is false for a session of another API, which is unknown to this dialect.
func shown(m *fsm.Machine, id uint64) (body sessionBody, ok bool) {
	holder, ok := m.Holder(id)
	if !ok {
		return body, false
	}
	info, ok := parseNote(holder.About)
	body = sessionBody{ID: formatSession(id), Name: info.name, Node: info.node, LockDelay: info.delay, Behavior: behaviorRelease,
		TTL: info.ttl, NodeChecks: info.nodeChecks(), CreateIndex: holder.Made, ModifyIndex: holder.Made}
	if holder.DeleteItems {
		body.Behavior = behaviorDelete
	}
	return body, ok
}

// sessions serves the routes of sessions.
type sessions struct{ *dialect }

// routes are Consul's. A route that ends in a slash replies which part of the path is missing.
func (s sessions) routes() []exchange.Route {
	return []exchange.Route{
		exchange.On("PUT", "/v1/session/create", s.createSession),
		exchange.On("PUT", "/v1/session/renew/:id", s.renewSession),
		exchange.On("PUT", "/v1/session/renew/", s.renewSession),
		exchange.On("PUT", "/v1/session/destroy/:id", s.destroySession),
		exchange.On("PUT", "/v1/session/destroy/", s.destroySession),
		exchange.On("GET", "/v1/session/info/:id", s.getSession),
		exchange.On("GET", "/v1/session/info/", s.getSession),
		exchange.On("GET", "/v1/session/list", s.listSessions),
		exchange.On("GET", "/v1/session/node/:node", s.listSessionsOfNode),
		exchange.On("GET", "/v1/session/node/", s.listSessionsOfNode),
	}
}

func (s sessions) createSession(c echo.Context) error {
	q, err := readPlainQuery(c)
	if err != nil {
		return err
	}
	body := newCreateBody(s.Node.Status().Node)
	err = firstError(q.checkNamespace, func() error { return s.readCreate(c, &body) }, q.checkDatacenter)
	if err != nil {
		return err
	}
	command, err := body.command(s.memberIDs(), s.options.LingerPercent)
	if err != nil {
		return err
	}
	command.Session = s.Node.DrawSession()
	reply, err := s.do(c, command)
	if err != nil {
		return err
	}
	if reply.Code != fsm.OK {
		return exchange.Refused(&reply.Result)
	}
	return s.sendJSON(c, &q, struct{ ID string }{formatSession(reply.Session)})
}

func (s sessions) memberIDs() (ids []string) {
	for _, m := range s.Node.Status().Members {
		ids = append(ids, m.ID)
	}
	return ids
}

// renewSession gives a session its whole ttl again, and shows it.
func (s sessions) renewSession(c echo.Context) error {
	q, err := s.readQuery(c)
	if err != nil {
		return err
	}
	text := pathText(c, "id")
	if err := firstError(q.checkNamespace, required(text, "session"), q.checkDatacenter); err != nil {
		return err
	}
	unknown := exchange.Sentence(http.StatusNotFound, fmt.Sprintf("Session id '%s' not found", text))
	id, ok := parseSession(text)
	if !ok || s.isOthers(c, id) {
		return unknown
	}
	reply, err := s.do(c, fsm.Renew{Renewals: []fsm.Renewal{{Session: id, TTLMS: fsm.KeepTTL}}})
	if err != nil {
		return err
	}
	switch reply.Code {
	case fsm.UnknownSession, fsm.ExpiredSession, fsm.Revoked:
		return unknown
	case fsm.OK:
	default:
		return exchange.Refused(&reply.Result)
	}
	if _, err := s.Node.Read(c.Request().Context(), calls.Consistency{MinIndex: reply.Index}); err != nil {
		return err
	}
	var body sessionBody
	s.Reads.View(c, func(m *fsm.Machine) { body, ok = shown(m, id) })
	if !ok { // ended after the renewal
		return unknown
	}
	return s.sendJSON(c, &q, []sessionBody{body})
}

// isOthers reports whether a living session was opened by another API.
func (s sessions) isOthers(c echo.Context, id uint64) (others bool) {
	s.Reads.View(c, func(m *fsm.Machine) {
		_, here := shown(m, id)
		others = m.HasSession(id) && !here
	})
	return others
}

// destroySession ends a session. A session that does not exist is no error.
func (s sessions) destroySession(c echo.Context) error {
	q, err := readPlainQuery(c)
	if err != nil {
		return err
	}
	text := pathText(c, "id")
	if err := firstError(q.checkNamespace, required(text, "session"), q.checkDatacenter); err != nil {
		return err
	}
	id, ok := parseSession(text)
	if !ok {
		return s.sendOutcome(c, &q, true)
	}
	return s.outcome(c, &q, fsm.EndSession{Session: id})
}

// getSession sends a list that has the session, or an empty list.
func (s sessions) getSession(c echo.Context) error {
	text := pathText(c, "id")
	return s.readSessions(c, required(text, "session"), func(l *list) (index uint64, err error) {
		id, _ := parseSession(text) // 0 is no session
		var body sessionBody
		found := false
		s.Reads.View(c, func(m *fsm.Machine) {
			index = m.HoldersIndex()
			if owner, _ := m.OwnerOf(id); s.Rights.Caller(c).SeesSession(owner) {
				body, found = shown(m, id)
			}
		})
		if found {
			err = l.add(body)
		}
		return index, err
	})
}

// awaitSessions is awaitItems for sessions.
func (s sessions) awaitSessions(c echo.Context, q *query) (calls.Reading, error) {
	return s.await(c, q, func(ctx context.Context) error {
		var index uint64
		readIndex := func(m *fsm.Machine) { index = m.HoldersIndex() }
		s.Reads.View(c, readIndex)
		after := q.after(index)
		for {
			changed := s.Node.HoldersChanged()
			if s.Reads.View(c, readIndex); index > after {
				return nil
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
}

// listSessions shows the sessions that clients of this dialect opened, by id.
func (s sessions) listSessions(c echo.Context) error {
	return s.readSessions(c, func() error { return nil }, func(l *list) (uint64, error) {
		return s.eachSession(c, func(b *sessionBody) error { return l.add(b) })
	})
}

func (s sessions) listSessionsOfNode(c echo.Context) error {
	node := pathText(c, "node")
	return s.readSessions(c, required(node, "node name"), func(l *list) (uint64, error) {
		return s.eachSession(c, func(b *sessionBody) error {
			if b.Node != node {
				return nil
			}
			return l.add(b)
		})
	})
}

// readSessions sends the list of sessions that build makes of a state as recent as the query requires.
func (s sessions) readSessions(c echo.Context, named func() error, build func(l *list) (index uint64, err error)) error {
	q, err := s.readQuery(c)
	if err != nil {
		return err
	}
	if err := firstError(q.checkNamespace, named, q.checkDatacenter); err != nil {
		return err
	}
	at, err := s.awaitSessions(c, &q)
	if err != nil {
		return err
	}
	l := s.newList()
	defer l.done()
	index, err := build(l)
	if err != nil {
		return err
	}
	l.done()
	return s.sendRead(c, &q, at, index, found(l.bytes()))
}

// eachSession calls visit, in the order of the ids, with each session that a client of this dialect opened and that the
// caller may find. It returns Machine.HoldersIndex as of the first page. As in walk, later pages may show later
// changes.
func (s sessions) eachSession(c echo.Context, visit func(b *sessionBody) error) (index uint64, err error) {
	var page []sessionBody
	after := uint64(0)
	for first, more := true, true; more; first = false {
		page = page[:0]
		s.Reads.View(c, func(m *fsm.Machine) {
			if first {
				index = m.HoldersIndex()
			}
			ids := m.SessionIDs(after, pageItems)
			if more = len(ids) == pageItems; more {
				after = ids[pageItems-1]
			}
			for _, id := range ids {
				if body, ok := shown(m, id); ok && s.Rights.FindsSession(c, m, id) {
					page = append(page, body)
				}
			}
		})
		for i := range page {
			if err := visit(&page[i]); err != nil {
				return 0, err
			}
		}
	}
	return index, nil
}
