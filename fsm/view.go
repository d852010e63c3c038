package fsm

import "strings"

// SemaphoreView is a semaphore as readers see it, in machine values.
type SemaphoreView struct {
	Name          string
	Epoch         uint64
	Permits       int64
	Offset        int64
	Held          int64
	Available     int64
	Level         *int32
	Metadata      []Pair
	ModifiedIndex uint64
	Version       uint64 // of permits, level, metadata and settings
	Holders       int64  // number of leases
	Waiters       int64  // number of waiting requests

	Settings Settings // of a family: Permits, Offset and Available are 0
	Groups   int64    // number of groups that are in use or have a limit from a group-put
	Sweeping bool     // some groups do not have the limit of Settings.PerGroup yet

	Returning    int64 // permits that come back later
	Returns      int64 // number of times at which they come back
	NextReturnMS int64 // the first of these times, in cluster time; 0: no time is known
	Lost         int64 // number of lost leases whose permits have not come back
}

// LeaseView is a lease as readers see it.
type LeaseView struct {
	Grant
	Session    uint64
	DeadlineMS int64  // its session's, or EndsMS if that is earlier, in cluster time
	Metadata   []Pair // its session's
	Revoked    bool
	Reason     string // the operator's
}

// RequestView is a waiting request as readers see it.
type RequestView struct {
	Place      uint64
	Session    uint64
	Mode       Mode // 0: a single semaphore
	Wants      []Want
	Unowned    bool
	Partial    bool
	Position   int64  // in the line of the view, from 1; in the view of a session, in the first line of its list
	Group      string // of the line
	Ahead      int64  // of a pool: the number of groups whose first request comes before the first request of this line
	RankMS     int64  // EnqueuedMS less the head start: with Place the order of the line
	EnqueuedMS int64
	DeadlineMS int64  // its session's, in cluster time
	Metadata   []Pair // its session's
	BlockedBy  Block  // in the same line
	Obstacles  []Obstacle
}

// Block says why a request waits.
type Block uint8

// The reasons of a wait.
const (
	BlockAhead   Block = 1 // other requests wait before it in this line
	BlockPermits Block = 2 // it is the head, and too few permits are available
	BlockOther   Block = 3 // it could be granted here, but waits for another member of "all"

	BlockPaused     Block = 4 // the semaphore is paused
	BlockGroupLimit Block = 5 // its group may use no more
	BlockGroups     Block = 6 // another group of the pool comes first
	BlockElsewhere  Block = 7 // it joins this line only once it can be granted in its other lines
	BlockReturning  Block = 8 // it is the head; some of the permits that it needs come back later
)

// String returns the stable name of the reason.
func (b Block) String() string {
	return nameOfNumber(int(b), "", "behind-others", "not-enough-available", "other-semaphore",
		"paused", "group-limit", "other-groups", "elsewhere", "returning")
}

// Obstacle is one line in which a waiting request can't be granted at present.
type Obstacle struct {
	Semaphore string
	Group     string
	BlockedBy Block
	Needs     int64
	Available int64 // of a family: 0
	Limit     int64 // of the group, or NoLimit
	Used      int64 // by the group
}

// GroupView is a group of a semaphore as readers see it.
type GroupView struct {
	Group    string
	Limit    int64 // or NoLimit
	Own      bool  // the limit comes from a group-put
	Used     int64 // of its limit
	Held     int64 // by its leases; the rest of Used are permits that come back later
	Waiting  int64
	OldestMS int64 // when the first of its waiting requests began to wait, in cluster time
	Ahead    int64 // of a pool: the groups whose first request comes before its first request
}

// NoticeView is a notice that is due.
type NoticeView struct {
	ID        uint64
	Semaphore string
	Epoch     uint64
	URL       string
	Count     int64
	Deleted   bool  // the semaphore is gone
	Available int64 // now; 0 when it is gone
	DueMS     int64 // when it became due, in cluster time
}

// KeysView shows the size of the table of idempotency keys, with the limits in force.
type KeysView struct {
	Keys, MostKeys   int64 // with an outcome, or waiting for one
	Bytes, MostBytes int64 // of these keys and outcomes
	Marks, MostMarks int64 // of keys whose lease is over
}

// Counts returns the numbers of records.
func (m *Machine) Counts() (semaphores, sessions, leases, waiting int) {
	leases = m.leases.live
	m.unswept.Scan(func(_ uint64, r ref) bool {
		if s := m.semaphores.at(r); s.deleted {
			leases -= s.holders.length()
		}
		return true
	})
	return len(m.byName), m.sessions.live, leases, m.requests.live
}

// Keys returns the size of the table of idempotency keys.
func (m *Machine) Keys() KeysView {
	return KeysView{
		Keys: int64(m.keys.live), MostKeys: m.limits.Keys,
		Bytes: m.keyBytes, MostBytes: m.limits.KeyBytes,
		Marks: int64(m.marks.length), MostMarks: m.limits.marksLimit(),
	}
}

// Semaphore returns one semaphore by name.
func (m *Machine) Semaphore(name string) (SemaphoreView, bool) {
	r, ok := m.byName[name]
	if !ok {
		return SemaphoreView{}, false
	}
	return m.viewSemaphore(r), true
}

func (m *Machine) viewSemaphore(r ref) SemaphoreView {
	s := m.semaphores.at(r)
	return SemaphoreView{
		Name: s.name, Epoch: s.epoch, Permits: s.permits, Offset: s.offset, Held: s.held, Available: s.shownTotal(s.available()),
		Level: s.level, Metadata: s.metadata, ModifiedIndex: s.modified, Version: s.version,
		Holders: int64(s.holders.length()), Waiters: int64(s.waiting()),
		Settings: s.settingsOrZero(), Groups: s.groupCount(), Sweeping: s.sweep != nil,
		Returning: s.returning, Returns: int64(s.returns), NextReturnMS: m.nextReturn(s), Lost: int64(s.lost),
	}
}

// nextReturn returns the earliest time at which a return of a semaphore comes back, or 0. It ignores returns that need
// a FreeLost.
func (m *Machine) nextReturn(s *semaphore) int64 {
	if s.returns == 0 {
		return 0
	}
	if ms := m.returns.at(m.firstReturn(s.epoch)).dueMS; ms != NeverMS {
		return ms
	}
	return 0
}

// LostView is a lost lease whose permits have not come back.
type LostView struct {
	Token    uint64
	Session  uint64
	Count    int64
	Group    string
	LostMS   int64 // when the lease ended, in cluster time
	DueMS    int64 // when its permits come back, in cluster time, or NeverMS
	Owner    string
	Metadata []Pair // of the session
	Slots    []SlotRun
}

// Lost returns up to limit lost leases of a semaphore whose tokens are higher than after, ordered by token.
func (m *Machine) Lost(name string, after uint64, limit int) (found []LostView) {
	r, ok := m.byName[name]
	if !ok {
		return nil
	}
	epoch := m.semaphores.at(r).epoch
	m.byReturn.lost.Ascend(lostLease{epoch: epoch, token: after + 1}, func(at lostLease) bool {
		if at.epoch != epoch || len(found) == limit {
			return false
		}
		t := m.returns.at(at.at)
		found = append(found, LostView{Token: at.token, Session: t.lost.session, Count: t.count, Group: m.groupOf(t.lane),
			LostMS: t.lost.atMS, DueMS: t.dueMS, Owner: t.owner, Metadata: t.lost.metadata,
			Slots: t.slots.all()})
		return true
	})
	return found
}

// Returns returns the number of returns of all semaphores.
func (m *Machine) Returns() int { return m.returns.live }

// Semaphores returns up to limit semaphores whose names begin with prefix and come after a name, in the order of names.
func (m *Machine) Semaphores(prefix, after string, limit int) []SemaphoreView {
	var found []SemaphoreView
	m.names.Ascend(max(prefix, after), func(name string, r ref) bool {
		if len(found) == limit || !strings.HasPrefix(name, prefix) {
			return false
		}
		if name != after || after == "" {
			found = append(found, m.viewSemaphore(r))
		}
		return true
	})
	return found
}

// Holders returns up to limit leases of a semaphore, oldest first, whose tokens are higher than after; a lease with
// that token need not exist. It reads at most holderStride leases more than it returns.
func (m *Machine) Holders(name string, after uint64, limit int) []LeaseView {
	r, ok := m.byName[name]
	if !ok {
		return nil
	}
	l := m.semaphores.at(r).holders.first
	if index := m.holdersBy[r]; index != nil {
		index.byToken.Descend(after, func(_ uint64, near ref) bool {
			l = near
			return false
		})
	}
	for l != 0 && m.leases.at(l).token <= after {
		l = m.leases.at(l).inSemaphore.next
	}
	var found []LeaseView
	for ; l != 0 && len(found) < limit; l = m.leases.at(l).inSemaphore.next {
		found = append(found, m.viewLease(l))
	}
	return found
}

// leasesWalked bounds the leases that HoldersOf reads.
const leasesWalked = 10_000

// HoldersOf returns the same as Holders for one group. It reads at most leasesWalked leases. more says that other
// leases may follow, with tokens higher than next.
func (m *Machine) HoldersOf(name, group string, after uint64, limit int) (found []LeaseView, next uint64, more bool) {
	for _, l := range m.Holders(name, after, leasesWalked) {
		if len(found) == limit {
			return found, next, true
		}
		if next = l.Token; l.DetailsOrZero().Group == group {
			found = append(found, l)
		}
	}
	return found, next, next != 0 && len(m.Holders(name, next, 1)) > 0
}

func (m *Machine) viewLease(r ref) LeaseView {
	l := m.leases.at(r)
	s := m.sessions.at(l.session)
	deadlineMS := s.deadlineMS
	if l.endsMS != 0 {
		deadlineMS = min(deadlineMS, l.endsMS)
	}
	return LeaseView{Grant: m.grantOf(l), Session: s.id, DeadlineMS: deadlineMS, Metadata: s.metadata,
		Revoked: l.revoked(), Reason: l.reason}
}

// LinePlace is the place of a waiting request among all requests that wait for a semaphore. They are ordered by group,
// then as in the group's line.
type LinePlace struct {
	Group  string
	RankMS int64
	Place  uint64
}

// Waiters returns up to limit waiting requests of a semaphore after a place, in their order; a request need not wait at
// that place. The zero place starts at the first request. The cost does not depend on the lengths of the lines.
func (m *Machine) Waiters(name string, after LinePlace, limit int) []RequestView {
	r, ok := m.byName[name]
	if !ok {
		return nil
	}
	s := m.semaphores.at(r)
	var found []RequestView
	if after.Group == "" {
		found = m.viewLine(target(r), after, limit)
	}
	if s.groups == nil {
		return found
	}
	s.groups.byName.Ascend(after.Group, func(group string, lane ref) bool {
		from := LinePlace{}
		if group == after.Group {
			from = after
		}
		found = append(found, m.viewLine(targetOf(r, lane), from, limit-len(found))...)
		return len(found) < limit
	})
	return found
}

// WaitersOf returns the same as Waiters for one group.
func (m *Machine) WaitersOf(name, group string, after LinePlace, limit int) (found []RequestView) {
	r, ok := m.byName[name]
	if !ok {
		return nil
	}
	at, n := m.targets(0, r, group)
	for _, t := range at[:n] {
		found = append(found, m.viewLine(t, after, limit-len(found))...)
	}
	return found
}

// viewLine returns up to limit requests of one line.
func (m *Machine) viewLine(t target, after LinePlace, limit int) (found []RequestView) {
	line := m.lineOf(t)
	if line == nil || limit <= 0 {
		return nil
	}
	last := lowestRank()
	if after.Place != 0 {
		last = rank{after.RankMS, after.Place}
	}
	position := line.position(last.next())
	for w := range line.after(last) {
		found = append(found, m.viewRequest(w.request, t, position))
		if position++; len(found) == limit {
			break
		}
	}
	return found
}

// after returns the requests of l.order and l.aside after a rank, merged in their order.
func (l *line) after(last rank) func(yield func(waiter) bool) {
	return func(yield func(waiter) bool) {
		asides := l.aside
		if asides == nil {
			asides = newWaiters()
		}
		from := waiter{rank: last.next()}
		order, aside := l.order.Iter(), asides.Iter()
		more, others := order.Seek(from), aside.Seek(from)
		for more || others {
			switch {
			case more && (!others || order.Item().rank.before(aside.Item().rank)):
				if !yield(order.Item()) {
					return
				}
				more = order.Next()
			default:
				if !yield(aside.Item()) {
					return
				}
				others = aside.Next()
			}
		}
	}
}

func (m *Machine) viewRequest(waiting ref, t target, position int64) RequestView {
	r := m.requests.at(waiting)
	s := m.sessions.at(r.session)
	here := memberOf(r.members, t)
	view := RequestView{Place: r.place, Session: s.id, Mode: r.mode, Unowned: r.isDown, Partial: r.partial,
		Position: position, EnqueuedMS: r.enqueuedMS, RankMS: r.rankMS, DeadlineMS: s.deadlineMS, Metadata: s.metadata,
		BlockedBy: m.blockOf(r, here), Obstacles: m.obstacles(r), Group: m.groupOf(here.lane)}
	if here.lane != 0 {
		view.Ahead = m.groupsAhead(here.lane)
	}
	for _, want := range m.undeleted(r.members) {
		view.Wants = append(view.Wants, Want{m.semaphores.at(want.semaphore).name, want.count, m.groupOf(want.lane)})
	}
	return view
}

// blockOf returns why a request, new or waiting, can't be granted in the line of one member.
func (m *Machine) blockOf(r *request, w member) Block {
	s := m.semaphores.at(w.semaphore)
	if s.settingsOrZero().Paused != "" {
		return BlockPaused
	}
	if line := m.lineOf(w.target()); line != nil {
		if line.aside != nil {
			if _, waits := line.aside.Get(waiter{rank: r.rank()}); waits {
				return BlockElsewhere
			}
		}
		if first, ok := line.firstInOrder(); ok && first.rank.before(r.rank()) {
			return BlockAhead
		}
	}
	enough := s.family() || s.available() >= r.atLeast(w.count)
	switch {
	case w.lane != 0 && !m.groupHasRoom(w.lane, r):
		return BlockGroupLimit
	case s.pool() && enough && !m.isChoice(s, r, w):
		return BlockGroups
	case !enough && s.available()+s.returning >= r.atLeast(w.count):
		return BlockReturning
	case !enough:
		return BlockPermits
	}
	return BlockOther
}

// obstacles returns the lines in which a request can't be granted, in the order of its list. Its cost depends on the
// list alone.
func (m *Machine) obstacles(r *request) (found []Obstacle) {
	for _, want := range m.undeleted(r.members) {
		block := m.blockOf(r, want)
		if block == BlockOther {
			continue
		}
		s := m.semaphores.at(want.semaphore)
		o := Obstacle{Semaphore: s.name, BlockedBy: block, Needs: want.count, Available: s.shownTotal(s.available()), Limit: NoLimit}
		if want.lane != 0 {
			l := m.lanes.at(want.lane)
			o.Group, o.Limit, o.Used = l.group, l.limit, l.used()
		}
		found = append(found, o)
	}
	return found
}

// Queued returns the sum of the counts that wait for a semaphore, and when the first of these requests began to wait,
// in cluster time; both are 0 if no request waits. It reads all lines.
func (m *Machine) Queued(name string) (count, sinceMS int64) {
	r, ok := m.byName[name]
	if !ok {
		return 0, 0
	}
	none := true
	walk := func(t target) {
		line := m.lineOf(t)
		if line == nil {
			return
		}
		for w := range line.after(lowestRank()) {
			request := m.requests.at(w.request)
			if none || request.enqueuedMS < sinceMS {
				none, sinceMS = false, request.enqueuedMS
			}
			count += countOf(request.members, t)
		}
	}
	walk(target(r))
	if s := m.semaphores.at(r); s.groups != nil {
		s.groups.byName.Scan(func(_ string, lane ref) bool {
			walk(targetOf(r, lane))
			return true
		})
	}
	return count, sinceMS
}

// Group returns a group of a semaphore, if it is in use or has a limit from a group-put.
func (m *Machine) Group(name, group string) (GroupView, bool) {
	r, ok := m.byName[name]
	if !ok {
		return GroupView{}, false
	}
	lane := m.semaphores.at(r).lane(group)
	if lane == 0 {
		return GroupView{}, false
	}
	return m.viewGroup(lane), true
}

// LinesView summarises the lines of a semaphore with groups.
type LinesView struct {
	Groups int64 // groups for which requests wait
	Passed int64 // of a pool: consecutive grants that passed the request that waits longest
}

// Lines returns a summary of the lines of a semaphore with groups.
func (m *Machine) Lines(name string) (view LinesView) {
	if r, ok := m.byName[name]; ok && m.semaphores.at(r).groups != nil {
		s := m.semaphores.at(r)
		view.Groups, view.Passed = int64(s.groups.lines), int64(s.passed)
	}
	return view
}

// GroupsInUse returns the number of groups of all semaphores.
func (m *Machine) GroupsInUse() int { return m.lanes.live }

// groupsWalked bounds the groups that Groups reads.
const groupsWalked = 10_000

// Groups returns up to limit groups of a semaphore in the order of their names, starting at the name from. With waiting
// it leaves out groups without waiting requests, and reads at most groupsWalked groups. more says that other groups may
// follow, starting at the name next.
func (m *Machine) Groups(name, from string, waiting bool, limit int) (found []GroupView, next string, more bool) {
	r, ok := m.byName[name]
	if !ok || m.semaphores.at(r).groups == nil {
		return nil, "", false
	}
	walked := 0
	m.semaphores.at(r).groups.byName.Ascend(from, func(group string, lane ref) bool {
		if len(found) == limit || walked == groupsWalked {
			next, more = group, true
			return false
		}
		walked++
		if !waiting || m.lanes.at(lane).line != nil {
			found = append(found, m.viewGroup(lane))
		}
		return true
	})
	return found, next, more
}

func (m *Machine) viewGroup(r ref) GroupView {
	l := m.lanes.at(r)
	view := GroupView{Group: l.group, Limit: l.limit, Own: l.hasOwnLimit, Used: l.used(), Held: l.held, Waiting: int64(l.line.length()),
		Ahead: m.groupsAhead(r)}
	if l.line != nil {
		view.OldestMS = m.requests.at(l.line.lowestOfAll().request).enqueuedMS
	}
	return view
}

// DueNotices returns the notices that are due, in the order of their ids.
func (m *Machine) DueNotices() []NoticeView {
	var due []NoticeView
	for _, r := range m.notices.refs(func(n *notice) uint64 { return n.place }) {
		if n := m.notices.at(r); n.due {
			due = append(due, m.viewNotice(n))
		}
	}
	return due
}

// DueNotice returns one notice that is due, by its id.
func (m *Machine) DueNotice(id uint64) (NoticeView, bool) {
	r, ok := m.byNotice[id]
	if !ok || !m.notices.at(r).due {
		return NoticeView{}, false
	}
	return m.viewNotice(m.notices.at(r)), true
}

func (m *Machine) viewNotice(n *notice) NoticeView {
	view := NoticeView{ID: n.place, Semaphore: n.name, Epoch: n.epoch, URL: n.url,
		Count: n.count, Deleted: n.semaphore == 0, DueMS: n.dueMS}
	if !view.Deleted {
		s := m.semaphores.at(n.semaphore)
		view.Available = s.shownTotal(s.available())
	}
	return view
}
