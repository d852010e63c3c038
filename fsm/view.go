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
	Version       uint64 // of permits, level and metadata; 0 below feature level 1
	Holders       int64  // how many leases
	Waiters       int64  // how many waiting requests
}

// LeaseView is a lease as readers see it.
type LeaseView struct {
	Grant
	Session    uint64
	DeadlineMS int64  // its session's, in cluster time
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
	Position   int64 // in the line asked about; of a session's request, in its first
	EnqueuedMS int64
	DeadlineMS int64  // its session's, in cluster time
	Metadata   []Pair // its session's
	BlockedBy  Block  // in the line asked about
	Obstacles  []Obstacle
}

// Block says why a request waits.
type Block uint8

// The reasons of a wait.
const (
	BlockAhead   Block = 1 // somebody waits before it in this line
	BlockPermits Block = 2 // it is the head, and too little is available
	BlockOther   Block = 3 // it could be served here, and waits for another member of "all"
)

// String is the stable name of the reason.
func (b Block) String() string {
	switch b {
	case BlockAhead:
		return "behind-others"
	case BlockPermits:
		return "not-enough-available"
	case BlockOther:
		return "other-semaphore"
	}
	return ""
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
	DueMS     int64 // since when, in cluster time
}

// SessionView is a session as readers see it.
type SessionView struct {
	ID         uint64
	TTLMS      int64
	DeadlineMS int64 // in cluster time
	OneShot    bool
	Keep       bool
	Owner      string
	Metadata   []Pair
	Leases     []LeaseView   // oldest first, revoked ones too
	Waiting    []RequestView // lowest place first
}

// NowMS is cluster time as of the last entry, in milliseconds.
func (m *Machine) NowMS() int64 { return m.nowMS }

// Index is that of the last entry applied.
func (m *Machine) Index() uint64 { return m.index }

// Term is that of the last reign entry applied, 0 before the first.
func (m *Machine) Term() uint64 { return m.term }

// Leader is the node id that the last reign entry named.
func (m *Machine) Leader() string { return m.leader }

// Hash is the state hash, see chain.
func (m *Machine) Hash() [16]byte { return m.hash }

// Limits are those in force.
func (m *Machine) Limits() Limits { return m.limits }

// Counts answers how many records the machine has.
func (m *Machine) Counts() (semaphores, sessions, leases, waiting int) {
	leases = m.leases.live
	m.unswept.Scan(func(_ uint64, r ref) bool {
		if s := m.semaphores.at(r); s.deleted {
			leases -= s.holders.length
		}
		return true
	})
	return len(m.byName), m.sessions.live, leases, m.requests.live
}

// NextDeadline answers the earliest deadline of a session, in cluster time; ok
// is false when there is no session.
func (m *Machine) NextDeadline() (ms int64, ok bool) {
	first, ok := m.deadlines.next()
	return first.ms, ok
}

// Semaphore answers one semaphore by name.
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
		Name: s.name, Epoch: s.epoch, Permits: s.permits, Offset: s.offset, Held: s.held, Available: s.available(),
		Level: s.level, Metadata: s.metadata, ModifiedIndex: s.modified, Version: s.version,
		Holders: int64(s.holders.length), Waiters: int64(s.waiting()),
	}
}

// Semaphores lists up to limit semaphores in the order of their names: those
// that begin with prefix and come after the name given.
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

// Holders answers the first leases of a semaphore, oldest first.
func (m *Machine) Holders(name string, limit int) []LeaseView {
	r, ok := m.byName[name]
	if !ok {
		return nil
	}
	var found []LeaseView
	for l := m.semaphores.at(r).holders.first; l != 0 && len(found) < limit; l = m.leases.at(l).inSemaphore.next {
		found = append(found, m.viewLease(l))
	}
	return found
}

func (m *Machine) viewLease(r ref) LeaseView {
	l := m.leases.at(r)
	s := m.sessions.at(l.session)
	return LeaseView{Grant: m.grantOf(l), Session: s.id, DeadlineMS: s.deadlineMS, Metadata: s.metadata,
		Revoked: l.revoked, Reason: l.reason}
}

// Waiters answers the first waiting requests of a semaphore, in their order.
func (m *Machine) Waiters(name string, limit int) []RequestView {
	r, ok := m.byName[name]
	if !ok || m.semaphores.at(r).line == nil {
		return nil
	}
	var found []RequestView
	m.semaphores.at(r).line.Scan(func(_ uint64, waiting ref) bool {
		if len(found) == limit {
			return false
		}
		found = append(found, m.viewRequest(waiting, r, int64(len(found))+1))
		return true
	})
	return found
}

func (m *Machine) viewRequest(waiting, line ref, position int64) RequestView {
	r := m.requests.at(waiting)
	s := m.sessions.at(r.session)
	view := RequestView{Place: r.place, Session: s.id, Mode: r.mode, Unowned: r.unowned, Partial: r.partial,
		Position: position, EnqueuedMS: r.enqueuedMS, DeadlineMS: s.deadlineMS, Metadata: s.metadata,
		BlockedBy: BlockOther, Obstacles: m.obstacles(r)}
	for _, want := range m.left(r.members) {
		view.Wants = append(view.Wants, Want{m.semaphores.at(want.semaphore).name, want.count})
	}
	if position > 1 {
		view.BlockedBy = BlockAhead
	} else if !m.servableHere(r, member{line, countOf(r.members, line)}) {
		view.BlockedBy = BlockPermits
	}
	return view
}

// Session answers one session by id.
func (m *Machine) Session(id uint64) (SessionView, bool) {
	r, ok := m.bySession[id]
	if !ok {
		return SessionView{}, false
	}
	return m.viewSession(r), true
}

func (m *Machine) viewSession(r ref) SessionView {
	s := m.sessions.at(r)
	view := SessionView{ID: s.id, TTLMS: s.ttlMS, DeadlineMS: s.deadlineMS, OneShot: s.oneShot, Keep: s.keep, Owner: s.owner,
		Metadata: s.metadata}
	view.Leases = m.Leases(s.id)
	for q := s.requests.first; q != 0; q = m.requests.at(q).inSession.next {
		if len(m.left(m.requests.at(q).members)) > 0 {
			view.Waiting = append(view.Waiting, m.viewRequestOf(q))
		}
	}
	return view
}

// Sessions lists up to limit sessions in the order of their ids, after the id
// given.
func (m *Machine) Sessions(after uint64, limit int) []SessionView {
	var found []SessionView
	m.ids.Ascend(after, func(id uint64, r ref) bool {
		if len(found) == limit {
			return false
		}
		if id != after || after == 0 {
			found = append(found, m.viewSession(r))
		}
		return true
	})
	return found
}

// DueNotices answers the notices that are due, in the order of their ids.
func (m *Machine) DueNotices() []NoticeView {
	var due []NoticeView
	for _, r := range m.notices.refs(func(n *notice) uint64 { return n.place }) {
		if n := m.notices.at(r); n.due {
			due = append(due, m.viewNotice(n))
		}
	}
	return due
}

// DueNotice answers one notice that is due, by its id.
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
		view.Available = m.semaphores.at(n.semaphore).available()
	}
	return view
}

// WaitListView is one entry of a session's wait list.
type WaitListView struct {
	Semaphore string
	Epoch     uint64
	Wanted    int64 // waits in the line; 0: nothing waits
	Granted   int64 // taken, not delivered yet
	Token     uint64
	Deleted   bool

	// Of the request that waits; 0 when none does.
	Place      uint64
	Position   int64
	EnqueuedMS int64
}

// WaitList answers a session's wait list in the order added.
func (m *Machine) WaitList(id uint64) []WaitListView {
	var list []WaitListView
	owner, ok := m.bySession[id]
	if !ok {
		return nil
	}
	for r := m.sessions.at(owner).entries.first; r != 0; r = m.entries.at(r).inSession.next {
		e := m.entries.at(r)
		view := WaitListView{Semaphore: e.name, Epoch: e.epoch, Wanted: m.wanted(e), Deleted: m.orphaned(e)}
		if !view.Deleted {
			view.Granted, view.Token = e.granted, e.token
		}
		if e.waiting != 0 && !view.Deleted {
			q := m.requests.at(e.waiting)
			view.Place, view.Position, view.EnqueuedMS = q.place, m.semaphores.at(e.semaphore).position(q.place), q.enqueuedMS
		}
		list = append(list, view)
	}
	return list
}

// Ended answers how a session that is gone ended, while that is remembered.
func (m *Machine) Ended(id uint64) (cause Cause, reason string, ok bool) {
	r, ok := m.byEnded[id]
	if !ok {
		return CauseNone, "", false
	}
	e := m.ended.at(r)
	return e.cause, e.reason, true
}

// Outcome answers what became of a waiting request that a reader lost sight
// of: still waiting, granted to its session, or unknown (ok is false).
func (m *Machine) Outcome(session, place uint64, wants []Want) (Result, bool) {
	if waiting, ok := m.requestAt(session, place); ok {
		return m.waitingResult(waiting), true
	}
	owner, ok := m.bySession[session]
	if !ok {
		var result Result
		m.findSession(session, &result)
		_, remembered := m.byEnded[session]
		return result, remembered
	}
	result := Result{Code: OK, Place: place}
	for _, want := range wants {
		semaphore, known := m.byName[want.Semaphore]
		held, holds := m.byLease[leaseKey{owner, semaphore}]
		if known && holds && !m.leases.at(held).revoked && m.leases.at(held).count == want.Count {
			result.Grants = append(result.Grants, m.grantOf(m.leases.at(held)))
		}
	}
	m.describeSession(&result, owner)
	return result, len(result.Grants) > 0
}
