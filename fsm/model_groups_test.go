package fsm

import (
	"cmp"
	"math"
	"slices"
)

// The model's settings and groups. Who stands in the lines of pools, the heads of a pool and the
// choice among them are found anew each time, by scans over all waiting requests.

type modelGroup struct {
	name  string
	limit int64 // or NoLimit
	own   bool
	owner string // who gave it its own limit
	turn  uint64
}

// mostPassed is how often a pool may pass the head of lowest rank.
const mostPassed = 1000

func (s *modelSemaphore) grouped() bool { return s.settings.Groups != NoGroups }

func (s *modelSemaphore) pool() bool { return s.grouped() && !s.settings.Family }

func (s *modelSemaphore) group(name string) *modelGroup {
	for _, g := range s.groups {
		if g.name == name {
			return g
		}
	}
	return nil
}

// limit returns the limit of a group, which need not exist, or NoLimit.
func (s *modelSemaphore) limit(group string) int64 {
	switch g := s.group(group); {
	case g != nil:
		return g.limit
	case s.settings.PerGroup != 0:
		return s.settings.PerGroup
	}
	return NoLimit
}

// bound returns what a group may use at most.
func (s *modelSemaphore) bound(group string) int64 {
	bound := int64(math.MaxInt64)
	if limit := s.limit(group); limit != NoLimit {
		bound = limit
	}
	if s.settings.Family {
		bound = min(bound, 1<<36)
	}
	return bound
}

// groupNamed returns a group, which it makes if it does not exist.
func (m *model) groupNamed(s *modelSemaphore, name string) *modelGroup {
	g := s.group(name)
	if g == nil {
		m.turns++
		g = &modelGroup{name: name, limit: s.limit(name), turn: m.turns}
		s.groups = append(s.groups, g)
		slices.SortFunc(s.groups, func(a, b *modelGroup) int { return cmp.Compare(a.name, b.name) })
	}
	return g
}

// tidy drops the groups that are not named any more.
func (m *model) tidy(s *modelSemaphore) {
	s.groups = slices.DeleteFunc(s.groups, func(g *modelGroup) bool {
		named := g.own || s.grouped() && len(m.line(s, g.name)) > 0
		for _, l := range m.leases {
			named = named || l.semaphore == s && l.in == modelIn{g.name, true}
		}
		for _, t := range m.returns {
			named = named || t.semaphore == s && t.in == modelIn{g.name, true}
		}
		for _, e := range m.entries {
			named = named || e.semaphore == s && e.in == modelIn{g.name, true}
		}
		return !named
	})
}

// used sums up what the leases of a group hold and what comes back to it.
func (m *model) used(s *modelSemaphore, group string) (used int64) {
	for _, l := range m.holders(s) {
		if l.in == (modelIn{group, true}) {
			used += l.holds()
		}
	}
	for _, t := range m.returnsOf(s) {
		if t.in == (modelIn{group, true}) {
			used += t.count
		}
	}
	return used
}

func (m *model) heldIn(s *modelSemaphore, group string) (held int64) {
	for _, l := range m.holders(s) {
		if l.in == (modelIn{group, true}) {
			held += l.holds()
		}
	}
	return held
}

// groupOf returns the group of a request of a session, which is nil if it is new.
func (m *model) groupOf(s *modelSemaphore, owner *modelSession, named string) string {
	switch {
	case s.settings.Groups != ByOwner:
		return named
	case owner != nil && owner.owner != "":
		return owner.owner
	}
	return m.caller.owner
}

// asked returns the semaphore and the group of a request, or the refusal.
func (m *model) asked(want Want, epoch uint64, owner *modelSession) (modelMember, *Result) {
	s, refusal := m.meant(want.Semaphore, epoch)
	if refusal != nil {
		return modelMember{}, refusal
	}
	if !s.grouped() && want.Group != "" {
		return modelMember{}, &Result{Code: Malformed, Rule: RuleGroup, Subject: s.name, Epoch: s.epoch}
	}
	return modelMember{semaphore: s, group: m.groupOf(s, owner, want.Group), count: want.Count}, nil
}

// modelIn is the group of a lease or of an entry, which has none if it was made in a plain semaphore.
type modelIn struct {
	group   string
	grouped bool
}

// meantIn lists where a session's lease or entry may be that a command means.
func meantIn(owner *modelSession, s *modelSemaphore, group string) []modelIn {
	places := []modelIn{{group, true}}
	if group == "" {
		places = append(places, modelIn{})
	}
	if s != nil && s.settings.Groups == ByOwner {
		places = append(places, modelIn{owner.owner, true})
	}
	return places
}

// before is the order of a line, and of grants. A new request has no place, and comes last of its rank.
func (r *modelRequest) before(other *modelRequest) bool {
	if r.rankMS != other.rankMS {
		return r.rankMS < other.rankMS
	}
	return r.place-1 < other.place-1
}

func byRank(a, b *modelRequest) int {
	if a.before(b) {
		return -1
	}
	return 1
}

// rank sets the rank of a new request: now, less the head start that each of its members allows.
func (m *model) rank(r *modelRequest, headStartMS int64) {
	for _, want := range r.members {
		headStartMS = min(headStartMS, want.semaphore.settings.HeadStartMS)
	}
	r.rankMS = m.nowMS - headStartMS
}

// stand decides which lists stand in the line of their pool: those that are ready in all others. A
// member of a deleted semaphore counts like the others until the list ends.
func (m *model) stand() {
	for _, r := range m.requests {
		r.aside = false
		if r.mode != All || !slices.ContainsFunc(r.members, func(want modelMember) bool { return want.semaphore.pool() }) {
			continue
		}
		for _, want := range r.members {
			r.aside = r.aside || !want.semaphore.pool() && m.block(r, want) != BlockOther
		}
	}
}

// standing returns the requests that stand in a line, the first one first. A request that does not
// wait is among them.
func (m *model) standing(at modelMember, with *modelRequest) []*modelRequest {
	line := slices.DeleteFunc(m.line(at.semaphore, at.group), func(r *modelRequest) bool { return r.aside && at.semaphore.pool() })
	if with != nil && with.names(at) && !slices.Contains(m.requests, with) {
		line = append(line, with)
		slices.SortFunc(line, byRank)
	}
	return line
}

// modelHead is the first request of a group of a pool, which has room for it.
type modelHead struct {
	request *modelRequest
	member  modelMember
	used    int64
	turn    uint64
}

// heads returns the heads of a pool. A request that does not wait may be among them in one group: of
// an "any", each member is judged without the others.
func (m *model) heads(at modelMember, with *modelRequest) (heads []modelHead) {
	s := at.semaphore
	groups := []string{at.group}
	for _, w := range m.waiters(s) {
		if !slices.Contains(groups, w.member.group) {
			groups = append(groups, w.member.group)
		}
	}
	for _, group := range groups {
		line := m.standing(modelMember{semaphore: s, group: group}, nil)
		if group == at.group {
			line = m.standing(at, with)
		}
		if len(line) == 0 {
			continue
		}
		head := modelHead{line[0], line[0].member(s, group), m.used(s, group), m.turns + 1}
		if g := s.group(group); g != nil {
			head.turn = g.turn
		}
		if m.groupHasRoom(head.request, head.member) {
			heads = append(heads, head)
		}
	}
	return heads
}

// choose returns the head that a pool grants next.
func choose(s *modelSemaphore, heads []modelHead) modelHead {
	return slices.MinFunc(heads, func(a, b modelHead) int {
		if s.passed >= mostPassed && a.request != b.request {
			return byRank(a.request, b.request)
		}
		return cmp.Or(cmp.Compare(a.used, b.used), cmp.Compare(a.turn, b.turn))
	})
}

// chosen: among the heads of a pool, this request is the choice in this group.
func (m *model) chosen(r *modelRequest, want modelMember) bool {
	heads := m.heads(want, r)
	if len(heads) == 0 {
		return false
	}
	choice := choose(want.semaphore, heads)
	return choice.request == r && choice.member == want
}

// countPassed counts the grant of a member of a pool.
func (m *model) countPassed(r *modelRequest, want modelMember) {
	if !want.semaphore.pool() {
		return
	}
	want.semaphore.passed++
	m.passing++
	if !slices.ContainsFunc(m.heads(want, r), func(h modelHead) bool { return h.request.before(r) }) {
		want.semaphore.passed = 0
		m.passing--
	}
}

// takeTurn draws the turn of a group at a grant in it.
func (m *model) takeTurn(s *modelSemaphore, group string) {
	if g := s.group(group); g != nil && s.grouped() {
		m.turns++
		g.turn = m.turns
	}
}

// least is the count that a grant must have.
func (r *modelRequest) least(want modelMember) int64 {
	if r.partial {
		return 1
	}
	return want.count
}

func (m *model) groupHasRoom(r *modelRequest, want modelMember) bool {
	return m.groupRoomWith(r, want, 0)
}

func (m *model) groupRoomWith(r *modelRequest, want modelMember, more int64) bool {
	return !want.semaphore.grouped() || r.least(want) <= want.semaphore.bound(want.group)-m.used(want.semaphore, want.group)+more
}

func (m *model) totalHasRoom(r *modelRequest, want modelMember) bool {
	return m.totalRoomWith(r, want, 0)
}

// totalRoomWith: there is room once so many more are available.
func (m *model) totalRoomWith(r *modelRequest, want modelMember, more int64) bool {
	return want.semaphore.settings.Family || m.available(want.semaphore)+more >= r.least(want)
}

func (m *model) roomWith(r *modelRequest, want modelMember, total, group int64) bool {
	return m.totalRoomWith(r, want, total) && m.groupRoomWith(r, want, group)
}

// mostRoom is the largest count that there is room for.
func (m *model) mostRoom(want modelMember) int64 {
	room := m.available(want.semaphore)
	if want.semaphore.settings.Family {
		room = math.MaxInt64
	}
	if want.semaphore.grouped() {
		room = min(room, want.semaphore.bound(want.group)-m.used(want.semaphore, want.group))
	}
	return room
}

// block says why a request can't be granted in one of its lines, BlockOther if it can.
func (m *model) block(r *modelRequest, want modelMember) Block {
	s := want.semaphore
	line := m.standing(want, r)
	switch {
	case s.settings.Paused != "":
		return BlockPaused
	case r.aside && s.pool():
		return BlockElsewhere
	case line[0] != r:
		return BlockAhead
	case !m.groupHasRoom(r, want):
		return BlockGroupLimit
	case s.pool() && m.totalHasRoom(r, want) && !m.chosen(r, want):
		return BlockGroups
	case !m.totalHasRoom(r, want) && m.totalRoomWith(r, want, m.returning(s)):
		return BlockReturning
	case !m.totalHasRoom(r, want):
		return BlockPermits
	}
	return BlockOther
}

// ready: as far as one member is concerned, a request can be granted.
func (m *model) ready(r *modelRequest, want modelMember) bool {
	return !want.semaphore.deleted && m.block(r, want) == BlockOther
}

// unavailable refuses a request that does not wait, or no longer.
func (m *model) unavailable(r *modelRequest) Result {
	want := r.members[0]
	result := m.refusal(Unavailable, want)
	switch block := m.block(r, want); block {
	case BlockGroupLimit, BlockPermits, BlockReturning:
		result.explain().DelayMS = m.delay(r, want)
		if block == BlockGroupLimit {
			m.blameGroup(&result, want)
		}
	case BlockPaused:
		result.Rule, result.explain().Reason = RulePaused, want.semaphore.settings.Paused
	case BlockGroups:
		result.Rule, result.explain().Group = RuleOtherGroups, want.group
	}
	return result
}

func (m *model) blameGroup(result *Result, want modelMember) {
	s := want.semaphore
	why := result.explain()
	result.Rule, why.Group, why.Limit, why.Used = RuleGroupLimit, want.group, s.limit(want.group), m.used(s, want.group)
}

// fullLines refuses a request that would wait in a line where no more may. An "any" waits in the
// others. It notes whose places the request takes.
func (m *model) fullLines(r *modelRequest) *Result {
	var kept []modelMember
	refusal := m.refusal(LineFull, r.members[0])
	for _, want := range r.members {
		line, settings := m.line(want.semaphore, want.group), want.semaphore.settings
		isFull := settings.MaxWaiting > 0 && int64(len(line)) >= settings.MaxWaiting
		switch {
		case isFull && r.mode == Any:
			continue
		case isFull && !settings.DropOldest:
			refusal = m.refusal(LineFull, want)
			return &refusal
		case isFull:
			r.supersedes = append(r.supersedes, modelVictim{line[0], want})
		}
		kept = append(kept, want)
	}
	if len(kept) == 0 {
		return &refusal
	}
	r.members = kept
	return nil
}

type modelVictim struct {
	request *modelRequest
	in      modelMember // the new request's
}

// supersede ends the requests whose places a new one takes.
func (m *model) supersede(by *modelRequest) {
	for _, v := range by.supersedes {
		if !slices.Contains(m.requests, v.request) || !v.request.names(v.in) {
			continue
		}
		m.lose(v.request, v.in, CauseSuperseded, Superseded)
		if e := v.request.entry; e != nil && e.granted == 0 {
			m.effect(Effect{Kind: EffectListReady, Cause: CauseSuperseded, Semaphore: e.name, Epoch: e.epoch, Session: e.session.id,
				Details: detailsOf(e.in.group, 0, nil, "")})
		}
	}
	by.supersedes = nil
}

func badHeadStart(ms int64) bool { return ms < 0 || ms > MaxTTLMS }

func (m *model) groupPut(c GroupPut) Result {
	if !ValidGroup(c.Group) || c.Limit < NoLimit {
		return Result{Code: Malformed}
	}
	s, refusal := m.meant(c.Name, c.Epoch)
	if refusal != nil {
		return *refusal
	}
	g := s.group(c.Group)
	if !s.grouped() && (c.Limit != NoLimit || g == nil) { // a limit from a time with groups may end
		return Result{Code: Malformed, Rule: RuleGroup, Subject: s.name, Epoch: s.epoch}
	}
	result := Result{Code: OK, Epoch: s.epoch, Found: g != nil && g.own}
	if c.Limit == NoLimit && !result.Found {
		return result
	}
	if share := int64(50_000); !result.Found && m.caller.owner != "" && m.ownLimits(m.caller.owner) >= share {
		return Result{Code: LimitReached, Rule: RuleOwnerOwnLimits, Subject: s.name, Epoch: s.epoch, Refusal: &Refusal{Limit: share}}
	}
	if !result.Found && m.ownLimits("") >= 100_000 {
		return Result{Code: LimitReached, Rule: RuleOwnLimits, Subject: s.name, Epoch: s.epoch}
	}
	if result.Found && g.limit == c.Limit {
		return result
	}
	g = m.groupNamed(s, c.Group)
	if !result.Found {
		g.owner = m.caller.owner
	}
	g.own, g.limit = c.Limit != NoLimit, c.Limit
	s.modified = m.index
	m.effect(Effect{Kind: EffectGroupChanged, Semaphore: s.name, Epoch: s.epoch, Details: &EffectDetails{Group: c.Group, Limit: c.Limit}})
	if !m.sweepGroup(s, g, m.budget.ended) && (!s.sweeping || s.sweepAt > c.Group) {
		s.sweeping, s.sweepAt = true, c.Group
	}
	m.tidy(s)
	m.serveAndEnd()
	return result
}

// ownLimits counts the limits that an identity gave, "": all.
func (m *model) ownLimits(owner string) (n int64) {
	for _, s := range append(slices.Clone(m.semaphores), m.buried...) {
		n += countFunc(s.groups, func(g *modelGroup) bool { return g.own && (owner == "" || g.owner == owner) })
	}
	return n
}

// sweepGroups gives the groups their limit, in the order of their names, and ends requests above
// it. It reports whether it has come to the end.
func (m *model) sweepGroups(s *modelSemaphore, limit int) bool {
	for s.sweeping {
		i := slices.IndexFunc(s.groups, func(g *modelGroup) bool { return g.name >= s.sweepAt })
		if i < 0 {
			s.sweeping, s.sweepAt = false, ""
			break
		}
		g := s.groups[i]
		if m.done.lanes >= m.budget.lanes || m.done.ended >= limit {
			return false
		}
		m.done.lanes++
		if !m.sweepGroup(s, g, limit) {
			return false
		}
		s.sweepAt = g.name + "\x00"
	}
	return true
}

// sweepGroup gives one group its limit, and reports whether all requests above it have ended.
func (m *model) sweepGroup(s *modelSemaphore, g *modelGroup, limit int) bool {
	if !g.own {
		g.limit = cmp.Or(s.settings.PerGroup, NoLimit)
	}
	bound := g.limit
	if bound == NoLimit {
		bound = math.MaxInt64
	}
	return m.endAbove(s, func(want modelMember) bool { return want.group == g.name && want.count > bound }, limit)
}

// emptyGroups ends the requests and own limits of the groups of a deleted semaphore.
func (m *model) emptyGroups(s *modelSemaphore, limit int) bool {
	for len(s.groups) > 0 {
		if m.done.ended >= limit {
			return false
		}
		g := s.groups[0]
		line := m.line(s, g.name)
		if s.grouped() && len(line) > 0 {
			m.lose(line[0], line[0].member(s, g.name), CauseDeleted, Deleted)
			continue
		}
		m.done.ended++
		g.own = false
		m.tidy(s)
	}
	return true
}
