package fsm

// AcquireOnce makes a one-shot session with one lease, at once or within WaitMS, or leaves no session behind. While it
// waits, the deadline of the session is the end of the wait; the grant sets it to now + ttl.
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

	Group       string // of a semaphore with groups
	HeadStartMS int64  // as in Acquire
}

// Op is OpAcquireOnce.
func (AcquireOnce) Op() Op            { return OpAcquireOnce }
func (c AcquireOnce) names() []string { return []string{c.Name} }
func (c AcquireOnce) session() uint64 { return c.Session }
func (c AcquireOnce) wants() []Want   { return []Want{{c.Name, c.Count, c.Group}} }
func (c AcquireOnce) permits() int64  { return c.Count }

func (c AcquireOnce) redrawn(id uint64) Command {
	c.Session = id
	return c
}

func (c AcquireOnce) queue() (want Want) {
	if c.WaitMS > 0 {
		want = Want{c.Name, c.Count, c.Group}
	}
	return want
}

func (c AcquireOnce) encode(e *encoder) {
	e.string(c.Name)
	e.int(c.Count)
	e.int(c.TTLMS)
	e.pairs(c.Metadata)
	e.uint(c.Epoch)
	e.wait(c.WaitMS)
	e.drawn(c.Session)
	e.group(c.Group, c.HeadStartMS)
}

func decodeAcquireOnce(d *decoder) Command {
	c := AcquireOnce{Name: d.Text(), Count: d.Int(), TTLMS: d.Int(), Metadata: d.pairs(), Epoch: d.Uint(),
		WaitMS: d.Int(), Session: d.Uint()}
	c.Group, c.HeadStartMS = d.group()
	return c
}

func (c AcquireOnce) apply(m *Machine) Result {
	if c.TTLMS < 0 || c.TTLMS > MaxTTLMS || c.WaitMS < 0 || c.WaitMS > MaxTTLMS || c.Session == 0 ||
		!ValidMetadata(c.Metadata) || !validAsk(c.Group, c.HeadStartMS) {
		return Result{Code: Malformed}
	}
	var result Result
	r, ok := m.findSemaphore(c.Name, c.Epoch, &result)
	if !ok {
		return result
	}
	want, ok := m.resolveMember(r, 0, Want{c.Name, c.Count, c.Group}, &result)
	if !ok {
		return result
	}
	if c.Count > m.largestCount(want) {
		m.refuseNever(&result, want)
		return result
	}
	if c.Count < 1 {
		m.refuse(&result, InvalidCount, want)
		return result
	}
	result = m.grantOrEnqueue(&newRequest{
		request:     request{members: []member{want}},
		mayWait:     c.WaitMS > 0,
		headStartMS: c.HeadStartMS,
		opens:       session{id: c.Session, ttlMS: c.TTLMS, deadlineMS: m.nowMS + c.WaitMS, metadata: c.Metadata, oneShot: true},
	})
	m.finishCommand() // a lease of ttl 0 ends at once
	return result
}
