package fsm

// RaiseLevel raises the feature level of the cluster for ever. The proposer must have checked that every member knows
// the level, because other members would halt. A level already in force leaves the state as it is.
//
// Codes: OK (Found: the level was already in force).
type RaiseLevel struct {
	Level uint32
}

// Op is OpRaiseLevel.
func (RaiseLevel) Op() Op          { return OpRaiseLevel }
func (RaiseLevel) names() []string { return nil }
func (RaiseLevel) session() uint64 { return 0 }

func (c RaiseLevel) encode(e *encoder) { e.uint(uint64(c.Level)) }

func decodeRaiseLevel(d *decoder) Command { return RaiseLevel{Level: d.featureLevel()} }

func (c RaiseLevel) apply(m *Machine) Result {
	before := m.feature
	m.feature = max(before, c.Level)
	return Result{Code: OK, Found: m.feature == before}
}
