package fsm

// CreateSemaphore makes a semaphore, or returns the one that exists, unchanged.
//
// Codes: OK (Created or Found, Semaphore), Malformed, LimitReached.
type CreateSemaphore struct {
	Name     string
	Permits  int64
	Level    *int32
	Metadata []Pair
}

// Op is OpCreateSemaphore.
func (CreateSemaphore) Op() Op            { return OpCreateSemaphore }
func (c CreateSemaphore) names() []string { return []string{c.Name} }
func (CreateSemaphore) session() uint64   { return 0 }

func (c CreateSemaphore) encode(e *encoder) {
	e.string(c.Name)
	e.int(c.Permits)
	e.level(c.Level)
	e.pairs(c.Metadata)
}

func decodeCreateSemaphore(d *decoder) Command {
	return CreateSemaphore{Name: d.Text(), Permits: d.Int(), Level: d.level(), Metadata: d.pairs()}
}

func (c CreateSemaphore) apply(m *Machine) Result {
	if !ValidName(c.Name) || !ValidMetadata(c.Metadata) || c.Permits < 0 {
		return Result{Code: Malformed}
	}
	if r, exists := m.byName[c.Name]; exists {
		view := m.viewSemaphore(r)
		return Result{Code: OK, Found: true, Epoch: view.Epoch, Version: view.Version, Semaphore: &view}
	}
	return m.createSemaphore(c.Name, c.Permits, c.Level, c.Metadata)
}
