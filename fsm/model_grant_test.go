package fsm

import "slices"

// The model's grant decision, and how its waits, leases and sessions end.

// serveAndEnd is the end of every command: serve, then the last step of a ttl
// of 0, which may make room again.
func (m *model) serveAndEnd() {
	m.serve()
	for len(m.spent) > 0 {
		last := m.spent
		m.spent = nil
		for _, s := range last {
			if slices.Contains(m.sessions, s) && s.deadlineMS <= m.nowMS && m.done.ended < max(m.budget.ended, m.done.before+m.budget.swept) {
				m.endSession(s, CauseExpired, "")
			}
		}
		m.serve()
	}
	m.wakeNotices()
}

// serve grants the lowest rank that can be granted, until no request can be.
func (m *model) serve() {
	for {
		m.stand()
		granted := false
		for _, r := range slices.SortedFunc(slices.Values(m.requests), byRank) {
			if members, ok := m.servable(r); ok && m.done.served < m.budget.served {
				m.grantWaiting(r, members)
				granted = true
				break
			}
		}
		if !granted {
			return
		}
	}
}

// servable returns the members of a request that can be granted now.
func (m *model) servable(r *modelRequest) ([]modelMember, bool) {
	var can []modelMember
	for _, want := range r.members {
		if m.ready(r, want) {
			can = append(can, want)
		}
	}
	if r.mode == All {
		return r.members, len(can) == len(r.members)
	}
	if len(can) == 0 {
		return nil, false
	}
	return can[:1], true
}

func (m *model) grantWaiting(r *modelRequest, members []modelMember) {
	m.leave(r)
	m.done.served += len(r.members) + len(r.keys)
	for _, want := range r.members {
		if r.mode == Any && want != members[0] {
			m.withdrawn(r, want, CauseElsewhere)
		}
	}
	result := m.grant(r, members)
	m.tidyAll(r.members)
	result.Trace = m.caller.trace
	m.conclude(r, result)
	m.endIfSpent(r.session, CauseEnded)
}

// grant gives the members to a request that waits nowhere (any more).
func (m *model) grant(r *modelRequest, members []modelMember) Result {
	result := Result{Code: OK, Place: r.place}
	if r.session != nil && r.session.first == r && !r.unowned {
		m.liveFor(r.session, r.session.ttlMS)
	}
	for _, want := range members {
		m.countPassed(r, want)
		if !r.unowned {
			l := m.lease(r, want)
			result.Grants = append(result.Grants, tell(l))
			m.checkGrant(want, l.count, l.token)
			continue
		}
		s := want.semaphore
		result.Granted = min(want.count, m.mostRoom(want))
		dueMS := int64(0)
		if s.settings.WindowMS != 0 {
			dueMS = m.spend(r, s, modelIn{want.group, s.grouped()}, result.Granted)
		} else if !s.settings.Family { // else its window has gone since, and the down takes no permits
			s.offset -= result.Granted
		}
		moved := dueMS == 0 && !s.settings.Family
		m.takeTurn(s, want.group)
		s.modified = m.index
		result.Value, result.Epoch = m.available(s), s.epoch
		token := uint64(0)
		if r.entry != nil {
			m.tokens++
			token = m.tokens
			r.entry.granted, r.entry.token = r.entry.granted+result.Granted, token
			if !moved {
				r.entry.spent += result.Granted
			}
		}
		if r.place != 0 || dueMS != 0 {
			m.effect(Effect{Kind: EffectGranted, Semaphore: s.name, Epoch: s.epoch, Session: r.sessionID(), Place: r.place, Count: result.Granted,
				Token: token, SinceMS: r.since(m.nowMS), Unowned: true, Trace: m.caller.trace,
				Details: detailsOf(want.group, dueMS, nil, "")})
		}
		if r.entry != nil {
			m.effect(Effect{Kind: EffectListReady, Semaphore: s.name, Epoch: s.epoch, Session: r.session.id,
				Count: result.Granted, Token: token, Details: detailsOf(want.group, 0, nil, "")})
		}
		if moved {
			m.changed(s)
		}
		m.checkGrant(want, result.Granted, 0)
	}
	return m.of(r.session, result)
}

func (m *model) lease(r *modelRequest, want modelMember) *modelLease {
	m.tokens++
	l := &modelLease{session: r.session, semaphore: want.semaphore, count: want.count, token: m.tokens,
		grantedMS: m.nowMS, list: r.list, in: modelIn{want.group, want.semaphore.grouped()}}
	if l.in.grouped {
		m.groupNamed(want.semaphore, want.group)
	}
	switch settings := want.semaphore.settings; {
	case settings.WindowMS != 0 && r.restores: // it does not spend
		l.dueMS = max(m.nowMS, 1)
	case settings.WindowMS != 0:
		l.dueMS = m.spend(r, l.semaphore, l.in, l.count)
	case settings.MaxHoldMS != 0:
		l.endsMS = m.nowMS + settings.MaxHoldMS
	}
	m.takeTurn(want.semaphore, want.group)
	m.giveSlots(l, r, want)
	m.leases = append(m.leases, l)
	m.forgetRevoked(l)
	r.session.everHeld = true
	want.semaphore.modified = m.index
	m.effect(Effect{Kind: EffectGranted, Semaphore: want.semaphore.name, Epoch: want.semaphore.epoch,
		Session: r.session.id, Place: r.place, Token: l.token, Count: l.count, SinceMS: r.since(m.nowMS), Trace: m.caller.trace,
		Details: detailsOf(want.group, l.dueMS, asRuns(l.slots), "")})
	return l
}

// since is when a request began to wait, or now.
func (r *modelRequest) since(nowMS int64) int64 {
	if r.place == 0 {
		return nowMS
	}
	return r.enqueuedMS
}

func (r *modelRequest) sessionID() uint64 {
	if r.session == nil {
		return 0
	}
	return r.session.id
}

func (m *model) changed(s *modelSemaphore) {
	m.effect(Effect{Kind: EffectChanged, Semaphore: s.name, Epoch: s.epoch, Details: &EffectDetails{Permits: s.permits, Offset: s.offset,
		Level: s.level, Metadata: s.metadata, Settings: told(s.settings)}})
}

// enqueue gives a request the next place, in lines that have room or get it now.
func (m *model) enqueue(r *modelRequest) Result {
	m.places++
	r.place, r.enqueuedMS, r.reserved = m.places, m.nowMS, mayBecome(r)+r.windows()
	m.requests = append(m.requests, r)
	for _, want := range r.members {
		want.semaphore.modified = m.index
		if want.semaphore.grouped() {
			m.groupNamed(want.semaphore, want.group)
		}
		m.waits(r, want)
	}
	m.supersede(r)
	return m.stillWaiting(r)
}

func (m *model) waits(r *modelRequest, want modelMember) {
	m.effect(Effect{Kind: EffectWaiting, Semaphore: want.semaphore.name, Epoch: want.semaphore.epoch, Session: r.session.id,
		Place: r.place, Count: want.count, Mode: r.mode, Unowned: r.unowned, Partial: r.partial, Listed: r.entry != nil,
		Details: detailsOf(want.group, 0, nil, "")})
}

// leave takes a request out of every line.
func (m *model) leave(r *modelRequest) {
	m.requests = slices.DeleteFunc(m.requests, func(other *modelRequest) bool { return other == r })
	for _, want := range r.members {
		want.semaphore.modified = m.index
	}
	if r.entry != nil {
		r.entry.waiting = nil
	}
}

func (m *model) withdrawn(r *modelRequest, want modelMember, cause Cause) {
	m.effect(Effect{Kind: EffectWithdrawn, Cause: cause, Semaphore: want.semaphore.name, Epoch: want.semaphore.epoch,
		Session: r.session.id, Place: r.place, Count: want.count, Details: detailsOf(want.group, 0, nil, "")})
}

func (m *model) tidyAll(members []modelMember) {
	for _, want := range members {
		m.tidy(want.semaphore)
	}
}

// withdraw ends a wait without a grant.
func (m *model) withdraw(r *modelRequest, cause Cause, outcome Result) {
	m.leave(r)
	m.tidyAll(r.members)
	m.done.ended += len(r.members) + len(r.keys)
	for _, want := range r.members {
		m.withdrawn(r, want, cause)
	}
	m.conclude(r, outcome)
}

// lose ends a request's wait for one member: an "any" goes on with the others.
func (m *model) lose(r *modelRequest, at modelMember, cause Cause, code Code) {
	lost := r.member(at.semaphore, at.group)
	if r.mode == Any && len(r.members) > 1 {
		m.done.ended++
		m.withdrawn(r, lost, cause)
		r.members = slices.DeleteFunc(slices.Clone(r.members), func(want modelMember) bool { return want == lost })
		lost.semaphore.modified = m.index
		m.tidy(lost.semaphore)
		return
	}
	outcome := m.refusal(code, lost)
	outcome.QueueLength-- // itself
	outcome.Session, outcome.Place = r.session.id, r.place
	m.withdraw(r, cause, outcome)
	m.endIfSpent(r.session, cause)
}

// conclude ends a wait, and records the outcome for the keys of the request.
func (m *model) conclude(r *modelRequest, outcome Result) {
	m.conclusions = append(m.conclusions, Conclusion{r.place, outcome})
	if r.session.first == r {
		r.session.first = nil
	}
	for _, k := range r.keys {
		k.waiting, k.outcome, k.room, k.atMS = nil, outcome, 0, m.nowMS
		m.keys = append(slices.DeleteFunc(m.keys, func(other *modelKey) bool { return other == k }), k)
		m.follow(k)
	}
}

// drop removes a lease; a revoked one has given its permits back already.
func (m *model) drop(l *modelLease, cause Cause, reason string) {
	m.leases = slices.DeleteFunc(m.leases, func(other *modelLease) bool { return other == l })
	if l.revoked && cause != CauseDeleted {
		m.forgetRevoked(l)
		m.revoked = append(m.revoked, modelRevoked{l.session.id, l.semaphore.epoch, l.in.group, m.nowMS, l.cause, l.reason})
		like := func(v modelRevoked) bool { return v.cause == l.cause }
		kind := 0
		for _, v := range m.revoked {
			if like(v) {
				kind++
			}
		}
		if kind > 100_000 {
			oldest := slices.IndexFunc(m.revoked, like)
			m.revoked = slices.Delete(m.revoked, oldest, oldest+1)
		}
	}
	l.semaphore.modified = m.index
	m.done.ended++
	m.released(l, l.holds(), l.slots, cause, reason)
	m.tidy(l.semaphore)
}

func (m *model) forgetRevoked(l *modelLease) {
	m.revoked = slices.DeleteFunc(m.revoked, func(v modelRevoked) bool {
		return v.session == l.session.id && v.epoch == l.semaphore.epoch && v.group == l.in.group
	})
}

func (m *model) released(l *modelLease, count int64, slots []uint32, cause Cause, reason string) {
	dueMS, lost := m.rest(l, count, slots, cause)
	if dueMS == 0 {
		m.done.ended += len(slots) / slotsARecord
	}
	m.effect(Effect{Kind: EffectReleased, Cause: cause, Semaphore: l.semaphore.name, Epoch: l.semaphore.epoch,
		Session: l.session.id, Token: l.token, Count: count, SinceMS: l.grantedMS, Details: detailsOf(l.in.group, dueMS, asRuns(slots), reason)})
	if lost != nil {
		m.effect(Effect{Kind: EffectLost, Semaphore: l.semaphore.name, Epoch: l.semaphore.epoch, Session: l.session.id, Token: l.token,
			Count: count, Details: detailsOf(l.in.group, dueMS, asRuns(slots), "")})
	}
}

func (m *model) open(s modelSession) *modelSession {
	s.owner = m.caller.owner
	m.sessions = append(m.sessions, &s)
	m.forgetEnded(s.id)
	opened := Effect{Kind: EffectSessionOpen, Session: s.id, OneShot: s.oneShot, TTLMS: s.ttlMS, DeadlineMS: s.deadlineMS}
	if len(s.metadata) > 0 {
		opened.Details = &EffectDetails{Metadata: s.metadata}
	}
	m.effect(opened)
	return &s
}

func (m *model) forgetEnded(id uint64) {
	m.ended = slices.DeleteFunc(m.ended, func(e modelEnded) bool { return e.id == id })
}

// live gives a session a ttl and a deadline.
func (m *model) live(s *modelSession, ttlMS, deadlineMS int64) {
	if ttlMS != s.ttlMS || deadlineMS != s.deadlineMS {
		m.effect(Effect{Kind: EffectSessionRenewed, Session: s.id, TTLMS: ttlMS, DeadlineMS: deadlineMS})
	}
	s.ttlMS, s.deadlineMS = ttlMS, deadlineMS
}

// liveFor is live from now on; when that is no time at all the session ends as the
// last step of the command.
func (m *model) liveFor(s *modelSession, ttlMS int64) {
	m.live(s, ttlMS, m.nowMS+ttlMS)
	m.endIfDue(s)
}

func (m *model) endIfDue(s *modelSession) {
	if s.deadlineMS <= m.nowMS {
		m.spent = append(m.spent, s)
	}
}

// endSession withdraws its requests, gives its leases back and removes it.
func (m *model) endSession(s *modelSession, cause Cause, reason string) {
	for _, r := range m.requestsOf(s) {
		why := cause
		if cause == CauseExpired && s.first == r {
			why = CauseTimeout // the end of the wait that it was made for
		}
		m.withdraw(r, why, m.outcomeOfEnd(r, why, reason))
	}
	for _, l := range m.leasesOf(s) {
		m.drop(l, cause, reason)
	}
	for _, e := range m.listOf(s) {
		m.dropEntry(e, !s.keep)
	}
	m.endItems(s, cause)
	m.done.ended++
	m.shrink(s)
	m.sessions = slices.DeleteFunc(m.sessions, func(other *modelSession) bool { return other == s })
	m.effect(Effect{Kind: EffectSessionEnded, Session: s.id, Cause: cause, Details: detailsOf("", 0, nil, reason)})
	if s.oneShot && !s.everHeld {
		return // no client has seen this id with a lease
	}
	m.forgetEnded(s.id)
	m.ended = append(m.ended, modelEnded{s.id, m.nowMS, cause, reason, s.owner})
	m.forgetEndsLike(cause)
}

// forgetEndsLike: beyond the bound of a kind the owner with the most ends loses its oldest.
func (m *model) forgetEndsLike(cause Cause) {
	kind := func(c Cause) bool {
		return (c == CauseRevoked) == (cause == CauseRevoked) && (c == CauseMaxHold) == (cause == CauseMaxHold) && (c == CauseExpired) == (cause == CauseExpired)
	}
	counts, all, largest := map[string]int{}, 0, ""
	for _, e := range m.ended {
		if kind(e.cause) {
			counts[e.owner]++
			all++
		}
	}
	if all <= m.budget.kept {
		return
	}
	for owner, n := range counts {
		if n > counts[largest] || n == counts[largest] && owner > largest {
			largest = owner
		}
	}
	oldest := slices.IndexFunc(m.ended, func(e modelEnded) bool { return kind(e.cause) && e.owner == largest })
	m.ended = slices.Delete(m.ended, oldest, oldest+1)
}

// outcomeOfEnd returns the outcome of a waiting request whose session ends.
func (m *model) outcomeOfEnd(r *modelRequest, cause Cause, reason string) Result {
	outcome := Result{Code: UnknownSession}
	switch {
	case cause == CauseTimeout:
		outcome = m.unavailable(r)
		outcome.QueueLength-- // itself
	case cause == CauseExpired:
		outcome.Code = ExpiredSession
	case revoking(cause):
		outcome.Code = Revoked
	case r.session.oneShot:
		outcome.Code = Withdrawn
	}
	outcome.Session, outcome.Place = r.session.id, r.place
	if reason != "" {
		outcome.explain().Reason = reason
	}
	return outcome
}

// endIfSpent ends a one-shot session with its last lease, request or entry.
func (m *model) endIfSpent(s *modelSession, cause Cause) {
	if s.oneShot && len(m.listOf(s)) == 0 && len(m.leasesOf(s)) == 0 && len(m.requestsOf(s)) == 0 {
		m.endSession(s, cause, "")
	}
}
