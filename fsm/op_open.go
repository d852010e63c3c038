package fsm

// OpenSession opens a session whose deadline is its ttl from now. With ttl 0 the session ends within the command.
//
// Codes: OK (Session), Malformed, SessionIDTaken, LimitReached.
type OpenSession struct {
	Session  uint64 // drawn by the node
	TTLMS    int64
	Metadata []Pair
	Keep     bool // the undelivered grants of its wait list stay taken when it ends
}

// Op is OpOpenSession.
func (OpenSession) Op() Op            { return OpOpenSession }
func (OpenSession) names() []string   { return nil }
func (c OpenSession) session() uint64 { return c.Session }

func (c OpenSession) redrawn(id uint64) Command {
	c.Session = id
	return c
}

func (c OpenSession) encode(e *encoder) {
	e.drawn(c.Session)
	e.int(c.TTLMS)
	e.pairs(c.Metadata)
	e.bool(c.Keep)
}

func decodeOpenSession(d *decoder) Command {
	return OpenSession{Session: d.Uint(), TTLMS: d.Int(), Metadata: d.pairs(), Keep: d.Bool()}
}

func (c OpenSession) apply(m *Machine) Result {
	if c.Session == 0 || c.TTLMS < 0 || c.TTLMS > MaxTTLMS || !ValidMetadata(c.Metadata) {
		return Result{Code: Malformed}
	}
	var result Result
	if !m.roomToOpen(c.Session, &result) {
		return result
	}
	opened := m.openSession(session{id: c.Session, ttlMS: c.TTLMS, deadlineMS: m.nowMS + c.TTLMS,
		metadata: c.Metadata, keep: c.Keep})
	m.endIfDue(m.sessions.at(opened))
	result.Created = true
	m.describeSession(&result, opened)
	m.finishCommand()
	return result
}
