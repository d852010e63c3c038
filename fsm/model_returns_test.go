package fsm

import (
	"cmp"
	"math/big"
	"slices"
)

// The model's returns: permits that no lease holds and that come back later. They were spent in a
// window, rest after a lease, or were held by a lost lease.

type modelReturn struct {
	semaphore *modelSemaphore
	in        modelIn
	owner     string // an identity, or ""
	count     int64
	dueMS     int64 // or NeverMS
	spent     bool  // by the grants of a window
	lost      *modelLost
	slots     []uint32
}

// modelLost is the lease that was lost.
type modelLost struct {
	token, session uint64
	atMS           int64
	metadata       []Pair
}

func roundedUp(ms, step int64) int64 { return (ms + step - 1) / step * step }

// spentUntil is when a grant of now comes back: a window later, on the next multiple of a step of
// a hundredth of the window, which is at least 10 ms and a multiple of 10 ms.
func spentUntil(nowMS, windowMS int64) int64 {
	return roundedUp(nowMS+windowMS, roundedUp(roundedUp(windowMS, 100)/100, 10))
}

// returnsOf lists the returns of a semaphore in the order in which they come back.
func (m *model) returnsOf(s *modelSemaphore) (found []*modelReturn) {
	for _, t := range m.returns {
		if t.semaphore == s {
			found = append(found, t)
		}
	}
	slices.SortStableFunc(found, func(a, b *modelReturn) int { return cmp.Compare(a.dueMS, b.dueMS) })
	return found
}

func (m *model) returning(s *modelSemaphore) (count int64) {
	for _, t := range m.returnsOf(s) {
		count += t.count
	}
	return count
}

// taken is what is not there: held, or coming back.
func (m *model) taken(s *modelSemaphore) int64 { return m.held(s) + m.returning(s) }

func (m *model) removeReturn(t *modelReturn) {
	m.returns = slices.DeleteFunc(m.returns, func(other *modelReturn) bool { return other == t })
	m.done.ended += 1 + len(t.slots)/slotsARecord
	m.tidy(t.semaphore)
}

// spend counts a grant in a window, and returns when it comes back. What one group spends until one
// time is one return.
func (m *model) spend(r *modelRequest, s *modelSemaphore, in modelIn, count int64) (dueMS int64) {
	dueMS = spentUntil(m.nowMS, s.settings.WindowMS)
	if in.grouped {
		m.groupNamed(s, in.group)
	}
	if t := m.spends(s, in, dueMS); t != nil {
		t.count += count
		return dueMS
	}
	owner := m.caller.owner
	if r.session != nil {
		owner = r.session.owner
	}
	m.returns = append(m.returns, &modelReturn{semaphore: s, in: in, owner: owner, count: count, dueMS: dueMS, spent: true})
	return dueMS
}

// spends is the return of what a group spent until a time.
func (m *model) spends(s *modelSemaphore, in modelIn, dueMS int64) *modelReturn {
	for _, t := range m.returns {
		if t.semaphore == s && t.in == in && t.dueMS == dueMS && t.spent {
			return t
		}
	}
	return nil
}

// rest decides when permits that a lease gives up come back: 0 is at once.
func (m *model) rest(l *modelLease, count int64, slots []uint32, cause Cause) (dueMS int64, lost *modelLost) {
	settings := l.semaphore.settings
	if count == 0 || l.semaphore.deleted {
		return 0, nil
	}
	away := settings.CooldownMS
	if settings.OnLostMS != 0 && (cause == CauseExpired && l.session.ttlMS != 0 || cause == CauseMaxHold) {
		lost = &modelLost{l.token, l.session.id, m.nowMS, l.session.metadata}
		away = max(away, settings.OnLostMS)
	}
	switch {
	case lost != nil && settings.OnLostMS == Quarantine:
		dueMS = NeverMS
	case away == 0:
		return 0, nil
	default:
		dueMS = roundedUp(m.nowMS+away, 10)
	}
	m.returns = append(m.returns, &modelReturn{semaphore: l.semaphore, in: l.in, owner: l.session.owner, count: count, dueMS: dueMS, lost: lost, slots: slots})
	return dueMS, lost
}

// endHolds ends the leases that were held for as long as they may, as far as the budget goes.
func (m *model) endHolds() {
	for _, l := range m.overheld() {
		if m.done.ended >= m.budget.ended {
			return
		}
		switch {
		case !slices.Contains(m.leases, l): // it ended with its one-shot session
		case l.session.oneShot:
			m.endSession(l.session, CauseMaxHold, "max-hold")
		default:
			m.revokeLease(l, CauseMaxHold, "max-hold")
		}
	}
}

// overheld lists the leases whose end has come, in the order of their ends.
func (m *model) overheld() (found []*modelLease) {
	for _, l := range m.leases {
		if l.endsMS != 0 && l.endsMS <= m.nowMS {
			found = append(found, l)
		}
	}
	slices.SortStableFunc(found, func(a, b *modelLease) int { return cmp.Compare(a.endsMS, b.endsMS) })
	return found
}

// revoking: a client learns that it was not its doing, and can't restore what ended.
func revoking(cause Cause) bool { return cause == CauseRevoked || cause == CauseMaxHold }

func (m *model) revokeLease(l *modelLease, cause Cause, reason string) {
	count := l.holds()
	l.revoked, l.cause, l.reason, l.endsMS = true, cause, reason, 0
	l.semaphore.modified = m.index
	m.released(l, count, l.takeSlots(count), cause, reason)
	m.done.ended++
}

// dueReturns lists the returns whose time has come, in the order in which they come back.
func (m *model) dueReturns() (found []*modelReturn) {
	for _, t := range m.returns {
		if t.dueMS <= m.nowMS {
			found = append(found, t)
		}
	}
	slices.SortStableFunc(found, func(a, b *modelReturn) int { return cmp.Compare(a.dueMS, b.dueMS) })
	return found
}

// comeBack brings due returns back, as far as the budget goes.
func (m *model) comeBack() {
	for _, t := range m.dueReturns() {
		if m.done.ended >= m.budget.ended {
			return
		}
		m.removeReturn(t)
		if t.count > 0 && !t.semaphore.deleted {
			t.semaphore.modified = m.index
			m.effect(Effect{Kind: EffectReturned, Semaphore: t.semaphore.name, Epoch: t.semaphore.epoch, Count: t.count,
				Details: detailsOf(t.in.group, 0, asRuns(t.slots), "")})
		}
	}
}

// settle says what was really spent of a receipt.
func (m *model) settle(l *modelLease, c ResizeLease) Result {
	s := l.semaphore
	after := big.NewInt(m.taken(s))
	after.Add(after, big.NewInt(c.Count)).Sub(after, big.NewInt(l.count))
	t := m.spends(s, l.in, l.dueMS)
	switch {
	case c.Count == l.count || l.void || l.dueMS <= m.nowMS || t == nil:
	case s.settings.Family && c.Count > l.count && (c.Count > 1<<36 || l.in.grouped && m.used(s, l.in.group) > 1<<36-(c.Count-l.count)):
		return m.refusal(Overflow, modelMember{s, l.in.group, c.Count, !l.in.grouped})
	case !s.settings.Family && !legal(s.permits, big.NewInt(s.offset), after):
		return m.refusal(Overflow, modelMember{s, l.in.group, c.Count, !l.in.grouped})
	default:
		t.count += c.Count - l.count
		larger := c.Count > l.count
		l.count = c.Count
		m.rateSettled(l, larger)
		s.modified = m.index
		m.effect(Effect{Kind: EffectSettled, Semaphore: s.name, Epoch: s.epoch, Session: l.session.id, Token: l.token,
			Count: l.count, Details: detailsOf(l.in.group, l.dueMS, nil, "")})
	}
	m.serveAndEnd()
	return m.of(l.session, Result{Code: OK, Found: c.Count == l.count, Epoch: s.epoch, Grants: []Grant{tell(l)}})
}

// forgetSpends is the start of a set: its value is what is available, and no spent
// permits come back later. It reports whether there were any.
func (m *model) forgetSpends(s *modelSemaphore) (forgotten bool) {
	m.ratesAnew(s)
	for _, l := range m.holders(s) {
		l.void = l.void || l.dueMS != 0
	}
	for _, t := range m.returnsOf(s) {
		if t.spent {
			m.removeReturn(t)
			forgotten = forgotten || t.count > 0
		}
	}
	return forgotten
}

func (m *model) freeLost(c FreeLost) Result {
	if !ValidReason(c.Reason) {
		return Result{Code: Malformed}
	}
	s, refusal := m.meant(c.Name, c.Epoch)
	if refusal != nil {
		return *refusal
	}
	for _, t := range m.returnsOf(s) {
		if t.lost == nil || t.lost.token != c.Token || !m.mayFind(t.owner) {
			continue
		}
		m.removeReturn(t)
		s.modified = m.index
		m.effect(Effect{Kind: EffectFreed, Semaphore: s.name, Epoch: s.epoch, Session: t.lost.session, Token: c.Token,
			Count: t.count, Details: detailsOf(t.in.group, 0, asRuns(t.slots), c.Reason)})
		m.serveAndEnd()
		return Result{Code: OK, Found: true, Epoch: s.epoch, Granted: t.count}
	}
	return m.refusal(NotLost, modelMember{semaphore: s, whole: true})
}

// windows counts the members of a request whose grant is spent: it makes a return.
func (r *modelRequest) windows() int64 {
	n := countFunc(r.members, func(want modelMember) bool { return want.semaphore.settings.WindowMS != 0 })
	if r.mode != All {
		return min(n, 1)
	}
	return n
}

// mayReturn counts the leases of a request that may leave a return, and what it may spend.
func (r *modelRequest) mayReturn() int64 {
	n := countFunc(r.members, func(want modelMember) bool {
		set := want.semaphore.settings
		return set.WindowMS != 0 || !r.unowned && (set.CooldownMS != 0 || set.OnLostMS != 0)
	})
	if r.mode != All {
		return min(n, 1)
	}
	return n
}

// roomToReturn: what an identity holds, and what comes back later, is half of all leases before more may come back.
func (m *model) roomToReturn(more int64) *Result {
	owner, share := m.caller.owner, (m.limits.Leases+1)/2
	_, leases, _ := m.ownedBy(owner, nil)
	has := leases + countFunc(m.returns, func(t *modelReturn) bool { return t.owner == owner })
	if more == 0 || owner == "" || has+more <= share {
		return nil
	}
	return &Result{Code: LimitReached, Rule: RuleOwnerReturns, Refusal: &Refusal{Limit: share}}
}

// roomFor: leases and returns, with those that waiting requests may become, stay within their limit.
func (m *model) roomFor(more int64) *Result {
	has := int64(len(m.leases) + len(m.returns))
	for _, r := range m.requests {
		has += r.reserved
	}
	if more > 0 && has+more > m.limits.Leases {
		return limited(RuleLeases, "")
	}
	return nil
}

// delay is the time until so much has come back that a request has room, which is the first in its
// line, and in its pool: 0 if what comes back does not suffice.
func (m *model) delay(r *modelRequest, want modelMember) int64 {
	s := want.semaphore
	if s.settings.WindowMS == 0 || s.pool() && m.otherBefore(r, want) {
		return 0
	}
	var total, group int64
	for i, t := range m.returnsOf(s) {
		if i == 1024 || t.dueMS == NeverMS {
			break
		}
		total += t.count
		if t.in == (modelIn{want.group, true}) {
			group += t.count
		}
		if m.roomWith(r, want, total, group) {
			return max(t.dueMS-m.nowMS, 1)
		}
	}
	return 0
}

// otherBefore: if its group had room, a pool would choose the head of another group before a request.
func (m *model) otherBefore(r *modelRequest, want modelMember) bool {
	s := want.semaphore
	heads := slices.DeleteFunc(m.heads(want, r), func(h modelHead) bool { return h.member.group == want.group })
	here := modelHead{r, want, m.used(s, want.group), m.turns + 1}
	if g := s.group(want.group); g != nil {
		here.turn = g.turn
	}
	return choose(s, append(heads, here)) != here
}

func (m *model) lostViews(s *modelSemaphore) (views []LostView) {
	for _, t := range m.returnsOf(s) {
		if t.lost != nil {
			views = append(views, LostView{Token: t.lost.token, Session: t.lost.session, Count: t.count, Group: t.in.group,
				LostMS: t.lost.atMS, DueMS: t.dueMS, Owner: t.owner, Metadata: t.lost.metadata, Slots: asRuns(t.slots)})
		}
	}
	slices.SortFunc(views, func(a, b LostView) int { return cmp.Compare(a.Token, b.Token) })
	return views
}

// nextDeadline is the earliest end of a session or lease, or return.
func (m *model) nextDeadline() (earliest int64, ok bool) {
	times := []int64{NeverMS}
	for _, s := range m.sessions {
		times = append(times, s.deadlineMS)
	}
	for _, l := range m.leases {
		if l.endsMS != 0 {
			times = append(times, l.endsMS)
		}
	}
	for _, t := range m.returns {
		times = append(times, t.dueMS)
	}
	earliest = slices.Min(times)
	if earliest == NeverMS {
		return 0, false
	}
	return earliest, true
}
