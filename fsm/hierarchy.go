package fsm

// mayAsk applies the level rule to each member of a request: a session may ask for
// a semaphore with a level only if that level is strictly below the lowest that it
// holds, and only while it waits for nothing else that has a level. So every wait
// leads to holders who wait only further down, and there is no cycle. It walks what
// the session holds and waits for at most once.
func (m *Machine) mayAsk(owner ref, members []member, result *Result) bool {
	var held, waited *int32
	looked := false
	for _, want := range members {
		level := m.semaphores.at(want.semaphore).level
		if level == nil {
			continue
		}
		if !looked {
			looked, held, waited = true, m.lowestHeld(owner), m.levelWaitedFor(owner)
		}
		rule, lowest := RuleNone, held
		if held != nil && *level >= *held {
			rule = RuleHolds
		} else if waited != nil {
			rule, lowest = RuleWaits, waited
		}
		if rule != RuleNone {
			m.refuse(result, Hierarchy, want.semaphore, want.count)
			result.Rule, result.LowestLevel = rule, lowest
			return false
		}
	}
	return true
}

// lowestHeld answers the lowest level among the semaphores that a session
// holds, as they are now, or nil.
func (m *Machine) lowestHeld(owner ref) *int32 {
	var lowest *int32
	for r := m.sessions.at(owner).leases.first; r != 0; r = m.leases.at(r).inSession.next {
		l := m.leases.at(r)
		if s := m.semaphores.at(l.semaphore); s.level != nil && !l.revoked && !s.deleted {
			if lowest == nil || *s.level < *lowest {
				lowest = s.level
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
			if s := m.semaphores.at(want.semaphore); s.level != nil && !s.deleted {
				return s.level
			}
		}
	}
	return nil
}
