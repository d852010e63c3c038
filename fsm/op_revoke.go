package fsm

// RevokeLease is an operator's: it ends one lease, with a reason that every
// later call on it is told. A one-shot session ends with it.
//
// Codes: OK (Grants tells the lease), Malformed, UnknownSemaphore,
// EpochMismatch, UnknownSession (ExpiredSession, Revoked), NotHeld.
type RevokeLease struct {
	Session uint64
	Name    string
	Reason  string
	Epoch   uint64 // the epoch meant, 0: any
}

// Op is OpRevokeLease.
func (RevokeLease) Op() Op { return OpRevokeLease }

func (c RevokeLease) encode(e *encoder) {
	e.uint(c.Session)
	e.string(c.Name)
	e.string(c.Reason)
	e.uint(c.Epoch)
}

func decodeRevokeLease(d *decoder) Command {
	return RevokeLease{Session: d.uint(), Name: d.string(), Reason: d.string(), Epoch: d.uint()}
}

func (c RevokeLease) apply(m *Machine) Result {
	if !ValidReason(c.Reason) {
		return Result{Code: Malformed}
	}
	var result Result
	semaphore, ok := m.findSemaphore(c.Name, c.Epoch, &result)
	if !ok {
		return result
	}
	owner, ok := m.findSession(c.Session, &result)
	if !ok {
		return result
	}
	held, ok := m.byLease[leaseKey{owner, semaphore}]
	if !ok {
		m.refuse(&result, NotHeld, semaphore, 0)
		return result
	}
	result.Session, result.Found = c.Session, true
	result.Grants = []Grant{m.grantOf(m.leases.at(held))}
	switch {
	case m.leases.at(held).revoked: // the first reason stays
	case m.sessions.at(owner).oneShot:
		m.endSession(owner, CauseRevoked, c.Reason)
	default:
		m.revokeLease(held, c.Reason)
	}
	m.settle()
	return result
}
