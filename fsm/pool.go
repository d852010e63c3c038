package fsm

import (
	"cmp"
	"math"

	"github.com/tidwall/btree"
)

// A pool has a line for each group, and serves one head at a time: of the first requests of all
// lines for which their groups have room, it chooses the head of the group that uses least; among
// equals, of the group whose last turn is longest ago. So a group with a thousand waiting requests
// takes no more than its turn. After passedAtMost grants to other heads in a row, the choice is the
// head that waits longest.

// passedAtMost bounds how often in a row the head of lowest rank is passed.
const passedAtMost = 1_000

// rank is the order within a line, and the order in which heads of several lines are served. A request
// with a higher place comes first only if it was granted a head start.
type rank struct {
	ms    int64 // when the request began to wait, less its head start
	place uint64
}

func (r *request) rank() rank { return rank{r.rankMS, r.place} }

// before reports whether r comes before other.
func (r rank) before(other rank) bool {
	return r.ms < other.ms || r.ms == other.ms && r.place < other.place
}

// lowestRank returns a rank before every request: a head start may reach back to before the cluster began.
func lowestRank() rank { return rank{ms: math.MinInt64} }

// next returns the lowest rank after r.
func (r rank) next() rank {
	if r.place == math.MaxUint64 {
		return rank{r.ms + 1, 0}
	}
	return rank{r.ms, r.place + 1}
}

// head is the first standing request of a group, if the group has room for it.
type head struct {
	used int64
	turn uint64
	rank rank
	lane ref // 0: no head
}

// chosenBefore reports whether h comes before other in the choice of a pool that passed the head of
// lowest rank so often.
func (h head) chosenBefore(other head, passed uint16) bool {
	if passed >= passedAtMost {
		return h.waitsLonger(other)
	}
	return h.usesLess(other)
}

// waitsLonger is the order of ranks; one request of any may be the head of several groups.
func (h head) waitsLonger(other head) bool {
	return h.rank.before(other.rank) || h.rank == other.rank && h.usesLess(other)
}

func (h head) usesLess(other head) bool {
	return cmp.Or(cmp.Compare(h.used, other.used), cmp.Compare(h.turn, other.turn)) < 0
}

// heads has the heads of a pool in both orders.
type heads struct{ byUse, byRank *btree.BTreeG[head] }

func newHeads() heads {
	return heads{
		byUse:  btree.NewBTreeGOptions(head.usesLess, btree.Options{NoLocks: true}),
		byRank: btree.NewBTreeGOptions(head.waitsLonger, btree.Options{NoLocks: true}),
	}
}

// choice returns the head that a pool serves next, without a lane if it has no head.
func (s *semaphore) choice() head {
	if s.groups == nil {
		return head{}
	}
	order := s.groups.heads.byUse
	if s.passed >= passedAtMost {
		order = s.groups.heads.byRank
	}
	h, _ := order.Min()
	return h
}

// refile brings the head of a pool's group up to date: after a change of its line, of what it uses,
// of its limit or of its turn.
func (m *Machine) refile(r ref) {
	l := m.lanes.at(r)
	s := m.semaphores.at(l.semaphore)
	if !s.pool() || !l.filed {
		return
	}
	now := head{}
	if l.line != nil {
		if first, ok := l.line.first(); ok && m.groupHasRoom(r, m.requests.at(first.request)) {
			now = head{l.used(), l.turn, first.rank, r}
		}
	}
	if now == l.head {
		return
	}
	all := &s.groups.heads
	if l.head.lane != 0 {
		all.byUse.Delete(l.head)
		all.byRank.Delete(l.head)
	}
	if now.lane != 0 {
		all.byUse.Set(now)
		all.byRank.Set(now)
	}
	m.lanes.mut(r).head = now
	m.touch(member{semaphore: l.semaphore, lane: r})
}

// groupHasRoom reports whether a group may use what a request asks for in it.
func (m *Machine) groupHasRoom(lane ref, r *request) bool {
	l := m.lanes.at(lane)
	return r.atLeast(countOf(r.members, targetOf(l.semaphore, lane))) <= m.groupRoom(lane)
}

// groupRoom returns how much more a group may use; lane 0 has no limit.
func (m *Machine) groupRoom(lane ref) int64 {
	if lane == 0 {
		return math.MaxInt64
	}
	return m.groupBound(lane) - m.lanes.at(lane).used()
}

// atLeast returns how many permits a request must get of a member's count.
func (r *request) atLeast(count int64) int64 {
	if r.partial {
		return 1
	}
	return count
}

// hasRoom reports whether a request has room in one of its members: permits enough are available,
// and its group may use them.
func (m *Machine) hasRoom(s *semaphore, r *request, w member) bool {
	if s.settings == nil {
		return s.available() >= r.atLeast(w.count)
	}
	enough := s.settings.Family || s.available() >= r.atLeast(w.count)
	return s.settings.Paused == "" && enough && (w.lane == 0 || m.groupHasRoom(w.lane, r))
}

// isFirst reports whether a request is the first in one of its lines, or would be if it is new. In
// a pool it is the choice.
func (m *Machine) isFirst(s *semaphore, r *request, w member) bool {
	if waiting := m.lineIn(s, w); waiting != nil {
		if first, ok := waiting.first(); ok && first.rank.before(r.rank()) {
			return false
		}
	}
	return !s.pool() || m.isChoice(s, r, w)
}

// isChoice reports whether a request is the choice of a pool, or would be if it stood first in the
// line of its group.
func (m *Machine) isChoice(s *semaphore, r *request, w member) bool {
	return m.groupHasRoom(w.lane, r) && !m.otherBefore(s, r, w)
}

// otherBefore reports whether a pool chooses the head of another group before a request, when this is
// the first of its group and has room there.
func (m *Machine) otherBefore(s *semaphore, r *request, w member) bool {
	l, best := m.lanes.at(w.lane), s.choice()
	return best.lane != 0 && best.lane != w.lane && !head{l.used(), l.turn, r.rank(), w.lane}.chosenBefore(best, s.passed)
}

// drawTurn is a grant to a group: its turn is over, and its pool counts whether the grant passed
// the head that waits longest.
func (m *Machine) drawTurn(r *request, w member) {
	if w.lane == 0 {
		return
	}
	defer m.takeTurn(w.lane)
	s := m.semaphores.at(w.semaphore)
	if !s.pool() {
		return
	}
	passed, at := uint16(0), r.rank()
	if at.place == 0 { // it did not wait
		at.place = m.places + 1
	}
	if s.groups != nil {
		if oldest, ok := s.groups.heads.byRank.Min(); ok && oldest.rank.before(at) {
			passed = s.passed + 1
		}
	}
	if before := s.passed; before != passed {
		m.semaphores.mut(w.semaphore).passed = passed
		if max(before, passed) >= passedAtMost { // the other order holds now
			m.touch(w)
		}
	}
}

// takeTurn is the grant of a lease or of permits to a group.
func (m *Machine) takeTurn(lane ref) {
	m.turns++
	m.lanes.mut(lane).turn = m.turns
	m.refile(lane)
}

// A request for all of a list stands in the line of its pool only while it is ready in all of its
// other lines: first there, with room. So a request that waits elsewhere delays
// no other request in the pool. It is the front of these other lines then.

// standsAside reports whether a request stands in the line of its pool only at times.
func (m *Machine) standsAside(r *request) bool {
	return r.mode == All && len(r.members) > 1 && m.poolOf(r) >= 0
}

// poolOf returns the index of the member of a list that is a pool, or -1.
func (m *Machine) poolOf(r *request) int {
	for i, w := range r.members {
		if w.lane != 0 && m.semaphores.at(w.semaphore).pool() {
			return i
		}
	}
	return -1
}

// readyIn reports whether a request is first with room in a line that is no pool's.
func (m *Machine) readyIn(r *request, w member) bool {
	s := m.semaphores.at(w.semaphore)
	return m.isFirst(s, r, w) && m.hasRoom(s, r, w)
}

// restand makes requests stand or step aside after a change of a line that is no pool's. Whether a
// request stands depends on the state alone, so that a machine from a snapshot agrees.
func (m *Machine) restand(t target, waiting *line) {
	if waiting.front != 0 {
		r := m.requests.at(waiting.front)
		if !m.readyIn(r, memberOf(r.members, t)) {
			m.stepAside(waiting.front)
		}
	}
	if first, ok := waiting.first(); ok && waiting.front != first.request {
		if r := m.requests.at(first.request); m.standsAside(r) && m.readyElsewhere(r) {
			m.stand(first.request)
		}
	}
}

// readyElsewhere reports whether a request is ready in each of its lines that is no pool's.
func (m *Machine) readyElsewhere(r *request) bool {
	pool := m.poolOf(r)
	for i, w := range r.members {
		if i != pool && !m.readyIn(r, w) {
			return false
		}
	}
	return true
}

// stand puts a request into the line of its pool, at its rank. The requests that were the fronts of
// its other lines step aside before: a head start may put one list before another.
func (m *Machine) stand(waiting ref) {
	r := m.requests.at(waiting)
	pool := m.poolOf(r)
	for i, w := range r.members {
		if i == pool {
			continue
		}
		if other := m.lineOf(w.target()); other.front != waiting {
			if other.front != 0 {
				m.stepAside(other.front)
			}
			other.front = waiting
		}
	}
	w := r.members[pool]
	in := m.lineOf(w.target())
	in.aside.Delete(waiter{r.rank(), waiting})
	in.order.Set(waiter{r.rank(), waiting})
	m.refile(w.lane)
}

// stepAside takes a front out of the line of its pool. It keeps its rank.
func (m *Machine) stepAside(waiting ref) {
	r := m.requests.at(waiting)
	w := r.members[m.poolOf(r)]
	in := m.lineOf(w.target())
	in.order.Delete(waiter{r.rank(), waiting})
	in.putAside(waiter{r.rank(), waiting})
	m.leaveFronts(r, waiting)
	m.refile(w.lane)
}

// leaveFronts makes a request the front of no line.
func (m *Machine) leaveFronts(r *request, waiting ref) {
	if !m.standsAside(r) {
		return
	}
	for _, w := range r.members {
		if other := m.lineOf(w.target()); other != nil && other.front == waiting {
			other.front = 0
		}
	}
}

// groupsAhead returns how many groups of a pool are chosen before a group, or would be: 0 for a
// group without a head.
func (m *Machine) groupsAhead(lane ref) int64 {
	l := m.lanes.at(lane)
	s := m.semaphores.at(l.semaphore)
	if l.head.lane == 0 || !s.pool() {
		return 0
	}
	order := s.groups.heads.byUse
	if s.passed >= passedAtMost {
		order = s.groups.heads.byRank
	}
	low, high := 0, order.Len()
	for low < high {
		middle := (low + high) / 2
		if at, _ := order.GetAt(middle); at.chosenBefore(l.head, s.passed) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return int64(low)
}

// shownTotal returns a count of permits as results show it: 0 for a family.
func (s *semaphore) shownTotal(count int64) int64 {
	if s.family() {
		return 0
	}
	return count
}
