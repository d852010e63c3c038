package fsm

import "github.com/tidwall/btree"

// Code says lane where users say group. A semaphore with groups has a lane for each group in use, with the group's
// limit, its used permits and its line of waiting requests. A lane is created at its first use. It is removed with the
// last lease, request, entry or return that names the group, unless a group-put gave the group a limit.

// lane is the record of one group of a semaphore.
type lane struct {
	semaphore   ref
	group       string
	limit       int64  // or NoLimit
	hasOwnLimit bool   // limit comes from a group-put, not from Settings.PerGroup
	owner       string // the identity that first gave the group a limit
	turn        uint64 // set to the next turn number when the lane is filed and at each grant to the group

	held  int64 // derived: the sum of its leases' counts
	users int32 // derived: the leases, members of waiting requests, entries of wait lists and returns that name the group
	filed bool  // derived: it is in its semaphore's index; false for a lane that the current command created
	line  *line // derived: the waiting requests of the group
	head  head  // derived: its entry in the trees of a pool, zero if absent

	returning int64 // derived: the permits of its returns
}

// used returns the permits that count against the group's limit.
func (l *lane) used() int64 { return l.held + l.returning }

// groups has the lanes of one semaphore. It is derived, and nil if the semaphore has no lanes.
type groups struct {
	byName  btree.Map[string, ref]
	waiting int         // waiting requests in all lanes; a request counts once for each of its groups
	lines   int         // lanes with a line
	asked   askedCounts // counts of the requests for leases in all lanes
	heads   heads       // of a pool
}

// target is a group of a semaphore, or a semaphore without groups. A session has at most one lease and one waiting
// request for each target.
type target uint32

const laneBit target = 1 << 31

func targetOf(semaphore, lane ref) target {
	if lane != 0 {
		return target(lane) | laneBit
	}
	return target(semaphore)
}

func (w member) target() target { return targetOf(w.semaphore, w.lane) }

func (l *lease) target() target { return targetOf(l.semaphore, l.lane) }

func (e *listEntry) target() target { return targetOf(e.semaphore, e.lane) }

// settingsOrZero returns the settings of a semaphore, the zero value if it has no settings.
func (s *semaphore) settingsOrZero() Settings { return orZero(s.settings) }

// detailsIn returns the details of an effect that concerns a lane.
func (m *Machine) detailsIn(lane ref) *EffectDetails {
	return detailsOf(m.groupOf(lane), 0, nil, "")
}

func (s *semaphore) grouped() bool { return s.settings != nil && s.settings.Groups != NoGroups }

// family reports whether the permits belong to the groups, so that the semaphore has no total.
func (s *semaphore) family() bool { return s.settings != nil && s.settings.Family }

// pool reports whether the groups share permits.
func (s *semaphore) pool() bool { return s.grouped() && !s.settings.Family }

// hasSlots reports whether new leases of a semaphore name slots.
func (s *semaphore) hasSlots() bool { return s.settings != nil && s.settings.Slots }

// groupCount returns the number of groups that are in use or have a limit from a group-put.
func (s *semaphore) groupCount() int64 {
	if s.groups == nil {
		return 0
	}
	return int64(s.groups.byName.Len())
}

// groupLimit returns the limit that applies to a group unless a group-put gave it another limit.
func (s *semaphore) groupLimit() int64 {
	if !s.grouped() || s.settings.PerGroup == 0 {
		return NoLimit
	}
	return s.settings.PerGroup
}

// lane returns the lane of a group, or 0.
func (s *semaphore) lane(group string) ref {
	if s.groups == nil {
		return 0
	}
	r, _ := s.groups.byName.Get(group)
	return r
}

// resolveMember returns the target of a request, with its group's lane. If it has to create the lane, dropFresh removes
// the lane after the command unless the request is granted or waits. asker is the session that asks, 0 for a new
// session. If the request names no valid group, result is the refusal.
func (m *Machine) resolveMember(semaphore, asker ref, want Want, result *Result) (member, bool) {
	s := m.semaphores.at(semaphore)
	if !s.grouped() {
		if want.Group != "" {
			result.Code, result.Rule, result.Subject, result.Epoch = Malformed, RuleGroup, s.name, s.epoch
		}
		return member{semaphore: semaphore, count: want.Count}, want.Group == ""
	}
	return member{semaphore: semaphore, lane: m.getOrCreateLane(semaphore, m.groupFor(s, asker, want.Group)), count: want.Count}, true
}

// groupFor returns the group of a request: the group that it names, or with ByOwner the identity that asks. asker is 0
// for a new session.
func (m *Machine) groupFor(s *semaphore, asker ref, named string) string {
	switch {
	case s.settings.Groups == ByRequest:
		return named
	case asker != 0 && m.sessions.at(asker).owner != "":
		return m.sessions.at(asker).owner
	}
	return m.caller.Owner
}

// getOrCreateLane returns the lane of a group, and creates it if it is absent.
func (m *Machine) getOrCreateLane(semaphore ref, group string) ref {
	s := m.semaphores.at(semaphore)
	if r := s.lane(group); r != 0 {
		return r
	}
	for _, r := range m.fresh {
		if l := m.lanes.at(r); l.semaphore == semaphore && l.group == group && !l.filed {
			return r
		}
	}
	r := m.lanes.add(lane{semaphore: semaphore, group: group, limit: s.groupLimit(), turn: m.turns + 1})
	m.fresh = append(m.fresh, r)
	return r
}

// fileLane adds a lane to the index of its semaphore.
func (m *Machine) fileLane(r ref) {
	l := m.lanes.mut(r)
	l.filed = true
	s := m.semaphores.mut(l.semaphore)
	if s.groups == nil {
		s.groups = &groups{heads: newHeads()} // state: it lives while the semaphore has lanes
	}
	s.groups.byName.Set(l.group, r)
}

// useLane counts another record that names a group. The first record files the lane, with the next turn.
func (m *Machine) useLane(r ref) {
	if r == 0 {
		return
	}
	if l := m.lanes.mut(r); !l.filed {
		m.turns++
		l.turn = m.turns
		m.fileLane(r)
	}
	m.lanes.mut(r).users++
}

// leaveLane ends the count of a record that named a group.
func (m *Machine) leaveLane(r ref) {
	if r == 0 {
		return
	}
	m.lanes.mut(r).users--
	m.dropLane(r)
}

// dropLane removes the lane of an unused group without a limit from a group-put.
func (m *Machine) dropLane(r ref) {
	l := m.lanes.at(r)
	if l.users > 0 || l.hasOwnLimit {
		return
	}
	if l.filed {
		s := m.semaphores.mut(l.semaphore)
		s.groups.byName.Delete(l.group)
		if s.groups.byName.Len() == 0 {
			s.groups = nil // state: see fileLane
		}
	}
	m.lanes.remove(r)
}

// dropFresh removes the lanes that the command created and did not use.
func (m *Machine) dropFresh() {
	for _, r := range m.fresh {
		if l := m.lanes.at(r); l.semaphore != 0 && !l.filed { // otherwise the slot is free or reused
			m.dropLane(r)
		}
	}
	m.fresh = m.fresh[:0]
}

// targets returns the targets in which a command's semaphore and group may mean a lease, a request or an entry of a
// session, in order of preference: the named group; for the empty group the semaphore itself, which has records from
// before it had groups; with ByOwner the group of the session's owner.
func (m *Machine) targets(session, semaphore ref, group string) (found [3]target, n int) {
	s := m.semaphores.at(semaphore)
	if lane := s.lane(group); lane != 0 {
		found[n] = targetOf(semaphore, lane)
		n++
	}
	if group == "" {
		found[n] = target(semaphore)
		n++
	}
	if session != 0 && s.settingsOrZero().Groups == ByOwner {
		if lane := s.lane(m.sessions.at(session).owner); lane != 0 {
			found[n] = targetOf(semaphore, lane)
			n++
		}
	}
	return found, n
}

// leaseNamed returns the lease of a session in a group of a semaphore.
func (m *Machine) leaseNamed(session, semaphore ref, group string) (ref, bool) {
	if session == 0 || semaphore == 0 {
		return 0, false
	}
	if m.lanes.live == 0 && group == "" { // there are no groups to look at
		return m.leaseOf(session, target(semaphore))
	}
	found, n := m.targets(session, semaphore, group)
	for _, t := range found[:n] {
		if r, ok := m.leaseOf(session, t); ok {
			return r, true
		}
	}
	return 0, false
}

// waitNamed returns the waiting request of a session for a lease in a group of a semaphore, and its target; or 0.
func (m *Machine) waitNamed(session, semaphore ref, group string) (waiting ref, _ target) {
	if m.lanes.live == 0 && group == "" {
		return m.byWait[leaseKey{session, target(semaphore)}], target(semaphore)
	}
	found, n := m.targets(session, semaphore, group)
	for _, t := range found[:n] {
		if r := m.byWait[leaseKey{session, t}]; r != 0 {
			return r, t
		}
	}
	return 0, 0
}

// groupOf returns the group of a lane, "" for lane 0.
func (m *Machine) groupOf(lane ref) string {
	if lane == 0 {
		return ""
	}
	return m.lanes.at(lane).group
}

// lineIn returns the line of a member of a semaphore, nil if it is empty.
func (m *Machine) lineIn(s *semaphore, w member) *line {
	if w.lane != 0 {
		return m.lanes.at(w.lane).line
	}
	return s.line
}

// lineOf returns the line of a target, nil if it is empty.
func (m *Machine) lineOf(t target) *line {
	if t&laneBit != 0 {
		return m.lanes.at(ref(t &^ laneBit)).line
	}
	return m.semaphores.at(ref(t)).line
}

// entryNamed returns the entry of a session's wait list for the target of want, or 0.
func (m *Machine) entryNamed(session ref, want member) ref {
	found, n := m.targets(session, want.semaphore, m.groupOf(want.lane))
	for _, t := range found[:n] {
		if r := m.byEntry[leaseKey{session, t}]; r != 0 {
			return r
		}
	}
	return 0
}

// addHeld adds count, which may be negative, to the permits that a group's leases hold.
func (m *Machine) addHeld(lane ref, count int64) {
	if lane == 0 || count == 0 {
		return
	}
	m.lanes.mut(lane).held += count
	m.updateHead(lane)
}
