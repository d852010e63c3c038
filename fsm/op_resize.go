package fsm

// ResizeLease gives part of a lease back. The token stays. One that names a token
// finds only the lease of that token.
//
// Codes: OK (Grants), UnknownSemaphore, EpochMismatch, UnknownSession
// (ExpiredSession, Revoked), InvalidCount, NotHeld, Revoked, LeaseExists (a
// lease can't grow: that is a new request in another session).
type ResizeLease struct {
	Session uint64
	Name    string
	Count   int64 // what the lease has then
	Epoch   uint64
	Token   uint64 // the lease meant, 0: any; level 1
}

// Op is OpResizeLease.
func (ResizeLease) Op() Op { return OpResizeLease }

func (c ResizeLease) encode(e *encoder) {
	e.uint(c.Session)
	e.string(c.Name)
	e.int(c.Count)
	e.uint(c.Epoch)
	e.token(c.Token)
}

func (c ResizeLease) needs() uint32 { return needsToken(c.Token) }

func decodeResizeLease(d *decoder) Command {
	return ResizeLease{Session: d.uint(), Name: d.string(), Count: d.int(), Epoch: d.uint(), Token: d.token()}
}

func (c ResizeLease) apply(m *Machine) Result {
	var result Result
	semaphore, ok := m.findSemaphore(c.Name, c.Epoch, &result)
	if !ok {
		return result
	}
	owner, ok := m.findSession(c.Session, &result)
	if !ok {
		return result
	}
	held, ok := m.leaseMeant(owner, semaphore, c.Token)
	switch {
	case c.Count < 1:
		m.refuse(&result, InvalidCount, semaphore, c.Count)
		return result
	case !ok:
		m.refuse(&result, NotHeld, semaphore, c.Count)
		return result
	case m.leases.at(held).revoked || c.Count > m.leases.at(held).count:
		return m.refuseHeld(held, c.Count)
	}
	m.shrinkLease(held, c.Count)
	m.settle()
	m.describeSession(&result, owner)
	result.Found, result.Grants = true, []Grant{m.grantOf(m.leases.at(held))}
	return result
}

func (m *Machine) shrinkLease(held ref, count int64) {
	l := m.leases.at(held)
	back := l.count - count
	if back == 0 {
		return
	}
	l = m.leases.mut(held)
	s := m.semaphores.mut(l.semaphore)
	l.count = count
	s.held -= back
	s.modified = m.index
	m.effect(Effect{Kind: EffectReleased, Cause: CauseResized, Semaphore: s.name, Epoch: s.epoch,
		Session: m.sessionID(l.session), Token: l.token, Count: back})
	m.touch(l.semaphore)
}
