package fsm

// CreateSemaphore is a PutSemaphore that returns an existing semaphore unchanged.
//
// Codes: OK (Created or Found, Semaphore), Malformed, LimitReached.
type CreateSemaphore struct {
	Name     string
	Permits  int64
	Level    *int32
	Metadata []Pair
	Settings SettingsChange
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
	e.settingsChange(&c.Settings)
}

func decodeCreateSemaphore(d *decoder) Command {
	return CreateSemaphore{Name: d.Text(), Permits: d.Int(), Level: d.level(), Metadata: d.pairs(),
		Settings: d.settingsChange()}
}

func (c CreateSemaphore) apply(m *Machine) Result {
	put := PutSemaphore{Name: c.Name, Permits: Change[int64]{true, c.Permits}, Level: Change[*int32]{true, c.Level},
		Metadata: Change[[]Pair]{true, c.Metadata}, Settings: c.Settings}
	return put.put(m, true)
}
