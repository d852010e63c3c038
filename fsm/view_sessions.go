package fsm

// SessionView is a session as readers see it.
type SessionView struct {
	ID         uint64
	TTLMS      int64
	DeadlineMS int64 // in cluster time
	OneShot    bool
	Keep       bool
	Owner      string
	Metadata   []Pair
	Leases     []LeaseView   // oldest first, including revoked ones
	Waiting    []RequestView // lowest place first
}

// WaitListView is one entry of a session's wait list.
type WaitListView struct {
	Semaphore string
	Epoch     uint64
	Wanted    int64 // still waited for; 0 if no request waits
	Granted   int64 // granted, not yet delivered
	Token     uint64
	Deleted   bool
	Group     string

	// The next members are of the waiting request; 0 if no request waits.
	Place      uint64
	Position   int64
	EnqueuedMS int64
}

// Session returns one session by id.
func (m *Machine) Session(id uint64) (SessionView, bool) {
	r, ok := m.bySession.Get(id)
	if !ok {
		return SessionView{}, false
	}
	return m.viewSession(r), true
}

// TTLOf returns the ttl of a living session, in milliseconds, or 0.
func (m *Machine) TTLOf(id uint64) int64 {
	r, ok := m.bySession.Get(id)
	if !ok {
		return 0
	}
	return m.sessions.at(r).ttlMS
}

// HasSession reports whether a session with the id is alive.
func (m *Machine) HasSession(id uint64) bool {
	_, ok := m.bySession.Get(id)
	return ok
}

func (m *Machine) viewSession(r ref) SessionView {
	s := m.sessions.at(r)
	view := SessionView{ID: s.id, TTLMS: s.ttlMS, DeadlineMS: s.deadlineMS, OneShot: s.oneShot, Keep: s.keep, Owner: s.owner,
		Metadata: s.metadata}
	view.Leases = m.Leases(s.id)
	for q := s.requests.first; q != 0; q = m.requests.at(q).inSession.next {
		if len(m.undeleted(m.requests.at(q).members)) > 0 {
			view.Waiting = append(view.Waiting, m.viewRequestOf(q))
		}
	}
	return view
}

// Sessions returns up to limit sessions in the order of their ids, after the given id.
func (m *Machine) Sessions(after uint64, limit int) []SessionView {
	var found []SessionView
	for _, id := range m.SessionIDs(after, limit) {
		r, _ := m.bySession.Get(id)
		found = append(found, m.viewSession(r))
	}
	return found
}

// SessionIDs returns up to limit ids of sessions in their order, after the given id.
func (m *Machine) SessionIDs(after uint64, limit int) []uint64 {
	var found []uint64
	m.bySession.Ascend(after, func(id uint64, _ ref) bool {
		if len(found) == limit {
			return false
		}
		if id != after || after == 0 {
			found = append(found, id)
		}
		return true
	})
	return found
}

// Leases returns the leases of a session, including revoked leases. Its cost depends on their number alone.
func (m *Machine) Leases(sessionID uint64) (held []LeaseView) {
	for l := range m.LeasesAfter(sessionID, 0) {
		held = append(held, l)
	}
	return held
}

// LeasesAfter returns the leases of a session with tokens higher than afterToken, oldest first. It includes revoked
// leases. It walks through the earlier leases, at most Limits.SessionLeases.
func (m *Machine) LeasesAfter(sessionID, afterToken uint64) func(yield func(LeaseView) bool) {
	return func(yield func(LeaseView) bool) {
		session, known := m.bySession.Get(sessionID)
		if !known {
			return
		}
		for l := m.sessions.at(session).leases.first; l != 0; l = m.leases.at(l).inSession.next {
			if lease := m.leases.at(l); lease.token > afterToken && !m.gone(lease.semaphore) && !yield(m.viewLease(l)) {
				return
			}
		}
	}
}

// Lease returns the lease of a session in a group of a semaphore, even if it is revoked, at constant cost.
func (m *Machine) Lease(sessionID uint64, name, group string) (LeaseView, bool) {
	session, known := m.bySession.Get(sessionID)
	semaphore, exists := m.byName[name]
	held, holds := m.leaseNamed(session, semaphore, group)
	if !known || !exists || !holds {
		return LeaseView{}, false
	}
	return m.viewLease(held), true
}

// Request returns the request of a session that waits for a lease in a group of a semaphore. Its Position is the place
// in the line of the first semaphore of its list.
func (m *Machine) Request(sessionID uint64, name, group string) (RequestView, bool) {
	session, known := m.bySession.Get(sessionID)
	semaphore, exists := m.byName[name]
	if !known || !exists {
		return RequestView{}, false
	}
	waiting, _ := m.waitNamed(session, semaphore, group)
	if waiting == 0 {
		return RequestView{}, false
	}
	return m.viewRequestOf(waiting), true
}

// viewRequestOf returns a request as its session sees it, with the position in the first line of its list.
func (m *Machine) viewRequestOf(waiting ref) RequestView {
	r := m.requests.at(waiting)
	first := m.undeleted(r.members)[0].target()
	return m.viewRequest(waiting, first, m.lineOf(first).position(r.rank()))
}

// WaitList returns the wait list of a session in the order of its entries.
func (m *Machine) WaitList(id uint64) []WaitListView {
	var list []WaitListView
	session, ok := m.bySession.Get(id)
	if !ok {
		return nil
	}
	for r := m.sessions.at(session).entries.first; r != 0; r = m.entries.at(r).inSession.next {
		e := m.entries.at(r)
		view := WaitListView{Semaphore: e.name, Epoch: e.epoch, Wanted: m.wanted(e), Deleted: m.orphaned(e), Group: e.group}
		if !view.Deleted {
			view.Granted, view.Token = e.granted, e.token
		}
		if e.waiting != 0 && !view.Deleted {
			q := m.requests.at(e.waiting)
			view.Place, view.Position, view.EnqueuedMS = q.place, m.lineOf(q.members[0].target()).position(q.rank()), q.enqueuedMS
		}
		list = append(list, view)
	}
	return list
}

// OwnerOf returns the owner of a session that is alive, or whose end is remembered.
func (m *Machine) OwnerOf(id uint64) (owner string, known bool) {
	if r, ok := m.bySession.Get(id); ok {
		return m.sessions.at(r).owner, true
	}
	if r, remembered := m.byEnded[id]; remembered {
		return m.ended.at(r).owner, true
	}
	return "", false
}

// Ended returns how a session ended, if the machine remembers the end.
func (m *Machine) Ended(id uint64) (cause Cause, reason string, ok bool) {
	r, ok := m.byEnded[id]
	if !ok {
		return CauseNone, "", false
	}
	e := m.ended.at(r)
	return e.cause, e.reason, true
}

// Outcome returns what became of a request, for a reader that missed its conclusion: it still waits, it was granted, or
// its session has ended, and the result says why. ok is false if the state does not show it.
func (m *Machine) Outcome(sessionID, place uint64, wants []Want) (Result, bool) {
	if waiting, ok := m.requestAt(sessionID, place); ok {
		return m.waitingResult(waiting), true
	}
	session, ok := m.bySession.Get(sessionID)
	if !ok {
		var result Result
		m.findSession(sessionID, &result)
		_, remembered := m.byEnded[sessionID]
		return result, remembered
	}
	result := Result{Code: OK, Place: place}
	for _, want := range wants {
		semaphore, known := m.byName[want.Semaphore]
		held, holds := m.leaseNamed(session, semaphore, want.Group)
		if known && holds && !m.leases.at(held).revoked() && m.leases.at(held).count == want.Count {
			result.Grants = append(result.Grants, m.grantOf(m.leases.at(held)))
		}
	}
	m.describeSession(&result, session)
	return result, len(result.Grants) > 0
}
