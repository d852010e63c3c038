package fsm

// Acquire requests a lease of one semaphore in a session. Unless Try is set, the request
// waits, and keeps its place until it is granted or withdrawn or its session ends.
// Repeating a request that waits or was granted, with the same count, changes only the ttl
// of the session.
//
// Codes, in the order of the checks: Malformed, UnknownSemaphore, EpochMismatch, Never,
// UnknownSession (ExpiredSession, Revoked), InvalidCount, Revoked, LeaseExists, Hierarchy,
// LimitReached; OK (Grants), Waiting, or Unavailable with Try.
type Acquire struct {
	Session uint64
	Name    string
	Count   int64
	TTLMS   int64 // ttl of the session from now on, even if the acquire is refused; or KeepTTL
	Try     bool  // don't wait
	Epoch   uint64

	Group       string // of a semaphore with groups
	HeadStartMS int64  // the request is placed in the line as if it had come this much earlier, up to Settings.HeadStartMS
}

// Op is OpAcquire.
func (Acquire) Op() Op                      { return OpAcquire }
func (c Acquire) names() []string           { return []string{c.Name} }
func (c Acquire) session() uint64           { return c.Session }
func (c Acquire) wants() []Want             { return []Want{{c.Name, c.Count, c.Group}} }
func (c Acquire) permits() int64            { return c.Count }
func (c Acquire) cost(size SessionSize) int { return 1 + size.Records/walkedPerUnit }

// queue returns the lease for which the command may wait, zero if it does not wait.
func (c Acquire) queue() (want Want) {
	if !c.Try {
		want = Want{c.Name, c.Count, c.Group}
	}
	return want
}

func (c Acquire) encode(e *encoder) {
	e.uint(c.Session)
	e.string(c.Name)
	e.int(c.Count)
	e.int(c.TTLMS)
	e.bool(c.Try)
	e.uint(c.Epoch)
	e.group(c.Group, c.HeadStartMS)
}

func decodeAcquire(d *decoder) Command {
	c := Acquire{Session: d.Uint(), Name: d.Text(), Count: d.Int(), TTLMS: d.Int(), Try: d.Bool(), Epoch: d.Uint()}
	c.Group, c.HeadStartMS = d.group()
	return c
}

func (c Acquire) apply(m *Machine) Result {
	if c.TTLMS < KeepTTL || c.TTLMS > MaxTTLMS || !validAsk(c.Group, c.HeadStartMS) {
		return Result{Code: Malformed}
	}
	var result Result
	session, known := m.usableSession(c.Session)
	semaphore, ok := m.findSemaphore(c.Name, c.Epoch, &result)
	if !ok {
		m.describeSession(&result, session)
		return result
	}
	want, ok := m.resolveMember(semaphore, session, Want{c.Name, c.Count, c.Group}, &result)
	if !ok {
		m.describeSession(&result, session)
		return result
	}
	if c.Count > m.largestCount(want) && !(known && m.hasExactly(session, want)) {
		m.refuseNever(&result, want)
		m.describeSession(&result, session)
		return result
	}
	if session, ok = m.findSession(c.Session, &result); !ok {
		return result
	}
	if c.TTLMS != KeepTTL {
		m.giveTTL(session, c.TTLMS)
	}
	result = m.acquire(session, want, c)
	m.takeOver(session, &result)
	m.finishCommand()
	return result
}

// acquire applies the checks that need the session, and requests the lease.
func (m *Machine) acquire(session ref, want member, c Acquire) (result Result) {
	defer func() {
		if result.Code != Waiting {
			m.describeSession(&result, session)
		}
	}()
	if c.Count < 1 {
		m.refuse(&result, InvalidCount, want)
		return result
	}
	group := m.groupOf(want.lane)
	if held, ok := m.leaseNamed(session, want.semaphore, group); ok {
		return m.acquireHeld(held, c.Count)
	}
	if waiting, target := m.waitNamed(session, want.semaphore, group); waiting != 0 {
		r := m.requests.at(waiting)
		if count := countOf(r.members, target); r.mode != 0 || count != c.Count {
			m.refuse(&result, LeaseExists, want)
			result.explain().Holding = count
			return result
		}
		return m.waitingResult(waiting)
	}
	d := newRequest{request: request{session: session, members: []member{want}}, mayWait: !c.Try, headStartMS: c.HeadStartMS}
	if !m.mayAsk(session, d.members, &result) {
		return result
	}
	return m.grantOrEnqueue(&d)
}

// acquireHeld returns the result of an acquire when the session has a lease of the semaphore.
func (m *Machine) acquireHeld(held ref, count int64) Result {
	l := m.leases.at(held)
	if l.revoked() || l.count != count {
		return m.refuseHeld(held, count)
	}
	return Result{Code: OK, Found: true, Epoch: m.semaphores.at(l.semaphore).epoch, Grants: []Grant{m.grantOf(l)}}
}

// refuseHeld refuses a request because the session has a lease of the semaphore.
func (m *Machine) refuseHeld(held ref, count int64) (result Result) {
	l := m.leases.at(held)
	want := member{l.semaphore, l.lane, count}
	if l.revoked() {
		m.refuseRevoked(&result, want, l.reason)
	} else {
		m.refuse(&result, LeaseExists, want)
		if l.count != 0 { // 0 is a receipt that was settled to 0
			result.explain().Holding = l.count
		}
	}
	return result
}

// hasExactly reports whether a session has a lease or a request of exactly this count.
func (m *Machine) hasExactly(session ref, want member) bool {
	group := m.groupOf(want.lane)
	if held, ok := m.leaseNamed(session, want.semaphore, group); ok {
		return m.leases.at(held).count == want.count
	}
	waiting, target := m.waitNamed(session, want.semaphore, group)
	return waiting != 0 && countOf(m.requests.at(waiting).members, target) == want.count
}

func validAsk(group string, headStartMS int64) bool {
	return ValidGroup(group) && headStartMS >= 0 && headStartMS <= MaxTTLMS
}

// mayAsk applies the rule of levels to each member of a request. A session may request a semaphore with a level only if
// that level is below all levels that it holds, and only while it has no other waiting request with a level. So each
// session waits only for a level below the levels that it holds, and no cycle of waits can form. mayAsk reads the
// leases and requests of the session at most once.
func (m *Machine) mayAsk(session ref, members []member, result *Result) bool {
	var held, waited *int32
	looked := false
	for _, want := range members {
		level := m.semaphores.at(want.semaphore).level
		if level == nil {
			continue
		}
		if !looked {
			looked, held, waited = true, m.lowestHeld(session), m.levelWaitedFor(session)
		}
		rule, lowest := RuleNone, held
		if held != nil && *level >= *held {
			rule = RuleHolds
		} else if waited != nil {
			rule, lowest = RuleWaits, waited
		}
		if rule != RuleNone {
			m.refuse(result, Hierarchy, want)
			result.Rule, result.explain().LowestLevel = rule, lowest
			return false
		}
	}
	return true
}

// lowestHeld returns the lowest present level among the semaphores that a session holds, or
// nil.
func (m *Machine) lowestHeld(session ref) *int32 {
	var lowest *int32
	for r := m.sessions.at(session).leases.first; r != 0; r = m.leases.at(r).inSession.next {
		l := m.leases.at(r)
		if s := m.semaphores.at(l.semaphore); s.level != nil && l.holds() > 0 && !s.deleted {
			if lowest == nil || *lowest > *s.level {
				lowest = s.level
			}
		}
	}
	return lowest
}

// levelWaitedFor returns the level of one waiting request of a session, or nil.
func (m *Machine) levelWaitedFor(session ref) *int32 {
	for r := m.sessions.at(session).requests.first; r != 0; r = m.requests.at(r).inSession.next {
		q := m.requests.at(r)
		if q.isDown {
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

// MayWait returns the lease for which an encoded acquire may wait, and its session. The name is empty for another
// command and for malformed bytes. The session is 0 for an [AcquireOnce], which has no session yet.
func MayWait(command []byte) (want Want, sessionID uint64) {
	if OpOf(command).row().waits != mayWait {
		return Want{}, 0
	}
	d, _ := decodeCommand(newDecoder(command))
	if waits, ok := d.command.(interface{ queue() Want }); ok {
		want = waits.queue()
	}
	if want.Semaphore != "" {
		sessionID = SessionOf(d.command)
	}
	return want, sessionID
}

// JoinsQueue reports whether an acquire would join a line in which requests wait. It is false if the session already
// has the lease.
func (m *Machine) JoinsQueue(want Want, sessionID uint64) bool {
	r, ok := m.byName[want.Semaphore]
	if !ok || m.semaphores.at(r).waiting() == 0 {
		return false
	}
	session, _ := m.bySession.Get(sessionID)
	if s := m.semaphores.at(r); s.settingsOrZero().Groups == ByRequest {
		if lane := s.lane(want.Group); s.choice().lane == 0 && (lane == 0 || m.lanes.at(lane).line == nil) {
			return false
		}
	}
	_, holds := m.leaseNamed(session, r, want.Group)
	return !holds
}
