package fsm

import (
	"cmp"
	"math"

	"github.com/tidwall/btree"
)

// A return is a number of permits that no lease holds and that come back later: permits spent in a window, permits that
// cool down after a lease, and permits of a lost lease. Until then they are not available and count against the group's
// limit.

// NeverMS is the time of a return that only a FreeLost ends.
const NeverMS int64 = math.MaxInt64

// returnStepMS rounds the times of returns, so that they cause at most 100 entries a second.
const returnStepMS = 10

// timedReturn is the record of a return.
type timedReturn struct {
	order     uint64 // unique; rises
	semaphore ref
	lane      ref    // its group, or 0
	owner     string // the identity that gave the permits up; in a window, the first identity that spent permits of this record
	count     int64
	dueMS     int64     // when it comes back, in cluster time, or NeverMS
	spent     bool      // spent in a window; a group's spends that come back at the same time share a record
	lost      *lostHold // immutable; set if the permits are of a lost lease
	slots     *slotList // which permits come back; nil: unknown, see lease.slots
}

// lostHold describes a lost lease: its session expired or max_hold ended it, while on_lost was set.
type lostHold struct {
	token    uint64
	session  uint64
	atMS     int64  // when it ended, in cluster time
	metadata []Pair // of its session; immutable
}

// spendKey names the record of a group's spends that come back at the same time.
type spendKey struct {
	target target
	dueMS  int64
}

// dueReturn is a return, ordered by the time at which it comes back.
type dueReturn struct {
	ms    int64
	order uint64
	at    ref
}

func (d dueReturn) compare(other dueReturn) int {
	return cmp.Or(cmp.Compare(d.ms, other.ms), cmp.Compare(d.order, other.order))
}

// semaphoreReturn is a return, ordered within its semaphore.
type semaphoreReturn struct {
	epoch uint64
	due   dueReturn
}

// lostLease is the return of a lost lease, ordered within its semaphore.
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

// returnIndex indexes returns and leases that end at a time. It is derived.
type returnIndex struct {
	due         *btree.BTreeG[dueReturn]       // without returns at NeverMS
	ofSemaphore *btree.BTreeG[semaphoreReturn] // by epoch, then in the order of due
	lost        *btree.BTreeG[lostLease]       // by epoch and token
	leaseEnds   *btree.BTreeG[leaseEnd]        // by time and token
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
		leaseEnds: btree.NewBTreeGOptions(func(a, b leaseEnd) bool {
			return cmp.Or(cmp.Compare(a.ms, b.ms), cmp.Compare(a.token, b.token)) < 0
		}, options),
		spends: map[spendKey]ref{},
	}
}

// addReturn stores a return and counts its permits for the semaphore and the group.
func (m *Machine) addReturn(t timedReturn) ref {
	m.orders++
	t.order = m.orders
	r := m.returns.add(t)
	m.linkReturn(r)
	return r
}

// linkReturn adds a return to the indexes and counts its permits.
func (m *Machine) linkReturn(r ref) {
	t := m.returns.at(r)
	m.useLane(t.lane)
	m.fileReturn(r)
	m.count(t.owner, owned{returns: 1})
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

// countReturn adds to the permits that come back later. by may be negative; then waiting requests may become grantable.
func (m *Machine) countReturn(t *timedReturn, by int64) {
	if by == 0 {
		return
	}
	s := m.semaphores.mut(t.semaphore)
	s.returning += by
	if t.lane != 0 {
		m.lanes.mut(t.lane).returning += by
		m.updateHead(t.lane)
	}
	if w := (member{semaphore: t.semaphore, lane: t.lane}); by < 0 {
		m.touch(w)
	} else {
		m.touchFront(s, w)
	}
}

// dropReturn ends a return: its permits are available again.
func (m *Machine) dropReturn(r ref) {
	t := *m.returns.at(r)
	s := m.semaphores.mut(t.semaphore)
	due := dueReturn{t.dueMS, t.order, r}
	m.byReturn.due.Delete(due)
	m.byReturn.ofSemaphore.Delete(semaphoreReturn{s.epoch, due})
	s.returns--
	if t.count > 0 { // readers see no change from a return without permits
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
	m.count(t.owner, owned{returns: -1})
	m.done.ended++
}

// firstReturn returns the first return of a semaphore, or 0.
func (m *Machine) firstReturn(epoch uint64) (first ref) {
	m.byReturn.ofSemaphore.Ascend(semaphoreReturn{epoch: epoch}, func(t semaphoreReturn) bool {
		first = t.due.at
		return false
	})
	return first
}

// bringBack ends due returns in the order of their times, within the budget.
func (m *Machine) bringBack() {
	for m.mayEnd() {
		first, ok := m.byReturn.due.Min()
		if !ok || first.ms > m.nowMS {
			return
		}
		t := *m.returns.at(first.at)
		s := m.semaphores.at(t.semaphore)
		if t.count > 0 && !s.deleted {
			m.emit(Effect{Kind: EffectReturned, Semaphore: s.name, Epoch: s.epoch, Count: t.count,
				Details: detailsOf(m.groupOf(t.lane), 0, t.slots.all(), "")})
		}
		m.dropReturn(first.at)
	}
}

// changeReturn adds to the permits of a return; by may be negative.
func (m *Machine) changeReturn(r ref, by int64) {
	t := m.returns.mut(r)
	t.count += by
	m.semaphores.mut(t.semaphore).modified = m.index
	m.countReturn(t, by)
}

// returnTime returns when the permits of a lease that ends come back (0: at once), and whether the lease is lost. With
// Settings.OnLostMS, a lease is lost if it reached max_hold, or if its session expired without a ttl of 0 from its client.
func (m *Machine) returnTime(l *lease, cause Cause) (dueMS int64, lost bool) {
	s := m.semaphores.at(l.semaphore)
	if s.settings == nil || s.deleted {
		return 0, false
	}
	wait := s.settings.CooldownMS
	expired := cause == CauseExpired && m.sessions.at(l.session).ttlMS != 0
	if lost = s.settings.OnLostMS != 0 && (expired || cause == CauseMaxHold); lost {
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

// scheduleReturn stores a return for permits that a lease has given up, with their slots.
func (m *Machine) scheduleReturn(l *lease, count int64, named []SlotRun, dueMS int64, lost bool) {
	session, s := m.sessions.at(l.session), m.semaphores.at(l.semaphore)
	t := timedReturn{semaphore: l.semaphore, lane: l.lane, owner: session.owner, count: count, dueMS: dueMS, slots: newSlotList(named)}
	if lost {
		t.lost = &lostHold{token: l.token, session: session.id, atMS: m.nowMS, metadata: session.metadata} // state: immutable
		m.emit(Effect{Kind: EffectLost, Semaphore: s.name, Epoch: s.epoch, Session: session.id, Token: l.token, Count: count,
			Details: detailsOf(m.groupOf(l.lane), dueMS, named, "")})
	}
	m.addReturn(t)
}

// maxHoldReason is the reason of leases that Settings.MaxHoldMS ended.
const maxHoldReason = "max-hold"

// endHolds ends leases that have been held for Settings.MaxHoldMS, within the budget.
func (m *Machine) endHolds() {
	for m.mayEnd() {
		first, ok := m.byReturn.leaseEnds.Min()
		if !ok || first.ms > m.nowMS {
			return
		}
		m.revoke(first.at, CauseMaxHold, maxHoldReason)
	}
}

// revoke ends a lease against the will of its session. The record of the lease stays, so that later calls of the
// session get the reason. A one-shot session ends with its lease.
func (m *Machine) revoke(held ref, cause Cause, reason string) {
	l := m.leases.mut(held)
	if m.sessions.at(l.session).oneShot {
		m.endSession(l.session, cause, reason)
		return
	}
	count, named := l.holds(), l.slots.all()
	m.unindexEnd(held)
	l.endCause, l.reason, l.endsMS, l.slots = cause, reason, 0, nil // state: a revoked lease has no slots
	m.takeBack(l, count, named, cause, reason)
	m.done.ended++
}
