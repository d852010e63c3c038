package fsm

import "slices"

// PutSemaphore creates a semaphore, which needs Permits, or changes its given members. More permits may grant waiting
// requests at once. Requests that can't be granted any more end with Never. A repeat changes no setting.
//
// Codes: OK (Created, Semaphore), Malformed, AlreadyExists, EpochMismatch, UnknownSemaphore (it must exist, or an epoch
// or a version was named), VersionMismatch, PermitsRequired, Overflow, LimitReached.
type PutSemaphore struct {
	Name     string
	Permits  Change[int64]
	Level    Change[*int32]
	Metadata Change[[]Pair]
	OnlyNew  bool           // refuse if the semaphore exists
	Epoch    uint64         // of the semaphore, 0: any
	Version  Change[uint64] // the expected version of the settings

	OnlyExisting bool // refuse if the semaphore does not exist

	Settings SettingsChange
}

// Op is OpPutSemaphore.
func (PutSemaphore) Op() Op            { return OpPutSemaphore }
func (c PutSemaphore) names() []string { return []string{c.Name} }
func (PutSemaphore) session() uint64   { return 0 }

func (c PutSemaphore) encode(e *encoder) {
	e.string(c.Name)
	encodeChange(e, c.Permits, (*encoder).int)
	encodeChange(e, c.Level, (*encoder).level)
	encodeChange(e, c.Metadata, (*encoder).pairs)
	e.only(c.OnlyNew, c.OnlyExisting)
	e.uint(c.Epoch)
	encodeChange(e, c.Version, (*encoder).uint)
	e.settingsChange(&c.Settings)
}

func decodePutSemaphore(d *decoder) Command {
	c := PutSemaphore{
		Name:     d.Text(),
		Permits:  decodeChange(d, (*decoder).Int),
		Level:    decodeChange(d, (*decoder).level),
		Metadata: decodeChange(d, (*decoder).pairs),
	}
	c.OnlyNew, c.OnlyExisting = d.only()
	c.Epoch = d.Uint()
	c.Version = decodeChange(d, (*decoder).Uint)
	c.Settings = d.settingsChange()
	return c
}

func (c PutSemaphore) apply(m *Machine) Result { return c.put(m, false) }

// put does the work of PutSemaphore. With keep it returns an existing semaphore unchanged.
func (c PutSemaphore) put(m *Machine, keep bool) Result {
	r, exists := m.byName[c.Name]
	before := Settings{}
	if exists {
		before = m.semaphores.at(r).settingsOrZero()
	}
	settings := c.Settings.applied(before, c.Permits.Given)
	if !ValidName(c.Name) || !ValidMetadata(c.Metadata.Value) || c.Permits.Value < 0 || !settings.valid() {
		return Result{Code: Malformed}
	}
	rule := settings.conflict()
	switch {
	case !exists && (c.Epoch != 0 || c.Version.Given || c.OnlyExisting):
		return Result{Code: UnknownSemaphore, Subject: c.Name}
	case !exists && !c.Permits.Given:
		return Result{Code: PermitsRequired, Subject: c.Name}
	case !exists:
		if rule != RuleNone {
			return Result{Code: Malformed, Rule: rule, Subject: c.Name}
		}
		if !settings.fits(c.Permits.Value) {
			return Result{Code: Overflow, Subject: c.Name}
		}
		return m.createSemaphore(c.Name, c.Permits.Value, c.Level.Value, c.Metadata.Value, settings.record())
	case keep:
		return m.foundSemaphore(r)
	case c.OnlyNew:
		return Result{Code: AlreadyExists, Subject: c.Name, Epoch: m.semaphores.at(r).epoch}
	}
	var result Result
	if !m.epochIs(r, c.Epoch, &result) || !m.versionIs(r, c.Version, &result) {
		return result
	}
	switch s := m.semaphores.at(r); {
	case rule != RuleNone:
		return Result{Code: Malformed, Rule: rule, Subject: c.Name, Epoch: s.epoch}
	case settings.kind() != before.kind() && s.waiting() > 0:
		m.refuse(&result, RequestsWaiting, member{semaphore: r})
		return result
	case c.Permits.Given && !s.allows(c.Permits.Value), !settings.fits(c.permitsOf(s) + s.offset),
		settings.Family && s.taken() > maxFamilyTaken:
		m.refuse(&result, Overflow, member{semaphore: r})
		return result
	}
	return c.change(m, r, settings)
}

// permitsOf returns the permits of a semaphore after the put.
func (c PutSemaphore) permitsOf(s *semaphore) int64 {
	if c.Permits.Given {
		return c.Permits.Value
	}
	return s.permits
}

func (c PutSemaphore) change(m *Machine, r ref, settings Settings) Result {
	s := m.semaphores.mut(r)
	before := *s
	if settings != s.settingsOrZero() {
		s.settings = settings.record()
	}
	if c.Permits.Given {
		s.permits = c.Permits.Value
	}
	if c.Level.Given {
		s.level = c.Level.Value
	}
	if c.Metadata.Given {
		s.metadata = c.Metadata.Value
	}
	if s.permits != before.permits {
		s.modified = m.index
	}
	if s.permits != before.permits || !sameLevel(s.level, before.level) || !slices.Equal(s.metadata, before.metadata) ||
		s.settings != before.settings {
		m.raiseVersion(r)
		m.emitChanged(r)
	}
	if s.full() != before.full() || s.permits != before.permits {
		m.endImpossible(r, m.budget.ended)
	}
	if s = m.semaphores.at(r); s.groups != nil && s.groupLimit() != before.groupLimit() {
		m.sweepFrom(r, "")
		m.sweepGroups(r, m.budget.ended)
	}
	m.touch(member{semaphore: r})
	m.finishCommand()
	return m.foundSemaphore(r)
}

// foundSemaphore returns the result of a put of a semaphore that exists.
func (m *Machine) foundSemaphore(r ref) Result {
	view := m.viewSemaphore(r)
	return Result{Code: OK, Found: true, Epoch: view.Epoch, Version: view.Version, Semaphore: &view}
}
