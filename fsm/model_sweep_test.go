package fsm

import (
	"cmp"
	"slices"
)

// The model's deletions and shrinks, which may take several entries.

// left are the members of a request whose semaphores exist.
func (r *modelRequest) left() (found []modelMember) {
	for _, want := range r.members {
		if !want.semaphore.deleted {
			found = append(found, want)
		}
	}
	return found
}

// unswept are the semaphores of which there is more to end, the oldest first.
func (m *model) unswept() (found []*modelSemaphore) {
	for _, s := range append(slices.Clone(m.buried), m.semaphores...) {
		if s.deleted || s.shrunk || s.sweeping {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b *modelSemaphore) int { return cmp.Compare(a.epoch, b.epoch) })
	return found
}

// sweep goes on with them until the entry has done enough.
func (m *model) sweep() {
	limit := max(m.budget.ended, m.done.ended+m.budget.swept)
	for _, s := range m.unswept() {
		if s.deleted {
			if !m.empty(s, limit) {
				return
			}
			m.buried = slices.DeleteFunc(m.buried, func(other *modelSemaphore) bool { return other == s })
		} else if !m.endImpossible(s, limit) || !m.sweepGroups(s, limit) {
			return
		}
	}
}

// empty ends the leases, requests and entries of a deleted semaphore, and reports whether
// all are gone.
func (m *model) empty(s *modelSemaphore, limit int) bool {
	for !s.grouped() && len(m.line(s, "")) > 0 {
		if m.done.ended >= limit {
			return false
		}
		m.lose(m.line(s, "")[0], modelMember{semaphore: s}, CauseDeleted, Deleted)
	}
	for _, l := range m.holders(s) {
		if m.done.ended >= limit {
			return false
		}
		m.drop(l, CauseDeleted, "")
		m.endIfSpent(l.session, CauseDeleted)
	}
	for _, e := range m.entries {
		if e.semaphore != s {
			continue
		}
		if m.done.ended >= limit {
			return false
		}
		if e.waiting != nil {
			m.lose(e.waiting, e.waiting.members[0], CauseDeleted, Deleted)
		}
		m.orphan(e)
	}
	for _, t := range m.returnsOf(s) {
		if m.done.ended >= limit {
			return false
		}
		m.removeReturn(t)
	}
	return m.emptyGroups(s, limit)
}

// endImpossible ends waiters that ask for more than there could ever be.
func (m *model) endImpossible(s *modelSemaphore, limit int) bool {
	s.shrunk = !m.endAbove(s, func(want modelMember) bool { return want.count > total(s) }, limit)
	return !s.shrunk
}

// endAbove ends waiters of some members of a semaphore: of those that the budget allows, the
// largest, in the order of their places. It reports whether all are gone.
func (m *model) endAbove(s *modelSemaphore, above func(modelMember) bool, limit int) bool {
	for {
		waiters := m.waiters(s)
		slices.SortFunc(waiters, func(a, b modelWaiter) int {
			return cmp.Or(cmp.Compare(b.member.count, a.member.count), cmp.Compare(a.request.place, b.request.place))
		})
		var impossible []*modelRequest
		for _, w := range waiters {
			if !w.request.unowned && above(w.member) && !slices.Contains(impossible, w.request) {
				impossible = append(impossible, w.request)
			}
		}
		if len(impossible) == 0 || m.done.ended >= limit {
			return len(impossible) == 0
		}
		impossible = impossible[:min(len(impossible), limit-m.done.ended)]
		slices.SortFunc(impossible, func(a, b *modelRequest) int { return cmp.Compare(a.place, b.place) })
		for _, r := range impossible {
			if m.done.ended >= limit {
				break
			}
			for _, want := range r.members {
				if want.semaphore == s && above(want) && slices.Contains(m.requests, r) {
					m.lose(r, want, CauseNever, Never)
				}
			}
		}
	}
}

// moreDue: the next entry has something to go on with.
func (m *model) moreDue() bool {
	for _, r := range m.requests {
		if _, fits := m.servable(r); fits {
			return true
		}
	}
	return len(m.due()) > 0 || len(m.overheld()) > 0 || len(m.dueReturns()) > 0 || len(m.unswept()) > 0
}

// endOrphan ends the same request of a session, when deletions have made it impossible.
func (m *model) endOrphan(owner *modelSession, c AcquireMany) {
	if owner == nil {
		return
	}
	for _, r := range m.requestsOf(owner) {
		left := len(r.left())
		if !r.list.same(c.Mode, c.Wants) || left == len(r.members) || c.Mode == Any && left > 0 {
			continue
		}
		for _, want := range slices.Clone(r.members) {
			if want.semaphore.deleted {
				m.lose(r, want, CauseDeleted, Deleted)
				if c.Mode == All {
					break
				}
			}
		}
		m.serveAndEnd()
		return
	}
}
