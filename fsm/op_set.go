package fsm

// SetValue makes Value the available permits: the semaphore's new offset is value + held + returning - permits. If the
// semaphore is not a pool, SetValue also forgets the permits spent in a window.
//
// Codes: OK (Value after the grants that it caused), UnknownSemaphore, EpochMismatch,
// InvalidCount (a negative value), NoTotal, Overflow.
type SetValue struct {
	Name  string
	Value int64
	Epoch uint64 // of the semaphore, 0: any
}

// Op is OpSetValue.
func (SetValue) Op() Op               { return OpSetValue }
func (c SetValue) names() []string    { return []string{c.Name} }
func (SetValue) session() uint64      { return 0 }
func (SetValue) cost(SessionSize) int { return costSet }

func (c SetValue) encode(e *encoder) {
	e.string(c.Name)
	e.int(c.Value)
	e.uint(c.Epoch)
}

func decodeSetValue(d *decoder) Command {
	return SetValue{Name: d.Text(), Value: d.Int(), Epoch: d.Uint()}
}

func (c SetValue) apply(m *Machine) Result {
	var result Result
	r, ok := m.findSemaphore(c.Name, c.Epoch, &result)
	if !ok {
		return result
	}
	s, w := m.semaphores.at(r), member{semaphore: r, count: c.Value}
	settings := s.settingsOrZero()
	if c.Value < 0 {
		m.refuse(&result, InvalidCount, w)
		return result
	}
	if !m.requireTotal(w, false, &result) {
		return result
	}
	if settings.WindowMS != 0 && s.pool() { // for a pool it is unclear which group's spends a set should drop
		m.refuse(&result, NoTotal, w)
		return result
	}
	var spends []ref
	spent := int64(0)
	if !s.pool() {
		spends, spent = m.openSpends(r)
	}
	taken := s.taken() - spent
	if !sumFits(c.Value, taken) || !settings.fits(c.Value+taken) {
		m.refuse(&result, Overflow, w)
		return result
	}
	// value + taken is permits + offset. Both are 0 … 2^63-1, so the offset fits too.
	offset := c.Value + taken - s.permits
	if m.forgetSpends(r, spends); spent > 0 && offset == s.offset {
		m.emitChanged(r) // the available permits change although the offset may not
	}
	return m.moveOffset(r, offset)
}
