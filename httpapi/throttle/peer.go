package throttle

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// do performs a command; a result that is not OK is an error.
func (t *dialect) do(c echo.Context, command fsm.Command) (*calls.Reply, error) {
	reply, err := t.Perform(c.Request().Context(), c, calls.Call{Command: command})
	if err != nil {
		return nil, err
	}
	if reply.Code != fsm.OK {
		return nil, refusedWith(&reply.Result)
	}
	return reply, nil
}

func (t *dialect) ok(c echo.Context) error {
	return t.Replies.Send(c, http.StatusOK, exchange.PlainText, []byte("Ok"))
}

func (t *dialect) newPeer(c echo.Context) error {
	ttlMS, err := t.readExpiry(c)
	if err != nil {
		return err
	}
	reply, err := t.do(c, fsm.OpenSession{Session: t.Node.DrawSession(), TTLMS: ttlMS})
	if err != nil {
		return err
	}
	return t.sendID(c, http.StatusOK, reply.Session)
}

func (t *dialect) sendID(c echo.Context, status int, id uint64) error {
	return t.Replies.Send(c, status, plainJSON, []byte(exchange.FormatSession(id)))
}

// heartbeat renews a session with the given ttl.
func (t *dialect) heartbeat(c echo.Context) error {
	id, err := t.peerID(c, "")
	if err != nil {
		return err
	}
	ttlMS, err := t.readExpiry(c)
	if err != nil {
		return err
	}
	if _, err := t.do(c, fsm.Renew{Renewals: []fsm.Renewal{{Session: id, TTLMS: ttlMS}}}); err != nil {
		return err
	}
	return t.ok(c)
}

// deletePeer ends a session. A session that does not exist is no error.
func (t *dialect) deletePeer(c echo.Context) error {
	id, err := t.peerID(c, "")
	if err != nil {
		return err
	}
	reply, err := t.do(c, fsm.EndSession{Session: id})
	if err != nil {
		return err
	}
	if !reply.Found {
		return t.Replies.Send(c, http.StatusOK, plainJSON, []byte(`"Peer not found"`))
	}
	return t.Replies.Send(c, http.StatusOK, plainJSON, []byte(`"Peer released"`))
}

// release releases a lock, or withdraws the request that waits for it. Its command names the token of the lease that the
// peer has at this moment. So a release that is applied late does not end a lease that the peer has acquired since.
func (t *dialect) release(c echo.Context) error {
	id, name, err := t.lock(c)
	if err != nil {
		return err
	}
	if !fsm.ValidName(name) {
		return errNoSuchSemaphore
	}
	if err := t.Rights.MayName(c, name); err != nil {
		return err
	}
	if err := t.readNow(c); err != nil {
		return err
	}
	var token uint64
	t.Reads.View(c, func(m *fsm.Machine) { token = tokenToRelease(m, id, name) })
	if _, err := t.do(c, fsm.Release{Session: id, Name: name, Token: token}); err != nil {
		return err
	}
	return t.ok(c)
}

// tokenToRelease returns the token of the lease that a peer holds, or fsm.NoToken without a lease. If the peer waits for
// the lock it returns 0, which stands for any lease: the request may become a lease before the release is applied, and
// this lease has no token yet.
func tokenToRelease(m *fsm.Machine, peer uint64, name string) uint64 {
	if held, ok := m.Lease(peer, name, ""); ok {
		return held.Token
	}
	if _, waits := m.Request(peer, name, ""); waits {
		return 0
	}
	return fsm.NoToken
}

// restore makes a session that its client remembers.
func (t *dialect) restore(c echo.Context) error {
	command, err := t.readRestore(c)
	if err != nil {
		return err
	}
	for _, want := range command.Leases {
		if !fsm.ValidName(want.Semaphore) {
			return errNoSuchSemaphore
		}
	}
	if command.Session == 0 {
		return exchange.Sentence(http.StatusBadRequest, "A peer's id is above 0.")
	}
	reply, err := t.Perform(c.Request().Context(), c, calls.Call{Command: command})
	if err != nil {
		return err
	}
	switch reply.Code {
	case fsm.OK:
		return t.ok(c)
	case fsm.Revoked: // errUnknownPeer would make the client restore it for ever
		if reply.Subject != "" {
			return revokedRefusal("lock", reply.Why().Reason)
		}
		return revokedRefusal("peer", reply.Why().Reason)
	}
	return refusedWith(&reply.Result)
}

// readNow waits until this node's state is as recent as any reply so far.
func (t *dialect) readNow(c echo.Context) error {
	_, err := t.Node.Read(c.Request().Context(), calls.Consistency{})
	return err
}

// remainder sends the available count, which may be negative after a restore.
func (t *dialect) remainder(c echo.Context) error {
	anything := func(string) string { return "" }
	q, err := readQuery(c.Request().URL.RawQuery, anything, "semaphore")
	if err != nil {
		return err
	}
	name, present := q["semaphore"]
	if !present {
		return badQuery("missing field `semaphore`")
	}
	if err := t.Rights.MayName(c, name); err != nil {
		return err
	}
	if err := t.readNow(c); err != nil {
		return err
	}
	var available int64
	var known bool
	t.Reads.View(c, func(m *fsm.Machine) { _, available, known = numbersOf(m, name) })
	if !known {
		return errNoSuchSemaphore
	}
	return t.Replies.Send(c, http.StatusOK, plainJSON, []byte(strconv.FormatInt(available, 10)))
}

// numbersOf returns how many permits a semaphore has, and how many are available. A family has no such number for all
// its groups together. Locks of this dialect are in the group "", so numbersOf returns the limit of this group, and how
// many of its permits are available.
func numbersOf(m *fsm.Machine, name string) (full, available int64, known bool) {
	s, known := m.Semaphore(name)
	if !s.Settings.Family {
		return s.Permits + max(s.Offset, 0), s.Available, known
	}
	group, exists := m.Group(name, "")
	if !exists || group.Limit == fsm.NoLimit { // one of the next entries gives Settings.PerGroup to the group
		group.Limit = s.Settings.PerGroup
	}
	return group.Limit, group.Limit - group.Used, known
}

// isAcquired sends whether a session has no waiting request and no revoked lease.
func (t *dialect) isAcquired(c echo.Context) error {
	id, err := t.peerID(c, "")
	if err != nil {
		return err
	}
	if err := t.readNow(c); err != nil {
		return err
	}
	var session fsm.SessionView
	var known bool
	t.Reads.View(c, func(m *fsm.Machine) { session, known = m.Session(id) })
	if !known || !t.Rights.Caller(c).SeesSession(session.Owner) {
		return errUnknownPeer
	}
	acquired := len(session.Waiting) == 0
	for i := range session.Leases {
		acquired = acquired && !session.Leases[i].Revoked
	}
	return t.Replies.Send(c, http.StatusOK, plainJSON, []byte(strconv.FormatBool(acquired)))
}

const (
	// peersPerView is how many sessions one view of the state lists.
	peersPerView = 1000
	// peersBytes of the list are sent at a time: the list of a million peers has 24 MB.
	peersBytes = 32 << 10
)

// listPeers lists the ids of all sessions that the caller may find. It reads them in pages: the list has each session
// that lives during the whole request.
func (t *dialect) listPeers(c echo.Context) error {
	if err := t.readNow(c); err != nil {
		return err
	}
	part := []byte{'['}
	listed := false
	for after, more, begun := uint64(0), true, false; more; {
		var ids []uint64
		t.Reads.View(c, func(m *fsm.Machine) {
			ids = m.SessionIDs(after, peersPerView)
			if more = len(ids) == peersPerView; len(ids) > 0 {
				after = ids[len(ids)-1]
			}
			ids = slices.DeleteFunc(ids, func(id uint64) bool { return !t.Rights.FindsSession(c, m, id) })
		})
		for _, id := range ids {
			if listed {
				part = append(part, ',')
			}
			listed = true
			part = append(part, `{"id":`...)
			part = strconv.AppendUint(part, id, 10)
			part = append(part, '}')
		}
		switch {
		case more && len(part) < peersBytes:
			continue
		case !more && !begun:
			return t.Replies.Send(c, http.StatusOK, plainJSON, append(part, ']'))
		case !more:
			part = append(part, ']')
		}
		if err := c.Request().Context().Err(); err != nil && !begun {
			return err
		} else if err != nil { // the client hung up, or its token has ended
			exchange.CutOff(c.Response())
			return nil
		}
		if !t.sendPart(c, begun, part) {
			return nil
		}
		begun, part = true, part[:0]
	}
	return nil
}

// sendPart sends a part of a chunked reply, and reports whether the client still reads.
func (t *dialect) sendPart(c echo.Context, begun bool, part []byte) bool {
	response := c.Response()
	if !begun {
		response.Header().Set("Content-Type", plainJSON)
		response.WriteHeader(http.StatusOK)
	}
	t.Replies.LimitWrites(response)
	_, err := response.Write(part)
	return err == nil
}
