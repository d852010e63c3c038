package fsm

// ItemAcquire gives an item to a session, and sets its value and flags. It creates a missing item. If the session holds
// the item already, only value and flags change.
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
	session, set := ref(0), item{name: c.Name, value: c.Value, flags: c.Flags}
	result := m.changeItem(set, CauseNone, func(before *item, result *Result) (_ ref, ok bool) {
		if left := m.delayOf(c.Name); left > 0 {
			*result = differs(RuleDelay, 0)
			result.explain().DelayMS = left
			return 0, false
		}
		if session, ok = m.findSession(c.Session, result); !ok {
			return 0, false
		}
		if before.holder != 0 && before.holder != session {
			*result = differs(RuleHeld, before.version)
			return 0, false
		}
		items := int64(m.sessions.at(session).items.length())
		return session, before.holder != 0 || within(items, maxSessionItems, RuleSessionItems, result)
	})
	if result.Code == OK {
		m.describeSession(&result, session)
		m.takeOver(session, &result)
	}
	return result
}
