package fsm

import "github.com/tidwall/btree"

// DerivedSessions is the lowest session id that is derived from names. For example, an id derived from the names of a
// machine and its group lets every node find the machine's session. Session ids that nodes draw are smaller.
const DerivedSessions uint64 = 1 << 63

// openSession stores a session and indexes it by its deadline.
func (m *Machine) openSession(s session) ref {
	s.owner = m.caller.Owner
	r := m.sessions.add(s)
	m.bySession.Set(s.id, r)
	m.deadlines.set(r, s.id, s.deadlineMS)
	m.count(s.owner, s.records())
	m.forgetEndOf(s.id)
	opened := Effect{Kind: EffectSessionOpen, Session: s.id, OneShot: s.oneShot, TTLMS: s.ttlMS, DeadlineMS: s.deadlineMS}
	if len(s.metadata) > 0 {
		opened.Details = &EffectDetails{Metadata: s.metadata}
	}
	m.emit(opened)
	return r
}

// setLife sets the ttl and the deadline of a session, and records an effect if either changes.
func (m *Machine) setLife(r ref, ttlMS, deadlineMS int64) {
	s := m.sessions.mut(r)
	if s.ttlMS != ttlMS || s.deadlineMS != deadlineMS {
		m.emit(Effect{Kind: EffectSessionRenewed, Session: s.id, TTLMS: ttlMS, DeadlineMS: deadlineMS})
	}
	s.ttlMS, s.deadlineMS = ttlMS, deadlineMS
	m.deadlines.set(r, s.id, deadlineMS)
}

// endIfDue makes finishCommand end a session whose deadline is not in the future.
func (m *Machine) endIfDue(s *session) {
	if s.deadlineMS <= m.nowMS {
		m.endNow = append(m.endNow, s.id)
	}
}

// setTTL sets the ttl of a session, which also moves its deadline. If the deadline is not in the future, the session
// ends as the last step of the command.
func (m *Machine) setTTL(r ref, ttlMS int64) {
	m.setLife(r, ttlMS, m.nowMS+ttlMS)
	m.endIfDue(m.sessions.at(r))
}

// giveTTL sets the ttl of a session, which also moves its deadline. While the first request of a one-shot waits, the
// deadline is the end of that wait and stays; the ttl counts from the grant.
func (m *Machine) giveTTL(r ref, ttlMS int64) {
	if s := m.sessions.at(r); s.awaitsFirst() {
		m.setLife(r, ttlMS, s.deadlineMS)
	} else {
		m.setTTL(r, ttlMS)
	}
}

// endFirstWait records that the request for which a one-shot was opened no longer waits. It returns false for any other
// request.
func (m *Machine) endFirstWait(r *request) bool {
	if r.session == 0 || r.place == 0 || m.sessions.at(r.session).first != r.place {
		return false
	}
	m.sessions.mut(r.session).first = 0
	return true
}

// endSession withdraws the requests of a session, drops its leases and items and removes it. The caller must call
// finishCommand afterwards, because requests in other sessions may now be grantable.
func (m *Machine) endSession(r ref, cause Cause, reason string) {
	for request := m.sessions.at(r).requests.first; request != 0; request = m.sessions.at(r).requests.first {
		why := cause
		if cause == CauseExpired && m.requests.at(request).place == m.sessions.at(r).first {
			why = CauseTimeout // the deadline was the end of this wait
		}
		m.withdraw(request, why, m.outcomeOfEnd(r, request, why, reason))
	}
	for l := m.sessions.at(r).leases.first; l != 0; l = m.sessions.at(r).leases.first {
		m.dropLease(l, cause, reason)
	}
	for e := m.sessions.at(r).entries.first; e != 0; e = m.sessions.at(r).entries.first {
		m.dropEntry(e, !m.sessions.at(r).keep)
	}
	if s := m.sessions.at(r); s.itemTerms != nil || s.items.length() > 0 {
		m.releaseItems(r, cause)
	}
	s := *m.sessions.at(r)
	m.done.ended++
	m.shrinkKey(&s)
	m.deadlines.remove(r)
	m.sessions.remove(r)
	m.bySession.Delete(s.id)
	m.count(s.owner, owned{sessions: -1})
	m.emit(Effect{Kind: EffectSessionEnded, Session: s.id, Cause: cause, Details: detailsOf("", 0, nil, reason)})
	if s.leased || !s.oneShot {
		m.rememberEnded(ended{id: s.id, cause: cause, reason: reason, owner: s.owner})
	}
}

// outcomeOfEnd returns the outcome of a waiting request whose session ends.
func (m *Machine) outcomeOfEnd(r, waiting ref, cause Cause, reason string) Result {
	s, request := m.sessions.at(r), m.requests.at(waiting)
	result := Result{Session: s.id, Place: request.place, Refusal: Refusal{Reason: reason}.ifSet()}
	switch {
	case cause == CauseTimeout: // the wait of the request for which the session was opened has timed out
		m.refuseUnavailable(&result, request)
		result.QueueLength-- // the request itself does not count
	case cause == CauseExpired:
		result.Code = ExpiredSession
	case revokes(cause):
		result.Code = Revoked
	case s.oneShot:
		result.Code = Withdrawn
	default:
		result.Code = UnknownSession
	}
	return result
}

// endIfSpent ends a one-shot session that has no lease, waiting request or wait-list entry left.
func (m *Machine) endIfSpent(r ref, cause Cause) {
	s := m.sessions.at(r)
	if s.oneShot && s.leases.length() == 0 && s.requests.length() == 0 && s.entries.length() == 0 {
		m.endSession(r, cause, "")
	}
}

// findSession returns the living session with an id. Otherwise result is the refusal, which says how the session ended
// if the machine remembers the end.
func (m *Machine) findSession(id uint64, result *Result) (ref, bool) {
	if r, ok := m.usableSession(id); ok {
		return r, true
	}
	result.Code, result.Session = UnknownSession, id
	if r, ok := m.byEnded[id]; ok && m.mayUse(m.ended.at(r).owner) {
		switch e := m.ended.at(r); {
		case e.cause == CauseExpired:
			result.Code = ExpiredSession
		case revokes(e.cause):
			result.Code, result.Refusal = Revoked, Refusal{Reason: e.reason}.ifSet()
		}
	}
	return 0, false
}

// find returns the semaphore and the session that a command names. If one of them does not
// exist, ok is false and result is the refusal.
func (m *Machine) find(name string, epoch, sessionID uint64, result *Result) (semaphore, session ref, ok bool) {
	if semaphore, ok = m.findSemaphore(name, epoch, result); ok {
		session, ok = m.findSession(sessionID, result)
	}
	return semaphore, session, ok
}

func (m *Machine) sessionID(r ref) uint64 {
	if r == 0 {
		return 0
	}
	return m.sessions.at(r).id
}

// describeSession fills the members of a result that describe a session.
func (m *Machine) describeSession(result *Result, r ref) {
	if r == 0 {
		return
	}
	s := m.sessions.at(r)
	result.Session, result.TTLMS, result.DeadlineMS = s.id, s.ttlMS, s.deadlineMS
	result.OneShot = s.oneShot
	result.Waiting = s.requests.length() > 0
}

// roomToOpen reports whether another session may be opened with an id.
func (m *Machine) roomToOpen(id uint64, result *Result) bool {
	if _, taken := m.bySession.Get(id); taken {
		result.Code, result.Session = SessionIDTaken, id
		return false
	}
	return within(int64(m.sessions.live), m.limits.Sessions, RuleSessions, result) && m.ownerHasRoom(nil, owned{sessions: 1}, result)
}

// roomToHold reports whether the limits allow the leases that a request asks for. Leases of waiting requests are
// reserved, so that a later grant never exceeds a limit. session is nil for a new one-shot session.
func (m *Machine) roomToHold(session *session, newcomer *request, result *Result) bool {
	if !m.roomForLeases(newcomer.reserves(), result) {
		return false
	}
	more := newcomer.leases()
	if more == 0 {
		return true
	}
	if !m.ownerHasRoom(session, owned{leases: more}, result) {
		return false
	}
	return session == nil || within(int64(session.leases.length())+int64(session.reserved)+more-1, m.limits.SessionLeases, RuleSessionLeases, result)
}

// roomForLeases reports whether there is room for more leases and returns.
func (m *Machine) roomForLeases(more int64, result *Result) bool {
	return more == 0 || within(int64(m.leases.live+m.returns.live)+m.reserved+more-1, m.limits.Leases, RuleLeases, result)
}

// roomForReturns reports whether the caller's share allows more returns, and leases that may leave a return when they
// end. The caller's other leases count too.
func (m *Machine) roomForReturns(more int64, result *Result) bool {
	has := m.owned[m.caller.Owner]
	return m.withinShare(has.returns+has.leases, more, m.limits.Leases, RuleOwnerReturns, result)
}

// within reports whether one more record fits below a limit; if not, result is the refusal.
func within(have, limit int64, rule Rule, result *Result) bool {
	if have < limit {
		return true
	}
	result.Code, result.Rule = LimitReached, rule
	return false
}

// NoToken is larger than every token: a command that names it finds no lease.
const NoToken uint64 = maxToken + 1

// holderStride is the largest number of leases that a search for a token walks through.
const holderStride = 64

// holderIndex indexes about every holderStride-th lease of a semaphore by its token. At most holderStride leases lie
// before, between and after indexed leases, so a search for a token needs only a short walk.
type holderIndex struct {
	byToken btree.Map[uint64, ref]
	since   int // leases added after the last indexed lease; some of them may have ended
}

// linkHolder adds a lease to the end of its semaphore's list. The index begins with the
// holderStride-th lease.
func (m *Machine) linkHolder(r ref) {
	l := m.leases.at(r)
	holders := &m.semaphores.mut(l.semaphore).holders
	holders.push(r, m.leaseInSemaphore)
	if holders.length() < holderStride {
		return
	}
	index := m.holdersBy[l.semaphore]
	if index == nil {
		index = &holderIndex{since: holderStride}
		m.holdersBy[l.semaphore] = index
	}
	if index.since++; index.since >= holderStride {
		index.byToken.Set(l.token, r)
		index.since = 0
	}
}

// unlinkHolder removes a lease from its semaphore's list. If the lease was indexed, the next lease is indexed in its
// place, so that no gap between indexed leases grows.
func (m *Machine) unlinkHolder(r ref) {
	l := *m.leases.at(r)
	holders := &m.semaphores.mut(l.semaphore).holders
	holders.unlink(r, m.leaseInSemaphore)
	index := m.holdersBy[l.semaphore]
	if index == nil {
		return
	}
	if holders.length() < holderStride {
		delete(m.holdersBy, l.semaphore)
		return
	}
	if _, indexed := index.byToken.Delete(l.token); !indexed {
		return
	}
	if next := l.inSemaphore.next; next != 0 {
		index.byToken.Set(m.leases.at(next).token, next)
	} else {
		index.since = holderStride // makes linkHolder index the next lease
	}
}

// linkLease adds a lease to the indexes. Leases come in the order of their tokens.
func (m *Machine) linkLease(r ref) {
	l := m.leases.at(r)
	session := m.sessions.mut(l.session)
	if session.leases.length() > 0 { // the first lease needs no index, see leaseOf
		m.byLease[leaseKey{l.session, l.target()}] = r
	}
	session.leased = true
	session.leases.push(r, m.leaseInSession)
	m.count(session.owner, owned{leases: 1})
	m.linkHolder(r)
	if l.lane != 0 {
		m.useLane(l.lane)
		m.addHeld(l.lane, l.holds())
	}
	m.indexEnd(r)
}

// indexEnd files a lease by the time at which it ends.
func (m *Machine) indexEnd(r ref) {
	if l := m.leases.at(r); l.endsMS != 0 {
		m.byReturn.leaseEnds.Set(leaseEnd{l.endsMS, l.token, r})
	}
}

func (m *Machine) unindexEnd(r ref) {
	if l := m.leases.at(r); l.endsMS != 0 {
		m.byReturn.leaseEnds.Delete(leaseEnd{l.endsMS, l.token, r})
	}
}

// leaseOf returns the lease of a session for a target.
func (m *Machine) leaseOf(session ref, t target) (ref, bool) {
	if session == 0 {
		return 0, false
	}
	if first := m.sessions.at(session).leases.first; first != 0 && m.leases.at(first).target() == t {
		return first, true
	}
	r, ok := m.byLease[leaseKey{session, t}]
	return r, ok
}

func (m *Machine) leaseInSession(r ref) *links { return &m.leases.mut(r).inSession }

func (m *Machine) leaseInSemaphore(r ref) *links { return &m.leases.mut(r).inSemaphore }

// dropLease removes a lease, revoked or not, and returns its permits. The session lives on.
func (m *Machine) dropLease(r ref, cause Cause, reason string) {
	l := *m.leases.at(r)
	m.rememberRevoked(&l, cause)
	m.unindexEnd(r)
	m.takeBack(&l, l.holds(), l.slots.all(), cause, reason)
	session := m.sessions.mut(l.session)
	session.leases.unlink(r, m.leaseInSession)
	m.count(session.owner, owned{leases: -1})
	m.unlinkHolder(r)
	delete(m.byLease, leaseKey{l.session, l.target()})
	m.leases.remove(r)
	m.leaveLane(l.lane)
	m.done.ended++
}

// takeBack returns permits and slots of a lease to its semaphore, now or later. It records the effect, and lets serve
// check the line for requests that can be granted.
func (m *Machine) takeBack(l *lease, count int64, named []SlotRun, cause Cause, reason string) {
	s := m.semaphores.mut(l.semaphore)
	s.held -= count
	s.modified = m.index
	m.addHeld(l.lane, -count)
	dueMS, lost := int64(0), false
	if count > 0 {
		dueMS, lost = m.returnTime(l, cause)
	}
	m.emit(Effect{Kind: EffectReleased, Cause: cause, Semaphore: s.name, Epoch: s.epoch,
		Session: m.sessionID(l.session), Token: l.token, Count: count, SinceMS: l.grantedMS,
		Details: detailsOf(m.groupOf(l.lane), dueMS, named, reason)})
	switch {
	case dueMS != 0:
		m.scheduleReturn(l, count, named, dueMS, lost)
	case count > 0:
		m.freeSlots(l.semaphore, named)
		m.touch(member{semaphore: l.semaphore, lane: l.lane})
	}
}

// leaseWithToken returns the lease of a session for a group of a semaphore if it has the token; token 0 matches any lease.
// A token is never reused, so a late command can't end a newer lease by mistake.
func (m *Machine) leaseWithToken(session, semaphore ref, group string, token uint64) (ref, bool) {
	held, ok := m.leaseNamed(session, semaphore, group)
	if !ok || token != 0 && m.leases.at(held).token != token {
		return 0, false
	}
	return held, true
}

// wasRevoked reports whether an operator revoked one of the leases of a session that is to be restored. If so, result
// is the refusal.
func (m *Machine) wasRevoked(sessionID uint64, members []member) (result Result, was bool) {
	for _, want := range members {
		if r, ok := m.byRevoked[revokedKey{sessionID, m.semaphores.at(want.semaphore).epoch, m.groupOf(want.lane)}]; ok {
			m.refuseRevoked(&result, want, m.revoked.at(r).reason)
			result.Session = sessionID
			return result, true
		}
	}
	return result, false
}

// forgetRevocation drops the record of a revoked lease, if there is one.
func (m *Machine) forgetRevocation(at revokedKey) {
	if r, ok := m.byRevoked[at]; ok {
		m.forgetRevoked(r)
	}
}
