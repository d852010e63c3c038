package fsm

import "math"

// A session's wait list: semaphores that it wants permits of, served in the
// background like a partial down, in the same lines, and told when asked for.

// findEntry answers a session's entry for a semaphore, or 0.
func (m *Machine) findEntry(owner, semaphore ref) ref {
	return m.byEntry[leaseKey{owner, semaphore}]
}

// addEntry puts a semaphore at the end of a session's wait list.
func (m *Machine) addEntry(owner, semaphore ref) ref {
	m.orders++
	s := m.semaphores.at(semaphore)
	r := m.entries.add(entry{order: m.orders, session: owner, semaphore: semaphore, name: s.name, epoch: s.epoch})
	m.linkEntry(r)
	return r
}

// linkEntry puts an entry into the indexes; the newest comes last.
func (m *Machine) linkEntry(r ref) {
	e := m.entries.at(r)
	m.sessions.mut(e.session).entries.push(r, m.entryInSession)
	if e.semaphore != 0 {
		m.byEntry[leaseKey{e.session, e.semaphore}] = r
		m.semaphores.mut(e.semaphore).entries.push(r, m.entryInSemaphore)
	}
}

func (m *Machine) entryInSession(r ref) *links   { return &m.entries.mut(r).inSession }
func (m *Machine) entryInSemaphore(r ref) *links { return &m.entries.mut(r).inSemaphore }

// dropEntry takes an entry off its list: what waits is withdrawn; what was
// granted goes back as by an up, if giveBack is set.
func (m *Machine) dropEntry(r ref, giveBack bool) {
	e := *m.entries.at(r)
	if e.waiting != 0 {
		place := m.requests.at(e.waiting).place
		m.withdraw(e.waiting, CauseEnded, Result{Code: Withdrawn, Session: m.sessionID(e.session), Place: place})
	}
	m.sessions.mut(e.session).entries.unlink(r, m.entryInSession)
	m.effect(Effect{Kind: EffectListLeft, Semaphore: e.name, Epoch: e.epoch, Session: m.sessionID(e.session)})
	if e.semaphore != 0 {
		m.detachEntry(r, e)
		if giveBack && e.granted > 0 && !m.gone(e.semaphore) {
			m.giveBack(e.semaphore, e.granted)
		}
	}
	m.entries.remove(r)
	m.done.ended++
}

// detachEntry takes an entry out of its semaphore's indexes.
func (m *Machine) detachEntry(r ref, e entry) {
	m.semaphores.mut(e.semaphore).entries.unlink(r, m.entryInSemaphore)
	delete(m.byEntry, leaseKey{e.session, e.semaphore})
}

// orphanEntry marks an entry whose semaphore is being deleted: an undelivered
// grant dies with it, and the entry stays until it is told or removed. Nothing
// of it waits any more.
func (m *Machine) orphanEntry(r ref) {
	m.detachEntry(r, *m.entries.at(r))
	e := m.entries.mut(r)
	e.semaphore, e.granted, e.token = 0, 0, 0
	m.done.ended++
	m.effect(Effect{Kind: EffectListReady, Cause: CauseDeleted, Semaphore: e.name, Epoch: e.epoch,
		Session: m.sessionID(e.session)})
}

// giveBack adds permits as an up does. Where others filled the counter
// meanwhile, it stays at its end.
func (m *Machine) giveBack(semaphore ref, count int64) {
	s := m.semaphores.mut(semaphore)
	room := math.MaxInt64 - max(s.permits+s.offset, s.offset, 0)
	s.offset += min(count, room)
	s.modified = m.index
	m.changed(semaphore)
	m.touch(semaphore)
}

// wanted answers how many permits an entry still waits for.
func (m *Machine) wanted(e *entry) int64 {
	if e.waiting == 0 || m.orphaned(e) {
		return 0
	}
	return m.requests.at(e.waiting).members[0].count
}

// describeEntry tells an entry in a result: what waits, and what is there.
func (m *Machine) describeEntry(result *Result, r ref) {
	e := m.entries.at(r)
	result.Session, result.Epoch = m.sessionID(e.session), e.epoch
	result.Granted, result.Asked = e.granted, m.wanted(e)
	if e.waiting != 0 {
		q := m.requests.at(e.waiting)
		result.Place = q.place
		result.Position = m.semaphores.at(e.semaphore).position(q.place)
	}
}
