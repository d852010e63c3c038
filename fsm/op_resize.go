package fsm

// ResizeLease gives back part of a lease, which keeps its token. A command with a token finds only the lease with that
// token. For a receipt, Count is the number of permits really spent; it may be 0, less or more than before.
//
// Codes: OK (Grants; Found, unless the spent permits have come back), UnknownSemaphore, EpochMismatch, UnknownSession
// (ExpiredSession, Revoked), InvalidCount, NotHeld, Revoked, LeaseExists (a lease can't grow: use a request in another
// session), Overflow (a receipt), LimitReached (a part that comes back later).
type ResizeLease struct {
	Session uint64
	Name    string
	Count   int64 // of the lease from now on
	Epoch   uint64
	Token   uint64 // of the lease, 0: any
	Group   string
}

// Op is OpResizeLease.
func (ResizeLease) Op() Op            { return OpResizeLease }
func (c ResizeLease) names() []string { return []string{c.Name} }
func (c ResizeLease) session() uint64 { return c.Session }

func (c ResizeLease) encode(e *encoder) {
	e.uint(c.Session)
	e.string(c.Name)
	e.int(c.Count)
	e.uint(c.Epoch)
	e.uint(c.Token)
	e.groupName(c.Group)
}

func decodeResizeLease(d *decoder) Command {
	c := ResizeLease{Session: d.Uint(), Name: d.Text(), Count: d.Int(), Epoch: d.Uint(), Token: d.Uint()}
	c.Group = d.groupName()
	return c
}

func (c ResizeLease) apply(m *Machine) Result {
	if !ValidGroup(c.Group) {
		return Result{Code: Malformed}
	}
	var result Result
	semaphore, session, ok := m.find(c.Name, c.Epoch, c.Session, &result)
	if !ok {
		return result
	}
	held, ok := m.leaseWithToken(session, semaphore, c.Group, c.Token)
	if ok && m.leases.at(held).dueMS != 0 && !m.leases.at(held).revoked() && c.Count >= 0 && c.Count <= maxSettled {
		if result.Found = m.settleReceipt(held, c.Count, &result); result.Code == OK {
			m.finishCommand()
			m.describeSession(&result, session)
			result.Grants = []Grant{m.grantOf(m.leases.at(held))}
		}
		return result
	}
	switch {
	case c.Count < 1 || ok && m.leases.at(held).dueMS != 0 && !m.leases.at(held).revoked():
		m.refuse(&result, InvalidCount, member{semaphore: semaphore, count: c.Count})
		return result
	case !ok:
		m.refuse(&result, NotHeld, member{semaphore: semaphore, count: c.Count})
		return result
	case m.leases.at(held).revoked() || c.Count > m.leases.at(held).count:
		return m.refuseHeld(held, c.Count)
	case c.Count < m.leases.at(held).count && m.semaphores.at(semaphore).settingsOrZero().CooldownMS != 0 &&
		!(m.roomForLeases(1, &result) && m.roomForReturns(1, &result)):
		return result
	}
	if back := m.leases.at(held).count - c.Count; back > 0 {
		l := m.leases.mut(held)
		kept, named := l.slots.split(back)
		l.count, l.slots = c.Count, newSlotList(kept) // state: the highest slots are given back
		m.takeBack(l, back, named, CauseResized, "")
	}
	m.finishCommand()
	m.describeSession(&result, session)
	result.Found, result.Grants = true, []Grant{m.grantOf(m.leases.at(held))}
	return result
}
