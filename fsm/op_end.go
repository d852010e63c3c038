package fsm

// EndSession ends a session, with all that it holds and waits for.
//
// Codes: OK (Found tells whether it existed), Malformed.
type EndSession struct {
	Session  uint64
	Operator bool   // an operator's doing: the session is told Revoked and the reason
	Reason   string // an operator's
}

// Op is OpEndSession.
func (EndSession) Op() Op { return OpEndSession }

func (c EndSession) encode(e *encoder) {
	e.uint(c.Session)
	e.bool(c.Operator)
	e.string(c.Reason)
}

func decodeEndSession(d *decoder) Command {
	return EndSession{Session: d.uint(), Operator: d.bool(), Reason: d.string()}
}

func (c EndSession) apply(m *Machine) Result {
	if !ValidReason(c.Reason) {
		return Result{Code: Malformed}
	}
	r, ok := m.ownSession(c.Session)
	if !ok {
		return Result{Code: OK, Session: c.Session}
	}
	cause := CauseEnded
	if c.Operator {
		cause = CauseRevoked
	}
	m.endSession(r, cause, c.Reason)
	m.settle()
	return Result{Code: OK, Session: c.Session, Found: true}
}
