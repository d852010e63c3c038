package fsm

import (
	"cmp"
	"math"

	"github.com/tidwall/btree"
)

// A return is a number of permits that no lease holds and that come back later: what was spent in
// a window, what rests after a lease, and what a lost lease held. Until then the permits are not
// available, and their group uses them.

// NeverMS is the time of a return that only a FreeLost brings back.
const NeverMS int64 = math.MaxInt64

// returnStepMS divides the times of all returns, so that they cause at most 100 entries a second.
const returnStepMS = 10

// timedReturn is the record of a return.
type timedReturn struct {
	order     uint64 // unique; rises
	semaphore ref
	lane      ref // its group, or 0
	count     int64
	dueMS     int64     // when it comes back, in cluster time, or NeverMS
	spent     bool      // in a window: all that a group spends of a semaphore until one time is one record
	lost      *lostHold // immutable; nil unless it is what a lost lease held
	slots     *slotList // which permits they are; nil: unknown
}

// lostHold is what is known of a lease that ended unasked.
type lostHold struct {
	token    uint64
	session  uint64
	atMS     int64  // when it ended, in cluster time
	owner    string // its session's
	metadata []Pair // its session's; immutable
}

// spendKey names the record of what a group spends until one time.
type spendKey struct {
	target target
	dueMS  int64
}

// dueReturn is a return in the order in which returns come back.
type dueReturn struct {
	ms    int64
	order uint64
	at    ref
}

func (d dueReturn) compare(other dueReturn) int {
	return cmp.Or(cmp.Compare(d.ms, other.ms), cmp.Compare(d.order, other.order))
}

// semaphoreReturn is a return among the returns of its semaphore.
type semaphoreReturn struct {
	epoch uint64
	due   dueReturn
}

// lostLease is a return among the lost holds of its semaphore.
type lostLease struct {
	epoch, token uint64
	at           ref
}

// leaseEnd is a lease that ends at a time.
type leaseEnd struct {
	ms    int64
	token uint64
	at    ref
}

// returnIndex finds returns, and leases that end at a time. It is derived.
type returnIndex struct {
	due         *btree.BTreeG[dueReturn]       // but for those that never come back by themselves
	ofSemaphore *btree.BTreeG[semaphoreReturn] // by epoch, then as due
	lost        *btree.BTreeG[lostLease]       // by epoch and token
	ends        *btree.BTreeG[leaseEnd]        // by time and token
	spends      map[spendKey]ref
}

func newReturnIndex() returnIndex {
	options := btree.Options{NoLocks: true}
	return returnIndex{
		due: btree.NewBTreeGOptions(func(a, b dueReturn) bool { return a.compare(b) < 0 }, options),
		ofSemaphore: btree.NewBTreeGOptions(func(a, b semaphoreReturn) bool {
			return cmp.Or(cmp.Compare(a.epoch, b.epoch), a.due.compare(b.due)) < 0
		}, options),
		lost: btree.NewBTreeGOptions(func(a, b lostLease) bool {
			return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.token, b.token)) < 0
		}, options),
		ends: btree.NewBTreeGOptions(func(a, b leaseEnd) bool {
			return cmp.Or(cmp.Compare(a.ms, b.ms), cmp.Compare(a.token, b.token)) < 0
		}, options),
		spends: map[spendKey]ref{},
	}
}

// addReturn makes a return. Its semaphore and its group count its permits.
func (m *Machine) addReturn(t timedReturn) ref {
	m.orders++
	t.order = m.orders
	r := m.returns.add(t)
	m.linkReturn(r)
	return r
}

// linkReturn adds a return to the indexes, and counts it.
func (m *Machine) linkReturn(r ref) {
	t := m.returns.at(r)
	m.useLane(t.lane)
	m.fileReturn(r)
	s := m.semaphores.mut(t.semaphore)
	s.returns++
	if t.lost != nil {
		s.lost++
	}
	m.countReturn(t, t.count)
}

// fileReturn adds a return to the indexes.
func (m *Machine) fileReturn(r ref) {
	t := m.returns.at(r)
	epoch, due := m.semaphores.at(t.semaphore).epoch, dueReturn{t.dueMS, t.order, r}
	if t.dueMS != NeverMS {
		m.byReturn.due.Set(due)
	}
	m.byReturn.ofSemaphore.Set(semaphoreReturn{epoch, due})
	if t.lost != nil {
		m.byReturn.lost.Set(lostLease{epoch, t.lost.token, r})
	}
	if t.spent {
		m.byReturn.spends[t.spendKey()] = r
	}
}

func (t *timedReturn) spendKey() spendKey { return spendKey{targetOf(t.semaphore, t.lane), t.dueMS} }

// countReturn adds to the permits that come back later, or takes away. Fewer of them leave room for
// others.
func (m *Machine) countReturn(t *timedReturn, by int64) {
	if by == 0 {
		return
	}
	s := m.semaphores.mut(t.semaphore)
	s.returning += by
	if t.lane != 0 {
		m.lanes.mut(t.lane).returning += by
		m.refile(t.lane)
	}
	if w := (member{semaphore: t.semaphore, lane: t.lane}); by < 0 {
		m.touch(w)
	} else {
		m.touchFront(s, w)
	}
}

// dropReturn is the end of a return: its permits are available again.
func (m *Machine) dropReturn(r ref) {
	t := *m.returns.at(r)
	s := m.semaphores.mut(t.semaphore)
	due := dueReturn{t.dueMS, t.order, r}
	m.byReturn.due.Delete(due)
	m.byReturn.ofSemaphore.Delete(semaphoreReturn{s.epoch, due})
	s.returns--
	if t.count > 0 { // else no reader sees a change
		s.modified = m.index
	}
	if t.lost != nil {
		m.byReturn.lost.Delete(lostLease{s.epoch, t.lost.token, r})
		s.lost--
	}
	if t.spent {
		delete(m.byReturn.spends, t.spendKey())
	}
	m.returns.remove(r)
	m.freeSlots(t.semaphore, t.slots.all())
	m.countReturn(&t, -t.count)
	m.leaveLane(t.lane)
	m.done.ended++
}

// firstReturn returns the first return of a semaphore that has one.
func (m *Machine) firstReturn(epoch uint64) (first ref) {
	m.byReturn.ofSemaphore.Ascend(semaphoreReturn{epoch: epoch}, func(t semaphoreReturn) bool {
		first = t.due.at
		return false
	})
	return first
}

// bringBack ends returns whose time has come, in the order of their times, within the budget.
func (m *Machine) bringBack() {
	for m.mayEnd() {
		first, ok := m.byReturn.due.Min()
		if !ok || first.ms > m.nowMS {
			return
		}
		t := *m.returns.at(first.at)
		s := m.semaphores.at(t.semaphore)
		if t.count > 0 && !s.deleted {
			m.effect(Effect{Kind: EffectReturned, Semaphore: s.name, Epoch: s.epoch, Count: t.count, Group: m.groupOf(t.lane),
				Slots: t.slots.all()})
		}
		m.dropReturn(first.at)
	}
}

// roundUp returns the next multiple of a step.
func roundUp(ms, step int64) int64 { return (ms + step - 1) / step * step }

// windowStep divides the times at which the spends of a window come back: a hundred times in a
// window, and one more at either end.
func windowStep(windowMS int64) int64 {
	return max(returnStepMS, roundUp((windowMS+99)/100, returnStepMS))
}

// spend takes permits out of a window, and returns when they come back. In no time as long as the
// window are more permits granted than there are.
func (m *Machine) spend(w member, count, windowMS int64) (dueMS int64) {
	t := timedReturn{semaphore: w.semaphore, lane: w.lane, spent: true, dueMS: roundUp(m.nowMS+windowMS, windowStep(windowMS))}
	r, ok := m.byReturn.spends[t.spendKey()]
	if !ok {
		r = m.addReturn(t)
	}
	m.changeReturn(r, count)
	return t.dueMS
}

// changeReturn adds to the permits of a return, or takes away.
func (m *Machine) changeReturn(r ref, by int64) {
	t := m.returns.mut(r)
	t.count += by
	m.semaphores.mut(t.semaphore).modified = m.index
	m.countReturn(t, by)
}

// spendsAtOnce bounds the returns that a set of the value looks at.
const spendsAtOnce = 2_048

// openSpends returns what is spent of a semaphore, and how many permits. Only after as many changes of
// the window are there more spends than it looks at.
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

// forgetSpends ends what is spent of a semaphore, whose permits a set counts anew, and the receipts
// for it.
func (m *Machine) forgetSpends(semaphore ref, spends []ref) {
	for _, r := range spends {
		m.dropReturn(r)
	}
	if len(spends) > 0 {
		m.semaphores.mut(semaphore).forgotten = m.tokens
	}
}

// settleReceipt sets what the lease of a receipt has really spent, while that has not come back, and
// reports whether the receipt says so then. result is the refusal if a counter would leave its range.
func (m *Machine) settleReceipt(held ref, count int64, result *Result) (ok bool) {
	l := m.leases.at(held)
	s := m.semaphores.at(l.semaphore)
	by := count - l.count
	spends, open := m.byReturn.spends[spendKey{l.target(), l.due}]
	if open = open && l.due > m.nowMS && l.token > s.forgotten; !open || by == 0 {
		return by == 0
	}
	if by > 0 && (s.taken() > math.MaxInt64-by || !sumFits(s.permits+s.offset, -(s.taken()+by))) {
		m.refuse(result, Overflow, member{l.semaphore, l.lane, count})
		return false
	}
	m.leases.mut(held).count = count
	m.changeReturn(spends, by)
	m.effect(Effect{Kind: EffectSettled, Semaphore: s.name, Epoch: s.epoch, Session: m.sessionID(l.session), Token: l.token,
		Count: count, Group: m.groupOf(l.lane), DueMS: l.due})
	return true
}

// restOf returns when the permits of a lease that ends come back, 0: at once, and whether they are lost.
func (m *Machine) restOf(s *semaphore, cause Cause) (dueMS int64, lost bool) {
	if s.settings == nil || s.deleted {
		return 0, false
	}
	wait := s.settings.CooldownMS
	if lost = s.settings.OnLostMS != 0 && (cause == CauseExpired || cause == CauseMaxHold); lost {
		if s.settings.OnLostMS == Quarantine {
			return NeverMS, true
		}
		wait = max(wait, s.settings.OnLostMS)
	}
	if wait == 0 {
		return 0, false
	}
	return roundUp(m.nowMS+wait, returnStepMS), lost
}

// rest makes the return of permits that a lease has given up, with their slots.
func (m *Machine) rest(l *lease, count int64, named []SlotRun, dueMS int64, lost bool) {
	t := timedReturn{semaphore: l.semaphore, lane: l.lane, count: count, dueMS: dueMS, slots: newSlotList(named)}
	if lost {
		owner, s := m.sessions.at(l.session), m.semaphores.at(l.semaphore)
		t.lost = &lostHold{token: l.token, session: owner.id, atMS: m.nowMS, owner: owner.owner, metadata: owner.metadata} // state: immutable
		m.effect(Effect{Kind: EffectLost, Semaphore: s.name, Epoch: s.epoch, Session: owner.id, Token: l.token, Count: count,
			DueMS: dueMS, Group: m.groupOf(l.lane), Slots: named})
	}
	m.addReturn(t)
}

// maxHoldReason is the reason of a lease that has held for Settings.MaxHoldMS.
const maxHoldReason = "max-hold"

// endHolds ends leases that have held for the longest time that they may, within the budget.
func (m *Machine) endHolds() {
	for m.mayEnd() {
		first, ok := m.byReturn.ends.Min()
		if !ok || first.ms > m.nowMS {
			return
		}
		m.revoke(first.at, CauseMaxHold, maxHoldReason)
	}
}

// revoke ends a lease against the will of its session. The lease stays, so that later calls of the
// session get the reason; a one-shot session ends with its lease.
func (m *Machine) revoke(held ref, cause Cause, reason string) {
	l := m.leases.mut(held)
	if m.sessions.at(l.session).oneShot {
		m.endSession(l.session, cause, reason)
		return
	}
	count, named := l.holds(), l.slots.all()
	m.leaveEnd(held)
	l.revoked, l.reason, l.ends, l.slots = true, reason, 0, nil // state: it names none any more
	m.takeBack(l, count, named, cause, reason)
	m.done.ended++
}

// joinEnd files a lease that ends at a time.
func (m *Machine) joinEnd(r ref) {
	if l := m.leases.at(r); l.ends != 0 {
		m.byReturn.ends.Set(leaseEnd{l.ends, l.token, r})
	}
}

func (m *Machine) leaveEnd(r ref) {
	if l := m.leases.at(r); l.ends != 0 {
		m.byReturn.ends.Delete(leaseEnd{l.ends, l.token, r})
	}
}

// returnsWalked bounds the returns that a refusal looks at for the time until enough come back.
const returnsWalked = 1_024

// returnsIn returns the time until a request that is the first in its line, and in its pool, has room
// in a window by returns alone, or 0 if others are needed.
func (m *Machine) returnsIn(r *request, w member) (ms int64) {
	s := m.semaphores.at(w.semaphore)
	if s.with().WindowMS == 0 || s.pool() && m.otherBefore(s, r, w) {
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
			ms = max(t.due.ms-m.nowMS, 1) // 0 says that others are needed
		}
		return ms == 0
	})
	return ms
}
