package fsm

import "slices"

func (n keyName) bytes() int64 { return int64(len(n.owner) + len(n.text) + keyOverhead) }

func (k *key) bytes() int64 { return k.keyName.bytes() + int64(len(k.result)) + k.reserved }

// applyKeyed applies a command once for its idempotency key. A repeat returns the recorded outcome or joins the waiting
// request.
func (m *Machine) applyKeyed(c *decoded) Result {
	name := keyName{c.Owner, c.Key}
	if r, ok := m.byKey[name]; ok {
		return m.replay(r, c.fingerprint)
	}
	if result, ok := m.replayUnowned(c); ok {
		return result
	}
	if m.isMarked(name) || m.caller.hasIdentity() && m.isMarked(keyName{text: c.Key}) {
		return Result{Code: Over, Replayed: true}
	}
	if rule := m.roomForKey(name, outcomeBytes(c.command, &m.limits)); rule != RuleNone {
		return Result{Code: LimitReached, Rule: rule}
	}
	if m.pendingKeysOf(c.command) >= maxSessionKeys { // before the command runs, since a refused command must leave no request behind
		return Result{Code: LimitReached, Rule: RuleKeys}
	}
	result := c.command.apply(m)
	if !result.recorded() {
		return result
	}
	k := key{keyName: name, fingerprint: c.fingerprint}
	if result.Code != Waiting {
		k.result = encodeResult(result)
		m.followOneShot(m.addKey(k), &result)
		return result
	}
	k.place, k.session = result.Place, result.Session
	waiting, ok := m.requestAt(k.session, k.place)
	if !ok { // a ttl of 0 ended the session within this command
		m.finishKey(m.addKey(k), encodeResult(m.conclusionOf(k.place)))
		return result
	}
	request := m.requests.mut(waiting)
	if len(request.keys) >= maxRequestKeys {
		return Result{Code: LimitReached, Rule: RuleKeys}
	}
	m.sessions.mut(request.session).keys++
	for _, want := range request.members {
		k.reserved += memberBytes + int64(len(m.semaphores.at(want.semaphore).name)+len(m.groupOf(want.lane)))
	}
	k.reserved += waitBytes
	request.keys = append(request.keys[:len(request.keys):len(request.keys)], m.addKey(k))
	return result
}

// Bounds of stored outcomes, in bytes.
const (
	memberBytes  = 64                 // of a list member, without its name
	waitBytes    = 256 + maxNameBytes // of the outcome of a wait, with an operator's reason, without the members
	answerBytes  = 4096               // of any outcome, without the members
	maxEachBytes = memberBytes + maxReasonBytes
)

// outcomeBytes returns an upper bound of the bytes of the outcome of a command.
func outcomeBytes(c Command, l *Limits) int64 {
	if lists, ok := c.(interface{ outcomeBytes(*Limits) int64 }); ok {
		return answerBytes + lists.outcomeBytes(l)
	}
	return answerBytes
}

// leasesBytes returns an upper bound of the bytes that leases add to an outcome.
func leasesBytes(wants []Want) (bytes int64) {
	for _, want := range wants {
		bytes += memberBytes + int64(len(want.Semaphore)+len(want.Group))
	}
	return bytes
}

// recorded reports whether an outcome is stored for repeats of the key. Refusals after which the client should correct
// the request, or retry when there is room, are not stored.
func (r *Result) recorded() bool {
	switch r.Code {
	case Malformed, InvalidCount, MixedLevels, PermitsRequired, LimitReached, SessionIDTaken, NothingReady:
		return false
	}
	return true
}

// replay returns the result of a repeated command.
func (m *Machine) replay(r ref, fingerprint [16]byte) Result {
	k := m.keys.at(r)
	if k.fingerprint != fingerprint {
		return Result{Code: KeyReused}
	}
	if k.place == 0 {
		result := decodeResult(k.result)
		m.refresh(&result)
		for i := range result.Each {
			m.refresh(&result.Each[i])
		}
		result.Replayed, result.TookOver = true, false
		return result
	}
	waiting, ok := m.requestAt(k.session, k.place)
	if !ok {
		panic("a pending key without its request")
	}
	result := m.waitingResult(waiting)
	result.Joined = true
	return result
}

// refresh sets the deadline in a replayed outcome to the lease's present deadline, or 0 if the lease is gone.
func (m *Machine) refresh(result *Result) {
	result.DeadlineMS = 0
	r, ok := m.bySession.Get(result.Session)
	if !ok {
		return
	}
	for _, g := range result.Grants {
		semaphore, ok := m.byName[g.Semaphore]
		if !ok {
			return
		}
		held, ok := m.leaseNamed(r, semaphore, g.DetailsOrZero().Group)
		if !ok || m.leases.at(held).token != g.Token || m.leases.at(held).revoked() {
			return
		}
	}
	result.DeadlineMS = m.sessions.at(r).deadlineMS
}

func (m *Machine) requestAt(id, place uint64) (ref, bool) {
	r, ok := m.byPlace[place]
	if !ok || m.sessionID(m.requests.at(r).session) != id {
		return 0, false
	}
	return r, true
}

// conclusionOf returns the outcome of a wait that this command has ended.
func (m *Machine) conclusionOf(place uint64) Result {
	for _, c := range slices.Backward(m.conclusions) {
		if c.Place == place {
			return c.Result
		}
	}
	panic("a waiting request is gone without a conclusion")
}

func (m *Machine) addKey(k key) ref {
	m.orders++
	k.order, k.atMS = m.orders, m.nowMS
	r := m.keys.add(k)
	m.byKey[k.keyName] = r
	m.countKey(&k, 1)
	m.queueKey(r)
	return r
}

// finishKey stores the outcome of a pending key. The time for which the key is kept starts now.
func (m *Machine) finishKey(r ref, outcome string) {
	k := m.keys.mut(r)
	m.countKey(k, -1)
	m.orders++
	k.place, k.session, k.reserved, k.result = 0, 0, 0, outcome
	k.order, k.atMS = m.orders, m.nowMS
	m.countKey(k, 1)
	m.queueKey(r)
}

// queueKey puts a key with an outcome at the end of the order in which keys are forgotten. Pending keys are not in this
// order.
func (m *Machine) queueKey(r ref) {
	if m.keys.at(r).place == 0 {
		m.outcomes.push(r, m.keyInOrder)
	}
}

func (m *Machine) keyInOrder(r ref) *links { return &m.keys.mut(r).inOrder }

// forgetKey drops a key whose time has passed. If the key was tied to a one-shot session, the session continues without
// it.
func (m *Machine) forgetKey(r ref) {
	if id := m.keys.at(r).session; id != 0 {
		session, _ := m.bySession.Get(id)
		m.sessions.mut(session).key = 0
	}
	m.removeKey(r)
}

// removeKey removes a key with an outcome.
func (m *Machine) removeKey(r ref) {
	m.outcomes.unlink(r, m.keyInOrder)
	k := m.keys.at(r)
	m.countKey(k, -1)
	delete(m.byKey, k.keyName)
	m.keys.remove(r)
}

// roomForKey returns the rule that refuses a new key, or RuleNone. It refuses if the table is full, or if the owner
// would use more than half of it. The empty owner may use all of it, because it stands for any number of clients.
func (m *Machine) roomForKey(name keyName, outcome int64) Rule {
	more, l := name.bytes()+outcome, &m.limits
	if int64(m.keys.live) >= l.Keys || m.keyBytes+more > l.KeyBytes {
		return RuleKeys
	}
	has := m.owned[name.owner]
	if name.owner != "" && (has.keys >= half(l.Keys) || has.keyBytes+more > half(l.KeyBytes)) {
		return RuleOwnerKeys
	}
	return RuleNone
}

// half is the share of a limit that one owner may use, rounded up.
func half(limit int64) int64 { return limit/2 + limit%2 }

// countKey adds a key to the counters (sign 1) or subtracts it (sign -1).
func (m *Machine) countKey(k *key, sign int64) {
	m.keyBytes += sign * k.bytes()
	m.count(k.owner, owned{keys: sign, keyBytes: sign * k.bytes()})
}

// pendingKeysOf returns how many keys of a command's session wait for an outcome. It returns 0 if the command requests
// no lease, or opens the session.
func (m *Machine) pendingKeysOf(c Command) int {
	id := uint64(0)
	if len(Wants(c)) > 0 {
		id = SessionOf(c)
	}
	if r, ok := m.usableSession(id); ok {
		return int(m.sessions.at(r).keys)
	}
	return 0
}

// followOneShot ties a key with an outcome to its one-shot session, so that the key ends with the session. Only the
// first such key of a session is tied, so that the end of the session has bounded work. Keys of further acquires in the
// session are not tied.
func (m *Machine) followOneShot(k ref, outcome *Result) {
	if outcome.Code != OK || !outcome.OneShot || len(outcome.Grants) == 0 {
		return
	}
	r, ok := m.bySession.Get(outcome.Session)
	if !ok || m.sessions.at(r).key != 0 {
		return
	}
	m.sessions.mut(r).key = k
	m.keys.mut(k).session = outcome.Session
}
