package fsm

// ListAdd adds a request for permits to the wait list of a session. The request is granted at once, even partially, if
// the line is empty and permits are available; otherwise it waits in the line. Another ListAdd raises the count of the
// waiting request, which keeps its place. After a grant, ListAdd makes a new request, and both grants are delivered
// together.
//
// Codes: OK (Granted: not delivered yet, Asked: still wanted, Place), UnknownSemaphore,
// EpochMismatch, UnknownSession (ExpiredSession, Revoked), InvalidCount, Overflow,
// LimitReached.
type ListAdd struct {
	Session uint64
	Name    string
	Count   int64
	Epoch   uint64 // of the semaphore, 0: any
	Group   string
}

// Op is OpListAdd.
func (ListAdd) Op() Op            { return OpListAdd }
func (c ListAdd) names() []string { return []string{c.Name} }
func (c ListAdd) session() uint64 { return c.Session }

func (c ListAdd) encode(e *encoder) {
	e.uint(c.Session)
	e.string(c.Name)
	e.int(c.Count)
	e.uint(c.Epoch)
	e.groupName(c.Group)
}

func decodeListAdd(d *decoder) Command {
	c := ListAdd{Session: d.Uint(), Name: d.Text(), Count: d.Int(), Epoch: d.Uint()}
	c.Group = d.groupName()
	return c
}

func (c ListAdd) apply(m *Machine) Result {
	if !ValidGroup(c.Group) {
		return Result{Code: Malformed}
	}
	var result Result
	semaphore, ok := m.findSemaphore(c.Name, c.Epoch, &result)
	if !ok {
		return result
	}
	session, _ := m.usableSession(c.Session)
	want, ok := m.resolveMember(semaphore, session, Want{c.Name, c.Count, c.Group}, &result)
	if !ok {
		return result
	}
	if session, ok = m.findSession(c.Session, &result); !ok {
		return result
	}
	if c.Count < 1 {
		m.refuse(&result, InvalidCount, want)
		return result
	}
	if !m.requireTotal(want, true, &result) {
		return result
	}
	r := m.entryNamed(session, want)
	if r != 0 {
		e := m.entries.at(r)
		if !sumFits(m.wanted(e), c.Count) || !sumFits(e.granted, m.wanted(e)+c.Count) {
			m.refuse(&result, Overflow, want)
			return result
		}
		if e.waiting != 0 {
			result = m.wantMore(r, c.Count)
			m.takeOver(session, &result)
			return result
		}
	}
	if r == 0 && !within(int64(m.sessions.at(session).entries.length()), m.limits.WaitList, RuleWaitList, &result) {
		return result
	}
	d := newRequest{
		request: request{session: session, members: []member{want}, isDown: true, partial: true, listEntry: r},
		mayWait: true,
		listed:  true,
	}
	if refused := m.grantOrEnqueue(&d); refused.Code != OK && refused.Code != Waiting {
		refused.Epoch = result.Epoch
		return refused
	}
	m.describeEntry(&result, d.listEntry)
	m.takeOver(session, &result)
	m.finishCommand()
	return result
}

// wantMore raises the count of an entry's request. This makes no grant possible, because one available permit would
// already have granted the request. The caller must have checked the sum.
func (m *Machine) wantMore(r ref, count int64) (result Result) {
	waiting := m.entries.at(r).waiting
	q := m.requests.mut(waiting)
	want := q.members[0]
	want.count += count
	q.members = []member{want}
	m.semaphores.mut(want.semaphore).modified = m.index
	m.emitWaiting(q, want)
	m.describeEntry(&result, r)
	return result
}
