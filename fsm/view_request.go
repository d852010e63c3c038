package fsm

// Obstacle is one line in which a waiting request can't be served as things are.
type Obstacle struct {
	Semaphore string
	BlockedBy Block // BlockAhead or BlockPermits
	Needs     int64
	Available int64
}

// obstacles answers where a request can't be served, in the order of its list.
// Its cost goes with the list.
func (m *Machine) obstacles(r *request) (found []Obstacle) {
	for _, want := range m.left(r.members) {
		if m.servableHere(r, want) {
			continue
		}
		s := m.semaphores.at(want.semaphore)
		o := Obstacle{Semaphore: s.name, BlockedBy: BlockPermits, Needs: want.count, Available: s.available()}
		if first, _, _ := s.line.Min(); first < r.place {
			o.BlockedBy = BlockAhead
		}
		found = append(found, o)
	}
	return found
}

// HasSession reports whether a session lives.
func (m *Machine) HasSession(id uint64) bool {
	_, ok := m.bySession[id]
	return ok
}

// Leases returns what a session holds, revoked leases too, at a cost that depends on
// nothing else.
func (m *Machine) Leases(session uint64) (held []LeaseView) {
	owner, known := m.bySession[session]
	if !known {
		return nil
	}
	for l := m.sessions.at(owner).leases.first; l != 0; l = m.leases.at(l).inSession.next {
		if !m.gone(m.leases.at(l).semaphore) {
			held = append(held, m.viewLease(l))
		}
	}
	return held
}

// Lease answers the lease of a session on a semaphore, a revoked one too, at a
// cost that depends on nothing else.
func (m *Machine) Lease(session uint64, name string) (LeaseView, bool) {
	owner, known := m.bySession[session]
	semaphore, exists := m.byName[name]
	held, holds := m.byLease[leaseKey{owner, semaphore}]
	if !known || !exists || !holds {
		return LeaseView{}, false
	}
	return m.viewLease(held), true
}

// Request answers a session's request for leases that waits for a semaphore;
// the position is that in the first line of its list. The cost goes with the
// requests that the session has.
func (m *Machine) Request(session uint64, name string) (RequestView, bool) {
	owner, known := m.bySession[session]
	semaphore, exists := m.byName[name]
	if !known || !exists {
		return RequestView{}, false
	}
	waiting := m.waitsFor(owner, semaphore)
	if waiting == 0 {
		return RequestView{}, false
	}
	return m.viewRequestOf(waiting), true
}

// viewRequestOf is a request as its session sees it: by the first line of its
// list.
func (m *Machine) viewRequestOf(waiting ref) RequestView {
	r := m.requests.at(waiting)
	line := m.left(r.members)[0].semaphore
	return m.viewRequest(waiting, line, m.semaphores.at(line).position(r.place))
}
