package fsm

// Another limit of all groups reaches the groups of a semaphore in the order of their names, so many in
// each entry. Until then each group goes by the limit that it has.

// sweepGroups gives the groups of a semaphore that are left to the sweep their limits, and ends the
// requests that ask for more: in the order of the names, within the entry's budget. It reports
// whether it has come to the end.
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

// sweepLane gives a group its limit and ends the requests that ask for more. It reports whether
// all are gone.
func (m *Machine) sweepLane(semaphore, r ref, limit int) bool {
	l := m.lanes.mut(r)
	if groupLimit := m.semaphores.at(semaphore).groupLimit(); !l.own && l.limit != groupLimit {
		l.limit = groupLimit
		m.refile(r)
		m.touch(member{semaphore: semaphore, lane: r}) // a family's line
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
			m.loseMember(waiting, t, CauseNever, Never)
		}
		if l = m.lanes.at(r); l.semaphore == 0 {
			break // the last request has taken the lane with it
		}
	}
	return true
}

// setSweep files how far a sweep of a semaphore's groups is: the name with which it goes on, nil
// for the end.
func (m *Machine) setSweep(r ref, from *string) {
	s := m.semaphores.mut(r)
	s.sweep = from
	m.fileUnswept(r)
}

// sweepFrom makes a sweep begin at a group, unless it is to come there anyway.
func (m *Machine) sweepFrom(r ref, group string) {
	if s := m.semaphores.at(r); s.sweep == nil || *s.sweep > group {
		m.setSweep(r, &group)
	}
}
