package fsm

// RevokeLease ends a lease for an operator, with a reason that later calls of the session on the lease return. A
// one-shot session ends with its lease.
//
// Codes: OK (Grants: the lease), Malformed, UnknownSemaphore, EpochMismatch, UnknownSession
// (ExpiredSession, Revoked), NotHeld.
type RevokeLease struct {
	Session uint64
	Name    string
	Reason  string
	Epoch   uint64 // of the semaphore, 0: any
	Group   string
}

// Op is OpRevokeLease.
func (RevokeLease) Op() Op            { return OpRevokeLease }
func (c RevokeLease) names() []string { return []string{c.Name} }
func (c RevokeLease) session() uint64 { return c.Session }
func (c RevokeLease) reason() string  { return c.Reason }

// cost includes the end of a one-shot session.
func (RevokeLease) cost(size SessionSize) int { return 1 + size.Records/recordsPerUnit }

func (c RevokeLease) encode(e *encoder) {
	e.uint(c.Session)
	e.string(c.Name)
	e.string(c.Reason)
	e.uint(c.Epoch)
	e.groupName(c.Group)
}

func decodeRevokeLease(d *decoder) Command {
	c := RevokeLease{Session: d.Uint(), Name: d.Text(), Reason: d.Text(), Epoch: d.Uint()}
	c.Group = d.groupName()
	return c
}

func (c RevokeLease) apply(m *Machine) Result {
	if !ValidReason(c.Reason) || !ValidGroup(c.Group) {
		return Result{Code: Malformed}
	}
	var result Result
	semaphore, session, ok := m.find(c.Name, c.Epoch, c.Session, &result)
	if !ok {
		return result
	}
	held, ok := m.leaseNamed(session, semaphore, c.Group)
	if !ok {
		m.refuse(&result, NotHeld, member{semaphore: semaphore})
		return result
	}
	result.Session, result.Found = c.Session, true
	result.Grants = []Grant{m.grantOf(m.leases.at(held))}
	if !m.leases.at(held).revoked() { // a revoked lease keeps its first reason
		m.revoke(held, CauseRevoked, c.Reason)
	}
	m.finishCommand()
	return result
}
