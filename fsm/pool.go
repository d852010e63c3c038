package fsm

import (
	"cmp"

	"github.com/tidwall/btree"
)

// A pool has a line for each group. The first request of a line is a head if its group has room for it. The pool serves
// the head of the group that uses the fewest permits; among equals, the group whose last turn is longest ago. So a
// group with a thousand waiting requests gets no more turns than the others. After passedAtMost consecutive grants to
// other heads, the pool serves the head with the lowest rank.

// passedAtMost bounds how many consecutive grants may pass the head of lowest rank.
const passedAtMost = 1_000

// head is the first request in the order of a group's line, if the group has room for it.
type head struct {
	used int64
	turn uint64
	rank rank
	lane ref // 0: no head
}

// chosenBefore reports whether a pool chooses h before other. passed is the number of consecutive grants that passed
// the head of lowest rank.
func (h head) chosenBefore(other head, passed uint16) bool {
	if passed >= passedAtMost {
		return h.waitsLonger(other)
	}
	return h.usesLess(other)
}

// waitsLonger orders heads by rank. An "any" request may be the head of several groups.
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

// choice returns the head that a pool serves next; its lane is 0 if the pool has no head.
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

// updateHead updates the head of a pool's group. It must run after each change of the group's line, used permits, limit
// or turn.
func (m *Machine) updateHead(r ref) {
	l := m.lanes.at(r)
	s := m.semaphores.at(l.semaphore)
	if !s.pool() || !l.filed {
		return
	}
	now := head{}
	if l.line != nil {
		if first, ok := l.line.firstInOrder(); ok && m.groupHasRoom(r, m.requests.at(first.request)) {
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

// isChoice reports whether a pool would choose a request if it were the first in the line of its group.
func (m *Machine) isChoice(s *semaphore, r *request, w member) bool {
	return m.groupHasRoom(w.lane, r) && !m.otherBefore(s, r, w)
}

// otherBefore reports whether a pool chooses another group's head before a request that is first in its group and has
// room.
func (m *Machine) otherBefore(s *semaphore, r *request, w member) bool {
	l, best := m.lanes.at(w.lane), s.choice()
	return best.lane != 0 && best.lane != w.lane && !head{l.used(), l.turn, r.rank(), w.lane}.chosenBefore(best, s.passed)
}

// drawTurn records a grant to a group: the group gets the latest turn, and the pool counts the consecutive grants that
// passed the head of lowest rank.
func (m *Machine) drawTurn(r *request, w member) {
	defer m.takeTurn(w.lane)
	s := m.semaphores.at(w.semaphore)
	if !s.pool() {
		return
	}
	passed, at := uint16(0), r.rank()
	if at.place == 0 { // the request did not wait
		at.place = m.places + 1
	}
	if s.groups != nil {
		if oldest, ok := s.groups.heads.byRank.Min(); ok && oldest.rank.before(at) {
			passed = s.passed + 1
			m.applied.Passing++
		}
	}
	if before := s.passed; before != passed {
		m.semaphores.mut(w.semaphore).passed = passed
		if max(before, passed) >= passedAtMost { // the pool chose by rank
			m.touch(w)
		}
	}
}

// takeTurn gives a group the latest turn, after a grant.
func (m *Machine) takeTurn(lane ref) {
	m.turns++
	m.lanes.mut(lane).turn = m.turns
	m.updateHead(lane)
}

// groupsAhead returns how many groups of a pool are chosen before a group; 0 for a group without a head.
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
