package fsm

import "github.com/tidwall/btree"

// enqueue gives a request the next place, and so the end of each of its lines. opened says that
// its session was opened for it alone.
func (m *Machine) enqueue(r request, opened bool) ref {
	m.places++
	r.place, r.enqueuedMS = m.places, m.nowMS
	waiting := m.requests.add(r)
	m.linkRequest(waiting)
	if opened {
		m.sessions.mut(r.session).first = r.place
	}
	for _, want := range r.members {
		m.semaphores.mut(want.semaphore).modified = m.index
		m.waits(&r, want)
	}
	return waiting
}

// waits records, as an effect, how a request waits in one of its lines.
func (m *Machine) waits(r *request, want member) {
	s := m.semaphores.at(want.semaphore)
	m.effect(Effect{Kind: EffectWaiting, Mode: r.mode, Unowned: r.unowned, Partial: r.partial, Listed: r.entry != 0, Semaphore: s.name,
		Epoch: s.epoch, Place: r.place, Session: m.sessionID(r.session), Count: want.count})
}

// linkRequest adds a request to its lines, to the list of its session and to the indexes.
func (m *Machine) linkRequest(waiting ref) {
	r := m.requests.at(waiting)
	for _, want := range r.members {
		s := m.semaphores.mut(want.semaphore)
		if s.line == nil {
			s.line = &line{} // state: a line lives while requests wait in it
		}
		s.line.Set(r.place, waiting)
		if !r.unowned {
			m.byWait[leaseKey{r.session, want.semaphore}] = waiting
			s.line.asked.add(want.count, r.place, waiting)
		}
	}
	m.byPlace[r.place] = waiting
	if r.listHash != 0 {
		m.byList[listKey{r.session, r.listHash}] = waiting
	}
	owner := m.sessions.mut(r.session)
	owner.requests.push(waiting, m.requestInSession)
	owner.reserved += int32(r.leases())
	owner.members += int32(len(r.members))
	owner.keys += int32(len(r.keys))
	m.reserved += r.leases()
	m.members += len(r.members)
	m.count(owner.owner, owned{leases: r.leases(), waiting: int64(len(r.members))})
	if r.entry != 0 {
		m.entries.mut(r.entry).waiting = waiting
	}
}

func (m *Machine) requestInSession(r ref) *links { return &m.requests.mut(r).inSession }

// unlinkRequest removes a request everywhere and touches the lines that have a new head.
func (m *Machine) unlinkRequest(waiting ref) {
	r := *m.requests.at(waiting)
	for _, want := range r.members {
		m.leaveLine(&r, want)
	}
	delete(m.byPlace, r.place)
	m.unserved.Delete(r.place)
	if r.listHash != 0 {
		delete(m.byList, listKey{r.session, r.listHash})
	}
	owner := m.sessions.mut(r.session)
	owner.requests.unlink(waiting, m.requestInSession)
	owner.reserved -= int32(r.leases())
	owner.members -= int32(len(r.members))
	owner.keys -= int32(len(r.keys))
	m.reserved -= r.leases()
	m.members -= len(r.members)
	m.count(owner.owner, owned{leases: -r.leases(), waiting: -int64(len(r.members))})
	if r.entry != 0 {
		m.entries.mut(r.entry).waiting = 0
	}
	m.requests.remove(waiting)
}

// leaveLine takes a request out of one of its lines. Only the next head may be granted by that,
// and only an empty line lets notices become due.
func (m *Machine) leaveLine(r *request, want member) {
	s := m.semaphores.mut(want.semaphore)
	head, _, _ := s.line.Min()
	s.line.Delete(r.place)
	if !r.unowned {
		delete(m.byWait, leaseKey{r.session, want.semaphore})
		s.line.asked.remove(want.count, r.place)
	}
	if s.line.Len() == 0 {
		s.line = nil // state: see linkRequest
	}
	s.modified = m.index
	if head == r.place {
		m.touch(want.semaphore)
	}
}

// withdraw ends a waiting request without a grant, with an outcome. Its session lives on.
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

// loseMember ends a request's wait for one semaphore, with the code as the reason. An "any"
// request keeps waiting for its other members; every other request ends.
func (m *Machine) loseMember(waiting, semaphore ref, cause Cause, code Code) {
	r := m.requests.at(waiting)
	if r.mode != Any || len(r.members) == 1 {
		outcome := Result{Session: m.sessionID(r.session), Place: r.place}
		m.refuse(&outcome, code, semaphore, countOf(r.members, semaphore))
		outcome.QueueLength-- // the request itself does not count
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
	owner := m.sessions.mut(r.session)
	owner.members--
	m.members--
	m.count(owner.owner, owned{waiting: -1})
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

// conclude records the outcome of a wait, also for the keys that wait for it.
func (m *Machine) conclude(r *request, outcome Result) {
	m.applied.Conclusions = append(m.applied.Conclusions, Conclusion{r.place, outcome})
	if len(r.keys) == 0 {
		return
	}
	recorded := encodeResult(outcome) // encoded once, since all keys share it
	for _, k := range r.keys {
		m.finishKey(k, recorded)
		m.followOneShot(k, &outcome)
	}
}

// waitingResult returns the result of a command whose request waits.
func (m *Machine) waitingResult(waiting ref) Result {
	r := m.requests.at(waiting)
	s := m.semaphores.at(r.members[0].semaphore)
	result := Result{Code: Waiting, Place: r.place, Position: s.position(r.place), Epoch: s.epoch,
		Asked: r.members[0].count, Subject: s.name, QueueLength: int64(s.waiting())}
	m.describeSession(&result, r.session)
	return result
}

// line has the waiting requests of a semaphore by their places.
type line struct {
	btree.Map[uint64, ref]
	asked askedCounts // the requests for leases among them
}

// askedCounts has the requests for leases of one line by their counts, so that requests
// that can't be granted any more are found without a walk through the line.
type askedCounts struct {
	byCount btree.Map[int64, *btree.Map[uint64, ref]] // by count, then by place
}

func (a *askedCounts) add(count int64, place uint64, waiting ref) {
	places, ok := a.byCount.Get(count)
	if !ok {
		places = &btree.Map[uint64, ref]{}
		a.byCount.Set(count, places)
	}
	places.Set(place, waiting)
}

func (a *askedCounts) remove(count int64, place uint64) {
	places, _ := a.byCount.Get(count)
	if places.Delete(place); places.Len() == 0 {
		a.byCount.Delete(count)
	}
}

// above returns up to most requests for more than count: the requests with the largest counts,
// in the order of their places.
func (a *askedCounts) above(count int64, most int) []ref {
	var found btree.Map[uint64, ref] // by place
	a.byCount.Reverse(func(asked int64, places *btree.Map[uint64, ref]) bool {
		if asked <= count {
			return false
		}
		places.Scan(func(place uint64, waiting ref) bool {
			found.Set(place, waiting)
			return found.Len() != most
		})
		return found.Len() != most
	})
	return found.Values()
}

// largest returns the largest requested count.
func (a *askedCounts) largest() int64 {
	count, _, _ := a.byCount.Max()
	return count
}

// roomToWait reports whether a request may join its lines. owner is nil for a new one-shot
// session. A request counts as its members, since its end costs that much.
func (m *Machine) roomToWait(owner *session, asked *request, result *Result) bool {
	all, more := m.members, len(asked.members)-1
	if !m.roomToHold(owner, asked, result) || !within(int64(all+more), m.limits.Waiting, RuleWaiting, result) ||
		!m.ownerHasRoom(owner, owned{waiting: int64(len(asked.members))}, result) {
		return false
	}
	if owner != nil && !within(int64(owner.members)+int64(more), m.limits.SessionWaiting, RuleSessionWaits, result) {
		return false
	}
	for _, want := range asked.members {
		s := m.semaphores.at(want.semaphore)
		if !within(int64(s.waiting()), m.limits.Queue, RuleQueue, result) {
			result.Subject = s.name
			return false
		}
	}
	return true
}
