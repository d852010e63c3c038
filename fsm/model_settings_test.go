package fsm

// The model's settings: which are refused, alone or together.

func badSettings(c SettingsChange) bool {
	s := c.applied(Settings{}, false)
	return s.PerGroup < 0 || !ValidReason(s.Paused) || s.MaxWaiting < 0 || s.MaxWaiting > 100_000 ||
		s.HeadStartMS < 0 || s.HeadStartMS > 24*3600*1000 ||
		outside(s.WindowMS, 100, 31*24*3600*1000) || outside(s.CooldownMS, 1, 24*3600*1000) ||
		s.OnLostMS != Quarantine && outside(s.OnLostMS, 1, 24*3600*1000) || outside(s.MaxHoldMS, 1000, MaxTTLMS)
}

func outside(ms, least, greatest int64) bool { return ms != 0 && (ms < least || ms > greatest) }

// excluded returns the rule that settings break together.
func excluded(s Settings) Rule {
	switch {
	case !(s.Groups != NoGroups) && s.PerGroup > 0:
		return RulePerGroup
	case s.Family && !(s.Groups != NoGroups && s.PerGroup > 0):
		return RulePermits
	case s.Family && s.Paused != "":
		return RulePaused
	case s.DropOldest && s.MaxWaiting == 0:
		return RuleWhenFull
	case s.WindowMS != 0 && (s.CooldownMS != 0 || s.OnLostMS != 0 || s.MaxHoldMS != 0 || s.Slots):
		return RuleWindow
	case s.Family && s.Slots:
		return RuleSlots
	}
	return RuleNone
}

// told is how effects show settings.
func told(s Settings) *Settings {
	if s == (Settings{}) {
		return nil
	}
	return &s
}
