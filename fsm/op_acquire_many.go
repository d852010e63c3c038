package fsm

import (
	"crypto/sha256"
	"encoding/binary"
)

// AcquireMany requests several semaphores in a session: all in one step, or any (the first in the list's order that can
// be granted). A command with the same list and mode in the same session repeats the request.
//
// Codes: as Acquire, and MixedLevels. Grants are in the order of the list.
type AcquireMany struct {
	Session uint64
	Wants   []Want // 1 … MaxMembers; a group of a semaphore occurs once at most
	Mode    Mode
	Try     bool // don't wait

	HeadStartMS int64 // as in Acquire; at most the smallest Settings.HeadStartMS of the list
}

// Op is OpAcquireMany.
func (AcquireMany) Op() Op                       { return OpAcquireMany }
func (c AcquireMany) names() []string            { return namesOf(c.Wants) }
func (c AcquireMany) session() uint64            { return c.Session }
func (c AcquireMany) wants() []Want              { return c.Wants }
func (c AcquireMany) weight() int                { return len(c.Wants) }
func (c AcquireMany) outcomeBytes(*Limits) int64 { return leasesBytes(c.Wants) }

// cost includes an earlier request for the same list, which the command may end.
func (c AcquireMany) cost(size SessionSize) int {
	return Weight(c) + size.Records/walkedPerUnit + size.keysOfRequest()/keysPerUnit
}

func (c AcquireMany) encode(e *encoder) {
	e.uint(c.Session)
	e.wants(c.Wants)
	e.byte(byte(c.Mode))
	e.bool(c.Try)
	e.groups(c.Wants, c.HeadStartMS)
}

func decodeAcquireMany(d *decoder) Command {
	c := AcquireMany{Session: d.Uint(), Wants: d.wants(), Mode: Mode(d.Byte()), Try: d.Bool()}
	c.HeadStartMS = d.groups(c.Wants)
	return c
}

func (c AcquireMany) apply(m *Machine) Result {
	if (c.Mode != All && c.Mode != Any) || len(c.Wants) == 0 || len(c.Wants) > MaxMembers || !validWants(c.Wants) || !validAsk("", c.HeadStartMS) {
		return Result{Code: Malformed}
	}
	listHash := listHashOf(c.Mode, c.Wants)
	if session, ok := m.usableSession(c.Session); ok {
		m.endOrphan(session, listHash)
	}
	known, isKnown := m.usableSession(c.Session) // looked up again, because endOrphan may have ended a one-shot
	if isKnown {
		if same, ok := m.askedBefore(known, c.Wants, c.Mode, listHash); ok {
			m.takeOver(known, &same)
			return same
		}
	}
	members := make([]member, len(c.Wants))
	var refusal Result
	for i, want := range c.Wants {
		r, ok := m.findSemaphore(want.Semaphore, 0, &refusal)
		if !ok {
			m.describeSession(&refusal, known)
			return refusal
		}
		if members[i], ok = m.resolveMember(r, known, want, &refusal); !ok {
			m.describeSession(&refusal, known)
			return refusal
		}
	}
	if refusal, ok := m.validMembers(members, c.Mode); !ok {
		m.describeSession(&refusal, known)
		return refusal
	}
	possible, refusal := m.possible(members, c.Mode)
	if len(possible) == 0 {
		m.describeSession(&refusal, known)
		return refusal
	}
	var noSession Result
	session, ok := m.findSession(c.Session, &noSession)
	if !ok {
		return noSession
	}
	result := m.acquireMany(request{session: session, members: possible, mode: c.Mode, listHash: listHash}, members, c)
	if result.Code != Waiting {
		m.describeSession(&result, session)
	}
	m.takeOver(session, &result)
	m.finishCommand()
	return result
}

// acquireMany checks the leases, requests and levels of the session, and requests the
// leases.
func (m *Machine) acquireMany(entrant request, listed []member, c AcquireMany) Result {
	var result Result
	for _, want := range listed {
		if want.count < 1 {
			m.refuse(&result, InvalidCount, want)
			return result
		}
		group := m.groupOf(want.lane)
		if held, ok := m.leaseNamed(entrant.session, want.semaphore, group); ok {
			return m.refuseHeld(held, want.count)
		}
		if waiting, target := m.waitNamed(entrant.session, want.semaphore, group); waiting != 0 {
			m.refuse(&result, LeaseExists, want)
			result.explain().Holding = countOf(m.requests.at(waiting).members, target)
			return result
		}
		if entrant.mode == All && !sameLevel(m.semaphores.at(want.semaphore).level, m.semaphores.at(listed[0].semaphore).level) {
			m.refuse(&result, MixedLevels, want)
			return result
		}
	}
	if !m.mayAsk(entrant.session, entrant.members, &result) {
		return result
	}
	return m.grantOrEnqueue(&newRequest{request: entrant, mayWait: !c.Try, headStartMS: c.HeadStartMS})
}

// possible returns the members that could ever be granted; for "all" it returns every member,
// or an empty list. refusal counts only if the list is empty.
func (m *Machine) possible(members []member, mode Mode) (kept []member, refusal Result) {
	kept = make([]member, 0, len(members))
	for _, want := range members {
		if want.count <= m.largestCount(want) {
			kept = append(kept, want)
			continue
		}
		m.refuseNever(&refusal, want)
		if mode == All {
			return nil, refusal
		}
	}
	return kept, refusal
}

// askedBefore finds an earlier request for the same list in the session that still waits, or whose leases are all still
// held. An "any" request may have lost deleted semaphores since.
func (m *Machine) askedBefore(session ref, wants []Want, mode Mode, listHash uint64) (Result, bool) {
	if waiting, ok := m.byList[listKey{session, listHash}]; ok {
		return m.waitingResult(waiting), true
	}
	result := Result{Code: OK, Found: true}
	for _, want := range wants {
		r, ok := m.leaseNamed(session, m.byName[want.Semaphore], want.Group)
		if !ok || m.leases.at(r).listHash != listHash || m.leases.at(r).revoked() || m.leases.at(r).count != want.Count {
			if mode == All {
				return Result{}, false
			}
			continue
		}
		result.Grants = append(result.Grants, m.grantOf(m.leases.at(r)))
	}
	m.describeSession(&result, session)
	return result, len(result.Grants) > 0
}

// validWants reports whether all groups of a list are valid, and no group of a semaphore occurs twice.
func validWants(wants []Want) bool {
	type place struct{ semaphore, group string }
	seen := make(map[place]bool, len(wants))
	for _, want := range wants {
		at := place{want.Semaphore, want.Group}
		if seen[at] || !ValidGroup(want.Group) {
			return false
		}
		seen[at] = true
	}
	return true
}

// validMembers reports whether a request may have these members; if not, result is the refusal. A group of a semaphore
// may occur once. With ByOwner the owner is the group, so the semaphore may occur once. An "all" request may have a
// group of at most one pool, since two requests could wait for each other in two pools for ever.
func (m *Machine) validMembers(members []member, mode Mode) (result Result, ok bool) {
	pools := 0
	for i, w := range members {
		if w.lane == 0 {
			continue
		}
		if memberOf(members[:i], w.target()) != (member{}) {
			return Result{Code: Malformed, Rule: RuleGroup, Subject: m.semaphores.at(w.semaphore).name}, false
		}
		if m.semaphores.at(w.semaphore).pool() {
			pools++
		}
		if pools > 1 && mode == All {
			return Result{Code: Malformed, Rule: RulePools, Subject: m.semaphores.at(w.semaphore).name}, false
		}
	}
	return Result{}, true
}

// listHashOf identifies a list and its mode, by which a repeated request is recognised. It is never 0.
func listHashOf(mode Mode, list []Want) uint64 {
	e := encoder{buf: make([]byte, 0, 64)}
	e.byte(byte(mode))
	e.wants(list)
	e.groups(list, 0)
	sum := sha256.Sum256(e.buf)
	return binary.BigEndian.Uint64(sum[:8]) | 1
}
