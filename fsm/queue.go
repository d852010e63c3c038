package fsm

import "github.com/tidwall/btree"

// enqueue gives a request its place at the end of every one of its lines.
func (m *Machine) enqueue(r request) ref {
	m.places++
	r.place, r.enqueuedMS = m.places, m.nowMS
	waiting := m.requests.add(r)
	m.linkRequest(waiting)
	for _, want := range r.members {
		m.semaphores.mut(want.semaphore).modified = m.index
		m.waits(&r, want)
	}
	return waiting
}

// waits tells how a request waits in one of its lines.
func (m *Machine) waits(r *request, want member) {
	s := m.semaphores.at(want.semaphore)
	m.effect(Effect{Kind: EffectWaiting, Mode: r.mode, Unowned: r.unowned, Partial: r.partial, Listed: r.entry != 0, Semaphore: s.name,
		Epoch: s.epoch, Place: r.place, Session: m.sessionID(r.session), Count: want.count})
}

// linkRequest puts a request into its lines and its session's list.
func (m *Machine) linkRequest(waiting ref) {
	r := m.requests.at(waiting)
	for _, want := range r.members {
		s := m.semaphores.mut(want.semaphore)
		if s.line == nil {
			s.line, s.asked = &btree.Map[uint64, ref]{}, &askedCounts{}
		}
		s.line.Set(r.place, waiting)
		if !r.unowned {
			m.byWait[leaseKey{r.session, want.semaphore}] = waiting
			s.asked.add(want.count, r.place, waiting)
		}
	}
	m.byPlace[r.place] = waiting
	if r.group != 0 {
		m.byGroup[groupKey{r.session, r.group}] = waiting
	}
	owner := m.sessions.mut(r.session)
	owner.requests.push(waiting, m.requestInSession)
	owner.reserved += r.leases()
	owner.members += len(r.members)
	owner.keys += len(r.keys)
	m.reserved += r.leases()
	m.members += len(r.members)
	if r.entry != 0 {
		m.entries.mut(r.entry).waiting = waiting
	}
}

func (m *Machine) requestInSession(r ref) *links { return &m.requests.mut(r).inSession }

// unlinkRequest takes a request out of everything and touches its lines: who
// stood behind it may be the head now.
func (m *Machine) unlinkRequest(waiting ref) {
	r := *m.requests.at(waiting)
	for _, want := range r.members {
		m.leaveLine(&r, want)
	}
	delete(m.byPlace, r.place)
	m.unserved.Delete(r.place)
	if r.group != 0 {
		delete(m.byGroup, groupKey{r.session, r.group})
	}
	owner := m.sessions.mut(r.session)
	owner.requests.unlink(waiting, m.requestInSession)
	owner.reserved -= r.leases()
	owner.members -= len(r.members)
	owner.keys -= len(r.keys)
	m.reserved -= r.leases()
	m.members -= len(r.members)
	if r.entry != 0 {
		m.entries.mut(r.entry).waiting = 0
	}
	m.requests.remove(waiting)
}

// leaveLine takes a request out of one of its lines.
func (m *Machine) leaveLine(r *request, want member) {
	s := m.semaphores.mut(want.semaphore)
	s.line.Delete(r.place)
	if !r.unowned {
		delete(m.byWait, leaseKey{r.session, want.semaphore})
		s.asked.remove(want.count, r.place)
	}
	if s.line.Len() == 0 {
		s.line, s.asked = nil, nil
	}
	s.modified = m.index
	m.touch(want.semaphore)
}

// withdraw ends a waiting request without a grant and tells the outcome. Its
// session lives on.
func (m *Machine) withdraw(waiting ref, cause Cause, outcome Result) {
	r := *m.requests.at(waiting)
	m.unlinkRequest(waiting)
	m.done.ended += len(r.members) + len(r.keys)
	m.waitOver(&r)
	for _, want := range r.members {
		m.withdrawn(&r, want, cause)
	}
	m.conclude(&r, outcome)
}

func (m *Machine) withdrawn(r *request, want member, cause Cause) {
	s := m.semaphores.at(want.semaphore)
	m.effect(Effect{Kind: EffectWithdrawn, Cause: cause, Semaphore: s.name, Epoch: s.epoch, Place: r.place,
		Session: m.sessionID(r.session), Count: want.count})
}

// loseMember ends a request's wait for one semaphore, with the code that says
// why: an "any" request goes on with its other members, every other one ends.
func (m *Machine) loseMember(waiting, semaphore ref, cause Cause, code Code) {
	r := m.requests.at(waiting)
	if r.mode != Any || len(r.members) == 1 {
		outcome := Result{Session: m.sessionID(r.session), Place: r.place}
		m.refuse(&outcome, code, semaphore, countOf(r.members, semaphore))
		outcome.QueueLength-- // not itself
		owner := r.session
		m.withdraw(waiting, cause, outcome)
		m.endIfSpent(owner, cause)
		return
	}
	r = m.requests.mut(waiting)
	lost := member{semaphore, countOf(r.members, semaphore)}
	kept := make([]member, 0, len(r.members)-1)
	for _, want := range r.members {
		if want.semaphore != semaphore {
			kept = append(kept, want)
			continue
		}
		m.withdrawn(r, want, cause)
	}
	r.members = kept
	m.sessions.mut(r.session).members--
	m.members--
	m.done.ended++
	m.leaveLine(r, lost)
}

func countOf(members []member, semaphore ref) int64 {
	for _, want := range members {
		if want.semaphore == semaphore {
			return want.count
		}
	}
	return 0
}

// conclude tells the outcome of a wait, and to the keys that wait for it.
func (m *Machine) conclude(r *request, outcome Result) {
	m.applied.Conclusions = append(m.applied.Conclusions, Conclusion{r.place, outcome})
	if len(r.keys) == 0 {
		return
	}
	recorded := encodeResult(outcome) // once: all keys share it
	for _, k := range r.keys {
		m.finishKey(k, recorded)
		m.followOneShot(k, &outcome)
	}
}

// refuse fills a refusal with what a person needs to understand it.
func (m *Machine) refuse(result *Result, code Code, semaphore ref, asked int64) {
	s := m.semaphores.at(semaphore)
	result.Code, result.Subject, result.Asked = code, s.name, asked
	result.Epoch, result.Level = s.epoch, s.level
	result.Permits, result.Full, result.Available = s.permits, s.full(), s.available()
	result.QueueLength = int64(s.waiting())
}

// waitingResult is the answer to a request that waits.
func (m *Machine) waitingResult(waiting ref) Result {
	r := m.requests.at(waiting)
	s := m.semaphores.at(r.members[0].semaphore)
	result := Result{Code: Waiting, Place: r.place, Position: s.position(r.place), Epoch: s.epoch,
		Asked: r.members[0].count, Subject: s.name, QueueLength: int64(s.waiting())}
	m.describeSession(&result, r.session)
	return result
}
