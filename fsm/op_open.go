package fsm

// OpenSession opens a session that lives until its deadline, ttl from now,
// unless it is renewed. A ttl of 0 ends it as the last step.
//
// Codes: OK (Session), Malformed, SessionIDTaken, LimitReached.
type OpenSession struct {
	Session  uint64 // drawn by the node
	TTLMS    int64
	Metadata []Pair
	Keep     bool // at its end, what its wait list was granted is not given back
}

// Op is OpOpenSession.
func (OpenSession) Op() Op { return OpOpenSession }

func (c OpenSession) encode(e *encoder) {
	e.drawn(c.Session)
	e.int(c.TTLMS)
	e.pairs(c.Metadata)
	e.bool(c.Keep)
}

func decodeOpenSession(d *decoder) Command {
	return OpenSession{Session: d.uint(), TTLMS: d.int(), Metadata: d.pairs(), Keep: d.bool()}
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
	m.settle()
	return result
}
