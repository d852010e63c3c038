package fsm

import "slices"

// applyKeyed applies a command once for its idempotency key: a repeat gets the
// recorded outcome, or joins the request that still waits.
func (m *Machine) applyKeyed(c decoded) Result {
	if c.Key == "" {
		return c.command.apply(m)
	}
	name := keyName{c.Owner, c.Key}
	if r, ok := m.byKey[name]; ok {
		return m.replay(r, c.fingerprint)
	}
	if m.isMarked(name) {
		return Result{Code: Over, Replayed: true}
	}
	if rule := m.roomForKey(name, outcomeBytes(c.command, &m.limits)); rule != RuleNone {
		return Result{Code: LimitReached, Rule: rule}
	}
	if m.bounded() && m.keysBeside(c.command) >= maxSessionKeys { // before it is applied: its request might stay
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
	if !ok { // a ttl of 0 ended its session in this very command
		m.finishKey(m.addKey(k), encodeResult(m.conclusionOf(k.place)))
		return result
	}
	request := m.requests.mut(waiting)
	if len(request.keys) >= maxRequestKeys {
		return Result{Code: LimitReached, Rule: RuleKeys}
	}
	m.sessions.mut(request.session).keys++
	for _, want := range request.members {
		k.reserved += memberBytes + int64(len(m.semaphores.at(want.semaphore).name))
	}
	k.reserved += waitBytes
	request.keys = append(request.keys[:len(request.keys):len(request.keys)], m.addKey(k))
	return result
}

// What stored outcomes may take, in bytes: a member of a list beside its name, the
// outcome of a wait beside its members and the reason of an operator who ended it,
// any outcome beside its members.
const (
	memberBytes  = 64
	waitBytes    = 256 + maxNameBytes
	answerBytes  = 4096
	maxEachBytes = memberBytes + maxReasonBytes
)

// outcomeBytes answers what the outcome of a command takes at most.
func outcomeBytes(c Command, l *Limits) int64 {
	bytes := int64(answerBytes)
	var wants []Want
	switch c := c.(type) {
	case AcquireMany:
		wants = c.Wants
	case RestoreSession:
		wants = c.Leases
	case Renew:
		bytes += int64(len(c.Renewals)) * maxEachBytes
	case ListDeliver:
		bytes += l.WaitList * (memberBytes + maxNameBytes)
	}
	for _, want := range wants {
		bytes += memberBytes + int64(len(want.Semaphore))
	}
	return bytes
}

// recorded reports whether an outcome is kept for repeats of its key: not what
// the machine refused to apply at all.
func (r *Result) recorded() bool {
	switch r.Code {
	case Malformed, InvalidCount, MixedLevels, PermitsRequired, LimitReached, SessionIDTaken, NothingReady:
		return false
	}
	return true
}

// replay answers a repeat of a key.
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
		result.Replayed = true
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

// refresh puts the present deadline into a replayed outcome: what is left of
// the lease now, nothing when it is gone.
func (m *Machine) refresh(result *Result) {
	result.DeadlineMS = 0
	r, ok := m.bySession[result.Session]
	if !ok {
		return
	}
	for _, g := range result.Grants {
		semaphore, ok := m.byName[g.Semaphore]
		if !ok {
			return
		}
		held, ok := m.byLease[leaseKey{r, semaphore}]
		if !ok || m.leases.at(held).token != g.Token || m.leases.at(held).revoked {
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

// conclusionOf returns the outcome of a wait that this very command has ended.
func (m *Machine) conclusionOf(place uint64) Result {
	for _, c := range slices.Backward(m.applied.Conclusions) {
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

// finishKey overwrites a pending key with the outcome, kept from now on.
func (m *Machine) finishKey(r ref, outcome string) {
	k := m.keys.mut(r)
	m.countKey(k, -1)
	m.orders++
	k.place, k.session, k.reserved, k.result = 0, 0, 0, outcome
	k.order, k.atMS = m.orders, m.nowMS
	m.countKey(k, 1)
	m.queueKey(r)
}

// queueKey puts a key behind all that are forgotten before it. A pending one stays
// until its request has an outcome.
func (m *Machine) queueKey(r ref) {
	if m.keys.at(r).place == 0 {
		m.outcomes.push(r, m.keyInOrder)
	}
}

func (m *Machine) keyInOrder(r ref) *links { return &m.keys.mut(r).inOrder }

// forgetOldKeys drops the keys with an outcome that are older than they are kept, so
// many an entry.
func (m *Machine) forgetOldKeys() {
	for range forgetKeys {
		oldest := m.outcomes.first
		if oldest == 0 || m.keys.at(oldest).atMS+keysKeptMS > m.nowMS {
			return
		}
		if id := m.keys.at(oldest).session; id != 0 {
			m.sessions.mut(m.bySession[id]).key = 0
		}
		m.removeKey(oldest)
	}
}

// removeKey forgets a key with an outcome.
func (m *Machine) removeKey(r ref) {
	m.outcomes.unlink(r, m.keyInOrder)
	k := m.keys.at(r)
	m.countKey(k, -1)
	delete(m.byKey, k.keyName)
	m.keys.remove(r)
}
