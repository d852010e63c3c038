package fsm

// A token names one lease for ever, so that a command which arrives late can end
// only the lease that its client meant.

// NoToken is above every token given: a command that names it finds no lease.
const NoToken uint64 = maxToken + 1

// leaseMeant returns the lease of a session on a semaphore, if it has the token
// meant; 0 means any.
func (m *Machine) leaseMeant(owner, semaphore ref, token uint64) (ref, bool) {
	held, ok := m.byLease[leaseKey{owner, semaphore}]
	if !ok || token != 0 && m.leases.at(held).token != token {
		return 0, false
	}
	return held, true
}

func needsToken(token uint64) uint32 {
	if token != 0 {
		return 1
	}
	return 0
}

// token writes the token meant, from level 1 on.
func (e *encoder) token(v uint64) {
	if e.feature >= 1 {
		e.uint(v)
	}
}

func (d *decoder) token() uint64 {
	if d.feature >= 1 {
		return d.uint()
	}
	return 0
}
