package fsm

import (
	"reflect"
	"slices"
)

// The model's idempotency keys and their marks.

// follow ties a key with an outcome to the one-shot session that it was granted; the
// first such key of a session only.
func (m *model) follow(k *modelKey) {
	s := m.session(k.outcome.Session)
	if k.outcome.Code != OK || !k.outcome.OneShot || len(k.outcome.Grants) == 0 || s == nil {
		return
	}
	for _, other := range m.keys {
		if other.oneShot == s {
			return
		}
	}
	k.oneShot = s
}

// shrink is the end of a session: its key becomes a mark, if there is room.
func (m *model) shrink(s *modelSession) {
	for _, k := range m.keys {
		if k.oneShot != s {
			continue
		}
		k.oneShot = nil
		if int64(len(m.marks)) < 6*m.limits.Keys {
			m.marks = append(m.marks, modelMark{k.owner, k.name, m.nowMS})
			m.keys = slices.DeleteFunc(m.keys, func(other *modelKey) bool { return other == k })
		}
		return
	}
}

// keyed does a command once for its key.
func (m *model) keyed(c modelCommand) Result {
	if c.command == nil {
		return Result{Code: Malformed}
	}
	if c.key == "" {
		return m.do(c.command)
	}
	request := clientPart(c.command)
	for _, k := range m.keys {
		if k.name == c.key && k.owner == c.owner {
			return m.again(k, request)
		}
	}
	for _, k := range m.keys { // from before the identities
		if k.name == c.key && k.owner == "" && reflect.DeepEqual(k.asked, request) {
			id := k.outcome.Session
			if k.waiting != nil {
				id = k.waiting.session.id
			}
			switch s := m.found(id); {
			case m.session(id) == nil:
				return m.again(k, request)
			case s != nil && slices.Contains(givingBack, c.command.Op()):
				return m.again(k, request)
			case s != nil:
				return m.goOn(s, m.again(k, request))
			}
		}
	}
	for _, over := range m.marks {
		if over.name == c.key && (over.owner == c.owner || over.owner == "") {
			return Result{Code: Over, Replayed: true}
		}
	}
	if rule := m.roomForKey(c); rule != RuleNone {
		return Result{Code: LimitReached, Rule: rule}
	}
	if m.keysBeside(c.command) >= 4096 {
		return Result{Code: LimitReached, Rule: RuleKeys}
	}
	result := m.do(c.command)
	switch result.Code {
	case Malformed, InvalidCount, MixedLevels, PermitsRequired, LimitReached, SessionIDTaken, NothingReady:
		return result // not applied, and not recorded
	}
	k := &modelKey{owner: c.owner, name: c.key, asked: request, atMS: m.nowMS, outcome: result}
	m.keys = append(m.keys, k)
	if result.Code != Waiting {
		m.follow(k)
		return result
	}
	for _, r := range m.requests {
		if r.place == result.Place {
			if len(r.keys) == 1024 {
				m.keys = m.keys[:len(m.keys)-1]
				return Result{Code: LimitReached, Rule: RuleKeys}
			}
			k.waiting, k.outcome, k.room = r, Result{}, 256+512
			for _, want := range r.members {
				k.room += 64 + int64(len(want.semaphore.name))
			}
			r.keys = append(r.keys, k)
			return result
		}
	}
	for _, done := range m.conclusions { // its session ended within this command
		if done.Place == result.Place {
			k.outcome = done.Result
		}
	}
	return result
}

// keysBeside counts the keys that wait in the session in which a command asks.
func (m *model) keysBeside(c Command) (pending int) {
	var s *modelSession
	switch c := c.(type) {
	case Acquire:
		s = m.found(c.Session)
	case AcquireMany:
		s = m.found(c.Session)
	}
	if s == nil {
		return 0
	}
	for _, r := range m.requestsOf(s) {
		pending += len(r.keys)
	}
	return pending
}

// roomForKey returns the rule that refuses a new key, or RuleNone: the table is full, or
// the half of it that one owner may use is.
func (m *model) roomForKey(c modelCommand) Rule {
	var keys, bytes, owned, ownedBytes int64
	for _, k := range m.keys {
		takes := int64(len(k.owner)+len(k.name)) + 128 + k.room
		if k.waiting == nil {
			takes += int64(len(AppendResult(nil, &k.outcome)))
		}
		keys, bytes = keys+1, bytes+takes
		if k.owner == c.owner {
			owned, ownedBytes = owned+1, ownedBytes+takes
		}
	}
	more := int64(len(c.owner)+len(c.key)) + 128 + m.mayTake(c.command)
	switch {
	case keys >= m.limits.Keys || bytes+more > m.limits.KeyBytes:
		return RuleKeys
	case c.owner != "" && (owned >= m.limits.Keys-m.limits.Keys/2 || ownedBytes+more > m.limits.KeyBytes-m.limits.KeyBytes/2):
		return RuleOwnerKeys
	}
	return RuleNone
}

// mayTake is how many bytes the outcome of a command may take.
func (m *model) mayTake(c Command) int64 {
	bytes := int64(4096)
	switch c := c.(type) {
	case AcquireMany:
		for _, want := range c.Wants {
			bytes += 64 + int64(len(want.Semaphore)+len(want.Group))
		}
	case RestoreSession:
		for _, want := range c.Leases {
			bytes += 64 + int64(len(want.Semaphore)+len(want.Group))
		}
	case Renew:
		bytes += (64 + 1024) * int64(len(c.Renewals))
	case ListDeliver:
		bytes += (64 + 512) * m.limits.WaitList
	}
	return bytes
}

// again returns the result of a repeat of a key.
func (m *model) again(k *modelKey, command Command) Result {
	if !reflect.DeepEqual(k.asked, command) {
		return Result{Code: KeyReused}
	}
	if k.waiting != nil {
		result := m.stillWaiting(k.waiting)
		result.Joined = true
		return result
	}
	result := m.refreshed(k.outcome)
	result.Replayed = true
	result.TookOver = false // it did, when it was new
	return result
}

// refreshed returns a stored outcome with the present deadline of its lease.
func (m *model) refreshed(result Result) Result {
	result.DeadlineMS = 0
	result.Each = slices.Clone(result.Each)
	for i, each := range result.Each {
		result.Each[i] = m.refreshed(each)
	}
	s := m.session(result.Session)
	if s == nil {
		return result
	}
	for _, g := range result.Grants {
		held := false
		for _, l := range m.leases {
			held = held || l.token == g.Token && l.session == s && !l.revoked && !l.semaphore.deleted
		}
		if !held {
			return result
		}
	}
	result.DeadlineMS = s.deadlineMS
	return result
}

// clientPart is a command without ids that the node drew and without its wait.
func clientPart(c Command) Command {
	switch c := c.(type) {
	case AcquireOnce:
		c.Session, c.WaitMS = 0, 0
		return c
	case Down:
		c.Session, c.WaitMS = 0, 0
		return c
	case OpenSession:
		c.Session = 0
		return c
	case OpenHolder:
		c.Session = 0
		return c
	}
	return c
}
