package fsm

import "math"

// OwnerLimits bound the records of one owner: its sessions, and what they hold and wait for. 0 is no bound.
type OwnerLimits struct {
	Sessions int64 // sessions, including one-shots
	Leases   int64 // leases, including revoked leases and the leases that waiting requests can become
	Waiting  int64 // waiting requests; a request for a list counts once for each semaphore of the list
}

func (l *OwnerLimits) fields() [3]*int64 { return [...]*int64{&l.Sessions, &l.Leases, &l.Waiting} }

func (e *encoder) ownerLimits(l OwnerLimits) {
	for _, v := range l.fields() {
		e.uint(uint64(*v))
	}
}

func (d *decoder) ownerLimits() (l OwnerLimits) {
	for _, v := range l.fields() {
		read := d.Uint()
		if read > math.MaxInt64 {
			d.Fail()
		}
		*v = int64(read)
	}
	return l
}

// owned counts the records of one owner.
//
// A waiting request counts from its arrival as the leases that it can become. So the limit of leases is checked while
// there is a caller to refuse, and a later grant needs no check.
type owned struct {
	keys, keyBytes, sessions, leases, waiting int64
	semaphores, notices, items, itemBytes     int64
	ownLimits, returns                        int64
}

// count adds to the counts of an owner. It drops the counts of an owner without records.
func (m *Machine) count(owner string, more owned) {
	if owner == "" {
		return
	}
	has := m.owned[owner]
	has.keys += more.keys
	has.keyBytes += more.keyBytes
	has.sessions += more.sessions
	has.leases += more.leases
	has.waiting += more.waiting
	has.semaphores += more.semaphores
	has.notices += more.notices
	has.items += more.items
	has.itemBytes += more.itemBytes
	has.ownLimits += more.ownLimits
	has.returns += more.returns
	if has == (owned{}) {
		delete(m.owned, owner)
	} else {
		m.owned[owner] = has
	}
}

// ownerOf returns the identity that a request is for.
func (m *Machine) ownerOf(r *request) string {
	if r.session != 0 {
		return m.sessions.at(r.session).owner
	}
	return m.caller.Owner
}

// ownerHasRoom reports whether the caller's limits allow more records in a session; nil is a new session. The limits
// don't apply to another owner's session. A session without an owner, which the request takes over, counts as a whole.
func (m *Machine) ownerHasRoom(session *session, more owned, result *Result) bool {
	has, limits := m.owned[m.caller.Owner], &m.caller.Limits
	if session != nil && session.owner != m.caller.Owner {
		if session.owner != "" || !m.caller.hasIdentity() {
			return true
		}
		records := session.records()
		has.leases += records.leases
		has.waiting += records.waiting
	}
	return withinOwn(has.sessions, more.sessions, limits.Sessions, RuleOwnerSessions, result) &&
		withinOwn(has.leases, more.leases, limits.Leases, RuleOwnerLeases, result) &&
		withinOwn(has.waiting, more.waiting, limits.Waiting, RuleOwnerWaiting, result)
}

// withinOwn reports whether an owner may have more records of one kind. If the limit was lowered below the present
// count, the records stay, but more are refused.
func withinOwn(has, more, limit int64, rule Rule, result *Result) bool {
	if more == 0 || limit == 0 || within(has+more-1, limit, rule, result) {
		return true
	}
	result.explain().Limit = limit
	return false
}

// withinShare reports whether the caller may have more records of a kind that all owners share. An identity may have up
// to half of the limit. The empty owner may have all, because it stands for any number of clients.
func (m *Machine) withinShare(has, more, limit int64, rule Rule, result *Result) bool {
	return m.caller.Owner == "" || withinOwn(has, more, half(limit), rule, result)
}

// records counts the records of a session for its owner.
func (s *session) records() owned {
	has := owned{sessions: 1, leases: int64(s.leases.length()) + int64(s.reserved), waiting: int64(s.members)}
	if s.itemTerms != nil {
		has.itemBytes = s.itemTerms.bytes()
	}
	return has
}

// usableSession returns the living session with an id, if the caller may use it.
func (m *Machine) usableSession(id uint64) (ref, bool) {
	r, ok := m.bySession.Get(id)
	if !ok || !m.mayUse(m.sessions.at(r).owner) {
		return 0, false
	}
	return r, true
}

// takeOver makes the caller the owner of a session without an owner, if the command succeeded. Commands that only give
// permits back, such as Release, must not call takeOver, because an operator may use these commands too.
func (m *Machine) takeOver(r ref, result *Result) {
	if !m.caller.hasIdentity() || m.sessions.at(r).owner != "" || result.Code != OK && result.Code != Waiting {
		return
	}
	s := m.sessions.mut(r)
	s.owner = m.caller.Owner
	m.count(s.owner, s.records())
	result.TookOver = true
}

// hasIdentity reports whether the caller has an identity. Such a caller takes over the sessions and keys that have no
// owner, which were made before the cluster had identities.
func (v Envelope) hasIdentity() bool { return v.Owner != "" }

// replayUnowned returns the recorded result of the command's idempotency key, if the key has no owner. The caller takes
// over the key's session, unless the command only gives permits back or reclaims them. ok is false if no such key was
// recorded for this command (by its fingerprint), the caller has no identity, or another identity has the session.
func (m *Machine) replayUnowned(c *decoded) (result Result, ok bool) {
	r, ok := m.byKey[keyName{text: c.Key}]
	if !ok || !m.caller.hasIdentity() || m.keys.at(r).fingerprint != c.fingerprint {
		return Result{}, false
	}
	result = m.replay(r, c.fingerprint)
	session, ok := m.bySession.Get(result.Session)
	if ok && !m.mayUse(m.sessions.at(session).owner) {
		return Result{}, false
	}
	if use := c.op.row().session; ok && use != givesBack && use != reclaims {
		m.takeOver(session, &result)
	}
	return result, true
}

// mayUse reports whether the caller may use the sessions of an owner. Every caller may use sessions without an owner.
func (m *Machine) mayUse(owner string) bool { return ownerMatches(m.caller.Owner, owner) }

// ownerMatches reports whether a caller may use what an owner owns. "" is no identity, and matches every identity.
func ownerMatches(caller, owner string) bool { return caller == "" || owner == "" || caller == owner }

// FindsSession reports whether a living session has the id and the caller, an identity or "", may use it.
func (m *Machine) FindsSession(caller string, id uint64) bool {
	r, ok := m.bySession.Get(id)
	return ok && ownerMatches(caller, m.sessions.at(r).owner)
}
