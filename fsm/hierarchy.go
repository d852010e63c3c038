package fsm

// mayAsk applies the level rule: a session may ask for a semaphore with a
// level only if that level is strictly below the lowest that it holds, and
// only while it waits for nothing else that has a level. So every wait leads
// to holders who wait only further down, and there is no cycle.
func (m *Machine) mayAsk(owner, semaphore ref, count int64, result *Result) bool {
	level := m.semaphores.at(semaphore).level
	if level == nil {
		return true
	}
	rule, lowest := RuleNone, m.lowestHeld(owner)
	if lowest != nil && *level >= *lowest {
		rule = RuleHolds
	} else if lowest = m.levelWaitedFor(owner); lowest != nil {
		rule = RuleWaits
	}
	if rule == RuleNone {
		return true
	}
	m.refuse(result, Hierarchy, semaphore, count)
	result.Rule, result.LowestLevel = rule, lowest
	return false
}

// lowestHeld answers the lowest level among the semaphores that a session
// holds, as they are now, or nil.
func (m *Machine) lowestHeld(owner ref) *int32 {
	var lowest *int32
	for r := m.sessions.at(owner).leases.first; r != 0; r = m.leases.at(r).inSession.next {
		l := m.leases.at(r)
		if level := m.semaphores.at(l.semaphore).level; level != nil && !l.revoked {
			if lowest == nil || *level < *lowest {
				lowest = level
			}
		}
	}
	return lowest
}

// levelWaitedFor answers the level of something that a session waits for, or nil.
func (m *Machine) levelWaitedFor(owner ref) *int32 {
	for r := m.sessions.at(owner).requests.first; r != 0; r = m.requests.at(r).inSession.next {
		q := m.requests.at(r)
		if q.unowned {
			continue
		}
		for _, want := range q.members {
			if level := m.semaphores.at(want.semaphore).level; level != nil {
				return level
			}
		}
	}
	return nil
}
