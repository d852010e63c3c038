package fsm

// Down takes permits that nobody owns. It waits, when WaitMS > 0, in the same
// line as leases do, by a one-shot session that ends with it. Partial takes
// what there is, once there is anything.
//
// Codes: OK (Granted, Value), Waiting (Session, Place), Unavailable,
// UnknownSemaphore, EpochMismatch, InvalidCount, Malformed, SessionIDTaken,
// LimitReached. The wait ends with OK, Unavailable, Deleted or Withdrawn.
type Down struct {
	Name    string
	Count   int64
	Partial bool
	Epoch   uint64 // the epoch meant, 0: any
	WaitMS  int64
	Session uint64 // drawn by the node; 0 where WaitMS is 0
	// Notice is an address to be told when Count is available again with nobody
	// waiting, should this be refused; not together with a wait. Result.Place is
	// the notice's id.
	Notice string
}

// Op is OpDown.
func (Down) Op() Op { return OpDown }

func (c Down) encode(e *encoder) {
	e.string(c.Name)
	e.int(c.Count)
	e.bool(c.Partial)
	e.string(c.Notice)
	e.uint(c.Epoch)
	e.wait(c.WaitMS)
	e.drawn(c.Session)
}

func decodeDown(d *decoder) Command {
	return Down{Name: d.string(), Count: d.int(), Partial: d.bool(), Notice: d.string(), Epoch: d.uint(), WaitMS: d.int(), Session: d.uint()}
}

func (c Down) apply(m *Machine) Result {
	if c.WaitMS < 0 || c.WaitMS > MaxTTLMS || (c.WaitMS > 0) != (c.Session != 0) ||
		len(c.Notice) > maxNoticeBytes || c.Notice != "" && c.WaitMS > 0 {
		return Result{Code: Malformed}
	}
	var result Result
	r, ok := m.findSemaphore(c.Name, c.Epoch, &result)
	if !ok {
		return result
	}
	if c.Count < 1 {
		m.refuse(&result, InvalidCount, r, c.Count)
		return result
	}
	asked := request{members: []member{{r, c.Count}}, unowned: true, partial: c.Partial, place: m.places + 1}
	if i := m.servable(&asked); i >= 0 {
		asked.place = 0
		return m.grant(&asked, i)
	}
	if c.WaitMS == 0 {
		m.refuse(&result, Unavailable, r, c.Count)
		result.Value = result.Available
		if c.Notice != "" {
			m.addNotice(r, c, &result)
		}
		return result
	}
	return m.waitOnce(session{id: c.Session, ttlMS: c.WaitMS}, asked, c.WaitMS)
}

// waitOnce opens a one-shot session whose deadline is the end of its wait, and
// enqueues its request.
func (m *Machine) waitOnce(s session, asked request, waitMS int64) Result {
	var result Result
	if !m.roomToOpen(s.id, &result) || !m.roomToWait(nil, &asked, &result) {
		return result
	}
	s.oneShot, s.deadlineMS = true, m.nowMS+waitMS
	asked.session = m.openSession(s)
	waiting := m.enqueue(asked)
	m.sessions.mut(asked.session).first = m.requests.at(waiting).place
	return m.waitingResult(waiting)
}
