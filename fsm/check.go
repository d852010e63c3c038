package fsm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/tidwall/btree"
)

// check returns the first invariant that the state breaks, or nil. Tests call it after every step, Restore once. It
// reads every record in the order of the slots, which is the order in memory and so the fastest. An index is correct if
// it is as long as its table and has each record of the table.
func (m *Machine) check() error {
	for _, part := range []func() error{
		m.checkCounters, m.checkSemaphores, m.checkSessions, m.checkLeases, m.checkLanes, m.checkReturns, m.checkRequests, m.checkWaits, m.checkMemory, m.checkOwners, m.checkEntries, m.checkItems, m.checkCounts,
	} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// checkCounts: the counters equal the numbers of records, without the leases of deleted semaphores.
func (m *Machine) checkCounts() error {
	left := 0
	for _, l := range m.leases.all() {
		if !m.semaphores.at(l.semaphore).deleted {
			left++
		}
	}
	if _, _, leases, _ := m.Counts(); leases != left {
		return fmt.Errorf("%d leases are counted, and %d are left", leases, left)
	}
	return nil
}

func (m *Machine) checkCounters() error {
	switch {
	case m.tokens > maxToken:
		return errors.New("tokens beyond 2^53 - 1")
	case m.nowMS < 0:
		return errors.New("cluster time before the beginning")
	case len(m.everySemaphore()) != m.semaphores.live || m.names.Len() != len(m.byName):
		return errors.New("index of names and semaphores differ")
	case m.bySession.Len() != m.sessions.live:
		return errors.New("index of ids and sessions differ")
	case m.deadlines.due.length != m.sessions.live:
		return errors.New("expiry index and sessions differ")
	case len(m.byKey) != m.keys.live || len(m.byEnded) != m.ended.live:
		return errors.New("index of keys or ended sessions differs")
	case len(m.touched)+len(m.noticeChecks)+len(m.endNow)+len(m.fresh) != 0:
		return errors.New("a command left work undone")
	}
	return nil
}

// everySemaphore returns all semaphores, including deleted ones.
func (m *Machine) everySemaphore() []ref {
	every := make([]ref, 0, m.semaphores.live)
	for _, r := range m.byName {
		every = append(every, r)
	}
	m.unswept.Scan(func(_ uint64, r ref) bool {
		if m.gone(r) {
			every = append(every, r)
		}
		return true
	})
	return every
}

func (m *Machine) checkSemaphores() error {
	for _, r := range m.everySemaphore() {
		s := m.semaphores.at(r)
		name := s.name
		unswept, marked := m.unswept.Get(s.epoch)
		switch {
		case !s.deleted && m.byName[name] != r || !ValidName(name):
			return fmt.Errorf("semaphore %q is filed wrongly", name)
		case marked != (s.deleted || s.hasImpossible || s.sweep != nil) || marked && unswept != r:
			return fmt.Errorf("%q: what is left to end of it is filed wrongly", name)
		case s.epoch == 0 || s.epoch > m.epochs:
			return fmt.Errorf("%q: epoch %d was never given", name, s.epoch)
		case s.permits < 0 || !s.allows(s.permits) || s.settings != nil && !s.settings.fits(s.permits+s.offset):
			return fmt.Errorf("%q: counters out of range", name)
		case s.modified > m.index:
			return fmt.Errorf("%q: modified in the future", name)
		}
		held := int64(0)
		leases := 0
		for l := s.holders.first; l != 0; l = m.leases.at(l).inSemaphore.next {
			leases++
			if m.leases.at(l).semaphore != r {
				return fmt.Errorf("%q: a lease of another semaphore among its holders", name)
			}
			held += m.leases.at(l).holds()
		}
		if held != s.held || leases != s.holders.length() {
			return fmt.Errorf("%q: held %d, its leases sum to %d", name, s.held, held)
		}
		if err := cmp.Or(m.checkHolders(r, s), m.checkLine(target(r))); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	return nil
}

// checkLine: ranks agree with their requests, requests stand where they should, and no head that can be granted is left
// unless the next entry continues there.
func (m *Machine) checkLine(t target) error {
	line := m.lineOf(t)
	if line == nil {
		return nil
	}
	if line.length() == 0 {
		return errors.New("an empty line is kept")
	}
	for w := range line.after(lowestRank()) {
		r := m.requests.at(w.request)
		if r.rank() != w.rank || countOf(r.members, t) == 0 {
			return fmt.Errorf("place %d is in the line and not in its request", w.rank.place)
		}
		if err := m.checkPoolLine(w.request, r, t); err != nil {
			return err
		}
	}
	first, ok := line.firstInOrder()
	if !ok {
		return nil
	}
	_, leftOver := m.unserved.Get(first)
	if m.firstGrantable(m.requests.at(first.request)) >= 0 && !leftOver {
		return fmt.Errorf("the head %d fits and was left behind", first.rank.place)
	}
	return nil
}

// checkPoolLine: a request for all of a list is in the line of its pool, and is the front of its other lines, exactly
// while it is ready in all of its other lines.
func (m *Machine) checkPoolLine(waiting ref, r *request, t target) error {
	if !m.standsAside(r) {
		if m.lineOf(t).front == waiting {
			return fmt.Errorf("place %d is a front without a pool", r.place)
		}
		return nil
	}
	pool := r.members[m.poolOf(r)].target()
	_, stands := m.lineOf(pool).order.Get(waiter{rank: r.rank()})
	if ready := m.readyElsewhere(r); stands != ready {
		return fmt.Errorf("place %d: it stands in its pool: %v, it is ready elsewhere: %v", r.place, stands, ready)
	}
	if t != pool && stands != (m.lineOf(t).front == waiting) {
		return fmt.Errorf("place %d: it is not the front of a line, or of no line", r.place)
	}
	return nil
}

// checkLanes: a group has a lane exactly while it is in use or has a limit from a group-put; its used permits are those
// of its leases and returns; and a pool has exactly the heads of its lines.
func (m *Machine) checkLanes() error {
	held, users, filed := map[ref]int64{}, map[ref]int32{}, 0
	for _, l := range m.leases.all() {
		users[l.lane]++
		held[l.lane] += l.holds()
	}
	for _, t := range m.returns.all() {
		users[t.lane]++
	}
	for _, r := range m.requests.all() {
		for _, w := range r.members {
			users[w.lane]++
		}
	}
	for _, e := range m.entries.all() {
		users[e.lane]++
	}
	ownLimits := int64(0)
	for r, l := range m.lanes.all() {
		s := m.semaphores.at(l.semaphore)
		if l.hasOwnLimit {
			ownLimits++
		}
		head := l.head
		switch {
		case s.lane(l.group) != r || !l.filed:
			return fmt.Errorf("group %q of %q is filed wrongly", l.group, s.name)
		case l.held != held[r] || l.users != users[r]:
			return fmt.Errorf("group %q of %q: it holds %d with %d records, and counts %d with %d", l.group, s.name, held[r], users[r], l.held, l.users)
		case l.users == 0 && !l.hasOwnLimit:
			return fmt.Errorf("group %q of %q is there for nothing", l.group, s.name)
		case l.turn > m.turns || l.limit < NoLimit:
			return fmt.Errorf("group %q of %q: its turn was never drawn, or its limit is none", l.group, s.name)
		case !l.hasOwnLimit && l.limit != s.groupLimit() && (s.sweep == nil || *s.sweep > l.group) && s.grouped() && !s.deleted:
			return fmt.Errorf("group %q of %q has another limit than its semaphore", l.group, s.name)
		}
		if m.updateHead(r); l.head != head || len(m.touched) > 0 {
			return fmt.Errorf("group %q of %q: its head is filed wrongly", l.group, s.name)
		}
		if err := m.checkLine(targetOf(l.semaphore, r)); err != nil {
			return fmt.Errorf("group %q of %q: %w", l.group, s.name, err)
		}
	}
	for _, r := range m.everySemaphore() {
		s := m.semaphores.at(r)
		if s.groups == nil {
			continue
		}
		filed += s.groups.byName.Len()
		if err := m.checkPool(r, s); err != nil {
			return fmt.Errorf("%q: %w", s.name, err)
		}
	}
	if filed != m.lanes.live || ownLimits != m.ownLimits {
		return errors.New("groups and their index differ")
	}
	return nil
}

// checkPool: the trees of a pool have exactly its heads, and no choice that can be granted is left.
func (m *Machine) checkPool(r ref, s *semaphore) error {
	heads, waiting, lines := 0, 0, 0
	s.groups.byName.Scan(func(_ string, lane ref) bool {
		l := m.lanes.at(lane)
		waiting += l.line.length()
		if l.line != nil {
			lines++
		}
		if l.head.lane != 0 {
			heads++
		}
		return true
	})
	if all := &s.groups.heads; all.byUse.Len() != heads || all.byRank.Len() != heads || waiting != s.groups.waiting || lines != s.groups.lines {
		return errors.New("its heads are filed wrongly")
	}
	line, ofPool := m.servedLine(target(r))
	if line == nil || !ofPool {
		return nil
	}
	first, _ := line.firstInOrder()
	if _, leftOver := m.unserved.Get(first); m.firstGrantable(m.requests.at(first.request)) >= 0 && !leftOver {
		return fmt.Errorf("the choice %d fits and was left behind", first.rank.place)
	}
	return nil
}

// sessionOf returns the session that is filed under an id, or 0.
func (m *Machine) sessionOf(id uint64) ref {
	r, _ := m.bySession.Get(id)
	return r
}

func (m *Machine) checkSessions() error {
	for r, s := range m.sessions.all() {
		id, filed := s.id, *m.deadlines.due.at(m.deadlines.indexOf(r))
		switch {
		case m.sessionOf(id) != r || id == 0:
			return fmt.Errorf("session %d is filed wrongly", id)
		case filed.session != r || filed.ms != s.deadlineMS || filed.id != id:
			return fmt.Errorf("session %d: its deadline is filed wrongly", id)
		case s.oneShot && s.leases.length()+s.requests.length()+s.entries.length() == 0:
			return fmt.Errorf("one-shot session %d outlived its last lease or request", id)
		case s.ttlMS < 0 || s.ttlMS > MaxTTLMS:
			return fmt.Errorf("session %d: ttl out of range", id)
		}
		if s.first != 0 {
			if _, waits := m.requestAt(id, s.first); !waits || !s.oneShot {
				return fmt.Errorf("session %d: its own request does not wait", id)
			}
		}
		leases, last := 0, uint64(0)
		for l := s.leases.first; l != 0; l = m.leases.at(l).inSession.next {
			if m.leases.at(l).session != r || m.leases.at(l).token <= last {
				return fmt.Errorf("session %d: its leases are out of order", id)
			}
			leases, last = leases+1, m.leases.at(l).token
		}
		requests, reserved, lastPlace, members, keys := 0, int64(0), uint64(0), 0, 0
		for q := s.requests.first; q != 0; q = m.requests.at(q).inSession.next {
			if m.requests.at(q).session != r || m.requests.at(q).place <= lastPlace {
				return fmt.Errorf("session %d: its requests are out of order", id)
			}
			requests, lastPlace = requests+1, m.requests.at(q).place
			reserved += m.requests.at(q).leases()
			members += len(m.requests.at(q).members)
			keys += len(m.requests.at(q).keys)
		}
		if leases != s.leases.length() || requests != s.requests.length() || reserved != int64(s.reserved) || members != int(s.members) || keys != int(s.keys) {
			return fmt.Errorf("session %d: its counts differ from its records", id)
		}
	}
	return nil
}

// checkLeases must run after checkSemaphores and checkSessions, which check that each lease is in the right lists.
func (m *Machine) checkLeases() error {
	sessions, semaphores := 0, 0
	for r, l := range m.leases.all() {
		if found, _ := m.leaseOf(l.session, l.target()); found != r || l.count < 1 && (l.dueMS == 0 || l.count < 0) {
			return fmt.Errorf("lease %d is filed wrongly", l.token)
		}
		if l.token == 0 || l.token > m.tokens {
			return fmt.Errorf("lease %d: its token was never given", l.token)
		}
	}
	for _, s := range m.sessions.all() {
		sessions += s.leases.length()
	}
	for pair, r := range m.byLease {
		if l := m.leases.at(r); l.session != pair.session || l.target() != pair.target {
			return errors.New("the index of leases has one that is over")
		}
	}
	for _, r := range m.everySemaphore() {
		semaphores += m.semaphores.at(r).holders.length()
	}
	if sessions != m.leases.live || semaphores != m.leases.live {
		return errors.New("a lease is not reachable from its session and its semaphore both")
	}
	return nil
}

func (m *Machine) checkRequests() error {
	requests, reserved := 0, int64(0)
	for _, session := range m.sessions.all() {
		for q := session.requests.first; q != 0; q = m.requests.at(q).inSession.next {
			r := m.requests.at(q)
			requests++
			reserved += r.reserves()
			if r.place == 0 || r.place > m.places {
				return fmt.Errorf("place %d was never given", r.place)
			}
			for _, want := range r.members {
				line := m.lineOf(want.target())
				if line == nil || want.count < 1 {
					return fmt.Errorf("place %d is not in its line", r.place)
				}
				at := waiter{r.rank(), q}
				found, _ := line.order.Get(at)
				if line.aside != nil && found != at {
					found, _ = line.aside.Get(at)
				}
				if found != at {
					return fmt.Errorf("place %d is not in its line", r.place)
				}
			}
			for _, k := range r.keys {
				if m.keys.at(k).place != r.place {
					return fmt.Errorf("place %d: a key waits for it that does not know it", r.place)
				}
			}
		}
	}
	if requests != m.requests.live || reserved != m.reserved {
		return errors.New("a waiting request without its session")
	}
	return nil
}

// checkWaits: the indexes of requests agree with the requests.
func (m *Machine) checkWaits() error {
	members, lists, requested, unowned := 0, 0, 0, 0
	for place, q := range m.byPlace {
		r := m.requests.at(q)
		if r.place != place {
			return fmt.Errorf("place %d is filed wrongly", place)
		}
		if r.listHash != 0 {
			lists++
			if m.byList[listKey{r.session, r.listHash}] != q {
				return fmt.Errorf("place %d: its list is filed wrongly", place)
			}
		}
		if r.isDown {
			unowned++
			continue
		}
		members += len(r.members)
		for _, want := range r.members {
			if m.byWait[leaseKey{r.session, want.target()}] != q {
				return fmt.Errorf("place %d: its session does not know what it waits for", place)
			}
			places, ok := m.lineOf(want.target()).asked.byCount.Get(want.count)
			if found, _ := places.Get(place); !ok || found.request != q {
				return fmt.Errorf("place %d is not filed under its count", place)
			}
		}
	}
	for _, r := range m.everySemaphore() {
		s := m.semaphores.at(r)
		if s.line != nil {
			requested += s.line.asked.members()
		}
		if s.groups != nil {
			requested += s.groups.asked.members()
		}
	}
	if len(m.byPlace) != m.requests.live || members != len(m.byWait) || lists != len(m.byList) || members != requested || members+unowned != m.members {
		return errors.New("index of waiting requests and requests differ")
	}
	return nil
}

// members returns the number of requests; a request counts once for each group in which it asks for a count.
func (a *askedCounts) members() (n int) {
	a.byCount.Scan(func(_ int64, places *btree.Map[uint64, countedRequest]) bool {
		places.Scan(func(_ uint64, entry countedRequest) bool {
			n += entry.members
			return true
		})
		return true
	})
	return n
}

func (m *Machine) checkMemory() error {
	bytes, marks := int64(0), 0
	for r, k := range m.keys.all() {
		name := k.keyName
		bytes += k.bytes()
		if m.byKey[name] != r || k.order > m.orders || k.reserved < 0 || (k.reserved > 0) != (k.place != 0) {
			return fmt.Errorf("key %q is filed wrongly", name.text)
		}
		if k.place == 0 && k.session != 0 {
			if session, ok := m.bySession.Get(k.session); !ok || m.sessions.at(session).key != r {
				return fmt.Errorf("key %q ends with a session that does not know it", name.text)
			}
		}
		if k.place != 0 {
			waiting, ok := m.requestAt(k.session, k.place)
			if !ok || !slices.Contains(m.requests.at(waiting).keys, r) {
				return fmt.Errorf("key %q waits for nothing", name.text)
			}
		}
	}
	if bytes != m.keyBytes {
		return errors.New("the keys' bytes are counted wrongly")
	}
	m.marks.each(func(v *mark) {
		if _, filed := m.marked[v.hash]; filed {
			marks++
		}
	})
	if marks != len(m.marked) || marks != m.marks.length {
		return errors.New("the marks and their index differ")
	}
	operators, holds := m.revokedOrder[0].length(), m.revokedOrder[1].length()
	if max(operators, holds) > maxRevoked || m.revoked.live != len(m.byRevoked) || m.revoked.live != operators+holds {
		return errors.New("the memory of revoked leases and its index differ")
	}
	if err := m.checkEnded(); err != nil {
		return err
	}
	for id, r := range m.byEnded {
		if m.ended.at(r).id != id {
			return fmt.Errorf("ended session %d is filed wrongly", id)
		}
		if _, living := m.bySession.Get(id); living {
			return fmt.Errorf("session %d lives and is remembered as ended", id)
		}
	}
	return nil
}

// checkEntries: every entry of a wait list can be found from its session and, while its semaphore exists, from the
// semaphore; its request refers to it.
func (m *Machine) checkEntries() error {
	listed, filed := 0, 0
	for session, s := range m.sessions.all() {
		id, last := s.id, uint64(0)
		for r := s.entries.first; r != 0; r = m.entries.at(r).inSession.next {
			e := m.entries.at(r)
			listed++
			if e.session != session || e.order <= last || e.order > m.orders {
				return fmt.Errorf("session %d: its wait list is out of order", id)
			}
			last = e.order
			if e.semaphore != 0 {
				filed++
			}
			if err := m.checkEntry(r, e); err != nil {
				return fmt.Errorf("session %d, wait list, %q: %w", id, e.name, err)
			}
		}
	}
	if listed != m.entries.live || filed != len(m.byEntry) {
		return errors.New("an entry of a wait list without its session")
	}
	return m.checkNotices()
}

// checkNotices: each notice is filed under its id and its semaphore, and is due once the
// semaphore has enough permits available and no waiting request.
func (m *Machine) checkNotices() error {
	attached, waits := 0, 0
	for id, r := range m.byNotice {
		n := m.notices.at(r)
		if !n.due {
			waits++
		}
		if n.place != id || id > m.places || n.semaphore == 0 && !n.due {
			return fmt.Errorf("notice %d is filed wrongly", id)
		}
		if n.semaphore != 0 {
			attached++
			if s := m.semaphores.at(n.semaphore); !n.due && !s.deleted && m.wouldGrant(n) {
				return fmt.Errorf("notice %d should be due", id)
			}
		}
	}
	for _, r := range m.byName {
		attached -= m.semaphores.at(r).notices.length()
	}
	m.dropFresh() // removes the lanes that wouldGrant created
	if waits != m.timedNotices.length() {
		return errors.New("the notices that end by time are filed wrongly")
	}
	if attached != 0 || len(m.byNotice) != m.notices.live {
		return errors.New("a notice without its semaphore")
	}
	return nil
}

func (m *Machine) checkEntry(r ref, e *listEntry) error {
	switch {
	case e.semaphore == 0 && (e.granted != 0 || e.waiting != 0):
		return errors.New("its semaphore is gone, and it still has something")
	case e.semaphore != 0 && (m.byEntry[leaseKey{e.session, e.target()}] != r || m.semaphores.at(e.semaphore).epoch != e.epoch):
		return errors.New("it is filed wrongly")
	case e.granted < 0 || (e.granted == 0) != (e.token == 0) || e.spent < 0 || e.spent > e.granted:
		return errors.New("its grant is out of range")
	case e.waiting != 0 && m.requests.at(e.waiting).listEntry != r:
		return errors.New("what waits for it does not know it")
	}
	return nil
}

// checkHolders: the leases of a semaphore with an index are in the order of their tokens, and
// at most holderStride leases lie between two indexed leases.
func (m *Machine) checkHolders(r ref, s *semaphore) error {
	index := m.holdersBy[r]
	if (index != nil) != (s.holders.length() >= holderStride) {
		return errors.New("the index of its leases is there without need, or missing")
	}
	if index == nil {
		return nil
	}
	distance, last, indexed := 0, uint64(0), index.byToken.Iter()
	more := indexed.First()
	for l := s.holders.first; l != 0; l = m.leases.at(l).inSemaphore.next {
		token := m.leases.at(l).token
		distance++
		switch {
		case token <= last:
			return errors.New("its leases are not in the order of their tokens")
		case more && indexed.Key() == token && indexed.Value() != l:
			return errors.New("the index has another lease for a token")
		case more && indexed.Key() == token:
			distance, more = 0, indexed.Next()
		case distance > holderStride:
			return errors.New("the index has too few of its leases")
		}
		last = token
	}
	if more {
		return errors.New("the index has a lease that is gone")
	}
	return nil
}
