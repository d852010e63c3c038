package fsm

import "math"

// A deleted semaphore is out of the index of names at once. Its record stays, marked,
// until all that hung on it is gone; so do the marks of a line in which requests
// have become impossible. A large one takes several entries.

// sweep goes on with the marked semaphores, the oldest first, until the entry has
// done enough.
func (m *Machine) sweep() {
	limit := max(m.budget.ended, m.done.ended+m.budget.swept)
	for {
		_, r, ok := m.unswept.Min()
		switch {
		case !ok:
			return
		case m.semaphores.at(r).deleted:
			if !m.empty(r, limit) {
				return
			}
			m.removeSemaphore(r)
		case !m.endImpossible(r, limit):
			return
		}
	}
}

// empty ends what hangs on a deleted semaphore: who waits, then the leases, then the
// entries of wait lists. It reports whether nothing is left.
func (m *Machine) empty(r ref, limit int) bool {
	for {
		s := m.semaphores.at(r)
		switch {
		case s.line == nil && s.holders.first == 0 && s.entries.first == 0:
			return true
		case m.done.ended >= limit:
			return false
		case s.line != nil:
			_, waiting, _ := s.line.Min()
			m.loseMember(waiting, r, CauseDeleted, Deleted)
		case s.holders.first != 0:
			owner := m.leases.at(s.holders.first).session
			m.dropLease(s.holders.first, CauseDeleted, "")
			m.endIfSpent(owner, CauseDeleted)
		default:
			m.orphanEntry(s.entries.first)
		}
	}
}

// removeSemaphore removes the record of a deleted semaphore that is empty.
func (m *Machine) removeSemaphore(r ref) {
	m.unswept.Delete(m.semaphores.at(r).epoch)
	m.semaphores.remove(r)
}

// endImpossible ends leased requests that ask for more than could ever be
// granted now, so that they don't block the line. It reports whether none is left,
// and marks the semaphore accordingly.
func (m *Machine) endImpossible(r ref, limit int) bool {
	for {
		s := m.semaphores.at(r)
		left := s.asked != nil && s.asked.largest() > s.full()
		if s.shrunk != left && m.bounded() {
			m.semaphores.mut(r).shrunk = left
			if left {
				m.unswept.Set(s.epoch, r)
			} else {
				m.unswept.Delete(s.epoch)
			}
		}
		if !left || m.done.ended >= limit {
			return !left
		}
		for _, waiting := range s.asked.above(s.full(), limit-m.done.ended) {
			if m.done.ended >= limit {
				break
			}
			m.loseMember(waiting, r, CauseNever, Never)
		}
	}
}

// limitOfCommand is up to where a command may go on ending what it did not name.
func (m *Machine) limitOfCommand() int {
	if m.bounded() {
		return m.budget.ended
	}
	return math.MaxInt
}

// gone reports whether a semaphore is deleted: only its record is left.
func (m *Machine) gone(semaphore ref) bool { return m.semaphores.at(semaphore).deleted }

// orphaned reports whether the semaphore of a wait list's entry is deleted.
func (m *Machine) orphaned(e *entry) bool { return e.semaphore == 0 || m.gone(e.semaphore) }

// left returns the members of a request whose semaphores exist.
func (m *Machine) left(members []member) []member {
	if m.unswept.Len() == 0 {
		return members
	}
	var found []member
	for _, want := range members {
		if !m.gone(want.semaphore) {
			found = append(found, want)
		}
	}
	return found
}

// has counts a session's leases and requests, without those of deleted semaphores.
func (m *Machine) has(owner ref) (leases, requests int) {
	s := m.sessions.at(owner)
	if m.unswept.Len() == 0 {
		return s.leases.length, s.requests.length
	}
	for l := s.leases.first; l != 0; l = m.leases.at(l).inSession.next {
		if !m.gone(m.leases.at(l).semaphore) {
			leases++
		}
	}
	for q := s.requests.first; q != 0; q = m.requests.at(q).inSession.next {
		if len(m.left(m.requests.at(q).members)) > 0 {
			requests++
		}
	}
	return leases, requests
}

// endOrphan ends a session's request for a list at once, instead of in its turn, when
// it can't be served any more because of deleted semaphores: a repeat is a new request.
func (m *Machine) endOrphan(owner ref, group uint64) {
	waiting, ok := m.byGroup[groupKey{owner, group}]
	if !ok {
		return
	}
	r := *m.requests.at(waiting)
	if left := len(m.left(r.members)); left == len(r.members) || r.mode == Any && left > 0 {
		return
	}
	for _, want := range r.members {
		if m.gone(want.semaphore) {
			m.loseMember(waiting, want.semaphore, CauseDeleted, Deleted)
			if r.mode == All {
				break
			}
		}
	}
	m.settle()
}
