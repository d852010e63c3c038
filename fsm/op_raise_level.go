package fsm

// RaiseLevel raises the feature level of the cluster, for ever. Its proposer has
// asked every member whether it knows the level: one that doesn't halts. A level
// that is in force already changes nothing.
//
// Codes: OK (Found: it was in force already).
type RaiseLevel struct {
	Level uint32
}

// Op is OpRaiseLevel.
func (RaiseLevel) Op() Op { return OpRaiseLevel }

func (c RaiseLevel) encode(e *encoder) { e.uint(uint64(c.Level)) }

func decodeRaiseLevel(d *decoder) Command { return RaiseLevel{Level: d.featureLevel()} }

func (c RaiseLevel) apply(m *Machine) Result {
	if c.Level <= m.feature {
		return Result{Code: OK, Found: true}
	}
	m.feature = c.Level
	return Result{Code: OK}
}
