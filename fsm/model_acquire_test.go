package fsm

import (
	"cmp"
	"math/big"
	"slices"
)

// The model's acquires: one, once, many; restore; levels and limits.

func (m *model) acquire(c Acquire) Result {
	if c.TTLMS != KeepTTL && badTime(c.TTLMS) || !ValidGroup(c.Group) || badHeadStart(c.HeadStartMS) {
		return Result{Code: Malformed}
	}
	owner := m.found(c.Session)
	want, refusal := m.asked(Want{c.Name, c.Count, c.Group}, c.Epoch, owner)
	if refusal != nil {
		return m.of(owner, *refusal)
	}
	if c.Count > full(want.semaphore, want.group) && !m.hasExactly(owner, want) {
		return m.of(owner, m.refusal(Never, want))
	}
	if owner == nil {
		return m.noSessionFor(c.Session, want.semaphore)
	}
	if c.TTLMS != KeepTTL {
		m.giveTTL(owner, c.TTLMS)
	}
	result := m.acquireKnown(owner, want, c)
	if result.Code != Waiting {
		result = m.of(owner, result)
	}
	result = m.goOn(owner, result)
	m.serveAndEnd()
	return result
}

func (m *model) hasExactly(owner *modelSession, want modelMember) bool {
	if owner == nil {
		return false
	}
	l := m.leaseOf(owner, want.semaphore, want.group)
	_, waits := m.requestFor(owner, want.semaphore, want.group)
	return l != nil && l.count == want.count || waits.count == want.count && want.count != 0
}

func (m *model) acquireKnown(owner *modelSession, want modelMember, c Acquire) Result {
	s := want.semaphore
	if c.Count < 1 {
		return m.refusal(InvalidCount, want)
	}
	if l := m.leaseOf(owner, s, want.group); l != nil {
		if l.revoked || l.count != c.Count {
			return m.heldOtherwise(l, c.Count)
		}
		return Result{Code: OK, Found: true, Epoch: s.epoch, Grants: []Grant{tell(l)}}
	}
	if r, waits := m.requestFor(owner, s, want.group); r != nil {
		if r.list == nil && waits.count == c.Count {
			return m.stillWaiting(r)
		}
		result := m.refusal(LeaseExists, want)
		result.explain().Holding = waits.count
		return result
	}
	if refusal := m.levelForbids(owner, want); refusal != nil {
		return *refusal
	}
	r := &modelRequest{session: owner, members: []modelMember{want}}
	m.rank(r, c.HeadStartMS)
	return m.grantOrWait(r, c.Try)
}

// levelForbids applies the level rule.
func (m *model) levelForbids(owner *modelSession, want modelMember) *Result {
	s := want.semaphore
	if s.level == nil {
		return nil
	}
	var lowest, waited *int32
	for _, l := range m.leasesOf(owner) {
		if level := l.semaphore.level; l.holds() > 0 && !l.semaphore.deleted && level != nil && (lowest == nil || *level < *lowest) {
			lowest = level
		}
	}
	for _, r := range m.requestsOf(owner) {
		for _, want := range r.members {
			if !r.unowned && waited == nil && !want.semaphore.deleted {
				waited = want.semaphore.level
			}
		}
	}
	result := m.refusal(Hierarchy, want)
	switch {
	case lowest != nil && *s.level >= *lowest:
		result.Rule, result.explain().LowestLevel = RuleHolds, lowest
	case waited != nil:
		result.Rule, result.explain().LowestLevel = RuleWaits, waited
	default:
		return nil
	}
	return &result
}

func (m *model) grantOrWait(r *modelRequest, try bool) Result {
	if members, ok := m.servable(r); ok {
		if refusal := m.roomToHold(r.session, r); refusal != nil {
			return *refusal
		}
		return m.grant(r, members)
	}
	if try {
		return m.unavailable(r)
	}
	if refusal := m.fullLines(r); refusal != nil {
		return *refusal
	}
	if refusal := m.roomToWait(r.session, r); refusal != nil {
		return *refusal
	}
	return m.enqueue(r)
}

func (m *model) acquireOnce(c AcquireOnce) Result {
	if badTime(c.TTLMS) || badTime(c.WaitMS) || c.Session == 0 || !ValidMetadata(c.Metadata) || !ValidGroup(c.Group) || badHeadStart(c.HeadStartMS) {
		return Result{Code: Malformed}
	}
	want, refusal := m.asked(Want{c.Name, c.Count, c.Group}, c.Epoch, nil)
	if refusal != nil {
		return *refusal
	}
	switch {
	case c.Count > full(want.semaphore, want.group):
		return m.refusal(Never, want)
	case c.Count < 1:
		return m.refusal(InvalidCount, want)
	}
	r := &modelRequest{members: []modelMember{want}}
	m.rank(r, c.HeadStartMS)
	owner := modelSession{id: c.Session, ttlMS: c.TTLMS, deadlineMS: m.nowMS + c.WaitMS, metadata: c.Metadata, oneShot: true}
	members, ok := m.servable(r)
	switch {
	case !ok && c.WaitMS == 0:
		return m.unavailable(r)
	case !ok:
		return m.waitOnce(r, owner)
	}
	if refusal := m.roomToOpen(c.Session); refusal != nil {
		return *refusal
	}
	if refusal := m.roomToHold(nil, r); refusal != nil {
		return *refusal
	}
	owner.deadlineMS = m.nowMS + c.TTLMS
	r.session = m.open(owner)
	result := m.grant(r, members)
	m.endIfDue(r.session)
	m.serveAndEnd()
	return result
}

func (m *model) acquireMany(c AcquireMany) Result {
	if c.Mode != All && c.Mode != Any || len(c.Wants) == 0 || len(c.Wants) > 64 || badWants(c.Wants) || badHeadStart(c.HeadStartMS) {
		return Result{Code: Malformed}
	}
	m.endOrphan(m.found(c.Session), c)
	r := &modelRequest{session: m.found(c.Session), mode: c.Mode, list: &modelList{c.Mode, c.Wants}}
	if same, ok := m.sameMany(r.session, c); ok {
		return m.goOn(r.session, same)
	}
	listed, refusal := m.askedAll(c, r.session)
	if refusal != nil {
		return m.of(r.session, *refusal)
	}
	never := Result{}
	for _, want := range listed {
		if want.count > full(want.semaphore, want.group) {
			if never.Code == OK || c.Mode == Any { // "all" ends with its first, "any" with its last
				never = m.refusal(Never, want)
			}
			continue
		}
		r.members = append(r.members, want)
	}
	if len(r.members) == 0 || c.Mode == All && len(r.members) < len(c.Wants) {
		return m.of(r.session, never)
	}
	if r.session == nil {
		return m.noSession(c.Session)
	}
	if refusal := m.mayNotAsk(r, listed); refusal != nil {
		return m.of(r.session, *refusal)
	}
	m.rank(r, c.HeadStartMS)
	result := m.grantOrWait(r, c.Try)
	if result.Code != Waiting {
		result = m.of(r.session, result)
	}
	result = m.goOn(r.session, result)
	m.serveAndEnd()
	return result
}

// askedAll returns the members of a list, or the refusal. An "all" has members in one pool at most.
func (m *model) askedAll(c AcquireMany, owner *modelSession) (listed []modelMember, refusal *Result) {
	for _, want := range c.Wants {
		member, refusal := m.asked(want, 0, owner)
		if refusal != nil {
			return nil, refusal
		}
		listed = append(listed, member)
	}
	pools := 0
	for i, want := range listed {
		if slices.ContainsFunc(listed[:i], func(other modelMember) bool { return other.semaphore == want.semaphore && other.group == want.group }) {
			return nil, &Result{Code: Malformed, Rule: RuleGroup, Subject: want.semaphore.name} // the owner's group, twice
		}
		if want.semaphore.pool() {
			pools++
		}
		if pools > 1 && c.Mode == All {
			return nil, &Result{Code: Malformed, Rule: RulePools, Subject: want.semaphore.name}
		}
	}
	return listed, nil
}

// badWants: a group is no group, or one is named twice.
func badWants(wants []Want) bool {
	for i, a := range wants {
		if !ValidGroup(a.Group) {
			return true
		}
		for _, b := range wants[:i] {
			if a.Semaphore == b.Semaphore && a.Group == b.Group {
				return true
			}
		}
	}
	return false
}

// sameMany: the same list and mode from the same session is the same request.
func (m *model) sameMany(owner *modelSession, c AcquireMany) (Result, bool) {
	if owner == nil {
		return Result{}, false
	}
	for _, r := range m.requestsOf(owner) {
		if r.list.same(c.Mode, c.Wants) {
			return m.stillWaiting(r), true
		}
	}
	result := Result{Code: OK, Found: true}
	for _, want := range c.Wants {
		l := m.leaseOf(owner, m.semaphore(want.Semaphore), want.Group)
		if l != nil && !l.revoked && l.count == want.Count && l.list.same(c.Mode, c.Wants) {
			result.Grants = append(result.Grants, tell(l))
		}
	}
	whole := len(result.Grants) == len(c.Wants) || c.Mode == Any && len(result.Grants) > 0
	return m.of(owner, result), whole
}

// mayNotAsk refuses semaphores that the session holds or has requested, mixed levels, and
// violations of the rule of levels.
func (m *model) mayNotAsk(r *modelRequest, listed []modelMember) *Result {
	for _, want := range listed {
		var refusal Result
		l := m.leaseOf(r.session, want.semaphore, want.group)
		waiting, waits := m.requestFor(r.session, want.semaphore, want.group)
		first, level := listed[0].semaphore.level, want.semaphore.level
		switch {
		case want.count < 1:
			refusal = m.refusal(InvalidCount, want)
		case l != nil:
			refusal = m.heldOtherwise(l, want.count)
		case waiting != nil:
			refusal = m.refusal(LeaseExists, want)
			refusal.explain().Holding = waits.count
		case r.mode == All && ((first == nil) != (level == nil) || first != nil && *first != *level):
			refusal = m.refusal(MixedLevels, want)
		default:
			continue
		}
		return &refusal
	}
	for _, want := range r.members {
		if refusal := m.levelForbids(r.session, want); refusal != nil {
			return refusal
		}
	}
	return nil
}

func (m *model) restore(c RestoreSession) Result {
	if c.Session == 0 || badTime(c.TTLMS) || !ValidMetadata(c.Metadata) || badWants(c.Leases) {
		return Result{Code: Malformed}
	}
	listed, refusal := m.askedAll(AcquireMany{Wants: c.Leases}, m.found(c.Session))
	if refusal != nil {
		return *refusal
	}
	for _, want := range listed {
		if want.count < 1 {
			return m.refusal(InvalidCount, want)
		}
	}
	for _, e := range m.ended {
		switch {
		case e.id == c.Session && !m.mayFind(e.owner):
			return Result{Code: SessionExists, Session: c.Session}
		case e.id == c.Session && revoking(e.cause):
			return Result{Code: Revoked, Session: c.Session, Refusal: &Refusal{Reason: e.reason}}
		}
	}
	if s := m.found(c.Session); s != nil {
		return m.restoreLiving(s, listed, c.Slots)
	}
	if m.session(c.Session) != nil {
		return Result{Code: SessionExists, Session: c.Session}
	}
	for _, want := range listed {
		for _, v := range m.revoked {
			if v.session == c.Session && v.epoch == want.semaphore.epoch && v.group == want.group {
				refusal := m.refusal(Revoked, want)
				refusal.Session, refusal.explain().Reason = c.Session, v.reason
				return refusal
			}
		}
	}
	r := &modelRequest{mode: All, members: listed, restores: true}
	for i, want := range listed {
		s := want.semaphore
		if s.settings.Slots && want.count > 1<<10 {
			return m.refusal(Overflow, want)
		}
		if s.settings.Family && s.settings.WindowMS == 0 && m.used(s, want.group) > 1<<36-want.count {
			return m.refusal(Overflow, want)
		}
		held := big.NewInt(m.taken(s))
		for _, other := range listed[:i+1] {
			if other.semaphore == s && s.settings.WindowMS == 0 {
				held.Add(held, big.NewInt(other.count))
			}
		}
		if !legal(s.permits, big.NewInt(s.offset), held) {
			return m.refusal(Overflow, want)
		}
	}
	if refusal := m.nameSlots(r, c.Slots); refusal != nil {
		return *refusal
	}
	if refusal := m.roomToOpen(c.Session); refusal != nil {
		return *refusal
	}
	if refusal := m.roomToHold(&modelSession{owner: m.caller.owner}, r); refusal != nil {
		return *refusal
	}
	r.session = m.open(modelSession{id: c.Session, ttlMS: c.TTLMS, deadlineMS: m.nowMS + c.TTLMS, metadata: c.Metadata})
	result := Result{Code: OK, Created: true}
	for _, want := range r.members {
		result.Grants = append(result.Grants, tell(m.lease(r, want)))
	}
	m.endIfDue(r.session)
	result = m.of(r.session, result)
	m.serveAndEnd()
	return result
}

func (m *model) restoreLiving(s *modelSession, wants []modelMember, slots [][]uint32) Result {
	result := Result{Code: OK, Found: true}
	for i, want := range wants {
		other := func(l *modelLease) bool { // it has other slots than named
			return i < len(slots) && len(slots[i]) > 0 && l.semaphore.settings.Slots && !slices.Equal(slices.Sorted(slices.Values(slots[i])), l.slots)
		}
		if l := m.leaseOf(s, want.semaphore, want.group); l != nil && l.count == want.count && !l.revoked && !other(l) {
			result.Grants = append(result.Grants, tell(l))
		}
	}
	leases, requests := 0, 0
	for _, l := range m.leasesOf(s) {
		if !l.semaphore.deleted {
			leases++
		}
	}
	for _, r := range m.requestsOf(s) {
		if len(r.left()) > 0 {
			requests++
		}
	}
	if requests > 0 || len(result.Grants) != len(wants) || leases != len(wants) {
		return Result{Code: SessionExists, Session: s.id}
	}
	return m.goOn(s, m.of(s, result))
}

// mayBecome is how many leases requests may become.
func mayBecome(requests ...*modelRequest) (leases int64) {
	for _, r := range requests {
		switch {
		case r.unowned:
		case r.mode == All:
			leases += int64(len(r.members))
		default:
			leases++
		}
	}
	return leases
}

func limited(rule Rule, subject string) *Result {
	return &Result{Code: LimitReached, Rule: rule, Subject: subject}
}

func (m *model) roomToOpen(id uint64) *Result {
	if m.session(id) != nil {
		return &Result{Code: SessionIDTaken, Session: id}
	}
	if int64(len(m.sessions)) >= m.limits.Sessions {
		return limited(RuleSessions, "")
	}
	has, _, _ := m.ownedBy(m.caller.owner, nil)
	return ownLimit(RuleOwnerSessions, has+1, m.caller.limits.Sessions)
}

// ownedBy counts the sessions of an owner and another one, the leases that they have or may
// get from their waiting requests, and the members of these.
func (m *model) ownedBy(owner string, with *modelSession) (sessions, leases, waiting int64) {
	for _, s := range m.sessions {
		if s.owner != owner && s != with {
			continue
		}
		sessions++
		leases += int64(len(m.leasesOf(s))) + mayBecome(m.requestsOf(s)...)
		for _, r := range m.requestsOf(s) {
			waiting += int64(len(r.members))
		}
	}
	return sessions, leases, waiting
}

// ownLimit refuses a count above a limit of the caller, unless the limit is 0.
func ownLimit(rule Rule, count, limit int64) *Result {
	if limit == 0 || count <= limit {
		return nil
	}
	return &Result{Code: LimitReached, Rule: rule, Refusal: &Refusal{Limit: limit}}
}

// ownsWith reports whether what is added to a session, nil for a new one, counts for the
// caller, who goes on with it if it has no owner.
func (m *model) ownsWith(s *modelSession) bool {
	return m.caller.owner != "" && (s == nil || s.owner == m.caller.owner || s.owner == "")
}

// roomToHold: leases, together with the leases that waiting requests may become, stay
// within their limits. owner is nil for a session that does not exist yet.
func (m *model) roomToHold(owner *modelSession, r *modelRequest) *Result {
	more, records := mayBecome(r), mayBecome(r)
	if !r.restores {
		records += r.windows()
	}
	if refusal := cmp.Or(m.roomToReturn(r.mayReturn()), m.roomFor(records)); refusal != nil || more == 0 {
		return refusal
	}
	_, has, _ := m.ownedBy(m.caller.owner, owner)
	if refusal := ownLimit(RuleOwnerLeases, has+more, m.caller.limits.Leases); refusal != nil && m.ownsWith(owner) {
		return refusal
	}
	if owner != nil && int64(len(m.leasesOf(owner)))+mayBecome(m.requestsOf(owner)...)+more > m.limits.SessionLeases {
		return limited(RuleSessionLeases, "")
	}
	return nil
}

func (m *model) roomToWait(owner *modelSession, r *modelRequest) *Result {
	if refusal := m.roomToHold(owner, r); refusal != nil {
		return refusal
	}
	waits := func(requests []*modelRequest) int64 {
		members := len(r.members)
		for _, other := range requests {
			members += len(other.members)
		}
		return int64(members)
	}
	if waits(m.requests) > m.limits.Waiting {
		return limited(RuleWaiting, "")
	}
	_, _, has := m.ownedBy(m.caller.owner, owner)
	if refusal := ownLimit(RuleOwnerWaiting, has+int64(len(r.members)), m.caller.limits.Waiting); refusal != nil && m.ownsWith(owner) {
		return refusal
	}
	if owner != nil && waits(m.requestsOf(owner)) > m.limits.SessionWaiting {
		return limited(RuleSessionWaits, "")
	}
	for _, want := range r.members {
		if int64(len(m.waiters(want.semaphore))) >= m.limits.Queue {
			return limited(RuleQueue, want.semaphore.name)
		}
	}
	return nil
}
