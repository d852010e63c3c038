package fsm

// ListDeliver returns and removes the entries of a session's wait list that have a grant, were superseded or whose
// semaphore was deleted, and withdraws what these entries still wait for. It begins after the entry that was delivered
// last (round robin).
//
// Codes: OK (Completed), NothingReady (Found: the list is not empty), UnknownSession (ExpiredSession, Revoked).
type ListDeliver struct {
	Session uint64
}

// Op is OpListDeliver.
func (ListDeliver) Op() Op                    { return OpListDeliver }
func (ListDeliver) names() []string           { return nil }
func (c ListDeliver) session() uint64         { return c.Session }
func (ListDeliver) cost(size SessionSize) int { return costList + size.Listed/listedPerUnit }

func (ListDeliver) outcomeBytes(l *Limits) int64 { return l.WaitList * (memberBytes + maxNameBytes) }

func (c ListDeliver) encode(e *encoder) { e.uint(c.Session) }

func decodeListDeliver(d *decoder) Command { return ListDeliver{Session: d.Uint()} }

func (c ListDeliver) apply(m *Machine) Result {
	var result Result
	session, ok := m.findSession(c.Session, &result)
	if !ok {
		return result
	}
	result.Found = m.sessions.at(session).entries.length() > 0
	ready := m.readyEntries(session)
	if len(ready) == 0 {
		result.Code = NothingReady
		m.describeSession(&result, session)
		return result
	}
	for _, r := range ready {
		e := m.entries.at(r)
		done := Completion{Semaphore: e.name, Epoch: e.epoch, Deleted: m.orphaned(e), Group: e.group}
		if !done.Deleted {
			done.Granted, done.Token = e.granted, e.token
		}
		result.Completed = append(result.Completed, done)
		m.sessions.mut(session).delivered = e.order
		m.dropEntry(r, false)
	}
	m.describeSession(&result, session)
	m.takeOver(session, &result)
	m.endIfSpent(session, CauseEnded)
	m.finishCommand()
	return result
}

// readyEntries returns the ready entries, round robin: first the entries after the last delivered entry, in the order
// of the list, then the entries before it.
func (m *Machine) readyEntries(session ref) []ref {
	s := m.sessions.at(session)
	var before, after []ref
	for r := s.entries.first; r != 0; r = m.entries.at(r).inSession.next {
		switch e := m.entries.at(r); {
		case e.granted == 0 && e.waiting != 0 && !m.orphaned(e):
		case e.order > s.delivered:
			after = append(after, r)
		default:
			before = append(before, r)
		}
	}
	return append(after, before...)
}
