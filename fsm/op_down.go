package fsm

// Down takes permits without an owner. With WaitMS it waits in the same line as requests for leases, in a one-shot
// session that ends with the wait. Partial takes at least one permit, and fewer than Count if fewer are available.
//
// Codes: OK (Granted, Value), Waiting (Session, Place), Unavailable, UnknownSemaphore,
// EpochMismatch, InvalidCount, Malformed, SessionIDTaken, LimitReached. The wait ends with
// OK, Unavailable, Deleted or Withdrawn.
type Down struct {
	Name    string
	Count   int64
	Partial bool
	Epoch   uint64 // of the semaphore, 0: any
	WaitMS  int64
	Session uint64 // drawn by the node; 0 if WaitMS is 0
	// Notice is the address of a callback if the down is refused; it excludes WaitMS. The notice becomes due when Count
	// is available and the line is empty. Result.Place is the id of the notice.
	Notice string

	Group       string // of a semaphore with groups: the line in which it waits
	HeadStartMS int64  // as in Acquire
}

// Op is OpDown.
func (Down) Op() Op            { return OpDown }
func (c Down) names() []string { return []string{c.Name} }
func (c Down) session() uint64 { return c.Session }
func (c Down) permits() int64  { return c.Count }

func (c Down) redrawn(id uint64) Command {
	c.Session = id
	return c
}

func (c Down) encode(e *encoder) {
	e.string(c.Name)
	e.int(c.Count)
	e.bool(c.Partial)
	e.string(c.Notice)
	e.uint(c.Epoch)
	e.wait(c.WaitMS)
	e.drawn(c.Session)
	e.group(c.Group, c.HeadStartMS)
}

func decodeDown(d *decoder) Command {
	c := Down{Name: d.Text(), Count: d.Int(), Partial: d.Bool(), Notice: d.Text(), Epoch: d.Uint(), WaitMS: d.Int(), Session: d.Uint()}
	c.Group, c.HeadStartMS = d.group()
	return c
}

func (c Down) apply(m *Machine) Result {
	if c.WaitMS < 0 || c.WaitMS > MaxTTLMS || (c.WaitMS > 0) != (c.Session != 0) ||
		len(c.Notice) > maxNoticeBytes || c.Notice != "" && c.WaitMS > 0 || !validAsk(c.Group, c.HeadStartMS) {
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
	if c.Count < 1 {
		m.refuse(&result, InvalidCount, want)
		return result
	}
	if !m.requireTotal(want, true, &result) {
		return result
	}
	result = m.grantOrEnqueue(&newRequest{
		request:     request{members: []member{want}, isDown: true, partial: c.Partial},
		mayWait:     c.WaitMS > 0,
		headStartMS: c.HeadStartMS,
		opens:       session{id: c.Session, ttlMS: c.WaitMS, deadlineMS: m.nowMS + c.WaitMS, oneShot: true},
	})
	m.finishCommand()
	if result.Code == Unavailable {
		result.Value = result.Why().Available
		if c.Notice != "" {
			m.addNotice(r, m.groupOf(want.lane), c, &result)
		}
	}
	return result
}
