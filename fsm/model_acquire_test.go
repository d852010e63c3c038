package fsm

import "math/big"

// The model's acquires: one, once, many; restore; levels and limits.

func (m *model) acquire(c Acquire) Result {
	if c.TTLMS != KeepTTL && badTime(c.TTLMS) {
		return Result{Code: Malformed}
	}
	owner := m.found(c.Session)
	s, refusal := m.meant(c.Name, c.Epoch)
	if refusal != nil {
		return m.of(owner, *refusal)
	}
	if c.Count > full(s) && !m.hasExactly(owner, s, c.Count) {
		return m.of(owner, m.refusal(Never, s, c.Count))
	}
	if owner == nil {
		return m.noSessionFor(c.Session, s)
	}
	if c.TTLMS != KeepTTL {
		m.giveTTL(owner, c.TTLMS)
	}
	result := m.acquireKnown(owner, s, c)
	if result.Code != Waiting {
		result = m.of(owner, result)
	}
	result = m.goOn(owner, result)
	m.serveAndEnd()
	return result
}

func (m *model) hasExactly(owner *modelSession, s *modelSemaphore, count int64) bool {
	if owner == nil {
		return false
	}
	l, r := m.leaseOf(owner, s), m.requestFor(owner, s)
	return l != nil && l.count == count || r != nil && r.countOf(s) == count
}

func (m *model) acquireKnown(owner *modelSession, s *modelSemaphore, c Acquire) Result {
	if c.Count < 1 {
		return m.refusal(InvalidCount, s, c.Count)
	}
	if l := m.leaseOf(owner, s); l != nil {
		if l.revoked || l.count != c.Count {
			return m.heldOtherwise(l, c.Count)
		}
		return Result{Code: OK, Found: true, Epoch: s.epoch, Grants: []Grant{tell(l)}}
	}
	if r := m.requestFor(owner, s); r != nil {
		if r.list == nil && r.countOf(s) == c.Count {
			return m.stillWaiting(r)
		}
		result := m.refusal(LeaseExists, s, c.Count)
		result.Holding = r.countOf(s)
		return result
	}
	if refusal := m.levelForbids(owner, s, c.Count); refusal != nil {
		return *refusal
	}
	return m.grantOrWait(&modelRequest{session: owner, members: []modelMember{{s, c.Count}}}, c.Try)
}

// levelForbids applies the level rule.
func (m *model) levelForbids(owner *modelSession, s *modelSemaphore, count int64) *Result {
	if s.level == nil {
		return nil
	}
	var lowest, waited *int32
	for _, l := range m.leasesOf(owner) {
		if level := l.semaphore.level; !l.revoked && !l.semaphore.deleted && level != nil && (lowest == nil || *level < *lowest) {
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
	result := m.refusal(Hierarchy, s, count)
	switch {
	case lowest != nil && *s.level >= *lowest:
		result.Rule, result.LowestLevel = RuleHolds, lowest
	case waited != nil:
		result.Rule, result.LowestLevel = RuleWaits, waited
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
		return m.refusal(Unavailable, r.members[0].semaphore, r.members[0].count)
	}
	if refusal := m.roomToWait(r.session, r); refusal != nil {
		return *refusal
	}
	return m.enqueue(r)
}

func (m *model) acquireOnce(c AcquireOnce) Result {
	if badTime(c.TTLMS) || badTime(c.WaitMS) || c.Session == 0 || !ValidMetadata(c.Metadata) {
		return Result{Code: Malformed}
	}
	s, refusal := m.meant(c.Name, c.Epoch)
	if refusal != nil {
		return *refusal
	}
	switch {
	case c.Count > full(s):
		return m.refusal(Never, s, c.Count)
	case c.Count < 1:
		return m.refusal(InvalidCount, s, c.Count)
	}
	r := &modelRequest{members: []modelMember{{s, c.Count}}}
	owner := modelSession{id: c.Session, ttlMS: c.TTLMS, deadlineMS: m.nowMS + c.WaitMS, metadata: c.Metadata, oneShot: true}
	members, ok := m.servable(r)
	switch {
	case !ok && c.WaitMS == 0:
		return m.refusal(Unavailable, s, c.Count)
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
	if c.Mode != All && c.Mode != Any || len(c.Wants) == 0 || len(c.Wants) > 64 || namesTwice(c.Wants) {
		return Result{Code: Malformed}
	}
	m.endOrphan(m.found(c.Session), c)
	r := &modelRequest{session: m.found(c.Session), mode: c.Mode, list: &modelList{c.Mode, c.Wants}}
	if same, ok := m.sameMany(r.session, c); ok {
		return m.goOn(r.session, same)
	}
	never := Result{}
	for _, want := range c.Wants {
		s, refusal := m.meant(want.Semaphore, 0)
		if refusal != nil {
			return m.of(r.session, *refusal)
		}
		if want.Count > full(s) {
			if never.Code == OK || c.Mode == Any { // "all" ends with its first, "any" with its last
				never = m.refusal(Never, s, want.Count)
			}
			continue
		}
		r.members = append(r.members, modelMember{s, want.Count})
	}
	if len(r.members) == 0 || c.Mode == All && len(r.members) < len(c.Wants) {
		return m.of(r.session, never)
	}
	if r.session == nil {
		return m.noSession(c.Session)
	}
	if refusal := m.mayNotAsk(r, c.Wants); refusal != nil {
		return m.of(r.session, *refusal)
	}
	result := m.grantOrWait(r, c.Try)
	if result.Code != Waiting {
		result = m.of(r.session, result)
	}
	result = m.goOn(r.session, result)
	m.serveAndEnd()
	return result
}

func namesTwice(wants []Want) bool {
	for i, a := range wants {
		for _, b := range wants[:i] {
			if a.Semaphore == b.Semaphore {
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
		l := m.leaseOf(owner, m.semaphore(want.Semaphore))
		if l != nil && !l.revoked && l.count == want.Count && l.list.same(c.Mode, c.Wants) {
			result.Grants = append(result.Grants, tell(l))
		}
	}
	whole := len(result.Grants) == len(c.Wants) || c.Mode == Any && len(result.Grants) > 0
	return m.of(owner, result), whole
}

// mayNotAsk refuses semaphores that the session holds or has requested, mixed levels, and
// violations of the rule of levels.
func (m *model) mayNotAsk(r *modelRequest, wants []Want) *Result {
	for _, want := range wants {
		s := m.semaphore(want.Semaphore)
		var refusal Result
		l, waiting := m.leaseOf(r.session, s), m.requestFor(r.session, s)
		first := m.semaphore(wants[0].Semaphore).level
		switch {
		case want.Count < 1:
			refusal = m.refusal(InvalidCount, s, want.Count)
		case l != nil:
			refusal = m.heldOtherwise(l, want.Count)
		case waiting != nil:
			refusal = m.refusal(LeaseExists, s, want.Count)
			refusal.Holding = waiting.countOf(s)
		case r.mode == All && ((first == nil) != (s.level == nil) || first != nil && *first != *s.level):
			refusal = m.refusal(MixedLevels, s, want.Count)
		default:
			continue
		}
		return &refusal
	}
	for _, want := range r.members {
		if refusal := m.levelForbids(r.session, want.semaphore, want.count); refusal != nil {
			return refusal
		}
	}
	return nil
}

func (m *model) restore(c RestoreSession) Result {
	if c.Session == 0 || badTime(c.TTLMS) || !ValidMetadata(c.Metadata) || namesTwice(c.Leases) {
		return Result{Code: Malformed}
	}
	for _, want := range c.Leases {
		if _, refusal := m.meant(want.Semaphore, 0); refusal != nil {
			return *refusal
		}
	}
	for _, want := range c.Leases {
		if want.Count < 1 {
			return m.refusal(InvalidCount, m.semaphore(want.Semaphore), want.Count)
		}
	}
	for _, e := range m.ended {
		switch {
		case e.id == c.Session && !m.mayFind(e.owner):
			return Result{Code: SessionExists, Session: c.Session}
		case e.id == c.Session && e.cause == CauseRevoked:
			return Result{Code: Revoked, Session: c.Session, Reason: e.reason}
		}
	}
	if s := m.found(c.Session); s != nil {
		return m.restoreLiving(s, c.Leases)
	}
	if m.session(c.Session) != nil {
		return Result{Code: SessionExists, Session: c.Session}
	}
	for _, want := range c.Leases {
		s := m.semaphore(want.Semaphore)
		for _, v := range m.revoked {
			if v.session == c.Session && v.epoch == s.epoch {
				refusal := m.refusal(Revoked, s, want.Count)
				refusal.Session, refusal.Reason = c.Session, v.reason
				return refusal
			}
		}
	}
	r := &modelRequest{mode: All}
	for _, want := range c.Leases {
		s := m.semaphore(want.Semaphore)
		held := new(big.Int).Add(big.NewInt(m.held(s)), big.NewInt(want.Count))
		if !legal(s.permits, big.NewInt(s.offset), held) {
			return m.refusal(Overflow, s, want.Count)
		}
		r.members = append(r.members, modelMember{s, want.Count})
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

func (m *model) restoreLiving(s *modelSession, wants []Want) Result {
	result := Result{Code: OK, Found: true}
	for _, want := range wants {
		if l := m.leaseOf(s, m.semaphore(want.Semaphore)); l != nil && l.count == want.Count && !l.revoked {
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
	return &Result{Code: LimitReached, Rule: rule, Limit: limit}
}

// ownsWith reports whether what is added to a session, nil for a new one, counts for the
// caller, who goes on with it if it has no owner.
func (m *model) ownsWith(s *modelSession) bool {
	return m.caller.owner != "" && (s == nil || s.owner == m.caller.owner || s.owner == "")
}

// roomToHold: leases, together with the leases that waiting requests may become, stay
// within their limits. owner is nil for a session that does not exist yet.
func (m *model) roomToHold(owner *modelSession, r *modelRequest) *Result {
	more := mayBecome(r)
	if more == 0 {
		return nil
	}
	if int64(len(m.leases))+mayBecome(m.requests...)+more > m.limits.Leases {
		return limited(RuleLeases, "")
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
		if int64(len(m.line(want.semaphore))) >= m.limits.Queue {
			return limited(RuleQueue, want.semaphore.name)
		}
	}
	return nil
}
