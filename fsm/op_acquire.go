package fsm

// Acquire asks for a lease of one semaphore in a session. It queues, and keeps
// its place until it is served, withdrawn or its session ends, unless Try is
// set. Asking again for what is held or waited for with the same count changes
// nothing but the session's ttl.
//
// Codes, in the order of the checks: Malformed, UnknownSemaphore,
// EpochMismatch, Never, UnknownSession (ExpiredSession, Revoked), InvalidCount,
// Revoked, LeaseExists, Hierarchy, LimitReached; OK (Grants), Waiting, or
// Unavailable with Try.
type Acquire struct {
	Session uint64
	Name    string
	Count   int64
	TTLMS   int64 // becomes the session's, also when the acquire is refused; KeepTTL: none given
	Try     bool  // don't queue
	Epoch   uint64
}

// Op is OpAcquire.
func (Acquire) Op() Op { return OpAcquire }

func (c Acquire) encode(e *encoder) {
	e.uint(c.Session)
	e.string(c.Name)
	e.int(c.Count)
	e.int(c.TTLMS)
	e.bool(c.Try)
	e.uint(c.Epoch)
}

func decodeAcquire(d *decoder) Command {
	return Acquire{Session: d.uint(), Name: d.string(), Count: d.int(), TTLMS: d.int(), Try: d.bool(), Epoch: d.uint()}
}

func (c Acquire) apply(m *Machine) Result {
	if c.TTLMS < KeepTTL || c.TTLMS > MaxTTLMS {
		return Result{Code: Malformed}
	}
	var result Result
	owner, known := m.ownSession(c.Session)
	semaphore, ok := m.findSemaphore(c.Name, c.Epoch, &result)
	if !ok {
		m.describeSession(&result, owner)
		return result
	}
	if c.Count > m.semaphores.at(semaphore).full() && !(known && m.hasExactly(owner, semaphore, c.Count)) {
		m.refuse(&result, Never, semaphore, c.Count)
		m.describeSession(&result, owner)
		return result
	}
	if owner, ok = m.findSession(c.Session, &result); !ok {
		return result
	}
	if c.TTLMS != KeepTTL {
		m.giveTTL(owner, c.TTLMS)
	}
	result = m.acquire(owner, semaphore, c)
	m.settle()
	return result
}

// acquire is what follows once semaphore and session are known.
func (m *Machine) acquire(owner, semaphore ref, c Acquire) (result Result) {
	defer func() {
		if result.Code != Waiting {
			m.describeSession(&result, owner)
		}
	}()
	if c.Count < 1 {
		m.refuse(&result, InvalidCount, semaphore, c.Count)
		return result
	}
	if held, ok := m.byLease[leaseKey{owner, semaphore}]; ok {
		return m.acquireHeld(held, c.Count)
	}
	if waiting := m.waitsFor(owner, semaphore); waiting != 0 {
		r := m.requests.at(waiting)
		if count := countOf(r.members, semaphore); r.mode != 0 || count != c.Count {
			m.refuse(&result, LeaseExists, semaphore, c.Count)
			result.Holding = count
			return result
		}
		return m.waitingResult(waiting)
	}
	asked := request{session: owner, members: []member{{semaphore, c.Count}}}
	if !m.mayAsk(owner, asked.members, &result) {
		return result
	}
	return m.grantOrWait(asked, c.Try)
}

// acquireHeld answers an acquire of what the session has a lease of already.
func (m *Machine) acquireHeld(held ref, count int64) Result {
	l := m.leases.at(held)
	if l.revoked || l.count != count {
		return m.refuseHeld(held, count)
	}
	return Result{Code: OK, Found: true, Epoch: m.semaphores.at(l.semaphore).epoch, Grants: []Grant{m.grantOf(l)}}
}

// refuseHeld refuses a request for what the session has a lease of already.
func (m *Machine) refuseHeld(held ref, count int64) (result Result) {
	l := m.leases.at(held)
	if l.revoked {
		m.refuse(&result, Revoked, l.semaphore, count)
		result.Reason = l.reason
	} else {
		m.refuse(&result, LeaseExists, l.semaphore, count)
		result.Holding = l.count
	}
	return result
}

// grantOrWait serves a new request at once, or puts it into its lines, or, for
// a try, refuses it.
func (m *Machine) grantOrWait(asked request, try bool) Result {
	asked.place = m.places + 1
	var result Result
	owner := m.sessions.at(asked.session)
	if i := m.servable(&asked); i >= 0 {
		if !m.roomToHold(owner, &asked, &result) {
			return result
		}
		asked.place = 0
		return m.grant(&asked, i)
	}
	if try {
		m.refuse(&result, Unavailable, asked.members[0].semaphore, asked.members[0].count)
		return result
	}
	if !m.roomToWait(owner, &asked, &result) {
		return result
	}
	return m.waitingResult(m.enqueue(asked))
}

// hasExactly reports whether a session holds or waits for this count.
func (m *Machine) hasExactly(owner, semaphore ref, count int64) bool {
	if held, ok := m.byLease[leaseKey{owner, semaphore}]; ok {
		return m.leases.at(held).count == count
	}
	waiting := m.waitsFor(owner, semaphore)
	return waiting != 0 && countOf(m.requests.at(waiting).members, semaphore) == count
}

// waitsFor answers a session's request for a lease that names a semaphore, or 0.
func (m *Machine) waitsFor(owner, semaphore ref) ref {
	return m.byWait[leaseKey{owner, semaphore}]
}
