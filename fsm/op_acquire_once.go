package fsm

// AcquireOnce acquires with one call: it makes a one-shot session with one lease, at once
// or within WaitMS, or leaves no session behind. While it waits, the deadline of the
// session is the end of the wait; the grant sets it to now + ttl.
//
// Codes: as Acquire, and SessionIDTaken. A wait ends with OK, Unavailable, Never, Deleted,
// Revoked or Withdrawn.
type AcquireOnce struct {
	Name     string
	Count    int64
	TTLMS    int64
	Metadata []Pair
	Epoch    uint64 // of the semaphore, 0: any
	WaitMS   int64  // 0: don't wait
	Session  uint64 // drawn by the node
}

// Op is OpAcquireOnce.
func (AcquireOnce) Op() Op            { return OpAcquireOnce }
func (c AcquireOnce) names() []string { return []string{c.Name} }
func (c AcquireOnce) session() uint64 { return c.Session }
func (c AcquireOnce) wants() []Want   { return []Want{{c.Name, c.Count}} }
func (c AcquireOnce) permits() int64  { return c.Count }

func (c AcquireOnce) redrawn(id uint64) Command {
	c.Session = id
	return c
}

func (c AcquireOnce) queue() string {
	if c.WaitMS <= 0 {
		return ""
	}
	return c.Name
}

func (c AcquireOnce) encode(e *encoder) {
	e.string(c.Name)
	e.int(c.Count)
	e.int(c.TTLMS)
	e.pairs(c.Metadata)
	e.uint(c.Epoch)
	e.wait(c.WaitMS)
	e.drawn(c.Session)
}

func decodeAcquireOnce(d *decoder) Command {
	return AcquireOnce{Name: d.Text(), Count: d.Int(), TTLMS: d.Int(), Metadata: d.pairs(), Epoch: d.Uint(),
		WaitMS: d.Int(), Session: d.Uint()}
}

func (c AcquireOnce) apply(m *Machine) Result {
	if c.TTLMS < 0 || c.TTLMS > MaxTTLMS || c.WaitMS < 0 || c.WaitMS > MaxTTLMS || c.Session == 0 ||
		!ValidMetadata(c.Metadata) {
		return Result{Code: Malformed}
	}
	var result Result
	r, ok := m.findSemaphore(c.Name, c.Epoch, &result)
	if !ok {
		return result
	}
	if c.Count > m.semaphores.at(r).full() {
		m.refuse(&result, Never, r, c.Count)
		return result
	}
	if c.Count < 1 {
		m.refuse(&result, InvalidCount, r, c.Count)
		return result
	}
	opened := session{id: c.Session, ttlMS: c.TTLMS, metadata: c.Metadata, oneShot: true}
	asked := request{members: []member{{r, c.Count}}, place: m.places + 1}
	if m.servable(&asked) >= 0 {
		return m.leaseOnce(opened, asked)
	}
	if c.WaitMS == 0 {
		m.refuse(&result, Unavailable, r, c.Count)
		return result
	}
	return m.waitOnce(opened, asked, c.WaitMS)
}

// leaseOnce opens a one-shot session with its lease. A ttl of 0 ends the session as the
// last step.
func (m *Machine) leaseOnce(opened session, asked request) Result {
	var result Result
	if !m.roomToOpen(opened.id, &result) || !m.roomToHold(nil, &asked, &result) {
		return result
	}
	opened.deadlineMS = m.nowMS + opened.ttlMS
	asked.session, asked.place = m.openSession(opened), 0
	result = m.grant(&asked, 0)
	m.endIfDue(m.sessions.at(asked.session))
	m.settle()
	return result
}
