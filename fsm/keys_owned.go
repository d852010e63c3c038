package fsm

// ownedKeys is what one owner has in the table of idempotency keys.
type ownedKeys struct{ keys, bytes int64 }

// roomForKey returns the rule that keeps a new key out, if one does: the table is
// full, or the half of it that one owner may have is. The empty owner is no client
// in particular, and may have all of it.
func (m *Machine) roomForKey(name keyName, outcome int64) Rule {
	more, l := name.bytes()+outcome, &m.limits
	if int64(m.keys.live) >= l.Keys || m.keyBytes+more > l.KeyBytes {
		return RuleKeys
	}
	has := m.owned[name.owner]
	if name.owner != "" && (has.keys >= half(l.Keys) || has.bytes+more > half(l.KeyBytes)) {
		return RuleOwnerKeys
	}
	return RuleNone
}

// half is one owner's share of a limit, rounded up.
func half(limit int64) int64 { return limit/2 + limit%2 }

// countKey counts a key in, with 1, or out, with -1.
func (m *Machine) countKey(k *key, sign int64) {
	m.keyBytes += sign * k.bytes()
	if k.owner == "" {
		return
	}
	has := m.owned[k.owner]
	has.keys, has.bytes = has.keys+sign, has.bytes+sign*k.bytes()
	if has.keys == 0 {
		delete(m.owned, k.owner)
	} else {
		m.owned[k.owner] = has
	}
}

// keysBeside returns how many keys wait for outcomes in the session in which a command
// asks for leases; 0 for a command that asks in a session of its own, or for none.
func (m *Machine) keysBeside(c Command) int {
	var id uint64
	switch c := c.(type) {
	case Acquire:
		id = c.Session
	case AcquireMany:
		id = c.Session
	}
	if r, ok := m.ownSession(id); ok {
		return m.sessions.at(r).keys
	}
	return 0
}
