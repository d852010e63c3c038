package fsm

// ItemRelease ends the hold of a session on an item, and sets its value and flags. It starts no delay.
//
// Codes: OK (Version, Locks, Found), Malformed, ItemDiffers (RuleAbsent; RuleNotHolder, with
// the Version, also for a session that is not known), LimitReached (RuleItemBytes).
type ItemRelease struct {
	Name    string
	Value   string // any bytes, up to 512 KiB
	Flags   uint64
	Session uint64
}

// Op is OpItemRelease.
func (ItemRelease) Op() Op            { return OpItemRelease }
func (c ItemRelease) names() []string { return []string{c.Name} }
func (c ItemRelease) session() uint64 { return c.Session }

func (c ItemRelease) encode(e *encoder) {
	e.string(c.Name)
	e.string(c.Value)
	e.uint(c.Flags)
	e.uint(c.Session)
}

func decodeItemRelease(d *decoder) Command {
	return ItemRelease{Name: d.Text(), Value: d.Text(), Flags: d.Uint(), Session: d.Uint()}
}

func (c ItemRelease) apply(m *Machine) Result {
	set := item{name: c.Name, value: c.Value, flags: c.Flags}
	result := m.changeItem(set, CauseEnded, func(before *item, result *Result) (ref, bool) {
		if before.version == 0 {
			*result = differs(RuleAbsent, 0)
		} else if session, ok := m.usableSession(c.Session); !ok || before.holder != session {
			*result = differs(RuleNotHolder, before.version)
		}
		return 0, result.Code == OK
	})
	if result.Code == OK {
		result.Session = c.Session
	}
	return result
}
