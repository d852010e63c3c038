package fsm

import (
	"container/heap"
)

// budget bounds the work of one entry that its commands do not list, for example the grants that follow from an up.
// Later entries continue the remaining work, see MoreDue and ADR 9.
type budget struct {
	ended  int // bounds work.ended
	swept  int // ended records reserved for deleted semaphores and sessions that end at once: a mass expiry must not delay them
	served int // bounds work.served
	kept   int // remembered ended sessions, of one kind
	lanes  int // bounds work.lanes
}

// work counts the work of the entry under way.
type work struct {
	ended  int // ended leases, returns, members of waiting requests, keys that waited, entries of wait lists, items, and sessions
	served int // members of requests granted from lines, and the keys that waited for them
	before int // the value of ended before the first command
	lanes  int // groups to which a sweep gave a limit
}

func defaultBudget() budget {
	return budget{ended: 2048, swept: 512, served: 2048, kept: maxEnded, lanes: 2048}
}

// mayServe reports whether this entry may grant another request from a line.
func (m *Machine) mayServe() bool { return m.done.served < m.budget.served }

// mayEnd reports whether this entry may end further records.
func (m *Machine) mayEnd() bool { return m.done.ended < m.budget.ended }

// mayEndAtOnce reports whether this entry may end another session whose deadline a command moved into the past, for
// example a renewal with ttl 0. A mass expiry leaves a part of the budget for these sessions, so that they do not wait
// behind it.
func (m *Machine) mayEndAtOnce() bool {
	return m.done.ended < max(m.budget.ended, m.done.before+m.budget.swept)
}

// MoreDue reports whether work is left for the next entry, which may be without commands: sessions past their deadline,
// deleted semaphores, waiting requests that can be granted or must end, or tombstones past their delay.
func (m *Machine) MoreDue() bool {
	return m.expired() || m.unswept.Len() > 0 || m.unserved.Len() > 0 || m.tombstonesDue()
}

// tombstonesDue reports whether the delay of a tombstone is over.
func (m *Machine) tombstonesDue() bool {
	first, ok := m.tombstones.Min()
	return ok && first.delayMS <= m.nowMS
}

// sessionsDue reports whether a session's deadline has passed.
func (m *Machine) sessionsDue() bool {
	return m.deadlines.due.length > 0 && m.deadlines.due.at(0).ms <= m.nowMS
}

// expired reports whether a session's deadline has passed, or a lease or a return is due.
func (m *Machine) expired() bool {
	ms, ok := m.NextDeadline()
	return ok && ms <= m.nowMS
}

// expire runs once at the start of each entry. Within the budget it removes sessions whose deadline has passed, in the
// order (deadline, id), ends due leases and returns, and continues the work that the last entry left. Then it serves
// the lines. A session past its deadline stays usable until it is removed: it may hold, renew and be granted leases.
func (m *Machine) expire() {
	m.done = work{}
	sessions := 0
	for sessions < expireSessions && m.sessionsDue() {
		first := *m.deadlines.due.at(0)
		sessions++
		m.endSession(first.session, CauseExpired, "")
		if !m.mayEnd() {
			break
		}
	}
	if m.byReturn.nextMS() <= m.nowMS {
		m.endHolds()
		m.bringBack()
	}
	m.forget()
	m.sweep()
	m.finishCommand()
	m.dropFresh()
	m.done.before = m.done.ended
}

// forget drops records whose time has passed: up to forgetKeys each of ended sessions, keys, marks, revoked leases,
// notices and folders of deleted items, and up to maxTombstonesDropped tombstones.
func (m *Machine) forget() {
	drop := func(l *list, over func(ref) bool, remove func(ref)) {
		for n := 0; n < forgetKeys && l.first != 0 && over(l.first); n++ {
			remove(l.first)
		}
	}
	for _, kind := range m.endedByKind {
		drop(&kind.order, func(r ref) bool { return m.ended.at(r).atMS+endedKeptMS <= m.nowMS }, m.forgetEnded)
	}
	drop(&m.outcomes, func(r ref) bool { return m.keys.at(r).atMS+keysKeptMS <= m.nowMS }, m.forgetKey)
	if m.marks.length > 0 {
		m.forgetMarks()
	}
	for kind := range m.revokedOrder {
		drop(&m.revokedOrder[kind], func(r ref) bool { return m.revoked.at(r).atMS+endedKeptMS <= m.nowMS }, m.forgetRevoked)
	}
	drop(&m.timedNotices, func(r ref) bool { return m.notices.at(r).endsMS <= m.nowMS }, m.endNotice)
	drop(&m.folderOrder, func(r ref) bool { return m.folders.at(r).atMS+deletesKeptMS <= m.nowMS }, m.forgetFolder)
	if m.tombstonesDue() {
		m.dropTombstones()
	}
}

// A deleted semaphore leaves the index of names at once. Its record stays until its leases, waiting requests and
// wait-list entries are gone. A shrunk semaphore stays marked until the requests that can't be granted any more are
// gone. Both may take several entries.

// sweep continues the work on deleted, shrunk and swept semaphores, the oldest first, within the budget.
func (m *Machine) sweep() {
	limit := max(m.budget.ended, m.done.ended+m.budget.swept)
	for {
		_, r, ok := m.unswept.Min()
		switch {
		case !ok:
			return
		case m.semaphores.at(r).deleted:
			if !m.empty(r, limit) {
				return
			}
			m.removeSemaphore(r)
		case !m.endImpossible(r, limit) || !m.sweepGroups(r, limit):
			return
		}
	}
}

// empty ends the waiting requests of a deleted semaphore, then its leases, wait-list entries, returns and groups, up to
// the limit. It reports whether all are gone.
func (m *Machine) empty(r ref, limit int) bool {
	for {
		s := m.semaphores.at(r)
		switch {
		case s.line == nil && s.holders.first == 0 && s.entries.first == 0 && s.returns == 0 && s.groups == nil:
			return true
		case m.done.ended >= limit:
			return false
		case s.line != nil:
			m.endMemberWait(s.line.lowestOfAll().request, target(r), CauseDeleted, Deleted)
		case s.holders.first != 0:
			session := m.leases.at(s.holders.first).session
			m.dropLease(s.holders.first, CauseDeleted, "")
			m.endIfSpent(session, CauseDeleted)
		case s.entries.first != 0:
			e := m.entries.at(s.entries.first)
			if e.waiting != 0 {
				m.endMemberWait(e.waiting, m.requests.at(e.waiting).members[0].target(), CauseDeleted, Deleted)
			}
			m.orphanEntry(s.entries.first)
		case s.returns > 0:
			m.dropReturn(m.firstReturn(s.epoch))
		default:
			m.emptyLane(r)
		}
	}
}

// emptyLane ends a waiting request of the first group of a deleted semaphore. If the group has no requests, it removes
// the group's limit.
func (m *Machine) emptyLane(r ref) {
	_, first, _ := m.semaphores.at(r).groups.byName.Min()
	if waiting := m.lanes.at(first).line; waiting != nil {
		m.endMemberWait(waiting.lowestOfAll().request, targetOf(r, first), CauseDeleted, Deleted)
		return
	}
	m.setOwnLimit(first, false, NoLimit)
	m.done.ended++
}

// removeSemaphore removes the record of a deleted semaphore when it is empty.
func (m *Machine) removeSemaphore(r ref) {
	m.unswept.Delete(m.semaphores.at(r).epoch)
	m.semaphores.remove(r)
}

// endImpossible ends up to limit requests that ask for more than could ever be granted, since they would block the
// line. It reports whether all are gone, and updates the semaphore's mark (shrunk).
func (m *Machine) endImpossible(r ref, limit int) bool {
	for {
		s := m.semaphores.at(r)
		counts := s.countIndex()
		left := counts != nil && counts.largest() > s.full()
		if s.hasImpossible != left {
			m.semaphores.mut(r).hasImpossible = left
			m.fileUnswept(r)
		}
		if !left || m.done.ended >= limit {
			return !left
		}
		full := s.full()
		for _, waiting := range counts.above(full, limit-m.done.ended) {
			if m.done.ended >= limit {
				break
			}
			m.loseMembers(waiting, r, full)
		}
	}
}

// countIndex returns the index of the requests for leases of a semaphore's permits, nil if no request waits.
func (s *semaphore) countIndex() *askedCounts {
	switch {
	case s.pool() && s.groups != nil:
		return &s.groups.asked
	case s.line != nil:
		return &s.line.asked
	}
	return nil
}

// loseMembers ends a request's wait in each line of a semaphore where it asks for more than bound.
func (m *Machine) loseMembers(waiting, semaphore ref, bound int64) {
	r := *m.requests.at(waiting)
	for _, want := range r.members {
		if want.semaphore == semaphore && want.count > bound {
			m.endMemberWait(waiting, want.target(), CauseNever, Never)
			if m.byPlace[r.place] == 0 {
				return
			}
		}
	}
}

// fileUnswept marks a semaphore for sweep.
func (m *Machine) fileUnswept(r ref) {
	if s := m.semaphores.at(r); s.deleted || s.hasImpossible || s.sweep != nil {
		m.unswept.Set(s.epoch, r)
	} else {
		m.unswept.Delete(s.epoch)
	}
}

// endOrphan ends a session's request for a list that deleted semaphores have made impossible. It does not wait for
// sweep, so that a repeat of the request is new.
func (m *Machine) endOrphan(session ref, listHash uint64) {
	waiting, ok := m.byList[listKey{session, listHash}]
	if !ok {
		return
	}
	r := *m.requests.at(waiting)
	if left := len(m.undeleted(r.members)); left == len(r.members) || r.mode == Any && left > 0 {
		return
	}
	for _, want := range r.members {
		if m.gone(want.semaphore) {
			m.endMemberWait(waiting, want.target(), CauseDeleted, Deleted)
			if r.mode == All {
				break
			}
		}
	}
	m.finishCommand()
}

func (m *Machine) gone(semaphore ref) bool { return m.semaphores.at(semaphore).deleted }

// orphaned reports whether the semaphore of a wait list's entry is deleted.
func (m *Machine) orphaned(e *listEntry) bool { return e.semaphore == 0 || m.gone(e.semaphore) }

// undeleted returns the members of a request whose semaphores exist.
func (m *Machine) undeleted(members []member) []member {
	if m.unswept.Len() == 0 {
		return members
	}
	var found []member
	for _, want := range members {
		if !m.gone(want.semaphore) {
			found = append(found, want)
		}
	}
	return found
}

// has counts the leases and requests of a session, except for deleted semaphores.
func (m *Machine) has(session ref) (leases, requests int) {
	s := m.sessions.at(session)
	if m.unswept.Len() == 0 {
		return s.leases.length(), s.requests.length()
	}
	for l := s.leases.first; l != 0; l = m.leases.at(l).inSession.next {
		if !m.gone(m.leases.at(l).semaphore) {
			leases++
		}
	}
	for q := s.requests.first; q != 0; q = m.requests.at(q).inSession.next {
		if len(m.undeleted(m.requests.at(q).members)) > 0 {
			requests++
		}
	}
	return leases, requests
}

// nextMS returns the earliest time of a lease's end or a return, or NeverMS. Because every entry calls it, the common
// case of empty indexes has a fast path.
func (x *returnIndex) nextMS() int64 {
	ms := NeverMS
	if x.leaseEnds.Len() > 0 {
		first, _ := x.leaseEnds.Min()
		ms = first.ms
	}
	if x.due.Len() > 0 {
		first, _ := x.due.Min()
		ms = min(ms, first.ms)
	}
	return ms
}

// NextDeadline returns the earliest deadline of a session, end of a lease or time of a return, in cluster time. ok is
// false if there is no such time.
func (m *Machine) NextDeadline() (ms int64, ok bool) {
	ms = NeverMS
	if m.deadlines.due.length > 0 {
		ms = m.deadlines.due.at(0).ms
	}
	if ms = min(ms, m.byReturn.nextMS()); ms == NeverMS {
		return 0, false
	}
	return ms, true
}

// deadlines orders the sessions by (deadline, id), the order in which they expire. A change costs O(log n).
type deadlines struct {
	due   paged[deadline]
	index paged[int32] // by session ref: its index in due + 1, 0 if absent
}

type deadline struct {
	ms      int64
	id      uint64
	session ref
}

// set adds or moves a session to a deadline.
func (d *deadlines) set(session ref, id uint64, ms int64) {
	for int(session) >= d.index.length {
		d.index.push(0)
	}
	if *d.index.at(int(session)) == 0 { // push instead of heap.Push, which allocates
		d.due.push(deadline{id: id, session: session})
		*d.index.at(int(session)) = int32(d.due.length)
	}
	i := d.indexOf(session)
	d.due.at(i).ms = ms
	heap.Fix((*deadlineHeap)(d), i)
}

// remove removes a session, which must be present.
func (d *deadlines) remove(session ref) {
	heap.Remove((*deadlineHeap)(d), d.indexOf(session))
}

// indexOf returns the index in due of a session, which must be present.
func (d *deadlines) indexOf(session ref) int { return int(*d.index.at(int(session)) - 1) }

// deadlineHeap implements heap.Interface for deadlines.
type deadlineHeap deadlines

func (h *deadlineHeap) Len() int { return h.due.length }

func (h *deadlineHeap) Less(i, j int) bool {
	a, b := h.due.at(i), h.due.at(j)
	if a.ms != b.ms {
		return a.ms < b.ms
	}
	return a.id < b.id
}

func (h *deadlineHeap) Swap(i, j int) {
	a, b := h.due.at(i), h.due.at(j)
	*a, *b = *b, *a
	*h.index.at(int(a.session)), *h.index.at(int(b.session)) = int32(i+1), int32(j+1)
}

func (h *deadlineHeap) Push(x any) {
	added := x.(deadline)
	h.due.push(added)
	*h.index.at(int(added.session)) = int32(h.due.length)
}

func (h *deadlineHeap) Pop() any {
	gone := h.due.pop()
	*h.index.at(int(gone.session)) = 0
	return gone
}

// EntryWeight and EntryBytes bound the commands of one entry by their Cost and their size, so that a machine applies it
// within 50 ms of processor time. Only the leader that fills an entry enforces the bounds. A machine applies larger
// entries too, so that another version may have other bounds.
const (
	EntryWeight = 1024
	EntryBytes  = 256 << 10 // of encoded commands
)

// Weight returns the number of semaphores or notices that a command lists, at least 1. Four renewals
// of one command count as 1; a delete of all items below a prefix counts as EntryWeight.
func Weight(c Command) int {
	if heavy, ok := c.(interface{ weight() int }); ok {
		return max(heavy.weight(), 1)
	}
	return 1
}

const (
	costRelease = 3 // allows for a request for 64 semaphores that a release withdraws
	costList    = 4 // allows for a wait list with fewer than 64 delivered or removed records
	costSet     = 5 // allows for the hundred returns of a window that a set drops
	// A machine ends or reads this many records, or stores this many outcomes for idempotency keys, in the time of one
	// acquire.
	recordsPerUnit = 4
	listedPerUnit  = 16
	walkedPerUnit  = 256
	keysPerUnit    = 32
)

// SessionSize is the number of records of a session that one command may end or read.
type SessionSize struct {
	Records int // leases, members of waiting requests, keys that wait for these requests, entries of its wait list, items
	Keys    int // the keys in Records
	Listed  int // the entries of the wait list in Records, and their requests
}

// keysOfRequest returns an upper bound of the keys that wait for one request.
func (s SessionSize) keysOfRequest() int { return min(s.Keys, maxRequestKeys) }

// Cost returns the work of a command in units of one acquire: its Weight, plus the records that it may end or read in
// the session that [CostlySession] names. size is the size of that session. The machine bounds other work that depends
// on the state, for example the grants that follow from an up.
func Cost(c Command, size SessionSize) int {
	if walker, ok := c.(sessionWalker); ok {
		return walker.cost(size)
	}
	return Weight(c)
}

// sessionWalker is a command that may end or read records of the session that it names.
type sessionWalker interface {
	cost(size SessionSize) int
}

// CostlySession returns the session whose size the Cost of a command depends on, or 0.
func CostlySession(c Command) uint64 {
	if _, ok := c.(sessionWalker); ok {
		return c.session()
	}
	return 0
}

// SessionSize returns the size of a session, zero if there is no such session.
func (m *Machine) SessionSize(id uint64) SessionSize {
	r, ok := m.bySession.Get(id)
	if !ok {
		return SessionSize{}
	}
	s := m.sessions.at(r)
	listed := s.entries.length()
	return SessionSize{Records: s.leases.length() + int(s.members+s.keys) + listed + s.items.length(), Keys: int(s.keys),
		Listed: listed + min(listed, int(s.members))}
}

// LargeSessions calls yield for each session with at least this many records. It reads every session.
func (m *Machine) LargeSessions(records int, yield func(id uint64, size SessionSize)) {
	m.bySession.Scan(func(id uint64, _ ref) bool {
		if size := m.SessionSize(id); size.Records >= records {
			yield(id, size)
		}
		return true
	})
}
