package fsm

// roomToOpen reports whether another session may be opened under an id.
func (m *Machine) roomToOpen(id uint64, result *Result) bool {
	if _, taken := m.bySession[id]; taken {
		result.Code, result.Session = SessionIDTaken, id
		return false
	}
	return within(int64(m.sessions.live), m.limits.Sessions, RuleSessions, result)
}

// roomToHold reports whether the leases that a request asks for may be made.
// What waiting requests may become is reserved, so that a grant from the queue
// never meets a limit. owner is nil for a new one-shot session.
func (m *Machine) roomToHold(owner *session, asked *request, result *Result) bool {
	more := asked.leases()
	if more == 0 {
		return true
	}
	if !within(int64(m.leases.live)+m.reserved+more-1, m.limits.Leases, RuleLeases, result) {
		return false
	}
	return owner == nil || within(int64(owner.leases.length)+owner.reserved+more-1, m.limits.SessionLeases, RuleSessionLeases, result)
}

// leases answers how many leases a request may become.
func (r *request) leases() int64 {
	switch {
	case r.unowned:
		return 0
	case r.mode == All:
		return int64(len(r.members))
	}
	return 1
}

// roomToWait reports whether a request may join its lines. owner is nil for a
// new one-shot session. A request for several semaphores counts as many as it
// lists, from level 1 on: so much work is its end.
func (m *Machine) roomToWait(owner *session, asked *request, result *Result) bool {
	all, more := m.requests.live, 0
	if m.bounded() {
		all, more = m.members, len(asked.members)-1
	}
	if !m.roomToHold(owner, asked, result) || !within(int64(all+more), m.limits.Waiting, RuleWaiting, result) {
		return false
	}
	if owner != nil {
		own := owner.requests.length
		if m.bounded() {
			own = owner.members
		}
		if !within(int64(own+more), m.limits.SessionWaiting, RuleSessionWaits, result) {
			return false
		}
	}
	for _, want := range asked.members {
		s := m.semaphores.at(want.semaphore)
		if !within(int64(s.waiting()), m.limits.Queue, RuleQueue, result) {
			result.Subject = s.name
			return false
		}
	}
	return true
}

func within(have, limit int64, rule Rule, result *Result) bool {
	if have < limit {
		return true
	}
	result.Code, result.Rule = LimitReached, rule
	return false
}
