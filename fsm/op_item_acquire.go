package fsm

// ItemAcquire gives an item to a session, with a value and flags, and makes it if there is
// none. An item that the session holds gets the value and flags as by ItemPut.
//
// Codes, in the order of the checks: Malformed, ItemDiffers (RuleDelay, with DelayMS),
// UnknownSession (ExpiredSession, Revoked), ItemDiffers (RuleHeld, with the Version),
// LimitReached (RuleSessionItems, RuleItems, RuleItemBytes); OK (Version, Locks, the session's
// deadline; Created or Found).
type ItemAcquire struct {
	Name    string
	Value   string // any bytes, up to 512 KiB
	Flags   uint64
	Session uint64
}

// Op is OpItemAcquire.
func (ItemAcquire) Op() Op            { return OpItemAcquire }
func (c ItemAcquire) names() []string { return []string{c.Name} }
func (c ItemAcquire) session() uint64 { return c.Session }

func (c ItemAcquire) encode(e *encoder) {
	e.string(c.Name)
	e.string(c.Value)
	e.uint(c.Flags)
	e.uint(c.Session)
}

func decodeItemAcquire(d *decoder) Command {
	return ItemAcquire{Name: d.Text(), Value: d.Text(), Flags: d.Uint(), Session: d.Uint()}
}

func (c ItemAcquire) apply(m *Machine) Result {
	if !validItem(c.Name, c.Value) {
		return Result{Code: Malformed}
	}
	if left := m.delayOf(c.Name); left > 0 {
		result := differs(RuleDelay, 0)
		result.DelayMS = left
		return result
	}
	var result Result
	owner, ok := m.findSession(c.Session, &result)
	if !ok {
		return result
	}
	holder := ref(0)
	if r, exists := m.itemNames.Get(c.Name); exists {
		if holder = m.items.at(r).holder; holder != 0 && holder != owner {
			return differs(RuleHeld, m.items.at(r).version)
		}
	}
	if holder == 0 && !within(int64(m.sessions.at(owner).items.length()), maxSessionItems, RuleSessionItems, &result) {
		return result
	}
	if !m.setItem(item{name: c.Name, value: c.Value, flags: c.Flags, holder: owner}, CauseNone, &result) {
		return result
	}
	m.describeSession(&result, owner)
	m.takeOver(owner, &result)
	return result
}
