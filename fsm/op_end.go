package fsm

// EndSession ends a session, with its leases and requests.
//
// Codes: OK (Found: it existed), Malformed.
type EndSession struct {
	Session  uint64
	Operator bool   // an operator ends it: later calls of the session are refused with Revoked and Reason
	Reason   string // the operator's
}

// Op is OpEndSession.
func (EndSession) Op() Op                    { return OpEndSession }
func (EndSession) names() []string           { return nil }
func (c EndSession) session() uint64         { return c.Session }
func (c EndSession) reason() string          { return c.Reason }
func (EndSession) cost(size SessionSize) int { return 1 + size.Records/recordsPerUnit }

func (c EndSession) right() Right {
	if c.Operator {
		return RightAdmin
	}
	return RightUse
}

func (c EndSession) encode(e *encoder) {
	e.uint(c.Session)
	e.bool(c.Operator)
	e.string(c.Reason)
}

func decodeEndSession(d *decoder) Command {
	return EndSession{Session: d.Uint(), Operator: d.Bool(), Reason: d.Text()}
}

func (c EndSession) apply(m *Machine) Result {
	if !ValidReason(c.Reason) {
		return Result{Code: Malformed}
	}
	r, ok := m.usableSession(c.Session)
	if !ok {
		return Result{Code: OK, Session: c.Session}
	}
	cause := CauseEnded
	if c.Operator {
		cause = CauseRevoked
	}
	m.endSession(r, cause, c.Reason)
	m.finishCommand()
	return Result{Code: OK, Session: c.Session, Found: true}
}
