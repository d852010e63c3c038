package fsm

import (
	"fmt"
	"slices"
)

// What must hold at each grant, and in each window. The model adds up what was granted, apart from
// its returns.

// modelRate is what was granted in a window of a semaphore in all, or of one of its groups.
type modelRate struct {
	epoch    uint64
	in       modelIn // the zero value: in all
	windowMS int64
	bound    int64
	grants   []modelSpend
}

type modelSpend struct {
	atMS, count int64
	token       uint64 // of a receipt
}

// checkGrant is done after each grant but a restore: no permits are granted while the semaphore is paused,
// beyond its permits, beyond the limit of a group, or beyond either in a window.
func (m *model) checkGrant(want modelMember, count int64, token uint64) {
	s := want.semaphore
	limit := s.limit(want.group)
	switch {
	case s.settings.Family && m.used(s, want.group) > s.bound(want.group):
		m.breaks("%q: group %q of a family uses %d after a grant", s.name, want.group, m.used(s, want.group))
	case s.settings.Paused != "":
		m.breaks("%q is paused, and grants", s.name)
	case !s.settings.Family && m.available(s) < 0:
		m.breaks("%q has %d available after a grant", s.name, m.available(s))
	case s.grouped() && limit != NoLimit && m.used(s, want.group) > limit:
		m.breaks("%q: group %q uses %d of %d after a grant", s.name, want.group, m.used(s, want.group), limit)
	}
	if s.settings.WindowMS == 0 {
		return
	}
	spend := modelSpend{m.nowMS, count, token}
	if !s.settings.Family {
		m.rate(s, modelIn{}, s.permits+s.offset, spend)
	}
	if s.grouped() && limit != NoLimit {
		m.rate(s, modelIn{want.group, true}, limit, spend)
	}
}

func (m *model) breaks(format string, values ...any) {
	if m.broken == nil {
		m.broken = fmt.Errorf(format, values...)
	}
}

// rate adds a grant to the grants of a window. The list begins anew when the window or its bound changes.
func (m *model) rate(s *modelSemaphore, in modelIn, bound int64, spend modelSpend) {
	i := slices.IndexFunc(m.rates, func(r *modelRate) bool { return r.epoch == s.epoch && r.in == in })
	if i < 0 {
		i = len(m.rates)
		m.rates = append(m.rates, &modelRate{epoch: s.epoch, in: in})
	}
	r := m.rates[i]
	if r.windowMS != s.settings.WindowMS || r.bound != bound {
		*r = modelRate{epoch: s.epoch, in: in, windowMS: s.settings.WindowMS, bound: bound}
	}
	r.grants = append(r.grants, spend)
	var sum int64
	for _, g := range r.grants {
		if g.atMS > m.nowMS-r.windowMS {
			sum += g.count
		}
	}
	if sum > bound {
		m.breaks("%q, group %v: %d granted within %d ms, the bound is %d", s.name, in, sum, r.windowMS, bound)
	}
}

// rateSettled is the settlement of a receipt: a larger one may lead beyond the bound.
func (m *model) rateSettled(l *modelLease, larger bool) {
	for _, r := range m.rates {
		for i := range r.grants {
			if r.grants[i].token == l.token {
				r.grants[i].count = l.count
			}
		}
	}
	if larger {
		m.ratesAnew(l.semaphore)
	}
}

func (m *model) ratesAnew(s *modelSemaphore) {
	m.rates = slices.DeleteFunc(m.rates, func(r *modelRate) bool { return r.epoch == s.epoch })
}
