package fsm

import (
	"cmp"
	"reflect"
)

// The model's operations on a lease.

// holds is what a lease keeps from others: a receipt holds no permits.
func (l *modelLease) holds() int64 {
	if l.revoked || l.dueMS != 0 {
		return 0
	}
	return l.count
}

func tell(l *modelLease) Grant {
	g := Grant{Semaphore: l.semaphore.name, Epoch: l.semaphore.epoch, Count: l.count, Token: l.token, GrantedMS: l.grantedMS}
	with := GrantDetails{Group: l.in.group, DueMS: l.dueMS, EndsMS: l.endsMS, Slots: asRuns(l.slots)}
	if !reflect.ValueOf(with).IsZero() {
		g.Details = &with
	}
	return g
}

// meantIn returns the semaphore and the session that a command names, or the refusal.
func (m *model) meantIn(name string, epoch, sessionID uint64) (*modelSemaphore, *modelSession, *Result) {
	s, refusal := m.meant(name, epoch)
	if refusal != nil {
		return nil, nil, refusal
	}
	owner := m.found(sessionID)
	if owner == nil {
		refused := m.noSessionFor(sessionID, s)
		return nil, nil, &refused
	}
	return s, owner, nil
}

func (m *model) release(c Release) Result {
	if !ValidGroup(c.Group) {
		return Result{Code: Malformed}
	}
	s, owner, refusal := m.meantIn(c.Name, c.Epoch, c.Session)
	if refusal != nil {
		return *refusal
	}
	result := Result{Code: OK, Epoch: s.epoch, Session: c.Session}
	if l := m.leaseOf(owner, s, c.Group); l != nil && (c.Token == 0 || c.Token == l.token) {
		result.Found, result.Grants = true, []Grant{tell(l)}
		m.drop(l, CauseEnded, "")
	} else if r, _ := m.requestFor(owner, s, c.Group); r != nil && c.Token == 0 {
		result.Found, result.Place = true, r.place
		m.withdraw(r, CauseEnded, Result{Code: Withdrawn, Session: c.Session, Place: r.place})
	}
	result.Waiting = len(m.requestsOf(owner)) > 0
	m.endIfSpent(owner, CauseEnded)
	m.serveAndEnd()
	return result
}

func (m *model) resize(c ResizeLease) Result {
	if !ValidGroup(c.Group) {
		return Result{Code: Malformed}
	}
	s, owner, refusal := m.meantIn(c.Name, c.Epoch, c.Session)
	if refusal != nil {
		return *refusal
	}
	l := m.leaseOf(owner, s, c.Group)
	if l != nil && c.Token != 0 && c.Token != l.token {
		l = nil
	}
	want := modelMember{semaphore: s, count: c.Count, whole: true}
	receipt := l != nil && l.dueMS != 0 && !l.revoked
	switch {
	case c.Count < 1 && !(receipt && c.Count == 0) || receipt && c.Count > 1<<53:
		return m.refusal(InvalidCount, want)
	case l == nil:
		return m.refusal(NotHeld, want)
	case receipt:
		return m.settle(l, c)
	case l.revoked || c.Count > l.count:
		return m.heldOtherwise(l, c.Count)
	}
	if back := l.count - c.Count; back > 0 {
		if s.settings.CooldownMS != 0 {
			if refusal := cmp.Or(m.roomFor(1), m.roomToReturn(1)); refusal != nil {
				refusal.Epoch = s.epoch
				return *refusal
			}
		}
		l.count = c.Count
		s.modified = m.index
		m.released(l, back, l.takeSlots(back), CauseResized, "")
	}
	m.serveAndEnd()
	return m.of(owner, Result{Code: OK, Found: true, Epoch: s.epoch, Grants: []Grant{tell(l)}})
}

// heldOtherwise refuses requests that an existing lease does not allow.
func (m *model) heldOtherwise(l *modelLease, count int64) Result {
	want := modelMember{l.semaphore, l.in.group, count, !l.in.grouped}
	if l.revoked {
		result := m.refusal(Revoked, want)
		result.explain().Reason = l.reason
		return result
	}
	result := m.refusal(LeaseExists, want)
	result.explain().Holding = l.count
	return result
}

func (m *model) revoke(c RevokeLease) Result {
	if !ValidReason(c.Reason) || !ValidGroup(c.Group) {
		return Result{Code: Malformed}
	}
	s, owner, refusal := m.meantIn(c.Name, c.Epoch, c.Session)
	if refusal != nil {
		return *refusal
	}
	l := m.leaseOf(owner, s, c.Group)
	if l == nil {
		return m.refusal(NotHeld, modelMember{semaphore: s, whole: true})
	}
	result := Result{Code: OK, Found: true, Epoch: s.epoch, Session: c.Session, Grants: []Grant{tell(l)}}
	switch {
	case l.revoked: // the first reason stays
	case owner.oneShot:
		m.endSession(owner, CauseRevoked, c.Reason)
	default:
		m.revokeLease(l, CauseRevoked, c.Reason)
	}
	m.serveAndEnd()
	return result
}
