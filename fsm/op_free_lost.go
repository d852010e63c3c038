package fsm

// FreeLost returns the permits of a lost lease at once. An operator may use it, or the former holder, who knows the
// token.
//
// Codes: OK (Found, Granted: the permits), Malformed, UnknownSemaphore, EpochMismatch, NotLost.
type FreeLost struct {
	Name   string
	Token  uint64 // of the lease
	Reason string
	Epoch  uint64 // of the semaphore, 0: any
}

// Op is OpFreeLost.
func (FreeLost) Op() Op            { return OpFreeLost }
func (c FreeLost) names() []string { return []string{c.Name} }
func (FreeLost) session() uint64   { return 0 }
func (c FreeLost) reason() string  { return c.Reason }

func (c FreeLost) encode(e *encoder) {
	e.string(c.Name)
	e.uint(c.Token)
	e.string(c.Reason)
	e.uint(c.Epoch)
}

func decodeFreeLost(d *decoder) Command {
	return FreeLost{Name: d.Text(), Token: d.Uint(), Reason: d.Text(), Epoch: d.Uint()}
}

func (c FreeLost) apply(m *Machine) Result {
	if !ValidReason(c.Reason) {
		return Result{Code: Malformed}
	}
	var result Result
	r, ok := m.findSemaphore(c.Name, c.Epoch, &result)
	if !ok {
		return result
	}
	found, ok := m.byReturn.lost.Get(lostLease{epoch: m.semaphores.at(r).epoch, token: c.Token})
	if !ok || !m.mayUse(m.returns.at(found.at).owner) {
		m.refuse(&result, NotLost, member{semaphore: r})
		return result
	}
	t := *m.returns.at(found.at)
	m.emit(Effect{Kind: EffectFreed, Semaphore: c.Name, Epoch: result.Epoch, Session: t.lost.session, Token: c.Token, Count: t.count,
		Details: detailsOf(m.groupOf(t.lane), 0, t.slots.all(), c.Reason)})
	m.dropReturn(found.at)
	m.finishCommand()
	result.Found, result.Granted = true, t.count
	return result
}
