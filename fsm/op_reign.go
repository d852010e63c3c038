package fsm

// Reign is the first entry of each leader: it names the term, so that every
// node knows that nothing proposed in an earlier term can still be applied,
// and brings the leader's limits.
type Reign struct {
	Term   uint64
	Leader string // node id
	Limits Limits
	// Jump is set once after a recovery that may have lost entries: the
	// counters of tokens, places and epochs skip 2^32, so that none is given twice.
	Jump bool
}

// Op is OpReign.
func (Reign) Op() Op { return OpReign }

func (c Reign) encode(e *encoder) {
	e.uint(c.Term)
	e.string(c.Leader)
	e.limits(c.Limits)
	e.bool(c.Jump)
}

func decodeReign(d *decoder) Command {
	return Reign{Term: d.uint(), Leader: d.string(), Limits: d.limits(), Jump: d.bool()}
}

func (c Reign) apply(m *Machine) Result {
	m.term, m.leader, m.limits = c.Term, c.Leader, c.Limits
	if c.Jump {
		m.tokens += reignJump
		m.places += reignJump
		m.epochs += reignJump
	}
	m.applied.Term = c.Term
	return Result{Code: OK}
}
