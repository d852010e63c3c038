package fsm

import (
	"math"
	"slices"
)

// RestoreSession makes a session that a client remembers, with its leases, without regard to available permits and
// levels. Available may become negative until enough leases end. Each lease gets a new token; a receipt takes no
// permits. A living session with exactly these leases and no waiting request stays as it is. Leases that an operator
// revoked are not restored.
//
// Codes: OK (Session, Grants in list order), Malformed, UnknownSemaphore, InvalidCount,
// Revoked, SessionExists, Overflow, SlotsNeeded, SlotTaken, LimitReached.
type RestoreSession struct {
	Session  uint64
	TTLMS    int64
	Leases   []Want // a group of a semaphore occurs once at most; may be empty
	Metadata []Pair
	Slots    [][]uint32 // for each lease, in their order; nil: without slots
}

// Op is OpRestoreSession.
func (RestoreSession) Op() Op            { return OpRestoreSession }
func (c RestoreSession) names() []string { return namesOf(c.Leases) }
func (c RestoreSession) session() uint64 { return c.Session }
func (c RestoreSession) weight() int     { return len(c.Leases) }

// cost includes the records that it searches for leases of deleted semaphores.
func (c RestoreSession) cost(size SessionSize) int { return Weight(c) + size.Records/walkedPerUnit }

func (c RestoreSession) outcomeBytes(*Limits) int64 { return leasesBytes(c.Leases) }

func (c RestoreSession) encode(e *encoder) {
	e.uint(c.Session)
	e.int(c.TTLMS)
	e.wants(c.Leases)
	e.pairs(c.Metadata)
	if !c.namesSlots() {
		e.groups(c.Leases, 0)
		return
	}
	e.groupList(c.Leases, 0)
	for i := range c.Leases {
		e.slotNumbers(c.slotsOf(i))
	}
}

func decodeRestoreSession(d *decoder) Command {
	c := RestoreSession{Session: d.Uint(), TTLMS: d.Int(), Leases: d.wants(), Metadata: d.pairs()}
	if len(d.Rest) == 0 {
		return c
	}
	headStartMS, grouped := d.groupList(c.Leases)
	if len(d.Rest) > 0 {
		c.Slots = make([][]uint32, len(c.Leases))
		for i := range c.Slots {
			c.Slots[i] = d.slotNumbers()
		}
	}
	if headStartMS != 0 || !grouped && !c.namesSlots() || c.Slots != nil && !c.namesSlots() {
		d.Fail() // absent slots are encoded as no bytes
	}
	return c
}

// slotsOf returns the slots that the command names for lease i.
func (c RestoreSession) slotsOf(i int) []uint32 {
	if i >= len(c.Slots) {
		return nil
	}
	return c.Slots[i]
}

func (c RestoreSession) namesSlots() bool {
	return slices.ContainsFunc(c.Slots, func(numbers []uint32) bool { return len(numbers) > 0 })
}

func (c RestoreSession) apply(m *Machine) Result {
	if c.Session == 0 || c.TTLMS < 0 || c.TTLMS > MaxTTLMS || !ValidMetadata(c.Metadata) || !validWants(c.Leases) {
		return Result{Code: Malformed}
	}
	var result Result
	session, _ := m.usableSession(c.Session)
	members := make([]member, len(c.Leases))
	for i, want := range c.Leases {
		r, ok := m.findSemaphore(want.Semaphore, 0, &result)
		if !ok {
			return result
		}
		if members[i], ok = m.resolveMember(r, session, want, &result); !ok {
			return result
		}
	}
	if refusal, ok := m.validMembers(members, Any); !ok {
		return refusal
	}
	for _, want := range members {
		if want.count < 1 {
			m.refuse(&result, InvalidCount, want)
			return result
		}
	}
	if r, ok := m.byEnded[c.Session]; ok && m.mayUse(m.ended.at(r).owner) && revokes(m.ended.at(r).cause) {
		return Result{Code: Revoked, Session: c.Session, Refusal: Refusal{Reason: m.ended.at(r).reason}.ifSet()}
	} else if ok && !m.mayUse(m.ended.at(r).owner) {
		return Result{Code: SessionExists, Session: c.Session} // the session has another owner
	}
	if living, ok := m.usableSession(c.Session); ok {
		return c.restoreLiving(m, living, members)
	}
	if _, others := m.bySession.Get(c.Session); others {
		return Result{Code: SessionExists, Session: c.Session}
	}
	if refusal, was := m.wasRevoked(c.Session, members); was {
		return refusal
	}
	return c.restore(m, members)
}

// restoreLiving succeeds if a living session has exactly these leases and no request. It keeps the deadline. If the client
// names slots, they must be the slots of its leases: the client may use them without reading the reply.
func (c RestoreSession) restoreLiving(m *Machine, living ref, members []member) Result {
	s := m.sessions.at(living)
	result := Result{Code: SessionExists, Session: s.id}
	if leases, requests := m.has(living); requests > 0 || leases != len(members) {
		return result
	}
	for i, want := range members {
		held, ok := m.leaseNamed(living, want.semaphore, m.groupOf(want.lane))
		slots, distinct := runsOf(c.slotsOf(i))
		if !ok || m.leases.at(held).count != want.count || m.leases.at(held).revoked() ||
			len(c.slotsOf(i)) > 0 && m.semaphores.at(want.semaphore).hasSlots() && (!distinct || !slices.Equal(slots, m.leases.at(held).slots.all())) {
			return Result{Code: SessionExists, Session: s.id}
		}
		result.Grants = append(result.Grants, m.grantOf(m.leases.at(held)))
	}
	result.Code, result.Found = OK, true
	m.describeSession(&result, living)
	m.takeOver(living, &result)
	return result
}

func (c RestoreSession) restore(m *Machine, members []member) Result {
	var result Result
	more, slots := map[ref]int64{}, false // counts for semaphores other than families, summed over their groups
	for _, want := range members {
		s := m.semaphores.at(want.semaphore)
		if slots = slots || s.hasSlots(); s.settingsOrZero().WindowMS != 0 {
			continue
		}
		before := more[want.semaphore]
		if want.count > math.MaxInt64-before || !m.countersFit(want, before+want.count) || s.hasSlots() && want.count > maxLeaseSlots {
			m.refuse(&result, Overflow, want)
			return result
		}
		if !s.family() {
			more[want.semaphore] = before + want.count
		}
	}
	named := make([]*slotList, len(members))
	if slots {
		var ok bool
		if named, ok = c.namedSlots(m, members, &result); !ok {
			return result
		}
	}
	wanted := request{members: members, mode: All}
	_, rests := m.mayReturn(&wanted)
	if !m.roomToOpen(c.Session, &result) || !m.roomForReturns(rests, &result) || !m.roomToHold(&session{owner: m.caller.Owner}, &wanted, &result) {
		return result
	}
	wanted.session = m.openSession(session{id: c.Session, ttlMS: c.TTLMS, deadlineMS: m.nowMS + c.TTLMS, metadata: c.Metadata})
	result.Created = true
	for i, want := range members {
		m.useLane(want.lane)
		if want.lane != 0 {
			m.takeTurn(want.lane)
		}
		restored := lease{slots: named[i]}
		if m.semaphores.at(want.semaphore).settingsOrZero().WindowMS != 0 {
			restored.dueMS = max(m.nowMS, 1) // a receipt whose permits have come back
		}
		m.markSlots(want.semaphore, named[i])
		m.fileLease(&wanted, want, &restored, &result)
		m.leaveLane(want.lane)
	}
	m.endIfDue(m.sessions.at(wanted.session))
	m.describeSession(&result, wanted.session)
	m.finishCommand()
	return result
}

// namedSlots returns the slots of each lease, nil for a semaphore without slots. If a lease names too many, too few or
// taken slots, result is the refusal.
func (c RestoreSession) namedSlots(m *Machine, members []member, result *Result) (named []*slotList, ok bool) {
	type slotOf struct {
		semaphore ref
		slot      uint32
	}
	seen := map[slotOf]bool{} // slots of the previous leases
	named = make([]*slotList, len(members))
	for i, want := range members {
		s := m.semaphores.at(want.semaphore)
		if !s.hasSlots() {
			continue
		}
		runs, distinct := runsOf(c.slotsOf(i))
		if !distinct || int64(len(c.slotsOf(i))) != want.count {
			m.refuse(result, SlotsNeeded, want)
			return nil, false
		}
		free := true
		each(runs, func(slot uint32) {
			at := slotOf{want.semaphore, slot}
			free = free && !seen[at] && (s.slots == nil || !s.slots.has(slot))
			seen[at] = true
		})
		if !free {
			m.refuse(result, SlotTaken, want)
			return nil, false
		}
		named[i] = newSlotList(runs)
	}
	return named, true
}
