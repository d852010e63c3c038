package fsm

import "slices"

// The wait list of a session has semaphores of which the session wants permits. Each entry has a request that waits
// like a partial down, in the same line as other requests. The session fetches granted permits with ListDeliver.

// addEntry adds a semaphore at the end of a session's wait list.
func (m *Machine) addEntry(session ref, w member) ref {
	m.orders++
	s := m.semaphores.at(w.semaphore)
	r := m.entries.add(listEntry{order: m.orders, session: session, semaphore: w.semaphore, lane: w.lane, name: s.name, epoch: s.epoch,
		group: m.groupOf(w.lane)})
	m.linkEntry(r)
	return r
}

// linkEntry adds an entry to the indexes. The entries of a list must be added in their order.
func (m *Machine) linkEntry(r ref) {
	e := m.entries.at(r)
	m.sessions.mut(e.session).entries.push(r, m.entryInSession)
	if e.semaphore != 0 {
		m.byEntry[leaseKey{e.session, e.target()}] = r
		m.semaphores.mut(e.semaphore).entries.push(r, m.entryInSemaphore)
		m.useLane(e.lane)
	}
}

func (m *Machine) entryInSession(r ref) *links { return &m.entries.mut(r).inSession }

func (m *Machine) entryInSemaphore(r ref) *links { return &m.entries.mut(r).inSemaphore }

// dropEntry removes an entry from its list and withdraws its request. With giveBack it returns undelivered permits to
// the semaphore, as an up does.
func (m *Machine) dropEntry(r ref, giveBack bool) {
	e := *m.entries.at(r)
	if e.waiting != 0 {
		place := m.requests.at(e.waiting).place
		m.withdraw(e.waiting, CauseEnded, Result{Code: Withdrawn, Session: m.sessionID(e.session), Place: place})
	}
	m.sessions.mut(e.session).entries.unlink(r, m.entryInSession)
	m.emit(Effect{Kind: EffectListLeft, Semaphore: e.name, Epoch: e.epoch, Session: m.sessionID(e.session), Details: detailsOf(e.group, 0, nil, "")})
	if e.semaphore != 0 {
		m.detachEntry(r, e)
		if giveBack && e.granted > e.spent && !m.gone(e.semaphore) {
			m.giveBack(e.semaphore, e.granted-e.spent)
		}
	}
	m.entries.remove(r)
	m.done.ended++
}

// detachEntry removes an entry from the indexes of its semaphore.
func (m *Machine) detachEntry(r ref, e listEntry) {
	m.semaphores.mut(e.semaphore).entries.unlink(r, m.entryInSemaphore)
	delete(m.byEntry, leaseKey{e.session, e.target()})
	m.leaveLane(e.lane)
}

// orphanEntry detaches an entry from a semaphore that is being deleted, and voids its undelivered permits. The entry
// stays until ListDeliver reports the deletion or the entry is removed. Its request has already ended.
func (m *Machine) orphanEntry(r ref) {
	m.detachEntry(r, *m.entries.at(r))
	e := m.entries.mut(r)
	e.semaphore, e.lane, e.granted, e.spent, e.token = 0, 0, 0, 0, 0
	m.done.ended++
	m.endEntry(r, CauseDeleted)
}

// endEntry emits the effect that tells listeners that an entry has ended without a grant, and can be delivered.
func (m *Machine) endEntry(r ref, cause Cause) {
	e := m.entries.at(r)
	m.emit(Effect{Kind: EffectListReady, Cause: cause, Semaphore: e.name, Epoch: e.epoch,
		Session: m.sessionID(e.session), Details: detailsOf(e.group, 0, nil, "")})
}

// meansEntry reports whether a command that names a group means this entry. If the semaphore is deleted, the group of
// the session's owner may be omitted.
func (m *Machine) meansEntry(group string, e *listEntry) bool {
	if m.orphaned(e) {
		return e.group == group || group == "" && e.group == m.sessions.at(e.session).owner
	}
	found, n := m.targets(e.session, e.semaphore, group)
	return slices.Contains(found[:n], e.target())
}

// wanted returns the count of permits that an entry still waits for.
func (m *Machine) wanted(e *listEntry) int64 {
	if e.waiting == 0 || m.orphaned(e) {
		return 0
	}
	return m.requests.at(e.waiting).members[0].count
}

// describeEntry fills the members of a result that describe an entry.
func (m *Machine) describeEntry(result *Result, r ref) {
	e := m.entries.at(r)
	result.Session, result.Epoch = m.sessionID(e.session), e.epoch
	result.Granted, result.Asked = e.granted, m.wanted(e)
	if e.waiting != 0 {
		q := m.requests.at(e.waiting)
		result.Place = q.place
		result.Position = m.lineOf(q.members[0].target()).position(q.rank())
	}
}
