package fsm

import "math"

// available returns the permits that could be granted now; negative after a shrink or a
// restore.
func (s *semaphore) available() int64 { return s.permits + s.offset - s.held }

// full returns the largest count that a lease could have without another up.
func (s *semaphore) full() int64 { return addInt(s.permits, max(s.offset, 0)) }

func (s *semaphore) waiting() int {
	if s.line == nil {
		return 0
	}
	return s.line.Len()
}

// position returns the rank of a place in the line, from 1, by a binary search over the
// counts in the tree: O(log² n).
func (s *semaphore) position(place uint64) int64 {
	low, high := 0, s.line.Len()
	for low < high {
		middle := (low + high) / 2
		if at, _, _ := s.line.GetAt(middle); at < place {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return int64(low) + 1
}

// allows reports whether permits + offset and the available permits stay within int64.
func (s *semaphore) allows(permits int64) bool {
	return sumFits(permits, s.offset) && sumFits(permits+s.offset, -s.held)
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

// versionIs reports whether a semaphore has the expected version, if one is expected. If
// not, result is the refusal.
//
// A semaphore's settings are its permits, level and metadata. Their version lets a client
// change or delete exactly the semaphore that it has read.
func (m *Machine) versionIs(r ref, expected Change[uint64], result *Result) bool {
	s := m.semaphores.at(r)
	if expected.Given && expected.Value != s.version {
		result.Code, result.Subject, result.Version = VersionMismatch, s.name, s.version
		return false
	}
	return true
}

// createSemaphore makes a semaphore with the next epoch.
func (m *Machine) createSemaphore(name string, permits int64, level *int32, metadata []Pair) Result {
	if int64(len(m.byName)) >= m.limits.Semaphores {
		return Result{Code: LimitReached, Rule: RuleSemaphores, Subject: name}
	}
	owner, refusal := m.caller.Owner, Result{Subject: name}
	if !m.withinShare(m.owned[owner].semaphores, 1, m.limits.Semaphores, RuleOwnerSemaphores, &refusal) {
		return refusal
	}
	m.epochs++
	r := m.semaphores.add(semaphore{name: name, epoch: m.epochs, permits: permits, level: level,
		metadata: metadata, modified: m.index, owner: owner})
	m.count(owner, owned{semaphores: 1})
	m.byName[name] = r
	m.names.Set(name, r)
	m.settingsMoved(r)
	m.effect(Effect{Kind: EffectCreated, Semaphore: name, Epoch: m.epochs, Permits: permits, Level: level, Metadata: metadata})
	view := m.viewSemaphore(r)
	return Result{Code: OK, Created: true, Epoch: m.epochs, Version: view.Version, Semaphore: &view}
}

// settingsMoved counts a change of a semaphore's settings.
func (m *Machine) settingsMoved(r ref) {
	m.semaphores.mut(r).version++
}

// changed records the present permits, offset, level and metadata of a semaphore as an
// effect.
func (m *Machine) changed(r ref) {
	s := m.semaphores.at(r)
	m.effect(Effect{Kind: EffectChanged, Semaphore: s.name, Epoch: s.epoch, Permits: s.permits,
		Offset: s.offset, Level: s.level, Metadata: s.metadata})
}

// moveOffset sets the offset, serves the line and returns the permits that are available
// then. The caller has checked that no counter leaves its range.
func (m *Machine) moveOffset(r ref, offset int64) Result {
	s := m.semaphores.mut(r)
	if s.offset != offset {
		s.offset = offset
		s.modified = m.index
		m.changed(r)
	}
	m.touch(r)
	m.settle()
	s = m.semaphores.at(r)
	return Result{Code: OK, Value: s.available(), Epoch: s.epoch}
}

// giveBack adds permits as an up does, up to the end of the counter's range.
func (m *Machine) giveBack(semaphore ref, count int64) {
	s := m.semaphores.mut(semaphore)
	room := math.MaxInt64 - max(s.permits+s.offset, s.offset, 0)
	s.offset += min(count, room)
	s.modified = m.index
	m.changed(semaphore)
	m.touch(semaphore)
}

// refuse fills a refusal with the values that explain it.
func (m *Machine) refuse(result *Result, code Code, semaphore ref, asked int64) {
	s := m.semaphores.at(semaphore)
	result.Code, result.Subject, result.Asked = code, s.name, asked
	result.Epoch, result.Level = s.epoch, s.level
	result.Permits, result.Full, result.Available = s.permits, s.full(), s.available()
	result.QueueLength = int64(s.waiting())
}

func sameLevel(a, b *int32) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

// addInt adds with saturation at the ends of int64.
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

// settle is the end of every command that may have made permits available. It serves the
// touched lines and then ends the sessions whose deadline a command set to a time that has
// passed, which may make permits available again.
func (m *Machine) settle() {
	for {
		m.serve()
		if len(m.endNow) == 0 {
			break
		}
		ids := m.endNow
		m.endNow = nil
		for _, id := range ids { // beyond the budget, a session ends in the next entry
			if r, ok := m.bySession.Get(id); ok && m.sessions.at(r).deadlineMS <= m.nowMS && m.mayEndAtOnce() {
				m.endSession(r, CauseExpired, "")
			}
		}
	}
	if len(m.freed) > 0 {
		m.wakeNotices()
	}
}

// touch notes that the line of a semaphore may have a head that can be granted, or its
// notices may have become due.
func (m *Machine) touch(semaphore ref) {
	s := m.semaphores.at(semaphore)
	if s.deleted {
		return
	}
	if s.waiting() > 0 {
		m.touched = appendOnce(m.touched, semaphore)
	}
	if s.notices.length() > 0 {
		m.freed = appendOnce(m.freed, semaphore)
	}
}

// appendOnce appends r unless it is the last element already.
func appendOnce(list []ref, r ref) []ref {
	if n := len(list); n > 0 && list[n-1] == r {
		return list
	}
	return append(list, r)
}

// demand is a new request, with what it needs to be granted or to wait.
type demand struct {
	request
	waits  bool    // in its lines, if it can't be granted at once
	opens  session // the one-shot session of the request, with the end of its wait as deadline; zero: it has a session
	listed bool    // it belongs to the wait list of its session, which gets an entry unless the request has one
}

// ask decides about each new request: it grants the request at once, or adds it to its lines,
// or refuses it, which leaves the state as it is. A grant to a new session sets its deadline to
// now + ttl. A down that is granted at once opens no session.
func (m *Machine) ask(d *demand) (result Result) {
	d.place = m.places + 1
	i := m.servable(&d.request)
	if i < 0 && !d.waits {
		m.refuse(&result, Unavailable, d.members[0].semaphore, d.members[0].count)
		return result
	}
	opens := d.opens.id != 0 && (i < 0 || !d.unowned)
	if opens && !m.roomToOpen(d.opens.id, &result) {
		return result
	}
	var owner *session
	if d.session != 0 {
		owner = m.sessions.at(d.session)
	}
	if i < 0 && !m.roomToWait(owner, &d.request, &result) || i >= 0 && !m.roomToHold(owner, &d.request, &result) {
		return result
	}
	if opens {
		if i >= 0 {
			d.opens.deadlineMS = m.nowMS + d.opens.ttlMS
		}
		d.session = m.openSession(d.opens)
	}
	if d.listed && d.entry == 0 {
		d.entry = m.addEntry(d.session, d.members[0].semaphore)
	}
	if i < 0 {
		return m.waitingResult(m.enqueue(d.request, opens))
	}
	d.place = 0
	result = m.grant(&d.request, i)
	if opens {
		m.endIfDue(m.sessions.at(d.session))
	}
	return result
}

// serve grants waiting requests. Its candidates are the heads of touched lines, and the heads
// that an earlier entry left over. It grants the candidate with the lowest place that can be
// granted now, which touches further lines, and repeats this until no head can be granted.
// Tokens rise in the order of the grants.
//
// It takes a head that can't be granted off its list of candidates; the request keeps its
// place. Only a change in one of its lines could change that, and the change touches the line
// again. When the entry has granted enough, the remaining heads are left over for the next
// entry. Their number has no bound, so that no entry may walk through them.
func (m *Machine) serve() {
	for len(m.touched) > 0 || m.unserved.Len() > 0 {
		for _, semaphore := range m.touched {
			if line := m.semaphores.at(semaphore).line; line != nil {
				if place, waiting, _ := line.Min(); m.servable(m.requests.at(waiting)) >= 0 {
					m.unserved.Set(place, waiting)
				}
			}
		}
		m.touched = m.touched[:0]
		place, waiting, ok := m.unserved.Min()
		if !ok || !m.mayServe() {
			return
		}
		m.unserved.Delete(place)
		if i := m.servable(m.requests.at(waiting)); i >= 0 {
			m.grantWaiting(waiting, i)
		}
	}
}

// keepUnserved drops heads left over until the first can be granted. It runs at the end of
// an entry: a snapshot does not contain the heads, and its reader finds all that can be
// granted.
func (m *Machine) keepUnserved() {
	for {
		place, request, ok := m.unserved.Min()
		if !ok || m.servable(m.requests.at(request)) >= 0 {
			return
		}
		m.unserved.Delete(place)
	}
}

// servable returns the index of the member of a request that can be granted now: the first
// in the list's order, 0 for an "all" request if every member can be, or -1. A new request
// has a place above all that wait.
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

// servableHere reports whether a request can be granted as far as one member is concerned:
// it is the first in this line, and enough permits are available.
func (m *Machine) servableHere(r *request, want member) bool {
	s := m.semaphores.at(want.semaphore)
	if s.deleted {
		return false
	}
	if s.waiting() > 0 {
		if first, _, _ := s.line.Min(); first < r.place {
			return false
		}
	}
	if r.partial {
		return s.available() > 0
	}
	return s.available() >= want.count
}

// grantWaiting takes a request out of its lines and grants member i, or every member of an
// "all" request.
func (m *Machine) grantWaiting(waiting ref, i int) {
	r := *m.requests.at(waiting)
	m.unlinkRequest(waiting)
	m.done.served += len(r.members) + len(r.keys)
	if r.mode == Any {
		for j, other := range r.members {
			if j != i {
				m.effect(Effect{Kind: EffectWithdrawn, Cause: CauseElsewhere, Place: r.place, Count: other.count,
					Session: m.sessionID(r.session), Semaphore: m.semaphores.at(other.semaphore).name,
					Epoch: m.semaphores.at(other.semaphore).epoch})
			}
		}
	}
	result := m.grant(&r, i)
	result.Trace = m.caller.Trace
	m.conclude(&r, result)
	m.endIfSpent(r.session, CauseEnded)
}

// grant grants what servable found, and returns the outcome. The request is in no line.
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
		if r.unowned {
			m.take(r, want, &result)
		} else {
			m.lease(r, want, &result)
		}
	}
	m.describeSession(&result, r.session)
	return result
}

// take moves permits out of a semaphore for a down.
func (m *Machine) take(r *request, want member, result *Result) {
	s := m.semaphores.mut(want.semaphore)
	granted := min(want.count, s.available())
	s.offset -= granted
	s.modified = m.index
	result.Granted, result.Value, result.Epoch = granted, s.available(), s.epoch
	token := uint64(0)
	if r.entry != 0 {
		token = m.nextToken()
		e := m.entries.mut(r.entry)
		e.granted, e.token = e.granted+granted, token
	}
	if r.place != 0 {
		m.effect(Effect{Kind: EffectGranted, Semaphore: s.name, Epoch: s.epoch, Place: r.place,
			Session: m.sessionID(r.session), Count: granted, Token: token, SinceMS: r.enqueuedMS, Unowned: true, Trace: m.caller.Trace})
	}
	if r.entry != 0 {
		m.effect(Effect{Kind: EffectListReady, Semaphore: s.name, Epoch: s.epoch, Session: m.sessionID(r.session),
			Count: granted, Token: token})
	}
	m.changed(want.semaphore)
}

// lease makes a lease with the next token.
func (m *Machine) lease(r *request, want member, result *Result) {
	s := m.semaphores.mut(want.semaphore)
	s.held += want.count
	s.modified = m.index
	granted := m.leases.add(lease{session: r.session, semaphore: want.semaphore, count: want.count,
		token: m.nextToken(), grantedMS: m.nowMS, listHash: r.listHash})
	m.linkLease(granted)
	l := m.leases.at(granted)
	m.forgetRevocation(revokedKey{m.sessionID(r.session), s.epoch})
	result.Grants = append(result.Grants, m.grantOf(l))
	m.effect(Effect{Kind: EffectGranted, Semaphore: s.name, Epoch: s.epoch, Place: r.place,
		Session: m.sessionID(r.session), Count: l.count, Token: l.token, SinceMS: m.waitedSince(r), Trace: m.caller.Trace})
}

// waitedSince returns when a request began to wait, which is now if it did not.
func (m *Machine) waitedSince(r *request) int64 {
	if r.place == 0 {
		return m.nowMS
	}
	return r.enqueuedMS
}

func (m *Machine) grantOf(l *lease) Grant {
	s := m.semaphores.at(l.semaphore)
	return Grant{Semaphore: s.name, Epoch: s.epoch, Count: l.count, Token: l.token, GrantedMS: l.grantedMS}
}

// nextToken returns the next fencing token. At a million grants a second, tokens last 285
// years.
func (m *Machine) nextToken() uint64 {
	if m.tokens >= maxToken {
		panic("fencing tokens are used up")
	}
	m.tokens++
	return m.tokens
}
