package fsm

import "math"

// A request has room in a member if the semaphore is not paused and both the semaphore and the group allow the permits.

// A family has no total that bounds the sum of its groups, so two bounds keep the sum below 2^63 with 2^26 leases and
// returns: maxFamilyGroup bounds the permits that one group uses, and maxFamilyTaken bounds the permits that a
// semaphore's leases may hold when it becomes a family.
const (
	maxFamilyGroup int64 = 1 << 36
	maxFamilyTaken int64 = 1 << 62
)

// hasRoom reports whether a request has room in one of its members.
func (m *Machine) hasRoom(s *semaphore, r *request, w member) bool {
	if s.settings == nil {
		return s.available() >= r.atLeast(w.count)
	}
	enough := s.settings.Family || s.available() >= r.atLeast(w.count)
	return s.settings.Paused == "" && enough && (w.lane == 0 || m.groupHasRoom(w.lane, r))
}

// atLeast returns how many of a member's count the request must get.
func (r *request) atLeast(count int64) int64 {
	if r.partial {
		return 1
	}
	return count
}

// groupHasRoom reports whether a group may use the count that a request asks for.
func (m *Machine) groupHasRoom(lane ref, r *request) bool {
	l := m.lanes.at(lane)
	return r.atLeast(countOf(r.members, targetOf(l.semaphore, lane))) <= m.groupRoom(lane)
}

// groupRoom returns how many more permits a group may use; lane 0 has no limit.
func (m *Machine) groupRoom(lane ref) int64 {
	if lane == 0 {
		return math.MaxInt64
	}
	return m.groupBound(lane) - m.lanes.at(lane).used()
}

// groupBound returns how many permits a group may use: its limit, in a family at most maxFamilyGroup.
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

// limit returns the largest count that a lease of a member could have: the semaphore's full count, bounded by the limit
// of the group.
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

// needsTotal refuses a family, because it has no total number of permits. If taking is set, it accepts a family with a
// window.
func (m *Machine) needsTotal(w member, taking bool, result *Result) bool {
	if s := m.semaphores.at(w.semaphore); s.family() && !(taking && s.settings.WindowMS != 0) {
		m.refuse(result, NoTotal, w)
		return false
	}
	return true
}

// fits reports whether the counters of a semaphore, or of a group of a family, stay in range when a lease takes more
// permits. The lease then has w's count.
func (m *Machine) fits(w member, more int64) bool {
	s := m.semaphores.at(w.semaphore)
	if s.family() {
		return w.count <= maxFamilyGroup && (w.lane == 0 || more <= maxFamilyGroup-m.lanes.at(w.lane).used())
	}
	return s.taken() <= math.MaxInt64-more && sumFits(s.permits+s.offset, -(s.taken()+more))
}
