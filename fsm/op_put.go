package fsm

// PutSemaphore creates a semaphore, or changes what is given of it. Permits is
// needed for a new one; growth serves waiters at once; waiters that could
// never be served any more end with Never. Repeating what is there changes
// nothing.
//
// Codes: OK (Created, Semaphore), Malformed, AlreadyExists, EpochMismatch,
// UnknownSemaphore (an epoch or a version was named), VersionMismatch, PermitsRequired, Overflow, LimitReached.
type PutSemaphore struct {
	Name     string
	Permits  Change[int64]
	Level    Change[*int32]
	Metadata Change[[]Pair]
	OnlyNew  bool           // refuse when the semaphore exists
	Epoch    uint64         // the epoch meant, 0: any
	Version  Change[uint64] // of the settings meant; from level 1 on
}

// Op is OpPutSemaphore.
func (PutSemaphore) Op() Op { return OpPutSemaphore }

func (c PutSemaphore) encode(e *encoder) {
	e.string(c.Name)
	encodeChange(e, c.Permits, (*encoder).int)
	encodeChange(e, c.Level, (*encoder).level)
	encodeChange(e, c.Metadata, (*encoder).pairs)
	e.bool(c.OnlyNew)
	e.uint(c.Epoch)
	e.settings(c.Version)
}

func (c PutSemaphore) needs() uint32 { return needsVersion(c.Version) }

func decodePutSemaphore(d *decoder) Command {
	return PutSemaphore{
		Name:     d.string(),
		Permits:  decodeChange(d, (*decoder).int),
		Level:    decodeChange(d, (*decoder).level),
		Metadata: decodeChange(d, (*decoder).pairs),
		OnlyNew:  d.bool(),
		Epoch:    d.uint(),
		Version:  d.settings(),
	}
}

// encodeChange writes a value only where it is given, so that one that is not
// can't be heard.
func encodeChange[T any](e *encoder, c Change[T], value func(*encoder, T)) {
	e.bool(c.Given)
	if c.Given {
		value(e, c.Value)
	}
}

func decodeChange[T any](d *decoder, value func(*decoder) T) (c Change[T]) {
	if c.Given = d.bool(); c.Given {
		c.Value = value(d)
	}
	return c
}

func (c PutSemaphore) apply(m *Machine) Result {
	if !ValidName(c.Name) || !ValidMetadata(c.Metadata.Value) || c.Permits.Value < 0 {
		return Result{Code: Malformed}
	}
	r, exists := m.byName[c.Name]
	switch {
	case !exists && (c.Epoch != 0 || c.Version.Given):
		return Result{Code: UnknownSemaphore, Subject: c.Name}
	case !exists && !c.Permits.Given:
		return Result{Code: PermitsRequired, Subject: c.Name}
	case !exists:
		return m.createSemaphore(c.Name, c.Permits.Value, c.Level.Value, c.Metadata.Value)
	case c.OnlyNew:
		return Result{Code: AlreadyExists, Subject: c.Name, Epoch: m.semaphores.at(r).epoch}
	}
	var result Result
	if !m.epochIs(r, c.Epoch, &result) || !m.versionIs(r, c.Version, &result) {
		return result
	}
	if c.Permits.Given && !m.semaphores.at(r).allows(c.Permits.Value) {
		m.refuse(&result, Overflow, r, 0)
		return result
	}
	return c.change(m, r)
}

// allows reports whether permits + offset and available stay within int64.
func (s *semaphore) allows(permits int64) bool {
	return sumFits(permits, s.offset) && sumFits(permits+s.offset, -s.held)
}

func (c PutSemaphore) change(m *Machine, r ref) Result {
	s := m.semaphores.mut(r)
	before := *s
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
	if s.permits != before.permits || !sameLevel(s.level, before.level) || !samePairs(s.metadata, before.metadata) {
		m.settingsMoved(r)
		m.changed(r)
	}
	if s.permits != before.permits {
		m.endImpossible(r, m.limitOfCommand())
	}
	m.touch(r)
	m.settle()
	view := m.viewSemaphore(r)
	return Result{Code: OK, Found: true, Epoch: view.Epoch, Version: view.Version, Semaphore: &view}
}

// createSemaphore makes a semaphore with the next epoch.
func (m *Machine) createSemaphore(name string, permits int64, level *int32, metadata []Pair) Result {
	if int64(len(m.byName)) >= m.limits.Semaphores {
		return Result{Code: LimitReached, Rule: RuleSemaphores, Subject: name}
	}
	m.epochs++
	r := m.semaphores.add(semaphore{name: name, epoch: m.epochs, permits: permits, level: level,
		metadata: metadata, modified: m.index})
	m.byName[name] = r
	m.names.Set(name, r)
	m.settingsMoved(r)
	m.effect(Effect{Kind: EffectCreated, Semaphore: name, Epoch: m.epochs, Permits: permits, Level: level, Metadata: metadata})
	view := m.viewSemaphore(r)
	return Result{Code: OK, Created: true, Epoch: m.epochs, Version: view.Version, Semaphore: &view}
}

// changed tells a semaphore's present permits, offset, level and metadata.
func (m *Machine) changed(r ref) {
	s := m.semaphores.at(r)
	m.effect(Effect{Kind: EffectChanged, Semaphore: s.name, Epoch: s.epoch, Permits: s.permits,
		Offset: s.offset, Level: s.level, Metadata: s.metadata})
}

// findSemaphore answers the semaphore of a name and, unless 0, epoch.
func (m *Machine) findSemaphore(name string, epoch uint64, result *Result) (ref, bool) {
	r, ok := m.byName[name]
	if !ok {
		result.Code, result.Subject, result.Epoch = UnknownSemaphore, name, 0
		return 0, false
	}
	return r, m.epochIs(r, epoch, result)
}

func (m *Machine) epochIs(r ref, epoch uint64, result *Result) bool {
	s := m.semaphores.at(r)
	result.Epoch = s.epoch
	if epoch != 0 && epoch != s.epoch {
		result.Code, result.Subject = EpochMismatch, s.name
		return false
	}
	return true
}

func sameLevel(a, b *int32) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

func samePairs(a, b []Pair) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
