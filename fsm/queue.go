package fsm

import (
	"math"

	"github.com/tidwall/btree"
)

// rank is the order within a line, and the order in which heads of several lines are served. Only a head start lets a
// later request come first.
type rank struct {
	ms    int64 // when the request began to wait, less its head start
	place uint64
}

func (r *request) rank() rank { return rank{r.rankMS, r.place} }

// before reports whether r comes before other.
func (r rank) before(other rank) bool {
	return r.ms < other.ms || r.ms == other.ms && r.place < other.place
}

// lowestRank returns a rank below the rank of every request. A head start can make the ms of a rank negative.
func lowestRank() rank { return rank{ms: math.MinInt64} }

// next returns the lowest rank after r.
func (r rank) next() rank {
	if r.place == math.MaxUint64 {
		return rank{r.ms + 1, 0}
	}
	return rank{r.ms, r.place + 1}
}

// waiter is a waiting request in a line.
type waiter struct {
	rank    rank
	request ref
}

func newWaiters() *btree.BTreeG[waiter] {
	return btree.NewBTreeGOptions(func(a, b waiter) bool { return a.rank.before(b.rank) }, btree.Options{NoLocks: true})
}

// isFirst reports whether a request is the first in one of its lines, or would be if it joined the line now. In a pool
// it must be the request that the pool chooses.
func (m *Machine) isFirst(s *semaphore, r *request, w member) bool {
	if line := m.lineIn(s, w); line != nil {
		if first, ok := line.firstInOrder(); ok && first.rank.before(r.rank()) {
			return false
		}
	}
	return !s.pool() || m.isChoice(s, r, w)
}

// enqueue adds a request to the end of its lines, with the next place. opened says that its session is a new one-shot,
// which ends with this request.
func (m *Machine) enqueue(r request, opened bool) ref {
	m.places++
	r.place, r.enqueuedMS = m.places, m.nowMS
	waiting := m.requests.add(r)
	m.linkRequest(waiting)
	if opened {
		m.sessions.mut(r.session).first = r.place
	}
	for _, want := range r.members {
		s := m.semaphores.mut(want.semaphore)
		s.modified = m.index
		line := m.lineIn(s, want)
		m.emitWaiting(&r, want)
		if first, ok := line.firstInOrder(); line.front != 0 || ok && first.request == waiting && r.mode == All {
			m.touch(want) // the request may replace the front of this line, or become a front itself
		}
	}
	return waiting
}

// emitWaiting records the effect that a request waits in one of its lines.
func (m *Machine) emitWaiting(r *request, want member) {
	s := m.semaphores.at(want.semaphore)
	m.emit(Effect{Kind: EffectWaiting, Mode: r.mode, Unowned: r.isDown, Partial: r.partial, Listed: r.listEntry != 0, Semaphore: s.name,
		Epoch: s.epoch, Place: r.place, Session: m.sessionID(r.session), Count: want.count, Details: m.detailsIn(want.lane)})
}

// linkRequest adds a request to its lines, to the list of its session and to the indexes.
func (m *Machine) linkRequest(waiting ref) {
	r := m.requests.at(waiting)
	pool := -1
	if r.mode == All && len(r.members) > 1 {
		pool = m.poolOf(r)
	}
	for i, want := range r.members {
		m.useLane(want.lane)
		m.joinLine(waiting, r, want, i == pool)
	}
	m.byPlace[r.place] = waiting
	if r.listHash != 0 {
		m.byList[listKey{r.session, r.listHash}] = waiting
	}
	session := m.sessions.mut(r.session)
	session.requests.push(waiting, m.requestInSession)
	session.reserved += int32(r.leases())
	session.members += int32(len(r.members))
	session.keys += int32(len(r.keys))
	m.reserved += r.reserves()
	m.members += len(r.members)
	m.count(session.owner, owned{leases: r.leases(), waiting: int64(len(r.members))})
	if r.listEntry != 0 {
		m.entries.mut(r.listEntry).waiting = waiting
	}
}

// joinLine adds a request to one of its lines. A request that may stand in the line only while it is ready in its other
// lines joins line.aside first, see refreshFront.
func (m *Machine) joinLine(waiting ref, r *request, want member, aside bool) {
	s := m.semaphores.mut(want.semaphore)
	line := m.lineIn(s, want)
	if line == nil {
		line = m.newLine() // state: a line lives while requests wait in it
		if want.lane != 0 {
			m.lanes.mut(want.lane).line = line
			s.groups.lines++
		} else {
			s.line = line
		}
	}
	if aside {
		line.putAside(waiter{r.rank(), waiting})
	} else {
		line.order.Set(waiter{r.rank(), waiting})
	}
	if !r.isDown {
		m.byWait[leaseKey{r.session, want.target()}] = waiting
		line.asked.add(want.count, r.place, waiting)
	}
	if want.lane == 0 {
		return
	}
	s.groups.waiting++
	if !r.isDown {
		s.groups.asked.add(want.count, r.place, waiting)
	}
	m.updateHead(want.lane)
}

func (m *Machine) requestInSession(r ref) *links { return &m.requests.mut(r).inSession }

// unlinkRequest removes a request from all lines and indexes, and touches the lines that have a new head. The caller
// must call leaveLanes when it no longer needs the groups of the request.
func (m *Machine) unlinkRequest(waiting ref) {
	r := *m.requests.at(waiting)
	m.leaveFronts(&r, waiting)
	for _, want := range r.members {
		m.leaveLine(waiting, &r, want)
	}
	delete(m.byPlace, r.place)
	m.unserved.Delete(waiter{rank: r.rank()})
	if r.listHash != 0 {
		delete(m.byList, listKey{r.session, r.listHash})
	}
	session := m.sessions.mut(r.session)
	session.requests.unlink(waiting, m.requestInSession)
	session.reserved -= int32(r.leases())
	session.members -= int32(len(r.members))
	session.keys -= int32(len(r.keys))
	m.reserved -= r.reserves()
	m.members -= len(r.members)
	m.count(session.owner, owned{leases: -r.leases(), waiting: -int64(len(r.members))})
	if r.listEntry != 0 {
		m.entries.mut(r.listEntry).waiting = 0
	}
	m.requests.remove(waiting)
}

// leaveLanes ends a request's use of its groups.
func (m *Machine) leaveLanes(r *request) {
	for _, want := range r.members {
		m.leaveLane(want.lane)
	}
}

// leaveLine removes a request from one of its lines. It touches the line if the request was the head, because only then
// may the next head be granted, or an empty line let notices become due.
func (m *Machine) leaveLine(waiting ref, r *request, want member) {
	s := m.semaphores.mut(want.semaphore)
	line := m.lineIn(s, want)
	head, _ := line.firstInOrder()
	line.remove(waiter{r.rank(), waiting})
	s.modified = m.index
	if !r.isDown {
		delete(m.byWait, leaseKey{r.session, want.target()})
		line.asked.remove(want.count, r.place)
	}
	gone := line.length() == 0
	if gone {
		m.keepLine(line)
	}
	switch {
	case want.lane == 0 && gone:
		s.line = nil // state: see joinLine
	case want.lane != 0:
		s.groups.waiting--
		if !r.isDown {
			s.groups.asked.remove(want.count, r.place)
		}
		if gone {
			m.lanes.mut(want.lane).line = nil
			s.groups.lines--
		}
		m.updateHead(want.lane)
	}
	if head.request == waiting {
		m.touch(want)
	}
}

// withdraw ends a waiting request without a grant, with an outcome. Its session lives on.
func (m *Machine) withdraw(waiting ref, cause Cause, outcome Result) {
	r := *m.requests.at(waiting)
	m.unlinkRequest(waiting)
	m.done.ended += len(r.members) + len(r.keys)
	m.endFirstWait(&r)
	for _, want := range r.members {
		m.emitWithdrawn(&r, want, cause)
	}
	m.leaveLanes(&r)
	m.conclude(&r, outcome)
}

func (m *Machine) emitWithdrawn(r *request, want member, cause Cause) {
	s := m.semaphores.at(want.semaphore)
	m.emit(Effect{Kind: EffectWithdrawn, Cause: cause, Semaphore: s.name, Epoch: s.epoch, Place: r.place,
		Session: m.sessionID(r.session), Count: want.count, Details: m.detailsIn(want.lane)})
}

// endMemberWait ends a request's wait in one of its lines, with the code as the reason. An "any" request keeps waiting for
// its other members; every other request ends. The end of a wait-list entry without permits can be delivered, so that
// the session learns of it.
func (m *Machine) endMemberWait(waiting ref, t target, cause Cause, code Code) {
	r := m.requests.at(waiting)
	lost := memberOf(r.members, t)
	if r.mode != Any || len(r.members) == 1 {
		outcome := Result{Session: m.sessionID(r.session), Place: r.place}
		if code == Never {
			m.refuseNever(&outcome, lost)
		} else {
			m.refuse(&outcome, code, lost)
		}
		outcome.QueueLength-- // the request itself does not count
		session, listed := r.session, r.listEntry
		m.withdraw(waiting, cause, outcome)
		if cause == CauseSuperseded && listed != 0 && m.entries.at(listed).granted == 0 {
			m.endEntry(listed, cause)
		}
		m.endIfSpent(session, cause)
		return
	}
	r = m.requests.mut(waiting)
	kept := make([]member, 0, len(r.members)-1)
	for _, want := range r.members {
		if want != lost {
			kept = append(kept, want)
		}
	}
	m.emitWithdrawn(r, lost, cause)
	r.members = kept
	session := m.sessions.mut(r.session)
	session.members--
	m.members--
	m.count(session.owner, owned{waiting: -1})
	m.done.ended++
	m.leaveLine(waiting, r, lost)
	m.leaveLane(lost.lane)
}

// memberOf returns the member of a list that asks for a target, zero if there is no such member.
func memberOf(members []member, t target) member {
	for _, want := range members {
		if want.target() == t {
			return want
		}
	}
	return member{}
}

func countOf(members []member, t target) int64 { return memberOf(members, t).count }

// conclude records the outcome of a wait for Applied.Conclusions, and stores it in the keys that wait for it.
func (m *Machine) conclude(r *request, outcome Result) {
	m.conclusions = append(m.conclusions, Conclusion{r.place, outcome})
	if len(r.keys) == 0 {
		return
	}
	recorded := encodeResult(outcome) // all keys share one encoding
	for _, k := range r.keys {
		m.finishKey(k, recorded)
		m.followOneShot(k, &outcome)
	}
}

// waitingResult returns the result of a command whose request waits.
func (m *Machine) waitingResult(waiting ref) Result {
	r := m.requests.at(waiting)
	w := r.members[0]
	s := m.semaphores.at(w.semaphore)
	result := Result{Code: Waiting, Place: r.place, Position: m.lineOf(w.target()).position(r.rank()), Epoch: s.epoch,
		Asked: w.count, Subject: s.name, QueueLength: int64(m.waitingIn(w))}
	if group := m.groupOf(w.lane); group != "" {
		result.Refusal = &Refusal{Group: group}
	}
	m.describeSession(&result, r.session)
	return result
}

// line has the waiting requests of a semaphore, or of one of its groups, by their ranks.
type line struct {
	order *btree.BTreeG[waiter] // the requests of the line, without the requests in aside
	aside *btree.BTreeG[waiter] // of a pool: requests that wait until they are ready in their other lines; nil: not used so far
	front ref                   // outside of pools: the first request, if it also stands in a pool because it is ready here; or 0
	asked askedCounts           // counts of the requests for leases
}

// maxSpareLines bounds the empty lines that a machine keeps for reuse.
const maxSpareLines = 256

// newLine returns an empty line. It reuses lines, because the lines of a busy semaphore come and go.
func (m *Machine) newLine() *line {
	last := len(m.spareLines) - 1
	if last < 0 {
		return &line{order: newWaiters()}
	}
	spare := m.spareLines[last]
	m.spareLines = m.spareLines[:last]
	return spare
}

// keepLine keeps an empty line for reuse.
func (m *Machine) keepLine(line *line) {
	if line.aside == nil && len(m.spareLines) < maxSpareLines {
		m.spareLines = append(m.spareLines, line)
	}
}

// firstInOrder returns the request of lowest rank in order.
func (l *line) firstInOrder() (waiter, bool) { return l.order.Min() }

// lowestOfAll returns the request of lowest rank in order or aside.
func (l *line) lowestOfAll() waiter {
	first, ok := l.order.Min()
	if l.aside != nil {
		if other, found := l.aside.Min(); found && (!ok || other.rank.before(first.rank)) {
			return other
		}
	}
	return first
}

// length returns the number of requests; 0 for a nil line.
func (l *line) length() int {
	switch {
	case l == nil:
		return 0
	case l.aside == nil:
		return l.order.Len()
	}
	return l.order.Len() + l.aside.Len()
}

func (l *line) putAside(w waiter) {
	if l.aside == nil {
		l.aside = newWaiters() // state: made for the first request that waits aside
	}
	l.aside.Set(w)
}

func (l *line) remove(w waiter) {
	if _, stood := l.order.Delete(w); !stood {
		l.aside.Delete(w)
	}
}

// position returns the position of a rank in the line, from 1.
func (l *line) position(r rank) int64 {
	before := ranksBefore(l.order, r)
	if l.aside != nil {
		before += ranksBefore(l.aside, r)
	}
	return int64(before) + 1
}

// ranksBefore counts the requests that come before a rank, by a binary search over the counts in
// the tree: O(log² n).
func ranksBefore(waiters *btree.BTreeG[waiter], r rank) int {
	low, high := 0, waiters.Len()
	for low < high {
		middle := (low + high) / 2
		if at, _ := waiters.GetAt(middle); at.rank.before(r) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// askedCounts indexes the requests for leases of a line or a pool by their counts, to find requests that can't be
// granted any more without a walk through the line.
type askedCounts struct {
	byCount btree.Map[int64, *btree.Map[uint64, countedRequest]] // by count, then by place
}

// countedRequest is a request with the number of groups of a pool in which it asks for the same count.
type countedRequest struct {
	request ref
	members int
}

func (a *askedCounts) add(count int64, place uint64, waiting ref) {
	places, ok := a.byCount.Get(count)
	if !ok {
		places = &btree.Map[uint64, countedRequest]{}
		a.byCount.Set(count, places)
	}
	before, _ := places.Get(place)
	places.Set(place, countedRequest{waiting, before.members + 1})
}

func (a *askedCounts) remove(count int64, place uint64) {
	places, _ := a.byCount.Get(count)
	if entry, _ := places.Get(place); entry.members > 1 {
		places.Set(place, countedRequest{entry.request, entry.members - 1})
		return
	}
	if places.Delete(place); places.Len() == 0 {
		a.byCount.Delete(count)
	}
}

// above returns up to limit requests for more than count, the largest counts first; the result is ordered by place.
func (a *askedCounts) above(count int64, limit int) []ref {
	var found btree.Map[uint64, ref] // by place
	a.byCount.Reverse(func(requested int64, places *btree.Map[uint64, countedRequest]) bool {
		if requested <= count {
			return false
		}
		places.Scan(func(place uint64, waiting countedRequest) bool {
			found.Set(place, waiting.request)
			return found.Len() != limit
		})
		return found.Len() != limit
	})
	return found.Values()
}

// largest returns the largest requested count.
func (a *askedCounts) largest() int64 {
	count, _, _ := a.byCount.Max()
	return count
}

// roomToWait reports whether a request may join its lines. session is nil for a new one-shot session. A request counts
// once for each semaphore of its list, because the end of the request costs work for each.
func (m *Machine) roomToWait(session *session, newcomer *request, result *Result) bool {
	all, more := m.members, len(newcomer.members)-1
	if !m.roomToHold(session, newcomer, result) || !within(int64(all+more), m.limits.Waiting, RuleWaiting, result) ||
		!m.ownerHasRoom(session, owned{waiting: int64(len(newcomer.members))}, result) {
		return false
	}
	if session != nil && !within(int64(session.members)+int64(more), m.limits.SessionWaiting, RuleSessionWaits, result) {
		return false
	}
	for _, want := range newcomer.members {
		s := m.semaphores.at(want.semaphore)
		if !within(int64(s.waiting()), m.limits.Queue, RuleQueue, result) {
			result.Subject = s.name
			return false
		}
	}
	return true
}
