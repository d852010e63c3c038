package fsm

// ListRemove removes the entries of a name from a session's wait list. It withdraws their requests, and returns
// undelivered permits to the semaphore.
//
// Codes: OK (Found), UnknownSession (ExpiredSession, Revoked).
type ListRemove struct {
	Session uint64
	Name    string
	Epoch   uint64 // of the semaphore, 0: the entries of all epochs
	Group   string
}

// Op is OpListRemove.
func (ListRemove) Op() Op                    { return OpListRemove }
func (c ListRemove) names() []string         { return []string{c.Name} }
func (c ListRemove) session() uint64         { return c.Session }
func (ListRemove) cost(size SessionSize) int { return costList + size.Listed/listedPerUnit }

func (c ListRemove) encode(e *encoder) {
	e.uint(c.Session)
	e.string(c.Name)
	e.uint(c.Epoch)
	e.groupName(c.Group)
}

func decodeListRemove(d *decoder) Command {
	c := ListRemove{Session: d.Uint(), Name: d.Text(), Epoch: d.Uint()}
	c.Group = d.groupName()
	return c
}

func (c ListRemove) apply(m *Machine) Result {
	if !ValidGroup(c.Group) {
		return Result{Code: Malformed}
	}
	var result Result
	session, ok := m.findSession(c.Session, &result)
	if !ok {
		return result
	}
	for r := m.sessions.at(session).entries.first; r != 0; {
		e := m.entries.at(r)
		next := e.inSession.next
		if e.name == c.Name && (c.Epoch == 0 || c.Epoch == e.epoch) && m.meansEntry(c.Group, e) {
			result.Found = true
			m.dropEntry(r, true)
		}
		r = next
	}
	m.describeSession(&result, session)
	m.endIfSpent(session, CauseEnded)
	m.finishCommand()
	return result
}
