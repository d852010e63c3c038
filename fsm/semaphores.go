package fsm

import "math"

// available returns the permits that can be granted now. It is negative after a shrink or a restore took more than was
// free.
func (s *semaphore) available() int64 { return s.permits + s.offset - s.taken() }

// taken returns the permits that leases hold or that come back later.
func (s *semaphore) taken() int64 { return s.held + s.returning }

// full returns the largest count that one lease can have without a further up.
func (s *semaphore) full() int64 {
	full := addInt(s.permits, max(s.offset, 0))
	if s.hasSlots() {
		full = min(full, maxLeaseSlots)
	}
	return full
}

// waiting returns the number of requests that wait in its lines.
func (s *semaphore) waiting() int {
	if s.groups != nil {
		return s.line.length() + s.groups.waiting
	}
	return s.line.length()
}

// allows reports whether permits + offset and the available permits stay within int64.
func (s *semaphore) allows(permits int64) bool {
	return sumFits(permits, s.offset) && sumFits(permits+s.offset, -s.taken())
}

// The taken permits of a family stay below 2^63, although no total bounds the sum of its groups: at most 2^26 leases
// and returns of at most maxFamilyGroup each, besides the maxFamilyTaken that its leases may hold when a semaphore
// becomes a family.
const (
	maxFamilyGroup int64 = 1 << 36
	maxFamilyTaken int64 = 1 << 62
)

// hasRoom reports whether a request has room in one of its members: the semaphore is not paused, and both the semaphore
// and the group allow the permits.
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

// largestCount returns the largest count that a lease of a member could have: the semaphore's full count, bounded by the limit
// of the group.
func (m *Machine) largestCount(w member) int64 {
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

// requireTotal refuses a family, because it has no total number of permits. If taking is set, it accepts a family with
// a window.
func (m *Machine) requireTotal(w member, taking bool, result *Result) bool {
	if s := m.semaphores.at(w.semaphore); s.family() && !(taking && s.settings.WindowMS != 0) {
		m.refuse(result, NoTotal, w)
		return false
	}
	return true
}

// countersFit reports whether the counters of a semaphore, or of a group of a family, stay in range when a lease takes more
// permits. The lease then has w's count.
func (m *Machine) countersFit(w member, more int64) bool {
	s := m.semaphores.at(w.semaphore)
	if s.family() {
		return w.count <= maxFamilyGroup && (w.lane == 0 || more <= maxFamilyGroup-m.lanes.at(w.lane).used())
	}
	return s.taken() <= math.MaxInt64-more && sumFits(s.permits+s.offset, -(s.taken()+more))
}

// findSemaphore returns the semaphore with a name and, unless 0, an epoch. If it does not
// exist, result is the refusal.
func (m *Machine) findSemaphore(name string, epoch uint64, result *Result) (ref, bool) {
	r, ok := m.byName[name]
	if !ok {
		result.Code, result.Subject, result.Epoch = UnknownSemaphore, name, 0
		return 0, false
	}
	return r, m.epochIs(r, epoch, result)
}

func (m *Machine) epochIs(r ref, epoch uint64, result *Result) bool {
	s := m.semaphores.at(r)
	result.Epoch = s.epoch
	if epoch != 0 && epoch != s.epoch {
		result.Code, result.Subject = EpochMismatch, s.name
		return false
	}
	return true
}

// versionIs reports whether a semaphore has the expected version, if the command names a version. Otherwise result is
// the refusal. The version covers permits, level, metadata and settings. With it, a client changes or deletes exactly
// the semaphore that it has read.
func (m *Machine) versionIs(r ref, expected Change[uint64], result *Result) bool {
	s := m.semaphores.at(r)
	if expected.Given && expected.Value != s.version {
		result.Code, result.Subject, result.Version = VersionMismatch, s.name, s.version
		return false
	}
	return true
}

// createSemaphore makes a semaphore with the next epoch.
func (m *Machine) createSemaphore(name string, permits int64, level *int32, metadata []Pair, settings *Settings) Result {
	if int64(len(m.byName)) >= m.limits.Semaphores {
		return Result{Code: LimitReached, Rule: RuleSemaphores, Subject: name}
	}
	owner, refusal := m.caller.Owner, Result{Subject: name}
	if !m.withinShare(m.owned[owner].semaphores, 1, m.limits.Semaphores, RuleOwnerSemaphores, &refusal) {
		return refusal
	}
	m.epochs++
	r := m.semaphores.add(semaphore{name: name, epoch: m.epochs, permits: permits, level: level,
		metadata: metadata, settings: settings, modified: m.index, owner: owner})
	m.count(owner, owned{semaphores: 1})
	m.byName[name] = r
	m.names.Set(name, r)
	m.raiseVersion(r)
	m.emit(Effect{Kind: EffectCreated, Semaphore: name, Epoch: m.epochs,
		Details: &EffectDetails{Permits: permits, Level: level, Metadata: metadata, Settings: settings}})
	view := m.viewSemaphore(r)
	return Result{Code: OK, Created: true, Epoch: m.epochs, Version: view.Version, Semaphore: &view}
}

// raiseVersion raises the version of a semaphore after a change of its settings.
func (m *Machine) raiseVersion(r ref) {
	m.semaphores.mut(r).version++
}

// emitChanged records the permits, offset, level, metadata and settings of a semaphore as an effect.
func (m *Machine) emitChanged(r ref) {
	s := m.semaphores.at(r)
	m.emit(Effect{Kind: EffectChanged, Semaphore: s.name, Epoch: s.epoch, Details: &EffectDetails{Permits: s.permits,
		Offset: s.offset, Level: s.level, Metadata: s.metadata, Settings: s.settings}})
}

// moveOffset sets the offset, serves the line and returns the permits that are then available. The caller must have
// checked that no counter overflows.
func (m *Machine) moveOffset(r ref, offset int64) Result {
	s := m.semaphores.mut(r)
	if s.offset != offset {
		s.offset = offset
		s.modified = m.index
		m.emitChanged(r)
	}
	m.touch(member{semaphore: r})
	m.finishCommand()
	s = m.semaphores.at(r)
	return Result{Code: OK, Value: s.available(), Epoch: s.epoch}
}

// giveBack adds permits as an up does, up to the largest offset.
func (m *Machine) giveBack(semaphore ref, count int64) {
	s := m.semaphores.mut(semaphore)
	room := math.MaxInt64 - max(s.permits+s.offset, s.offset, 0)
	if s.hasSlots() {
		room = min(room, max(maxSlots-s.permits-s.offset, 0))
	}
	s.offset += min(count, room)
	s.modified = m.index
	m.emitChanged(semaphore)
	m.touch(member{semaphore: semaphore})
}

// refuse fills a refusal with the values that explain it. w has the count that was asked for.
func (m *Machine) refuse(result *Result, code Code, w member) {
	s := m.semaphores.at(w.semaphore)
	result.Code, result.Rule, result.Epoch = code, RuleNone, s.epoch
	result.Subject, result.Asked, result.QueueLength = s.name, w.count, int64(m.waitingIn(w))
	result.Refusal = Refusal{Level: s.level, Permits: s.shownTotal(s.permits), Full: m.largestCount(w), Available: s.shownTotal(s.available())}.ifSet()
}

// refuseUnavailable refuses a request that can't be granted now. It explains which setting of the first semaphore of
// the list prevents the grant.
func (m *Machine) refuseUnavailable(result *Result, r *request) {
	w := r.members[0]
	m.refuse(result, Unavailable, w)
	s := m.semaphores.at(w.semaphore)
	why := result.Why()
	switch m.blockOf(r, w) {
	case BlockPermits, BlockReturning:
		why.DelayMS = m.returnsIn(r, w)
	case BlockPaused:
		result.Rule, why.Reason = RulePaused, s.settings.Paused
	case BlockGroupLimit:
		result.Rule, why.DelayMS = RuleGroupLimit, m.returnsIn(r, w)
		m.explainGroup(&why, w)
	case BlockGroups:
		result.Rule, why.Group = RuleOtherGroups, m.groupOf(w.lane)
	}
	result.Refusal = why.ifSet()
}

// refuseNever refuses a request for more than could ever be granted.
func (m *Machine) refuseNever(result *Result, w member) {
	m.refuse(result, Never, w)
	if w.lane != 0 {
		if l := m.lanes.at(w.lane); l.limit != NoLimit && l.limit < w.count {
			why := result.Why()
			m.explainGroup(&why, w)
			result.Rule, result.Refusal = RuleGroupLimit, why.ifSet()
		}
	}
}

func (m *Machine) explainGroup(why *Refusal, w member) {
	l := m.lanes.at(w.lane)
	why.Group, why.Limit, why.Used = l.group, l.limit, l.used()
}

// refuseRevoked refuses a request for a lease that was revoked.
func (m *Machine) refuseRevoked(result *Result, w member, reason string) {
	m.refuse(result, Revoked, w)
	why := result.Why()
	why.Reason = reason
	result.Refusal = why.ifSet()
}

// waitingIn returns the number of requests that wait in the line of a member.
func (m *Machine) waitingIn(w member) int {
	s := m.semaphores.at(w.semaphore)
	switch {
	case w.lane == 0:
		return s.waiting()
	case !s.grouped() && m.lanes.at(w.lane).group == "": // the request was made while the semaphore had groups
		return s.line.length()
	}
	return m.lanes.at(w.lane).line.length()
}

func sameLevel(a, b *int32) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

// addInt adds, and stops at the ends of int64.
func addInt(a, b int64) int64 {
	sum := a + b
	if b > 0 && sum < a {
		return math.MaxInt64
	}
	if b < 0 && sum > a {
		return math.MinInt64
	}
	return sum
}

// sumFits reports whether a + b stays within int64.
func sumFits(a, b int64) bool {
	sum := a + b
	return (b >= 0) == (sum >= a)
}
