package fsm

// addNotice stores a notice for a refused down.
func (m *Machine) addNotice(semaphore ref, group string, c Down, result *Result) {
	if !within(int64(m.notices.live), maxNotices, RuleNotices, result) ||
		!within(int64(m.semaphores.at(semaphore).notices.length()), maxNoticesHere, RuleNotices, result) {
		return
	}
	owner, here := m.caller.Owner, int64(0)
	s := m.semaphores.at(semaphore)
	for r := s.notices.first; r != 0 && owner != ""; r = m.notices.at(r).inSemaphore.next {
		if m.notices.at(r).owner == owner {
			here++
		}
	}
	if !m.withinShare(m.owned[owner].notices, 1, maxNotices, RuleOwnerNotices, result) ||
		!m.withinShare(here, 1, maxNoticesHere, RuleOwnerNotices, result) {
		return
	}
	m.places++
	n := notice{place: m.places, semaphore: semaphore, name: s.name, epoch: s.epoch, url: c.Notice, count: c.Count, owner: owner, group: group,
		endsMS: m.nowMS + noticesKeptMS}
	if c.Partial {
		n.count = 1
	}
	m.linkNotice(m.notices.add(n))
	result.Place = n.place
}

func (m *Machine) linkNotice(r ref) {
	n := m.notices.at(r)
	m.byNotice[n.place] = r
	m.count(n.owner, owned{notices: 1})
	if n.semaphore != 0 {
		m.semaphores.mut(n.semaphore).notices.push(r, m.noticeInSemaphore)
	}
	if !n.due { // a due notice has no time limit
		m.timedNotices.push(r, m.noticeInOrder)
	}
}

func (m *Machine) noticeInSemaphore(r ref) *links { return &m.notices.mut(r).inSemaphore }

// wakeNotices makes notices of the semaphores in noticeChecks due if their count is available and the line is empty. It
// runs at the end of finishCommand.
func (m *Machine) wakeNotices() {
	var looked map[ref]bool // a semaphore may be in noticeChecks several times
	if len(m.noticeChecks) > 1 {
		looked = make(map[ref]bool)
	}
	for _, semaphore := range m.noticeChecks {
		if looked[semaphore] {
			continue
		}
		if looked != nil {
			looked[semaphore] = true
		}
		s := m.semaphores.at(semaphore)
		if s.epoch == 0 {
			continue // the semaphore was removed in the same command
		}
		for r := s.notices.first; r != 0; r = m.notices.at(r).inSemaphore.next {
			if n := m.notices.at(r); !n.due && m.wouldGrant(n) {
				m.makeNoticeDue(r)
			}
		}
	}
	m.noticeChecks = m.noticeChecks[:0]
}

// wouldGrant reports whether a new down with the count and group of a notice would be granted at once. If the permits
// belong to the groups, a down is granted only with a window.
func (m *Machine) wouldGrant(n *notice) bool {
	s := m.semaphores.at(n.semaphore)
	w := member{semaphore: n.semaphore, count: n.count}
	if s.grouped() {
		w.lane = m.getOrCreateLane(n.semaphore, n.group)
	}
	return (!s.family() || s.settings.WindowMS != 0) && m.firstGrantable(&request{members: []member{w}, isDown: true, rankMS: m.nowMS, place: m.places + 1}) >= 0
}

func (m *Machine) makeNoticeDue(r ref) {
	m.unlinkTimed(r)
	n := m.notices.mut(r)
	n.due, n.dueMS = true, m.nowMS
	m.emit(Effect{Kind: EffectNoticeDue, Semaphore: n.name, Epoch: n.epoch, Place: n.place, Count: n.count})
}

// orphanNotice makes a notice due because its semaphore was deleted.
func (m *Machine) orphanNotice(r ref) {
	m.detachNotice(r)
	if !m.notices.at(r).due {
		m.makeNoticeDue(r)
	}
}

func (m *Machine) detachNotice(r ref) {
	n := m.notices.mut(r)
	m.semaphores.mut(n.semaphore).notices.unlink(r, m.noticeInSemaphore)
	n = m.notices.mut(r)
	n.semaphore = 0
}

func (m *Machine) noticeInOrder(r ref) *links { return &m.notices.mut(r).inOrder }

// unlinkTimed removes a notice from the list of notices with a time limit.
func (m *Machine) unlinkTimed(r ref) {
	if !m.notices.at(r).due {
		m.timedNotices.unlink(r, m.noticeInOrder)
	}
}

func (m *Machine) removeNotice(r ref) {
	m.unlinkTimed(r)
	if m.notices.at(r).semaphore != 0 {
		m.detachNotice(r)
	}
	delete(m.byNotice, m.notices.at(r).place)
	m.count(m.notices.at(r).owner, owned{notices: -1})
	m.notices.remove(r)
}

// endNotice removes a notice whose time limit passed before it was due.
func (m *Machine) endNotice(r ref) {
	n := m.notices.at(r)
	m.emit(Effect{Kind: EffectNoticeEnded, Cause: CauseExpired, Semaphore: n.name, Epoch: n.epoch, Place: n.place, Count: n.count})
	m.removeNotice(r)
}
