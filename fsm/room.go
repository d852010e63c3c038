package fsm

import "math"

// A request has room in a member if its semaphore is not paused, has the permits, and its group may use
// them.

// A family has no total that could bound the sum of what its groups use, so the groups are bounded:
// maxFamilyGroup is the most that a group of a family uses, and maxFamilyTaken is what the leases of
// a semaphore that becomes a family may have. So the sum stays below 2^63 with 2^26 leases and returns.
const (
	maxFamilyGroup int64 = 1 << 36
	maxFamilyTaken int64 = 1 << 62
)

// hasRoom reports whether a request has room in one of its members: permits enough are available,
// and its group may use them.
func (m *Machine) hasRoom(s *semaphore, r *request, w member) bool {
	if s.settings == nil {
		return s.available() >= r.atLeast(w.count)
	}
	enough := s.settings.Family || s.available() >= r.atLeast(w.count)
	return s.settings.Paused == "" && enough && (w.lane == 0 || m.groupHasRoom(w.lane, r))
}

// atLeast returns how many permits a request must get of a member's count.
func (r *request) atLeast(count int64) int64 {
	if r.partial {
		return 1
	}
	return count
}

// groupHasRoom reports whether a group may use what a request asks for in it.
func (m *Machine) groupHasRoom(lane ref, r *request) bool {
	l := m.lanes.at(lane)
	return r.atLeast(countOf(r.members, targetOf(l.semaphore, lane))) <= m.groupRoom(lane)
}

// groupRoom returns how much more a group may use; lane 0 has no limit.
func (m *Machine) groupRoom(lane ref) int64 {
	if lane == 0 {
		return math.MaxInt64
	}
	return m.groupBound(lane) - m.lanes.at(lane).used()
}

// groupBound returns what a group may use at most: its limit, and in a family no more than maxFamilyGroup.
func (m *Machine) groupBound(lane ref) int64 {
	bound := m.lanes.at(lane).limit
	if bound == NoLimit {
		bound = math.MaxInt64
	}
	if m.semaphores.at(m.lanes.at(lane).semaphore).family() {
		bound = min(bound, maxFamilyGroup)
	}
	return bound
}

// limit returns what a lease of a member could have at most: the semaphore's full count, and no
// more than the limit of its group.
func (m *Machine) limit(w member) int64 {
	s := m.semaphores.at(w.semaphore)
	bound := s.full()
	if s.family() {
		bound = maxFamilyGroup
	}
	if w.lane != 0 && s.grouped() {
		bound = min(bound, m.groupBound(w.lane))
	}
	return bound
}

// needsTotal reports whether a semaphore has a number of permits in all; taking says that a window
// serves as well. If not, result is the refusal.
func (m *Machine) needsTotal(w member, taking bool, result *Result) bool {
	if s := m.semaphores.at(w.semaphore); s.family() && !(taking && s.settings.WindowMS != 0) {
		m.refuse(result, NoTotal, w)
		return false
	}
	return true
}

// fits reports whether the counters of a semaphore, or of a group of a family, stay in their range when
// so many permits more are taken for a lease that has the member's count then.
func (m *Machine) fits(w member, more int64) bool {
	s := m.semaphores.at(w.semaphore)
	if s.family() {
		return w.count <= maxFamilyGroup && (w.lane == 0 || more <= maxFamilyGroup-m.lanes.at(w.lane).used())
	}
	return s.taken() <= math.MaxInt64-more && sumFits(s.permits+s.offset, -(s.taken()+more))
}
