package fsm

// expire is done once at the start of each entry: it removes sessions whose
// deadline has passed, in the order (deadline, id), until so many are gone
// that an entry stays short, and serves the lines once. One that is due but
// not yet removed is only late: it may hold, renew and be granted.
func (m *Machine) expire() {
	sessions, records := 0, 0
	for sessions < expireSessions && records < expireRecords && m.moreDue() {
		first, _ := m.deadlines.next()
		s := m.sessions.at(first.session)
		sessions++
		records += s.leases.length + s.requests.length
		m.endSession(first.session, CauseExpired, "")
	}
	m.forget()
	m.settle()
}

// moreDue reports whether a session's deadline has passed.
func (m *Machine) moreDue() bool {
	first, ok := m.deadlines.next()
	return ok && first.ms <= m.nowMS
}

// forget drops ended sessions and keys that are older than they are kept. The
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
	for dropped := 0; dropped < forgetKeys; {
		oldest, ok := m.keysFIFO.front()
		if !ok {
			break
		}
		if k := m.keys.at(oldest.record); k.order == oldest.order && k.atMS+keysKeptMS > m.nowMS {
			break
		}
		if m.forgetOldestKey() {
			dropped++
		}
	}
}
