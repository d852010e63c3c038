package fsm

// A new limit for all groups reaches them in the order of their names, a bounded number in each entry. A group keeps
// its old limit until then.

// sweepGroups gives groups of a semaphore the new limit, in the order of their names and within the entry's budget. It
// ends requests for more than the limit, and reports whether all groups are done.
func (m *Machine) sweepGroups(r ref, limit int) bool {
	for m.semaphores.at(r).sweep != nil {
		s := m.semaphores.at(r)
		lane, found := ref(0), false
		if s.groups != nil {
			s.groups.byName.Ascend(*s.sweep, func(_ string, at ref) bool {
				lane, found = at, true
				return false
			})
		}
		if !found {
			m.setSweep(r, nil)
			return true
		}
		if m.done.lanes >= m.budget.lanes || m.done.ended >= limit {
			return false
		}
		m.done.lanes++
		group := m.lanes.at(lane).group
		if !m.sweepLane(r, lane, limit) {
			return false
		}
		next := group + "\x00"
		m.setSweep(r, &next)
	}
	return true
}

// sweepLane gives a group the new limit and ends requests for more than the limit. It reports whether all of these
// requests have ended.
func (m *Machine) sweepLane(semaphore, r ref, limit int) bool {
	l := m.lanes.mut(r)
	if groupLimit := m.semaphores.at(semaphore).groupLimit(); !l.hasOwnLimit && l.limit != groupLimit {
		l.limit = groupLimit
		m.updateHead(r)
		m.touch(member{semaphore: semaphore, lane: r}) // also serves a family's line
	}
	if l.limit == NoLimit || l.line == nil {
		return true
	}
	t := targetOf(semaphore, r)
	permits := l.limit
	for l.line != nil && l.line.asked.largest() > permits {
		if m.done.ended >= limit {
			return false
		}
		for _, waiting := range l.line.asked.above(permits, limit-m.done.ended) {
			if m.done.ended >= limit {
				break
			}
			m.endMemberWait(waiting, t, CauseNever, Never)
		}
		if l = m.lanes.at(r); l.semaphore == 0 {
			break // the lane was removed with its last request
		}
	}
	return true
}

// setSweep stores the name of the group with which the sweep continues; nil ends the sweep.
func (m *Machine) setSweep(r ref, from *string) {
	s := m.semaphores.mut(r)
	s.sweep = from
	m.fileUnswept(r)
}

// sweepFrom moves the start of a sweep back to a group, if the sweep would miss the group otherwise.
func (m *Machine) sweepFrom(r ref, group string) {
	if s := m.semaphores.at(r); s.sweep == nil || *s.sweep > group {
		m.setSweep(r, &group)
	}
}
