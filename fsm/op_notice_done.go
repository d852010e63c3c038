package fsm

// NoticeDone removes notices whose delivery succeeded or was given up.
//
// Codes: OK (Found: at least one notice existed), Malformed.
type NoticeDone struct {
	IDs []uint64 // 1 … 1,024
}

const maxNoticesDone = 1024

// Op is OpNoticeDone.
func (NoticeDone) Op() Op          { return OpNoticeDone }
func (NoticeDone) names() []string { return nil }
func (NoticeDone) session() uint64 { return 0 }
func (c NoticeDone) weight() int   { return len(c.IDs) }

func (c NoticeDone) encode(e *encoder) {
	e.uint(uint64(len(c.IDs)))
	for _, id := range c.IDs {
		e.uint(id)
	}
}

func decodeNoticeDone(d *decoder) Command {
	c := NoticeDone{IDs: make([]uint64, d.Count(1))}
	for i := range c.IDs {
		c.IDs[i] = d.Uint()
	}
	return c
}

func (c NoticeDone) apply(m *Machine) Result {
	if len(c.IDs) == 0 || len(c.IDs) > maxNoticesDone {
		return Result{Code: Malformed}
	}
	var result Result
	for _, id := range c.IDs {
		r, ok := m.byNotice[id]
		if !ok {
			continue
		}
		result.Found = true
		m.removeNotice(r)
	}
	return result
}
