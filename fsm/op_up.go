package fsm

// Up adds permits without an owner.
//
// Codes: OK (Value after the grants that it caused), UnknownSemaphore, EpochMismatch,
// InvalidCount, Overflow.
type Up struct {
	Name  string
	Count int64
	Epoch uint64 // of the semaphore, 0: any
}

// Op is OpUp.
func (Up) Op() Op            { return OpUp }
func (c Up) names() []string { return []string{c.Name} }
func (Up) session() uint64   { return 0 }
func (c Up) permits() int64  { return c.Count }

func (c Up) encode(e *encoder) {
	e.string(c.Name)
	e.int(c.Count)
	e.uint(c.Epoch)
}

func decodeUp(d *decoder) Command {
	return Up{Name: d.Text(), Count: d.Int(), Epoch: d.Uint()}
}

func (c Up) apply(m *Machine) Result {
	var result Result
	r, ok := m.findSemaphore(c.Name, c.Epoch, &result)
	if !ok {
		return result
	}
	s, w := m.semaphores.at(r), member{semaphore: r, count: c.Count}
	settings := s.settingsOrZero()
	if c.Count < 1 {
		m.refuse(&result, InvalidCount, w)
		return result
	}
	if !m.requireTotal(w, false, &result) {
		return result
	}
	if !sumFits(s.offset, c.Count) || !sumFits(s.permits+s.offset, c.Count) || !settings.fits(s.permits+s.offset+c.Count) {
		m.refuse(&result, Overflow, w)
		return result
	}
	return m.moveOffset(r, s.offset+c.Count)
}
