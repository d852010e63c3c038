package fsm

import "math"

// available returns the permits that can be granted now. It is negative after a shrink or a restore took more than was
// free.
func (s *semaphore) available() int64 { return s.permits + s.offset - s.taken() }

// taken returns the permits that leases hold or that come back later.
func (s *semaphore) taken() int64 { return s.held + s.returning }

// full returns the largest count that one lease can have without a further up.
func (s *semaphore) full() int64 {
	full := addInt(s.permits, max(s.offset, 0))
	if s.hasSlots() {
		full = min(full, maxLeaseSlots)
	}
	return full
}

// waiting returns the number of requests that wait in its lines.
func (s *semaphore) waiting() int {
	if s.groups != nil {
		return s.line.length() + s.groups.waiting
	}
	return s.line.length()
}

// allows reports whether permits + offset and the available permits stay within int64.
func (s *semaphore) allows(permits int64) bool {
	return sumFits(permits, s.offset) && sumFits(permits+s.offset, -s.taken())
}

// findSemaphore returns the semaphore with a name and, unless 0, an epoch. If it does not
// exist, result is the refusal.
func (m *Machine) findSemaphore(name string, epoch uint64, result *Result) (ref, bool) {
	r, ok := m.byName[name]
	if !ok {
		result.Code, result.Subject, result.Epoch = UnknownSemaphore, name, 0
		return 0, false
	}
	return r, m.epochIs(r, epoch, result)
}

func (m *Machine) epochIs(r ref, epoch uint64, result *Result) bool {
	s := m.semaphores.at(r)
	result.Epoch = s.epoch
	if epoch != 0 && epoch != s.epoch {
		result.Code, result.Subject = EpochMismatch, s.name
		return false
	}
	return true
}

// versionIs reports whether a semaphore has the expected version, if the command names a version. Otherwise result is
// the refusal. The version covers permits, level, metadata and settings. With it, a client changes or deletes exactly
// the semaphore that it has read.
func (m *Machine) versionIs(r ref, expected Change[uint64], result *Result) bool {
	s := m.semaphores.at(r)
	if expected.Given && expected.Value != s.version {
		result.Code, result.Subject, result.Version = VersionMismatch, s.name, s.version
		return false
	}
	return true
}

// createSemaphore makes a semaphore with the next epoch.
func (m *Machine) createSemaphore(name string, permits int64, level *int32, metadata []Pair, with *Settings) Result {
	if int64(len(m.byName)) >= m.limits.Semaphores {
		return Result{Code: LimitReached, Rule: RuleSemaphores, Subject: name}
	}
	owner, refusal := m.caller.Owner, Result{Subject: name}
	if !m.withinShare(m.owned[owner].semaphores, 1, m.limits.Semaphores, RuleOwnerSemaphores, &refusal) {
		return refusal
	}
	m.epochs++
	r := m.semaphores.add(semaphore{name: name, epoch: m.epochs, permits: permits, level: level,
		metadata: metadata, settings: with, modified: m.index, owner: owner})
	m.count(owner, owned{semaphores: 1})
	m.byName[name] = r
	m.names.Set(name, r)
	m.settingsMoved(r)
	m.effect(Effect{Kind: EffectCreated, Semaphore: name, Epoch: m.epochs,
		Details: &EffectDetails{Permits: permits, Level: level, Metadata: metadata, Settings: with}})
	view := m.viewSemaphore(r)
	return Result{Code: OK, Created: true, Epoch: m.epochs, Version: view.Version, Semaphore: &view}
}

// settingsMoved raises the version of a semaphore after a change of its settings.
func (m *Machine) settingsMoved(r ref) {
	m.semaphores.mut(r).version++
}

// changed records the permits, offset, level, metadata and settings of a semaphore as an effect.
func (m *Machine) changed(r ref) {
	s := m.semaphores.at(r)
	m.effect(Effect{Kind: EffectChanged, Semaphore: s.name, Epoch: s.epoch, Details: &EffectDetails{Permits: s.permits,
		Offset: s.offset, Level: s.level, Metadata: s.metadata, Settings: s.settings}})
}

// moveOffset sets the offset, serves the line and returns the permits that are then available. The caller must have
// checked that no counter overflows.
func (m *Machine) moveOffset(r ref, offset int64) Result {
	s := m.semaphores.mut(r)
	if s.offset != offset {
		s.offset = offset
		s.modified = m.index
		m.changed(r)
	}
	m.touch(member{semaphore: r})
	m.settle()
	s = m.semaphores.at(r)
	return Result{Code: OK, Value: s.available(), Epoch: s.epoch}
}

// giveBack adds permits as an up does, up to the largest offset.
func (m *Machine) giveBack(semaphore ref, count int64) {
	s := m.semaphores.mut(semaphore)
	room := math.MaxInt64 - max(s.permits+s.offset, s.offset, 0)
	if s.hasSlots() {
		room = min(room, max(maxSlots-s.permits-s.offset, 0))
	}
	s.offset += min(count, room)
	s.modified = m.index
	m.changed(semaphore)
	m.touch(member{semaphore: semaphore})
}

// refuse fills a refusal with the values that explain it. w has the count that was asked for.
func (m *Machine) refuse(result *Result, code Code, w member) {
	s := m.semaphores.at(w.semaphore)
	result.Code, result.Rule, result.Epoch = code, RuleNone, s.epoch
	result.Subject, result.Asked, result.QueueLength = s.name, w.count, int64(m.waitingIn(w))
	result.Refusal = Refusal{Level: s.level, Permits: s.shownTotal(s.permits), Full: m.limit(w), Available: s.shownTotal(s.available())}.ifSet()
}

// refuseUnavailable refuses a request that can't be granted now. It explains which setting of the first semaphore of
// the list prevents the grant.
func (m *Machine) refuseUnavailable(result *Result, r *request) {
	w := r.members[0]
	m.refuse(result, Unavailable, w)
	s := m.semaphores.at(w.semaphore)
	why := result.Why()
	switch m.blockOf(r, w) {
	case BlockPermits, BlockReturning:
		why.DelayMS = m.returnsIn(r, w)
	case BlockPaused:
		result.Rule, why.Reason = RulePaused, s.settings.Paused
	case BlockGroupLimit:
		result.Rule, why.DelayMS = RuleGroupLimit, m.returnsIn(r, w)
		m.explainGroup(&why, w)
	case BlockGroups:
		result.Rule, why.Group = RuleOtherGroups, m.groupOf(w.lane)
	}
	result.Refusal = why.ifSet()
}

// refuseNever refuses a request for more than could ever be granted.
func (m *Machine) refuseNever(result *Result, w member) {
	m.refuse(result, Never, w)
	if w.lane != 0 {
		if l := m.lanes.at(w.lane); l.limit != NoLimit && l.limit < w.count {
			why := result.Why()
			m.explainGroup(&why, w)
			result.Rule, result.Refusal = RuleGroupLimit, why.ifSet()
		}
	}
}

func (m *Machine) explainGroup(why *Refusal, w member) {
	l := m.lanes.at(w.lane)
	why.Group, why.Limit, why.Used = l.group, l.limit, l.used()
}

// refuseRevoked refuses a request for a lease that was revoked.
func (m *Machine) refuseRevoked(result *Result, w member, reason string) {
	m.refuse(result, Revoked, w)
	why := result.Why()
	why.Reason = reason
	result.Refusal = why.ifSet()
}

// waitingIn returns the number of requests that wait in the line of a member.
func (m *Machine) waitingIn(w member) int {
	s := m.semaphores.at(w.semaphore)
	switch {
	case w.lane == 0:
		return s.waiting()
	case !s.grouped() && m.lanes.at(w.lane).group == "": // the request was made while the semaphore had groups
		return s.line.length()
	}
	return m.lanes.at(w.lane).line.length()
}

func sameLevel(a, b *int32) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

// addInt adds, and stops at the ends of int64.
func addInt(a, b int64) int64 {
	sum := a + b
	if b > 0 && sum < a {
		return math.MaxInt64
	}
	if b < 0 && sum > a {
		return math.MinInt64
	}
	return sum
}

// sumFits reports whether a + b stays within int64.
func sumFits(a, b int64) bool {
	sum := a + b
	return (b >= 0) == (sum >= a)
}

// settle must run at the end of every command that may have made permits available. It serves the touched lines, then
// ends the sessions whose deadline the command moved into the past, which may make further permits available.
func (m *Machine) settle() {
	for {
		m.serve()
		if len(m.endNow) == 0 {
			break
		}
		ids := m.endNow
		m.endNow = nil
		for _, id := range ids { // sessions beyond the budget end in the next entry
			if r, ok := m.bySession.Get(id); ok && m.sessions.at(r).deadlineMS <= m.nowMS && m.mayEndAtOnce() {
				m.endSession(r, CauseExpired, "")
			}
		}
	}
	if len(m.freed) > 0 {
		m.wakeNotices()
	}
}

// touch marks the line of a member for serve, because the head of the line may now be grantable. It also marks the
// semaphore's notices, because some may have become due.
func (m *Machine) touch(w member) {
	s := m.semaphores.at(w.semaphore)
	switch {
	case s.family():
		if w.lane != 0 && m.lanes.at(w.lane).line != nil {
			m.touched = appendOnce(m.touched, w.target())
		}
	case s.waiting() > 0:
		m.touched = appendOnce(m.touched, target(w.semaphore))
	}
	if s.notices.length() > 0 && !s.deleted {
		m.freed = appendOnce(m.freed, w.semaphore)
	}
}

// touchFront marks the line of a member for serve if one of its requests stands in a pool. A grant elsewhere may leave
// that request no room here.
func (m *Machine) touchFront(s *semaphore, w member) {
	if in := m.lineIn(s, w); in != nil && in.front != 0 {
		m.touch(w)
	}
}

// appendOnce appends r unless it is the last element already.
func appendOnce[T comparable](list []T, r T) []T {
	if n := len(list); n > 0 && list[n-1] == r {
		return list
	}
	return append(list, r)
}

// demand is a new request, with what ask needs to grant or queue it.
type demand struct {
	request
	waits       bool         // the request may wait if it can't be granted at once
	headStartMS int64        // the head start that it asks for
	supersedes  []superseded // requests that lose their places if this request waits
	opens       session      // a one-shot session to open for the request, with the end of its wait as deadline; zero: the session exists
	listed      bool         // it belongs to the wait list of its session; ask adds an entry unless the request has an entry
}

// ask decides about every new request: it grants the request at once, adds it to its lines, or refuses it without a
// change of the state. A grant to a new session sets its deadline to now + ttl. A down that is granted at once opens no
// session. The caller must call settle afterwards, because a waiting request may have superseded another request.
func (m *Machine) ask(d *demand) (result Result) {
	d.place, d.rankMS = m.places+1, m.nowMS-m.headStart(d.members, d.headStartMS)
	i := m.servable(&d.request)
	if i < 0 && !d.waits {
		m.refuseUnavailable(&result, &d.request)
		return result
	}
	if i < 0 && !m.linesTake(d, &result) {
		return result
	}
	spends, rests := m.mayReturn(&d.request)
	d.spends = uint8(spends)
	opens := d.opens.id != 0 && (i < 0 || !d.unowned)
	if opens && !m.roomToOpen(d.opens.id, &result) {
		return result
	}
	var owner *session
	if d.session != 0 {
		owner = m.sessions.at(d.session)
	}
	if !m.roomForReturns(rests, &result) || i < 0 && !m.roomToWait(owner, &d.request, &result) || i >= 0 && !m.roomToHold(owner, &d.request, &result) {
		return result
	}
	if opens {
		if i >= 0 {
			d.opens.deadlineMS = m.nowMS + d.opens.ttlMS
		}
		d.session = m.openSession(d.opens)
	}
	if d.listed && d.entry == 0 {
		d.entry = m.addEntry(d.session, d.members[0])
	}
	if i < 0 {
		waiting := m.enqueue(d.request, opens)
		m.supersede(d.supersedes)
		return m.waitingResult(waiting)
	}
	d.place = 0
	result = m.grant(&d.request, i)
	if opens {
		m.endIfDue(m.sessions.at(d.session))
	}
	return result
}

// mayReturn returns the number of returns that the grant of a request may make in a window (spends), and the number of
// its leases that may leave a return, including spends (rests).
func (m *Machine) mayReturn(r *request) (spends, rests int64) {
	for _, w := range r.members {
		switch set := m.semaphores.at(w.semaphore).settings; {
		case set == nil:
		case set.WindowMS != 0:
			spends, rests = spends+1, rests+1
		case !r.unowned && (set.CooldownMS != 0 || set.OnLostMS != 0):
			rests++
		}
	}
	if r.mode != All {
		return min(spends, 1), min(rests, 1)
	}
	return spends, rests
}

// headStart returns the head start of a request: what it asks for, at most what each semaphore of its list allows.
func (m *Machine) headStart(members []member, askedMS int64) int64 {
	for _, w := range members {
		if askedMS == 0 {
			return 0
		}
		askedMS = min(askedMS, m.semaphores.at(w.semaphore).with().HeadStartMS)
	}
	return askedMS
}

// linesTake reports whether the lines of a request accept another request. It removes the members of an "any" request
// whose lines are full, and collects the requests that the new request supersedes.
func (m *Machine) linesTake(d *demand, result *Result) bool {
	if !m.hasShortLine(d.members) {
		return true
	}
	kept, full := d.members[:0:0], d.members[:0:0]
	for _, w := range d.members {
		with := m.semaphores.at(w.semaphore).with()
		if with.MaxWaiting == 0 || int64(m.waitingIn(w)) < with.MaxWaiting {
			kept = append(kept, w)
			continue
		}
		full = append(full, w)
		switch {
		case d.mode != Any && !with.DropOldest:
			m.refuse(result, LineFull, w)
			return false
		case d.mode == Any && len(full) == len(d.members):
			m.refuse(result, LineFull, full[0])
			return false
		}
		if d.mode != Any {
			first := m.lineOf(w.target()).lowest()
			d.supersedes = append(d.supersedes, superseded{first.rank.place, w.target()})
		}
	}
	if d.mode == Any {
		d.members = kept
	}
	return true
}

// hasShortLine reports whether Settings.MaxWaiting bounds a line of a request.
func (m *Machine) hasShortLine(members []member) bool {
	for _, w := range members {
		if set := m.semaphores.at(w.semaphore).settings; set != nil && set.MaxWaiting != 0 {
			return true
		}
	}
	return false
}

// superseded is a waiting request that loses its place in a full line.
type superseded struct {
	place uint64
	from  target
}

// supersede ends superseded requests. A request may be in list several times.
func (m *Machine) supersede(list []superseded) {
	for _, old := range list {
		if waiting, ok := m.byPlace[old.place]; ok && countOf(m.requests.at(waiting).members, old.from) > 0 {
			m.loseMember(waiting, old.from, CauseSuperseded, Superseded)
		}
	}
}

// serve grants waiting requests. Its candidates are the heads of touched lines, and the heads that an earlier entry
// left over. It repeatedly grants the grantable candidate with the lowest rank, which may touch further lines, until no
// head can be granted. Tokens rise in the order of the grants.
//
// A head that can't be granted keeps its place but stops being a candidate, because only a change in one of its lines
// makes it grantable, and such a change touches the line again. When the entry has granted enough, serve leaves the
// remaining heads to the next entry without walking through them, because their number has no bound.
func (m *Machine) serve() {
	for len(m.touched) > 0 || m.unserved.Len() > 0 {
		next := waiter{}                      // the lowest candidate, kept outside of the tree
		for i := 0; i < len(m.touched); i++ { // restand may append pools
			if next.request == 0 {
				next, _ = m.candidate(m.touched[i])
			} else {
				m.addCandidate(m.touched[i])
			}
		}
		m.touched = m.touched[:0]
		if m.unserved.Len() > 0 {
			if next.request != 0 {
				m.unserved.Set(next)
			}
			next, _ = m.unserved.Min()
			m.unserved.Delete(next)
		}
		if next.request == 0 {
			return
		}
		if !m.mayServe() {
			m.unserved.Set(next)
			return
		}
		if i := m.servable(m.requests.at(next.request)); i >= 0 {
			m.grantWaiting(next.request, i)
		}
	}
}

// addCandidate adds the candidate of a line, if it has one.
func (m *Machine) addCandidate(t target) {
	if next, ok := m.candidate(t); ok {
		m.unserved.Set(next)
	}
}

// candidate returns the head of a line, or the choice of a pool, if it can be granted.
func (m *Machine) candidate(t target) (first waiter, ok bool) {
	in, ofPool := m.servedLine(t)
	if in == nil {
		return first, false
	}
	if !ofPool {
		m.restand(t, in)
	}
	if first, ok = in.first(); !ok || m.servable(m.requests.at(first.request)) < 0 {
		return waiter{}, false
	}
	return first, true
}

// servedLine returns the line that is served next: the target's line or, for a pool, the line of the group that the
// pool chooses. It is nil if no request can be served there.
func (m *Machine) servedLine(t target) (in *line, ofPool bool) {
	if t&laneBit != 0 {
		return m.lineOf(t), false
	}
	s := m.semaphores.at(ref(t))
	if !s.pool() {
		return s.line, false
	}
	if h := s.choice(); h.lane != 0 {
		in = m.lanes.at(h.lane).line
	}
	return in, true
}

// keepUnserved drops heads that serve left over, until it finds a head that can be granted. It runs at the end of an
// entry. A snapshot does not contain these heads; Restore finds all heads that can be granted.
func (m *Machine) keepUnserved() {
	for {
		next, ok := m.unserved.Min()
		if !ok || m.servable(m.requests.at(next.request)) >= 0 {
			return
		}
		m.unserved.Delete(next)
	}
}

// servable returns the index of the first member of a request that can be granted now, in the list's order. For an
// "all" request it returns 0 if every member can be granted. Otherwise it returns -1.
func (m *Machine) servable(r *request) int {
	for i, want := range r.members {
		can := m.servableHere(r, want)
		switch {
		case r.mode == All && !can:
			return -1
		case r.mode != All && can:
			return i
		}
	}
	if r.mode == All {
		return 0
	}
	return -1
}

// servableHere reports whether one member of a request can be granted: the request is the first in this line, and there
// is room for its count.
func (m *Machine) servableHere(r *request, want member) bool {
	s := m.semaphores.at(want.semaphore)
	return !s.deleted && m.isFirst(s, r, want) && m.hasRoom(s, r, want)
}

// grantWaiting removes a request from its lines and grants member i, or every member of an "all" request.
func (m *Machine) grantWaiting(waiting ref, i int) {
	r := *m.requests.at(waiting)
	m.unlinkRequest(waiting)
	m.done.served += len(r.members) + len(r.keys)
	if r.mode == Any {
		for j, other := range r.members {
			if j != i {
				m.effect(Effect{Kind: EffectWithdrawn, Cause: CauseElsewhere, Place: r.place, Count: other.count,
					Session: m.sessionID(r.session), Semaphore: m.semaphores.at(other.semaphore).name,
					Epoch: m.semaphores.at(other.semaphore).epoch, Details: m.detailsIn(other.lane)})
			}
		}
	}
	result := m.grant(&r, i)
	result.Trace = m.caller.Trace
	m.leaveLanes(&r)
	m.conclude(&r, result)
	m.endIfSpent(r.session, CauseEnded)
}

// grant grants what servable found, and returns the outcome. The caller must have removed the request from its lines.
func (m *Machine) grant(r *request, i int) Result {
	result := Result{Code: OK, Place: r.place}
	members := r.members
	if r.mode != All {
		members = members[i : i+1]
	}
	if m.waitOver(r) && !r.unowned {
		m.setTTL(r.session, m.sessions.at(r.session).ttlMS)
	}
	for _, want := range members {
		if want.lane != 0 {
			m.useLane(want.lane)
			m.drawTurn(r, want)
		}
		if r.unowned {
			m.take(r, want, &result)
		} else {
			m.lease(r, want, &result)
		}
		m.leaveLane(want.lane)
	}
	m.describeSession(&result, r.session)
	return result
}

// take moves permits out of a semaphore for a down.
func (m *Machine) take(r *request, want member, result *Result) {
	s := m.semaphores.mut(want.semaphore)
	m.touchFront(s, want)
	granted, dueMS := min(want.count, m.groupRoom(want.lane)), int64(0)
	if !s.family() {
		granted = min(granted, s.available())
	}
	switch window := s.with().WindowMS; {
	case window != 0:
		dueMS = m.spend(r, want, granted, window)
	case !s.family(): // a down takes no permits from a family whose window was removed while the down waited
		s.offset -= granted
	}
	moved := dueMS == 0 && !s.family()
	s.modified = m.index
	result.Granted, result.Value, result.Epoch = granted, s.shownTotal(s.available()), s.epoch
	token := uint64(0)
	if r.entry != 0 {
		token = m.nextToken()
		e := m.entries.mut(r.entry)
		e.granted, e.token = e.granted+granted, token
		if !moved {
			e.spent += granted
		}
	}
	if r.place != 0 || dueMS != 0 {
		m.effect(Effect{Kind: EffectGranted, Semaphore: s.name, Epoch: s.epoch, Place: r.place,
			Session: m.sessionID(r.session), Count: granted, Token: token, SinceMS: m.waitedSince(r), Unowned: true, Trace: m.caller.Trace,
			Details: detailsOf(m.groupOf(want.lane), dueMS, nil, "")})
	}
	if r.entry != 0 {
		m.effect(Effect{Kind: EffectListReady, Semaphore: s.name, Epoch: s.epoch, Session: m.sessionID(r.session),
			Count: granted, Token: token, Details: m.detailsIn(want.lane)})
	}
	if moved {
		m.changed(want.semaphore)
	}
}

// lease grants a lease.
func (m *Machine) lease(r *request, want member, result *Result) {
	l := lease{}
	if with := m.semaphores.at(want.semaphore).settings; with != nil {
		if with.WindowMS != 0 {
			l.due = m.spend(r, want, want.count, with.WindowMS)
		}
		if with.Slots {
			l.slots = m.takeSlots(want.semaphore, want.count)
		}
	}
	m.fileLease(r, want, &l, result)
}

// fileLease stores a lease with the next token, and records the grant. The caller must have set slots and due. If the
// settings bound the hold, fileLease sets the end of the lease.
func (m *Machine) fileLease(r *request, want member, l *lease, result *Result) {
	s := m.semaphores.mut(want.semaphore)
	l.session, l.semaphore, l.lane, l.count = r.session, want.semaphore, want.lane, want.count
	l.token, l.grantedMS, l.listHash = m.nextToken(), m.nowMS, r.listHash
	if s.settings != nil && s.settings.MaxHoldMS != 0 {
		l.ends = m.nowMS + s.settings.MaxHoldMS
	}
	s.held += l.holds()
	s.modified = m.index
	m.touchFront(s, want)
	granted := m.leases.add(*l)
	m.linkLease(granted)
	m.forgetRevocation(revokedKey{m.sessionID(r.session), s.epoch, m.groupOf(l.lane)})
	result.Grants = append(result.Grants, m.grantOf(l))
	m.effect(Effect{Kind: EffectGranted, Semaphore: s.name, Epoch: s.epoch, Place: r.place,
		Session: m.sessionID(r.session), Count: l.count, Token: l.token, SinceMS: m.waitedSince(r), Trace: m.caller.Trace,
		Details: detailsOf(m.groupOf(l.lane), l.due, l.slots.all(), "")})
}

// waitedSince returns when a request began to wait; now if it did not wait.
func (m *Machine) waitedSince(r *request) int64 {
	if r.place == 0 {
		return m.nowMS
	}
	return r.enqueuedMS
}

func (m *Machine) grantOf(l *lease) Grant {
	s := m.semaphores.at(l.semaphore)
	return Grant{Semaphore: s.name, Epoch: s.epoch, Count: l.count, Token: l.token, GrantedMS: l.grantedMS, Details: m.grantDetails(l)}
}

func (m *Machine) grantDetails(l *lease) *GrantDetails {
	group := m.groupOf(l.lane)
	if group == "" && l.due == 0 && l.ends == 0 && l.slots == nil {
		return nil
	}
	return &GrantDetails{Group: group, DueMS: l.due, EndsMS: l.ends, Slots: l.slots.all()}
}

// nextToken returns the next fencing token. At a million grants a second, tokens last 285 years.
func (m *Machine) nextToken() uint64 {
	if m.tokens >= maxToken {
		panic("fencing tokens are used up")
	}
	m.tokens++
	return m.tokens
}
