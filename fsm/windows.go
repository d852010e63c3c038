package fsm

// A grant of a semaphore with a window spends permits: its lease is a receipt and holds no permits. The permits come
// back one window after the grant, even if the client ends the lease. Only settling the receipt changes their number.

// roundUp rounds up to a multiple of step.
func roundUp(ms, step int64) int64 { return (ms + step - 1) / step * step }

// windowStep returns the step to which the times of a window's returns are rounded. A window has about a hundred steps.
func windowStep(windowMS int64) int64 {
	return max(returnStepMS, roundUp((windowMS+99)/100, returnStepMS))
}

// spend takes permits out of a window, and returns when they come back. It rounds the time up, so that in any period as
// long as the window no more permits are granted than the semaphore has.
func (m *Machine) spend(r *request, w member, count, windowMS int64) (dueMS int64) {
	t := timedReturn{semaphore: w.semaphore, lane: w.lane, owner: m.ownerOf(r), spent: true, dueMS: roundUp(m.nowMS+windowMS, windowStep(windowMS))}
	spends, ok := m.byReturn.spends[t.spendKey()]
	if !ok {
		spends = m.addReturn(t)
	}
	m.changeReturn(spends, count)
	return t.dueMS
}

// spendsAtOnce bounds the returns that a set command looks at.
const spendsAtOnce = 2_048

// openSpends returns up to spendsAtOnce returns of a semaphore's windows, and their permits. There are more returns
// only after many changes of the window.
func (m *Machine) openSpends(semaphore ref) (spends []ref, count int64) {
	epoch := m.semaphores.at(semaphore).epoch
	looks := 0
	m.byReturn.ofSemaphore.Ascend(semaphoreReturn{epoch: epoch}, func(t semaphoreReturn) bool {
		if looks++; t.epoch != epoch || looks > spendsAtOnce {
			return false
		}
		if back := m.returns.at(t.due.at); back.spent {
			spends, count = append(spends, t.due.at), count+back.count
		}
		return true
	})
	return spends, count
}

// forgetSpends drops returns of a window. Their receipts can't be settled any more.
func (m *Machine) forgetSpends(semaphore ref, spends []ref) {
	for _, r := range spends {
		m.dropReturn(r)
	}
	if len(spends) > 0 {
		m.semaphores.mut(semaphore).forgotten = m.tokens
	}
}

// settleReceipt sets the count that a receipt has really spent, if its permits have not come back yet. ok reports
// whether the receipt has this count now. result is the refusal if a counter would overflow.
func (m *Machine) settleReceipt(held ref, count int64, result *Result) (ok bool) {
	l := m.leases.at(held)
	s := m.semaphores.at(l.semaphore)
	by := count - l.count
	spends, open := m.byReturn.spends[spendKey{l.target(), l.dueMS}]
	if open = open && l.dueMS > m.nowMS && l.token > s.forgotten; !open || by == 0 {
		return by == 0
	}
	if by > 0 && !m.countersFit(member{l.semaphore, l.lane, count}, by) {
		m.refuse(result, Overflow, member{l.semaphore, l.lane, count})
		return false
	}
	m.leases.mut(held).count = count
	m.changeReturn(spends, by)
	m.emit(Effect{Kind: EffectSettled, Semaphore: s.name, Epoch: s.epoch, Session: m.sessionID(l.session), Token: l.token,
		Count: count, Details: detailsOf(m.groupOf(l.lane), l.dueMS, nil, "")})
	return true
}

// returnsWalked bounds the returns that returnsIn reads. A window has about a hundred for each group.
const returnsWalked = 128

// returnsIn returns the time until a request that is the first in its line, and in its pool, has room
// in a window by returns alone, or 0 if returns are not enough.
func (m *Machine) returnsIn(r *request, w member) (ms int64) {
	s := m.semaphores.at(w.semaphore)
	if s.settingsOrZero().WindowMS == 0 || s.pool() && m.otherBefore(s, r, w) {
		return 0
	}
	least, walked := r.atLeast(w.count), 0
	missing := least - s.available()
	if s.family() {
		missing = 0
	}
	missingHere := least - min(m.groupRoom(w.lane), least)
	m.byReturn.ofSemaphore.Ascend(semaphoreReturn{epoch: s.epoch}, func(t semaphoreReturn) bool {
		if walked++; t.epoch != s.epoch || t.due.ms == NeverMS || walked > returnsWalked {
			return false
		}
		back := m.returns.at(t.due.at)
		missing -= back.count
		if back.lane == w.lane {
			missingHere -= back.count
		}
		if missing <= 0 && missingHere <= 0 {
			ms = max(t.due.ms-m.nowMS, 1) // at least 1, since 0 means that returns are not enough
		}
		return ms == 0
	})
	return ms
}
