package fsm

// Release ends a lease, or withdraws the whole request that waits for the semaphore. It also succeeds without a lease
// or a request. A release with a token ends only the lease with that token, so that a late repeat does not end a newer
// lease or waiting request.
//
// Codes: OK (Found; Grants: the released lease; Place: of the withdrawn request), UnknownSemaphore, EpochMismatch,
// UnknownSession (ExpiredSession, Revoked).
type Release struct {
	Session uint64
	Name    string
	Epoch   uint64 // of the semaphore, 0: any
	Token   uint64 // of the lease, 0: any
	Group   string
}

// Op is OpRelease.
func (Release) Op() Op            { return OpRelease }
func (c Release) names() []string { return []string{c.Name} }
func (c Release) session() uint64 { return c.Session }

// cost includes the request that it may withdraw.
func (Release) cost(size SessionSize) int { return costRelease + size.keysOfRequest()/keysPerUnit }

func (c Release) encode(e *encoder) {
	e.uint(c.Session)
	e.string(c.Name)
	e.uint(c.Epoch)
	e.uint(c.Token)
	e.groupName(c.Group)
}

func decodeRelease(d *decoder) Command {
	c := Release{Session: d.Uint(), Name: d.Text(), Epoch: d.Uint(), Token: d.Uint()}
	c.Group = d.groupName()
	return c
}

func (c Release) apply(m *Machine) Result {
	if !ValidGroup(c.Group) {
		return Result{Code: Malformed}
	}
	var result Result
	semaphore, session, ok := m.find(c.Name, c.Epoch, c.Session, &result)
	if !ok {
		return result
	}
	result.Session = c.Session
	if held, ok := m.leaseWithToken(session, semaphore, c.Group, c.Token); ok {
		result.Found = true
		result.Grants = []Grant{m.grantOf(m.leases.at(held))}
		m.dropLease(held, CauseEnded, "")
	} else if waiting, _ := m.waitNamed(session, semaphore, c.Group); waiting != 0 && c.Token == 0 {
		result.Found = true
		result.Place = m.requests.at(waiting).place
		m.withdraw(waiting, CauseEnded, Result{Code: Withdrawn, Session: c.Session, Place: result.Place})
	}
	result.Waiting = m.sessions.at(session).requests.length() > 0
	m.endIfSpent(session, CauseEnded)
	m.finishCommand()
	return result
}
