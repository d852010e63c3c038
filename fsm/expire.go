package fsm

// expire is done once at the start of each entry: it removes sessions whose
// deadline has passed, in the order (deadline, id), until so many are gone
// that an entry stays short, goes on with what the last entry left over, and
// serves the lines once. A session that is due but not yet removed is only late:
// it may hold, renew and be granted.
func (m *Machine) expire() {
	m.done = work{}
	sessions, records := 0, 0
	for sessions < expireSessions && m.expired() {
		first, _ := m.deadlines.next()
		s := m.sessions.at(first.session)
		sessions++
		records += s.leases.length + s.requests.length
		m.endSession(first.session, CauseExpired, "")
		if !m.mayEnd() || !m.bounded() && records >= expireRecords {
			break
		}
	}
	m.forget()
	m.sweep()
	m.settle()
	m.done.before = m.done.ended
}

// forget drops ended sessions, keys and marks that are older than they are kept. The
// bound counts what is really dropped: a restored machine has fewer leftovers
// in its queues, and must drop the same.
func (m *Machine) forget() {
	for dropped := 0; dropped < forgetKeys; {
		oldest, ok := m.endedFIFO.front()
		if !ok {
			break
		}
		if e := m.ended.at(oldest.record); e.order == oldest.order && e.atMS+endedKeptMS > m.nowMS {
			break
		}
		if m.forgetOldestEnded() {
			dropped++
		}
	}
	m.forgetOldKeys()
	m.forgetMarks()
	m.forgetOldRevoked()
	m.forgetOldNotices()
}
