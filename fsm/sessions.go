package fsm

// openSession makes a session and files it under its deadline.
func (m *Machine) openSession(s session) ref {
	s.owner = m.caller.Owner
	r := m.sessions.add(s)
	m.bySession[s.id] = r
	m.ids.Set(s.id, r)
	m.deadlines.set(r, s.id, s.deadlineMS)
	m.forgetEnded(s.id)
	m.effect(Effect{Kind: EffectSessionOpen, Session: s.id, OneShot: s.oneShot, TTLMS: s.ttlMS,
		DeadlineMS: s.deadlineMS, Metadata: s.metadata})
	return r
}

// setLife gives a session a ttl and a deadline, and tells it if either is new.
func (m *Machine) setLife(r ref, ttlMS, deadlineMS int64) {
	s := m.sessions.mut(r)
	if s.ttlMS != ttlMS || s.deadlineMS != deadlineMS {
		m.effect(Effect{Kind: EffectSessionRenewed, Session: s.id, TTLMS: ttlMS, DeadlineMS: deadlineMS})
	}
	s.ttlMS, s.deadlineMS = ttlMS, deadlineMS
	m.deadlines.set(r, s.id, deadlineMS)
}

func (m *Machine) endIfDue(s *session) {
	if s.deadlineMS <= m.nowMS {
		m.endNow = append(m.endNow, s.id)
	}
}

// setTTL gives a session a ttl, and the deadline that follows from it. One that
// is not in the future ends the session as the last step of the command.
func (m *Machine) setTTL(r ref, ttlMS int64) {
	m.setLife(r, ttlMS, m.nowMS+ttlMS)
	m.endIfDue(m.sessions.at(r))
}

// giveTTL gives a session a ttl, and the deadline that follows from it. While a
// one-shot's own request waits, its deadline is the end of that wait and stays; the
// ttl counts from the grant.
func (m *Machine) giveTTL(r ref, ttlMS int64) {
	if s := m.sessions.at(r); s.awaitsFirst() {
		m.setLife(r, ttlMS, s.deadlineMS)
	} else {
		m.setTTL(r, ttlMS)
	}
}

// waitOver notes the end of a request's wait, and reports whether it was the one that
// a one-shot session was made for.
func (m *Machine) waitOver(r *request) bool {
	if r.session == 0 || r.place == 0 || m.sessions.at(r.session).first != r.place {
		return false
	}
	m.sessions.mut(r.session).first = 0
	return true
}

// endSession withdraws a session's requests, releases its leases and removes
// it. The lines that this touched are left for settle.
func (m *Machine) endSession(r ref, cause Cause, reason string) {
	for request := m.sessions.at(r).requests.first; request != 0; request = m.sessions.at(r).requests.first {
		why := cause
		if cause == CauseExpired && m.requests.at(request).place == m.sessions.at(r).first {
			why = CauseTimeout // its deadline was the end of this wait
		}
		m.withdraw(request, why, m.outcomeOfEnd(r, request, why, reason))
	}
	for l := m.sessions.at(r).leases.first; l != 0; l = m.sessions.at(r).leases.first {
		m.dropLease(l, cause, reason)
	}
	for e := m.sessions.at(r).entries.first; e != 0; e = m.sessions.at(r).entries.first {
		m.dropEntry(e, !m.sessions.at(r).keep)
	}
	s := *m.sessions.at(r)
	m.done.ended++
	m.shrinkKey(&s)
	m.deadlines.remove(r)
	m.sessions.remove(r)
	delete(m.bySession, s.id)
	m.ids.Delete(s.id)
	m.effect(Effect{Kind: EffectSessionEnded, Session: s.id, Cause: cause, Reason: reason})
	if s.leased || !s.oneShot {
		m.rememberEnded(ended{id: s.id, cause: cause, reason: reason, owner: s.owner})
	}
}

// outcomeOfEnd is what a waiting request is told when its session ends.
func (m *Machine) outcomeOfEnd(r, waiting ref, cause Cause, reason string) Result {
	s, request := m.sessions.at(r), m.requests.at(waiting)
	result := Result{Session: s.id, Place: request.place, Reason: reason}
	switch {
	case cause == CauseTimeout: // of the request that the session was made for
		m.refuse(&result, Unavailable, request.members[0].semaphore, request.members[0].count)
		result.QueueLength-- // not itself
	case cause == CauseExpired:
		result.Code = ExpiredSession
	case cause == CauseRevoked:
		result.Code = Revoked
	case s.oneShot:
		result.Code = Withdrawn
	default:
		result.Code = UnknownSession
	}
	return result
}

// endIfSpent ends a one-shot session that neither holds nor waits any more.
func (m *Machine) endIfSpent(r ref, cause Cause) {
	s := m.sessions.at(r)
	if s.oneShot && s.leases.length == 0 && s.requests.length == 0 && s.entries.length == 0 {
		m.endSession(r, cause, "")
	}
}

// ownSession returns the living session of an id, if the caller may find it.
func (m *Machine) ownSession(id uint64) (ref, bool) {
	r, ok := m.bySession[id]
	if !ok || !m.mayFind(m.sessions.at(r).owner) {
		return 0, false
	}
	return r, true
}

// mayFind reports whether the caller's identity finds what an owner has. What was
// opened without an identity every caller finds.
func (m *Machine) mayFind(owner string) bool {
	return m.caller.Owner == "" || owner == "" || m.caller.Owner == owner
}

// findSession answers the session of an id, or the refusal that tells what
// became of it while that is remembered.
func (m *Machine) findSession(id uint64, result *Result) (ref, bool) {
	if r, ok := m.ownSession(id); ok {
		return r, true
	}
	result.Code, result.Session = UnknownSession, id
	if r, ok := m.byEnded[id]; ok && m.mayFind(m.ended.at(r).owner) {
		switch e := m.ended.at(r); e.cause {
		case CauseExpired:
			result.Code = ExpiredSession
		case CauseRevoked:
			result.Code, result.Reason = Revoked, e.reason
		}
	}
	return 0, false
}

func (m *Machine) sessionID(r ref) uint64 {
	if r == 0 {
		return 0
	}
	return m.sessions.at(r).id
}

// describeSession tells a session's life in a result.
func (m *Machine) describeSession(result *Result, r ref) {
	if r == 0 {
		return
	}
	s := m.sessions.at(r)
	result.Session, result.TTLMS, result.DeadlineMS = s.id, s.ttlMS, s.deadlineMS
	result.OneShot = s.oneShot
	result.Waiting = s.requests.length > 0
}

// rememberEnded keeps how a session ended, and forgets the oldest beyond the
// bound.
func (m *Machine) rememberEnded(e ended) {
	m.forgetEnded(e.id)
	m.orders++
	e.order, e.atMS = m.orders, m.nowMS
	r := m.ended.add(e)
	m.byEnded[e.id] = r
	m.endedFIFO.push(e.order, r)
	if len(m.endedFIFO.entries) > 4*maxEnded { // most of them stand for what is forgotten
		m.endedFIFO.compact(func(f fifoEntry) bool { return m.ended.at(f.record).order == f.order })
	}
	for m.ended.live > maxEnded {
		m.forgetOldestEnded()
	}
}

func (m *Machine) forgetEnded(id uint64) {
	if r, ok := m.byEnded[id]; ok {
		delete(m.byEnded, id)
		m.ended.remove(r)
	}
}

// forgetOldestEnded takes one entry off the queue, and reports whether the
// record that it stands for went with it.
func (m *Machine) forgetOldestEnded() bool {
	oldest, _ := m.endedFIFO.front()
	m.endedFIFO.pop()
	e := m.ended.at(oldest.record)
	if e.order != oldest.order {
		return false
	}
	m.forgetEnded(e.id)
	return true
}
