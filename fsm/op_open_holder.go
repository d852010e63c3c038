package fsm

// OpenHolder opens a session with terms for its items: its end deletes or releases them, and for DelayMS after the end
// no session may acquire them. A session of OpenSession may hold items too; its end releases them without a delay.
//
// Codes: OK (Session, Version: the number of the change), Malformed, SessionIDTaken,
// LimitReached.
type OpenHolder struct {
	Session     uint64 // drawn by the node
	TTLMS       int64
	About       string // opaque to the machine, up to 8 KiB of UTF-8
	DeleteItems bool   // its end deletes the items; otherwise it releases them
	DelayMS     int64  // of its items after its end, up to a minute
}

// Op is OpOpenHolder.
func (OpenHolder) Op() Op            { return OpOpenHolder }
func (OpenHolder) names() []string   { return nil }
func (c OpenHolder) session() uint64 { return c.Session }

func (c OpenHolder) redrawn(id uint64) Command {
	c.Session = id
	return c
}

func (c OpenHolder) encode(e *encoder) {
	e.drawn(c.Session)
	e.int(c.TTLMS)
	e.string(c.About)
	e.bool(c.DeleteItems)
	e.int(c.DelayMS)
}

func decodeOpenHolder(d *decoder) Command {
	return OpenHolder{Session: d.Uint(), TTLMS: d.Int(), About: d.Text(), DeleteItems: d.Bool(), DelayMS: d.Int()}
}

func (c OpenHolder) apply(m *Machine) Result {
	if c.Session == 0 || c.TTLMS < 0 || c.TTLMS > MaxTTLMS || c.DelayMS < 0 || c.DelayMS > MaxItemDelayMS || !validAbout(c.About) {
		return Result{Code: Malformed}
	}
	var result Result
	terms := &itemTerms{about: c.About, deletes: c.DeleteItems, delayMS: c.DelayMS}
	if !m.roomToOpen(c.Session, &result) || !m.roomForItems(false, terms.bytes(), owned{itemBytes: terms.bytes()}, &result) {
		return result
	}
	m.changes++
	m.sessionChange, terms.made = m.changes, m.changes
	m.itemBytes += terms.bytes()
	opened := m.openSession(session{id: c.Session, ttlMS: c.TTLMS, deadlineMS: m.nowMS + c.TTLMS, itemTerms: terms})
	m.endIfDue(m.sessions.at(opened))
	result.Created, result.Version = true, terms.made
	m.describeSession(&result, opened)
	m.finishCommand()
	return result
}
