package fsm

// finishCommand must run at the end of every command that may have made permits available. It serves the touched lines,
// then ends the sessions whose deadline the command moved into the past, which may make further permits available.
func (m *Machine) finishCommand() {
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
	if len(m.noticeChecks) > 0 {
		m.wakeNotices()
	}
}

// touch marks the line of a member for serve, because the head of the line may now be grantable. In a pool it marks the
// whole pool. It also marks the semaphore's notices, because some may have become due.
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
		m.noticeChecks = appendOnce(m.noticeChecks, w.semaphore)
	}
}

// touchFront marks the line of a member for serve if one of its requests stands in a pool. A grant elsewhere may leave
// that request no room here.
func (m *Machine) touchFront(s *semaphore, w member) {
	if line := m.lineIn(s, w); line != nil && line.front != 0 {
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

// newRequest is a new request, with what grantOrEnqueue needs to grant or queue it.
type newRequest struct {
	request
	mayWait     bool         // the request may wait if it can't be granted at once
	headStartMS int64        // the head start that it asks for
	supersedes  []superseded // requests that lose their places if this request waits
	opens       session      // a one-shot session to open for the request, with the end of its wait as deadline; zero: the session exists
	listed      bool         // it belongs to the wait list of its session; grantOrEnqueue adds an entry unless the request has an entry
}

// grantOrEnqueue decides about every new request: it grants the request at once, adds it to its lines, or refuses it
// without a change of the state. A grant to a new session sets its deadline to now + ttl. A down that is granted at
// once opens no session. For example, with 2 of 5 permits free and an empty line, a request for 3 waits. The caller
// must call finishCommand afterwards, because a waiting request may have superseded another request.
func (m *Machine) grantOrEnqueue(d *newRequest) (result Result) {
	d.place, d.rankMS = m.places+1, m.nowMS-m.headStart(d.members, d.headStartMS)
	i := m.firstGrantable(&d.request)
	if i < 0 && !d.mayWait {
		m.refuseUnavailable(&result, &d.request)
		return result
	}
	if i < 0 && !m.admitToLines(d, &result) {
		return result
	}
	spends, rests := m.mayReturn(&d.request)
	d.spends = uint8(spends)
	opens := d.opens.id != 0 && (i < 0 || !d.isDown)
	if opens && !m.roomToOpen(d.opens.id, &result) {
		return result
	}
	var session *session
	if d.session != 0 {
		session = m.sessions.at(d.session)
	}
	if !m.roomForReturns(rests, &result) || i < 0 && !m.roomToWait(session, &d.request, &result) || i >= 0 && !m.roomToHold(session, &d.request, &result) {
		return result
	}
	if opens {
		if i >= 0 {
			d.opens.deadlineMS = m.nowMS + d.opens.ttlMS
		}
		d.session = m.openSession(d.opens)
	}
	if d.listed && d.listEntry == 0 {
		d.listEntry = m.addEntry(d.session, d.members[0])
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

// mayReturn returns how many returns the grant of a request may make at once, in windows (spends), and how many it and
// its leases may make in all (rests).
func (m *Machine) mayReturn(r *request) (spends, rests int64) {
	for _, w := range r.members {
		switch set := m.semaphores.at(w.semaphore).settings; {
		case set == nil:
		case set.WindowMS != 0:
			spends, rests = spends+1, rests+1
		case !r.isDown && (set.CooldownMS != 0 || set.OnLostMS != 0):
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
		askedMS = min(askedMS, m.semaphores.at(w.semaphore).settingsOrZero().HeadStartMS)
	}
	return askedMS
}

// admitToLines reports whether the lines of a request accept another request. It removes the members of an "any"
// request whose lines are full, and collects the requests that the new request supersedes.
func (m *Machine) admitToLines(d *newRequest, result *Result) bool {
	if !m.hasShortLine(d.members) {
		return true
	}
	kept, full := d.members[:0:0], d.members[:0:0]
	for _, w := range d.members {
		settings := m.semaphores.at(w.semaphore).settingsOrZero()
		if settings.MaxWaiting == 0 || int64(m.waitingIn(w)) < settings.MaxWaiting {
			kept = append(kept, w)
			continue
		}
		full = append(full, w)
		switch {
		case d.mode != Any && !settings.DropOldest:
			m.refuse(result, LineFull, w)
			return false
		case d.mode == Any && len(full) == len(d.members):
			m.refuse(result, LineFull, full[0])
			return false
		}
		if d.mode != Any {
			first := m.lineOf(w.target()).lowestOfAll()
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
			m.endMemberWait(waiting, old.from, CauseSuperseded, Superseded)
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
		for i := 0; i < len(m.touched); i++ { // headToGrant and addCandidate may append pools
			if next.request == 0 {
				next, _ = m.headToGrant(m.touched[i])
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
		if i := m.firstGrantable(m.requests.at(next.request)); i >= 0 {
			m.grantWaiting(next.request, i)
		}
	}
}

// addCandidate adds the candidate of a line, if it has one.
func (m *Machine) addCandidate(t target) {
	if next, ok := m.headToGrant(t); ok {
		m.unserved.Set(next)
	}
}

// headToGrant returns the head of a line, or the choice of a pool, if it can be granted.
func (m *Machine) headToGrant(t target) (first waiter, ok bool) {
	line, ofPool := m.servedLine(t)
	if line == nil {
		return first, false
	}
	if !ofPool {
		m.refreshFront(t, line)
	}
	if first, ok = line.firstInOrder(); !ok || m.firstGrantable(m.requests.at(first.request)) < 0 {
		return waiter{}, false
	}
	return first, true
}

// servedLine returns the line that is served next: the target's line or, for a pool, the line of the group that the
// pool chooses. It is nil if no request can be served there.
func (m *Machine) servedLine(t target) (line *line, ofPool bool) {
	if t&laneBit != 0 {
		return m.lineOf(t), false
	}
	s := m.semaphores.at(ref(t))
	if !s.pool() {
		return s.line, false
	}
	if h := s.choice(); h.lane != 0 {
		line = m.lanes.at(h.lane).line
	}
	return line, true
}

// trimUnserved drops heads that serve left over, until it finds a head that can be granted. It runs at the end of an
// entry. A snapshot does not contain these heads; Restore finds all heads that can be granted.
func (m *Machine) trimUnserved() {
	for {
		next, ok := m.unserved.Min()
		if !ok || m.firstGrantable(m.requests.at(next.request)) >= 0 {
			return
		}
		m.unserved.Delete(next)
	}
}

// firstGrantable returns the index of the first member of a request that can be granted now, in the list's order. For an
// "all" request it returns 0 if every member can be granted. Otherwise it returns -1.
func (m *Machine) firstGrantable(r *request) int {
	for i, want := range r.members {
		grantable := m.memberGrantable(r, want)
		switch {
		case r.mode == All && !grantable:
			return -1
		case r.mode != All && grantable:
			return i
		}
	}
	if r.mode == All {
		return 0
	}
	return -1
}

// memberGrantable reports whether one member of a request can be granted: the request is the first in this line, and there
// is room for its count.
func (m *Machine) memberGrantable(r *request, want member) bool {
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
				m.emit(Effect{Kind: EffectWithdrawn, Cause: CauseElsewhere, Place: r.place, Count: other.count,
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

// grant grants what firstGrantable found, and returns the outcome. The caller must have removed the request from its lines.
func (m *Machine) grant(r *request, i int) Result {
	result := Result{Code: OK, Place: r.place}
	members := r.members
	if r.mode != All {
		members = members[i : i+1]
	}
	if m.endFirstWait(r) && !r.isDown {
		m.setTTL(r.session, m.sessions.at(r.session).ttlMS)
	}
	for _, want := range members {
		if want.lane != 0 {
			m.useLane(want.lane)
			m.drawTurn(r, want)
		}
		if r.isDown {
			m.takePermits(r, want, &result)
		} else {
			m.lease(r, want, &result)
		}
		m.leaveLane(want.lane)
	}
	m.describeSession(&result, r.session)
	return result
}

// takePermits moves permits out of a semaphore for a down.
func (m *Machine) takePermits(r *request, want member, result *Result) {
	s := m.semaphores.mut(want.semaphore)
	m.touchFront(s, want)
	granted, dueMS := min(want.count, m.groupRoom(want.lane)), int64(0)
	if !s.family() {
		granted = min(granted, s.available())
	}
	switch window := s.settingsOrZero().WindowMS; {
	case window != 0:
		dueMS = m.spend(r, want, granted, window)
	case !s.family(): // a down takes no permits from a family whose window was removed while the down waited
		s.offset -= granted
	}
	moved := dueMS == 0 && !s.family()
	s.modified = m.index
	result.Granted, result.Value, result.Epoch = granted, s.shownTotal(s.available()), s.epoch
	token := uint64(0)
	if r.listEntry != 0 {
		token = m.nextToken()
		e := m.entries.mut(r.listEntry)
		e.granted, e.token = e.granted+granted, token
		if !moved {
			e.spent += granted
		}
	}
	if r.place != 0 || dueMS != 0 {
		m.emit(Effect{Kind: EffectGranted, Semaphore: s.name, Epoch: s.epoch, Place: r.place,
			Session: m.sessionID(r.session), Count: granted, Token: token, SinceMS: m.waitedSince(r), Unowned: true, Trace: m.caller.Trace,
			Details: detailsOf(m.groupOf(want.lane), dueMS, nil, "")})
	}
	if r.listEntry != 0 {
		m.emit(Effect{Kind: EffectListReady, Semaphore: s.name, Epoch: s.epoch, Session: m.sessionID(r.session),
			Count: granted, Token: token, Details: m.detailsIn(want.lane)})
	}
	if moved {
		m.emitChanged(want.semaphore)
	}
}

// lease grants a lease.
func (m *Machine) lease(r *request, want member, result *Result) {
	l := lease{}
	if settings := m.semaphores.at(want.semaphore).settings; settings != nil {
		if settings.WindowMS != 0 {
			l.dueMS = m.spend(r, want, want.count, settings.WindowMS)
		}
		if settings.Slots {
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
		l.endsMS = m.nowMS + s.settings.MaxHoldMS
	}
	s.held += l.holds()
	s.modified = m.index
	m.touchFront(s, want)
	granted := m.leases.add(*l)
	m.linkLease(granted)
	m.forgetRevocation(revokedKey{m.sessionID(r.session), s.epoch, m.groupOf(l.lane)})
	result.Grants = append(result.Grants, m.grantOf(l))
	m.emit(Effect{Kind: EffectGranted, Semaphore: s.name, Epoch: s.epoch, Place: r.place,
		Session: m.sessionID(r.session), Count: l.count, Token: l.token, SinceMS: m.waitedSince(r), Trace: m.caller.Trace,
		Details: detailsOf(m.groupOf(l.lane), l.dueMS, l.slots.all(), "")})
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
	if group == "" && l.dueMS == 0 && l.endsMS == 0 && l.slots == nil {
		return nil
	}
	return &GrantDetails{Group: group, DueMS: l.dueMS, EndsMS: l.endsMS, Slots: l.slots.all()}
}

// nextToken returns the next fencing token. At a million grants a second, tokens last 285 years.
func (m *Machine) nextToken() uint64 {
	if m.tokens >= maxToken {
		panic("fencing tokens are used up")
	}
	m.tokens++
	return m.tokens
}
