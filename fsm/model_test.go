package fsm

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"sort"
)

// model is the semantics written down a second time, as slowly and plainly as possible:
// slices in the order of arrival, linear scans, no index, no derived number. It sums up the
// held permits each time, and its grant decision looks at every waiting request. It shares
// only the public value types with the machine.
type model struct {
	index, term, tokens, places, epochs uint64
	turns                               uint64 // of groups
	leader                              string
	nowMS                               int64
	limits                              Limits

	semaphores []*modelSemaphore // in order of epoch
	sessions   []*modelSession   // in order of opening
	leases     []*modelLease     // in order of token
	requests   []*modelRequest   // in order of place
	ended      []modelEnded      // in order of ending
	revoked    []modelRevoked    // leases that operators revoked and sessions have dropped, the oldest first
	keys       []*modelKey       // in order of their last recording
	marks      []modelMark       // of keys whose one-shot session is over, in the order of its end
	entries    []*modelEntry     // of wait lists, in the order added
	notices    []*modelNotice    // in order of id
	returns    []*modelReturn    // in the order of their making
	numbers    int               // of entries ever added
	items      modelItems

	caller modelCommand // the command under way

	// The conclusions and effects of this entry so far.
	conclusions []Conclusion
	effects     []Effect
	passing     int // grants that passed the head of lowest rank
	// spent are the sessions to which this command gave a deadline that is not
	// in the future: they end as its last step.
	spent []*modelSession

	budget budget
	done   work // by this entry
	rates  []*modelRate
	broken error             // the first grant that must not have been
	buried []*modelSemaphore // deleted, and not yet empty
}

type modelSemaphore struct {
	name            string
	epoch           uint64
	permits, offset int64
	level           *int32
	metadata        []Pair
	modified        uint64
	version         uint64
	owner           string
	deleted, shrunk bool // some of it is still to be ended

	settings Settings
	groups   []*modelGroup // in the order of their names
	passed   int           // of a pool
	sweeping bool          // groups from the name sweepAt on still get their limit
	sweepAt  string
}

type modelSession struct {
	id                uint64
	ttlMS, deadlineMS int64
	metadata          []Pair
	owner             string
	oneShot, keep     bool
	everHeld          bool
	first             *modelRequest // a one-shot's own, while it waits
	delivered         int           // the number of its wait list's entry delivered last
	terms             *modelTerms
}

// awaitsFirst: it is a one-shot whose own request still waits. Its deadline is the end of
// that wait, until the grant.
func (s *modelSession) awaitsFirst() bool { return s.first != nil }

type modelLease struct {
	session   *modelSession
	semaphore *modelSemaphore
	count     int64
	token     uint64
	grantedMS int64
	revoked   bool
	cause     Cause // of a revoked lease
	reason    string
	list      *modelList // nil: asked for alone
	in        modelIn
	dueMS     int64 // of a receipt
	void      bool  // a receipt whose spends a set forgot
	endsMS    int64 // 0: with its session
	slots     []uint32
}

// modelList identifies a request for several semaphores, so that a repeat is recognized.
type modelList struct {
	mode  Mode
	wants []Want
}

func (l *modelList) same(mode Mode, wants []Want) bool {
	return l != nil && l.mode == mode && slices.Equal(l.wants, wants)
}

type modelMember struct {
	semaphore *modelSemaphore
	group     string
	count     int64
	whole     bool // no group of the semaphore is meant; never of a request
}

type modelRequest struct {
	place            uint64 // 0: not waiting
	session          *modelSession
	members          []modelMember
	mode             Mode
	list             *modelList
	unowned, partial bool
	enqueuedMS       int64
	rankMS           int64 // less the head start
	keys             []*modelKey
	entry            *modelEntry // of a wait list
	aside            bool        // a list that does not stand in the line of its pool
	supersedes       []modelVictim
	reserved         int64 // of the room for leases and returns
	restores         bool
	slots            map[modelMember][]uint32 // that a restore names
}

type modelEnded struct {
	id     uint64
	atMS   int64
	cause  Cause
	reason string
	owner  string
}

type modelRevoked struct {
	session, epoch uint64
	group          string
	atMS           int64
	cause          Cause
	reason         string
}

type modelKey struct {
	owner   string
	name    string
	asked   Command // without the members that the node chose
	waiting *modelRequest
	outcome Result
	room    int64 // bytes kept for the outcome of a wait
	atMS    int64
	oneShot *modelSession // it becomes a mark when this one ends
}

type modelMark struct {
	owner, name string
	atMS        int64
}

// modelCommand is one command of an entry; it is nil for bytes that are no command.
type modelCommand struct {
	key     string
	command Command
	owner   string
	limits  OwnerLimits
	trace   string
}

func newModel() *model {
	return &model{limits: DefaultLimits(), budget: defaultBudget()}
}

// apply applies one entry.
func (m *model) apply(index uint64, stampMS int64, commands []modelCommand) []Result {
	m.index = index
	m.conclusions, m.effects, m.passing = nil, nil, 0
	m.done = work{}
	m.nowMS = max(m.nowMS, stampMS)
	m.expire()
	var results []Result
	for _, c := range commands {
		m.caller = c
		results = append(results, m.keyed(c))
		m.caller = modelCommand{}
	}
	return results
}

// due lists the sessions whose deadline has passed, in the order of their removal.
func (m *model) due() []*modelSession {
	var due []*modelSession
	for _, s := range m.sessions {
		if s.deadlineMS <= m.nowMS {
			due = append(due, s)
		}
	}
	sort.Slice(due, func(i, j int) bool {
		if due[i].deadlineMS != due[j].deadlineMS {
			return due[i].deadlineMS < due[j].deadlineMS
		}
		return due[i].id < due[j].id
	})
	return due
}

func (m *model) expire() {
	for i, s := range m.due() {
		if i == 1024 || m.done.ended >= m.budget.ended {
			break
		}
		m.endSession(s, CauseExpired, "")
	}
	m.endHolds()
	m.comeBack()
	m.forgetOld()
	m.sweep()
	m.serveAndEnd()
	m.done.before = m.done.ended
}

// forgetOld drops records that are ten minutes old, up to 4,096 of each kind.
func (m *model) forgetOld() {
	const tenMinutesMS = 600_000
	dropped := 0
	for _, kind := range [][]Cause{{CauseRevoked}, {CauseMaxHold}, {CauseExpired}, nil} {
		dropped = 0
		m.ended = slices.DeleteFunc(m.ended, func(e modelEnded) bool {
			like := slices.Contains(kind, e.cause) || kind == nil && !revoking(e.cause) && e.cause != CauseExpired
			old := like && e.atMS+tenMinutesMS <= m.nowMS && dropped < 4096
			if old {
				dropped++
			}
			return old
		})
	}
	dropped = 0
	m.keys = slices.DeleteFunc(m.keys, func(k *modelKey) bool {
		old := k.waiting == nil && k.atMS+tenMinutesMS <= m.nowMS && dropped < 4096
		if old {
			dropped++
		}
		return old
	})
	dropped = 0
	m.notices = slices.DeleteFunc(m.notices, func(n *modelNotice) bool { // never due in a week
		old := !n.due && n.madeMS+7*24*3600*1000 <= m.nowMS && dropped < 4096
		if old {
			dropped++
			m.effect(Effect{Kind: EffectNoticeEnded, Cause: CauseExpired, Semaphore: n.name, Epoch: n.epoch, Place: n.id, Count: n.count})
		}
		return old
	})
	for _, held := range []bool{false, true} { // too long
		dropped = 0
		m.revoked = slices.DeleteFunc(m.revoked, func(v modelRevoked) bool {
			old := (v.reason == "max-hold") == held && v.atMS+tenMinutesMS <= m.nowMS && dropped < 4096
			if old {
				dropped++
			}
			return old
		})
	}
	for dropped = 0; dropped < 4096 && len(m.marks) > 0 && m.marks[0].atMS+tenMinutesMS <= m.nowMS; dropped++ {
		m.marks = m.marks[1:]
	}
	m.forgetItems()
}

func (m *model) semaphore(name string) *modelSemaphore {
	for _, s := range m.semaphores {
		if s.name == name {
			return s
		}
	}
	return nil
}

func (m *model) session(id uint64) *modelSession {
	for _, s := range m.sessions {
		if s.id == id {
			return s
		}
	}
	return nil
}

// mayUse reports whether the caller's identity finds the sessions of an owner.
func (m *model) mayFind(owner string) bool {
	return owner == m.caller.owner || owner == "" || m.caller.owner == ""
}

// found is the session of an id, if the caller may find it.
func (m *model) found(id uint64) *modelSession {
	s := m.session(id)
	if s == nil || !m.mayFind(s.owner) {
		return nil
	}
	return s
}

// givingBack are the operations on a session by which no identity becomes its owner.
var givingBack = []Op{OpRelease, OpResizeLease, OpListRemove, OpEndSession, OpRevokeLease, OpItemRelease}

// goOn gives a session without an owner to the caller, if the caller's
// request in it was granted or waits.
func (m *model) goOn(s *modelSession, result Result) Result {
	granted := result.Code == OK || result.Code == Waiting
	if s != nil && granted && s.owner == "" && m.caller.owner != "" {
		s.owner, result.TookOver = m.caller.owner, true
	}
	return result
}

func (m *model) leasesOf(s *modelSession) (found []*modelLease) {
	for _, l := range m.leases {
		if l.session == s {
			found = append(found, l)
		}
	}
	return found
}

func (m *model) requestsOf(s *modelSession) (found []*modelRequest) {
	for _, r := range m.requests {
		if r.session == s {
			found = append(found, r)
		}
	}
	return found
}

// line returns the waiting requests of a group of a semaphore, the lowest rank first. A plain
// semaphore has one line, for the empty group.
func (m *model) line(s *modelSemaphore, group string) (found []*modelRequest) {
	for _, r := range m.requests {
		if r.member(s, group).count != 0 {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, byRank)
	return found
}

// waiters returns the members of requests that wait for a semaphore, by group and rank.
func (m *model) waiters(s *modelSemaphore) (found []modelWaiter) {
	for _, r := range m.requests {
		for _, want := range r.members {
			if want.semaphore == s {
				found = append(found, modelWaiter{r, want})
			}
		}
	}
	slices.SortFunc(found, func(a, b modelWaiter) int {
		return cmp.Or(cmp.Compare(a.member.group, b.member.group), byRank(a.request, b.request))
	})
	return found
}

type modelWaiter struct {
	request *modelRequest
	member  modelMember
}

func (m *model) holders(s *modelSemaphore) (found []*modelLease) {
	for _, l := range m.leases {
		if l.semaphore == s {
			found = append(found, l)
		}
	}
	return found
}

// member returns the member of a request that names a group of a semaphore; its count is 0 if no member does.
func (r *modelRequest) member(s *modelSemaphore, group string) modelMember {
	for _, want := range r.members {
		if want.semaphore == s && want.group == group {
			return want
		}
	}
	return modelMember{}
}

func (r *modelRequest) names(at modelMember) bool { return r.member(at.semaphore, at.group).count != 0 }

func (m *model) leaseOf(owner *modelSession, s *modelSemaphore, group string) *modelLease {
	for _, in := range meantIn(owner, s, group) {
		for _, l := range m.leases {
			if l.session == owner && l.semaphore == s && l.in == in {
				return l
			}
		}
	}
	return nil
}

// requestFor is the session's request for a lease that names a group of a semaphore, and its member.
func (m *model) requestFor(owner *modelSession, s *modelSemaphore, group string) (*modelRequest, modelMember) {
	for _, in := range meantIn(owner, s, group) {
		for _, r := range m.requests {
			if want := r.member(s, in.group); r.session == owner && !r.unowned && want.count != 0 {
				return r, want
			}
		}
	}
	return nil, modelMember{}
}

func (m *model) held(s *modelSemaphore) (held int64) {
	for _, l := range m.holders(s) {
		held += l.holds()
	}
	return held
}

// available is 0 for a family, which has no total.
func (m *model) available(s *modelSemaphore) int64 {
	if s.settings.Family {
		return 0
	}
	return s.permits + s.offset - m.taken(s)
}

// full is the most that one lease of a group could ever have.
func full(s *modelSemaphore, group string) int64 {
	if s.grouped() {
		return min(total(s), s.bound(group))
	}
	return total(s)
}

// total is the most that one lease could ever have if no group had a limit.
func total(s *modelSemaphore) int64 {
	if s.settings.Family {
		return 1 << 36
	}
	sum := new(big.Int).Add(big.NewInt(s.permits), big.NewInt(max(s.offset, 0)))
	bound := int64(math.MaxInt64)
	if s.settings.Slots {
		bound = mostLeaseSlots
	}
	if !sum.IsInt64() {
		return bound
	}
	return min(sum.Int64(), bound)
}

// legal: permits + offset, held and available stay within 64 bits.
func legal(permits int64, offset, held *big.Int) bool {
	whole := new(big.Int).Add(big.NewInt(permits), offset)
	available := new(big.Int).Sub(whole, held)
	return offset.IsInt64() && held.IsInt64() && whole.IsInt64() && available.IsInt64()
}

func (m *model) effect(e Effect) { m.effects = append(m.effects, e) }

// view is a semaphore as results show it.
func (m *model) view(s *modelSemaphore) *SemaphoreView {
	view := &SemaphoreView{
		Name: s.name, Epoch: s.epoch, Permits: s.permits, Offset: s.offset, Held: m.held(s), Available: m.available(s),
		Level: s.level, Metadata: s.metadata, ModifiedIndex: s.modified, Version: s.version,
		Holders: int64(len(m.holders(s))), Waiters: int64(len(m.waiters(s))),
		Settings: s.settings, Groups: int64(len(s.groups)), Sweeping: s.sweeping,
		Returning: m.returning(s), Returns: int64(len(m.returnsOf(s))), Lost: int64(len(m.lostViews(s))),
	}
	if next := m.returnsOf(s); len(next) > 0 && next[0].dueMS != NeverMS {
		view.NextReturnMS = next[0].dueMS
	}
	return view
}

// refusal fills in the values that explain a refusal.
func (m *model) refusal(code Code, want modelMember) Result {
	s := want.semaphore
	why := &Refusal{Level: s.level, Permits: s.permits, Full: full(s, want.group), Available: m.available(s)}
	result := Result{Code: code, Subject: s.name, Asked: want.count, Epoch: s.epoch, Refusal: why, QueueLength: int64(len(m.line(s, want.group)))}
	if want.whole {
		why.Full, result.QueueLength = total(s), int64(len(m.waiters(s)))
	}
	if s.settings.Family {
		why.Permits = 0
	}
	if limit := s.limit(want.group); code == Never && s.grouped() && limit != NoLimit && limit < want.count {
		m.blameGroup(&result, want)
	}
	return result
}

// of puts the session's life into a result.
func (m *model) of(s *modelSession, result Result) Result {
	if s != nil {
		result.Session, result.TTLMS, result.DeadlineMS, result.OneShot = s.id, s.ttlMS, s.deadlineMS, s.oneShot
		result.Waiting = len(m.requestsOf(s)) > 0
	}
	return result
}

func (m *model) stillWaiting(r *modelRequest) Result {
	first := r.members[0]
	line := m.line(first.semaphore, first.group)
	return m.of(r.session, Result{Code: Waiting, Place: r.place, Position: int64(slices.Index(line, r)) + 1,
		Epoch: first.semaphore.epoch, Subject: first.semaphore.name, Asked: first.count, QueueLength: int64(len(line)),
		Refusal: &Refusal{Group: first.group}})
}
