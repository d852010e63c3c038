package fsm

// ItemRelease ends the hold of a session on an item, with a new value and flags. No delay
// follows.
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
	if !validItem(c.Name, c.Value) {
		return Result{Code: Malformed}
	}
	r, exists := m.itemNames.Get(c.Name)
	if !exists {
		return differs(RuleAbsent, 0)
	}
	owner, ok := m.ownSession(c.Session)
	if !ok || m.items.at(r).holder != owner {
		return differs(RuleNotHolder, m.items.at(r).version)
	}
	var result Result
	if m.setItem(item{name: c.Name, value: c.Value, flags: c.Flags}, CauseEnded, &result) {
		result.Session = c.Session
	}
	return result
}
