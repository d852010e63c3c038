package fsm

// Grouping says where the group of a request comes from. A plain semaphore has no groups.
type Grouping uint8

// The groupings.
const (
	NoGroups  Grouping = 0 // a plain semaphore
	ByRequest Grouping = 1 // the request names its group
	ByOwner   Grouping = 2 // the identity of the caller is the group; a group that the request names is ignored
)

// String returns the stable name of the grouping, as the API shows it.
func (g Grouping) String() string { return nameOfNumber(int(g), "", "request", "owner") }

// Settings are the optional settings of a semaphore; the zero value sets no option. A record of settings is immutable:
// a put stores a new record.
type Settings struct {
	Groups      Grouping
	Family      bool   // the semaphore has no total of permits: each group has its own limit and its own line
	PerGroup    int64  // the limit of groups without a limit from a group-put; 0: no limit
	Paused      string // the reason why grants stop; "": not paused
	MaxWaiting  int64  // the most requests that may wait in one line; 0: see Limits.Queue
	DropOldest  bool   // if MaxWaiting requests wait, a new request replaces the first; if false, it is refused
	HeadStartMS int64  // the longest head start that a request gets
	WindowMS    int64  // granted permits are spent, and come back this long after the grant; 0: leases hold permits
	CooldownMS  int64  // permits that a lease gives up come back after this time
	OnLostMS    int64  // permits of a lost lease come back after this time, or Quarantine: only by a FreeLost
	MaxHoldMS   int64  // the longest hold of a lease; 0: no bound
	Slots       bool   // leases say which permits they have
}

// SettingsChange has the settings that a put changes.
type SettingsChange struct {
	Groups      Change[Grouping]
	Family      bool // the semaphore becomes a family; a put of permits makes it a plain semaphore or a pool
	PerGroup    Change[int64]
	Paused      Change[string]
	MaxWaiting  Change[int64]
	DropOldest  Change[bool]
	HeadStartMS Change[int64]
	WindowMS    Change[int64]
	CooldownMS  Change[int64]
	OnLostMS    Change[int64]
	MaxHoldMS   Change[int64]
	Slots       Change[bool]
}

// NoLimit is the limit of a group without a limit.
const NoLimit int64 = -1

// Quarantine is the value of Settings.OnLostMS with which the permits of a lost lease come back only by a FreeLost.
const Quarantine int64 = -1

// Bounds of settings.
const (
	MaxWaitingLimit = 100_000             // of Settings.MaxWaiting
	MaxHeadStartMS  = 24 * 60 * 60 * 1000 // of Settings.HeadStartMS
	MinWindowMS     = 100                 // of Settings.WindowMS
	MaxWindowMS     = 31 * 24 * 60 * 60 * 1000
	MaxCooldownMS   = 24 * 60 * 60 * 1000 // of Settings.CooldownMS and OnLostMS
	MinHoldMS       = 1000                // of Settings.MaxHoldMS; the longest is MaxTTLMS
	MaxGroupBytes   = 128                 // of the name of a group
)

// applied returns the settings after a change. permits says that the put sets the total of permits.
func (c *SettingsChange) applied(to Settings, permits bool) Settings {
	change(&to.Groups, c.Groups)
	change(&to.PerGroup, c.PerGroup)
	change(&to.Paused, c.Paused)
	change(&to.MaxWaiting, c.MaxWaiting)
	change(&to.DropOldest, c.DropOldest)
	change(&to.HeadStartMS, c.HeadStartMS)
	change(&to.WindowMS, c.WindowMS)
	change(&to.CooldownMS, c.CooldownMS)
	change(&to.OnLostMS, c.OnLostMS)
	change(&to.MaxHoldMS, c.MaxHoldMS)
	change(&to.Slots, c.Slots)
	to.Family = c.Family || to.Family && !permits
	return to
}

func change[T any](value *T, by Change[T]) {
	if by.Given {
		*value = by.Value
	}
}

// conflict returns the rule of the first setting that other settings exclude, or RuleNone.
func (s *Settings) conflict() Rule {
	switch {
	case s.PerGroup != 0 && s.Groups == NoGroups:
		return RulePerGroup
	case s.Family && (s.Groups == NoGroups || s.PerGroup == 0):
		return RulePermits
	case s.Paused != "" && s.Family:
		return RulePaused
	case s.DropOldest && s.MaxWaiting == 0:
		return RuleWhenFull
	case s.WindowMS != 0 && (s.CooldownMS != 0 || s.OnLostMS != 0 || s.MaxHoldMS != 0 || s.Slots):
		return RuleWindow
	case s.Slots && s.Family:
		return RuleSlots
	}
	return RuleNone
}

// record returns the settings as a semaphore stores them: nil if no option is set.
func (s Settings) record() *Settings {
	if s == (Settings{}) {
		return nil
	}
	return &s
}

// kind has the settings that decide how lines are made. They may change only while no request waits.
type kind struct {
	groups Grouping
	family bool
}

func (s *Settings) kind() kind { return kind{s.Groups, s.Family} }

// valid reports whether each member is in its range.
func (s *Settings) valid() bool {
	return s.Groups <= ByOwner && s.PerGroup >= 0 && ValidReason(s.Paused) &&
		s.MaxWaiting >= 0 && s.MaxWaiting <= MaxWaitingLimit && s.HeadStartMS >= 0 && s.HeadStartMS <= MaxHeadStartMS &&
		zeroOrWithin(s.WindowMS, MinWindowMS, MaxWindowMS) && zeroOrWithin(s.CooldownMS, 1, MaxCooldownMS) &&
		(s.OnLostMS == Quarantine || zeroOrWithin(s.OnLostMS, 1, MaxCooldownMS)) && zeroOrWithin(s.MaxHoldMS, MinHoldMS, MaxTTLMS)
}

func zeroOrWithin(value, lowest, highest int64) bool {
	return value == 0 || value >= lowest && value <= highest
}

func (e *encoder) settings(s *Settings) {
	e.byte(byte(s.Groups))
	e.bool(s.Family)
	e.int(s.PerGroup)
	e.string(s.Paused)
	e.int(s.MaxWaiting)
	e.bool(s.DropOldest)
	e.int(s.HeadStartMS)
	e.int(s.WindowMS)
	e.int(s.CooldownMS)
	e.int(s.OnLostMS)
	e.int(s.MaxHoldMS)
	e.bool(s.Slots)
}

func (d *decoder) settings() *Settings {
	return &Settings{Groups: d.grouping(), Family: d.Bool(), PerGroup: d.Int(), Paused: d.Text(), MaxWaiting: d.Int(),
		DropOldest: d.Bool(), HeadStartMS: d.Int(), WindowMS: d.Int(), CooldownMS: d.Int(), OnLostMS: d.Int(),
		MaxHoldMS: d.Int(), Slots: d.Bool()}
}

func (e *encoder) grouping(g Grouping) { e.byte(byte(g)) }

func (d *decoder) grouping() Grouping {
	g := Grouping(d.Byte())
	if g > ByOwner {
		d.Fail()
	}
	return g
}

// settingsChange appends a change of settings, or no byte if it is empty.
func (e *encoder) settingsChange(c *SettingsChange) {
	if *c == (SettingsChange{}) {
		return
	}
	encodeChange(e, c.Groups, (*encoder).grouping)
	e.bool(c.Family)
	encodeChange(e, c.PerGroup, (*encoder).int)
	encodeChange(e, c.Paused, (*encoder).string)
	encodeChange(e, c.MaxWaiting, (*encoder).int)
	encodeChange(e, c.DropOldest, (*encoder).bool)
	encodeChange(e, c.HeadStartMS, (*encoder).int)
	encodeChange(e, c.WindowMS, (*encoder).int)
	encodeChange(e, c.CooldownMS, (*encoder).int)
	encodeChange(e, c.OnLostMS, (*encoder).int)
	encodeChange(e, c.MaxHoldMS, (*encoder).int)
	encodeChange(e, c.Slots, (*encoder).bool)
}

func (d *decoder) settingsChange() (c SettingsChange) {
	if len(d.Rest) == 0 {
		return c
	}
	c = SettingsChange{
		Groups:      decodeChange(d, (*decoder).grouping),
		Family:      d.Bool(),
		PerGroup:    decodeChange(d, (*decoder).Int),
		Paused:      decodeChange(d, (*decoder).Text),
		MaxWaiting:  decodeChange(d, (*decoder).Int),
		DropOldest:  decodeChange(d, (*decoder).Bool),
		HeadStartMS: decodeChange(d, (*decoder).Int),
		WindowMS:    decodeChange(d, (*decoder).Int),
		CooldownMS:  decodeChange(d, (*decoder).Int),
		OnLostMS:    decodeChange(d, (*decoder).Int),
		MaxHoldMS:   decodeChange(d, (*decoder).Int),
		Slots:       decodeChange(d, (*decoder).Bool),
	}
	if c == (SettingsChange{}) {
		d.Fail() // an empty change is encoded as no bytes
	}
	return c
}
