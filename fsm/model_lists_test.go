package fsm

import (
	"fmt"
	"math"
	"math/big"
	"slices"
)

// The model's wait lists and notices.

type modelEntry struct {
	number    int // rises with each entry ever added
	session   *modelSession
	semaphore *modelSemaphore // nil once it is deleted
	name      string
	epoch     uint64
	granted   int64
	spent     int64 // of granted, in a window
	token     uint64
	waiting   *modelRequest
	in        modelIn
}

func (e *modelEntry) wanted() int64 {
	if e.waiting == nil {
		return 0
	}
	return e.waiting.members[0].count
}

// orphaned: its semaphore is deleted, and its grant is void.
func (e *modelEntry) orphaned() bool { return e.semaphore == nil || e.semaphore.deleted }

type modelNotice struct {
	id        uint64
	semaphore *modelSemaphore // nil once it is deleted
	name      string
	epoch     uint64
	url       string
	count     int64
	due       bool
	dueMS     int64
	madeMS    int64
	owner     string
	group     string
}

func (m *model) listOf(s *modelSession) (found []*modelEntry) {
	for _, e := range m.entries {
		if e.session == s {
			found = append(found, e)
		}
	}
	return found
}

func (m *model) listAdd(c ListAdd) Result {
	if !ValidGroup(c.Group) {
		return Result{Code: Malformed}
	}
	owner := m.found(c.Session)
	want, refusal := m.asked(Want{c.Name, c.Count, c.Group}, c.Epoch, owner)
	if refusal != nil {
		return *refusal
	}
	s := want.semaphore
	switch {
	case owner == nil:
		return m.noSessionFor(c.Session, s)
	case c.Count < 1:
		return m.refusal(InvalidCount, want)
	case s.settings.Family && s.settings.WindowMS == 0:
		return m.refusal(NoTotal, want)
	}
	entry := m.entryOf(owner, s, want.group)
	if entry != nil {
		// The sum of granted, wanted and added permits stays one number.
		sum := new(big.Int).Add(big.NewInt(entry.granted), big.NewInt(entry.wanted()))
		if !sum.Add(sum, big.NewInt(c.Count)).IsInt64() {
			return m.refusal(Overflow, want)
		}
		if entry.waiting != nil {
			return m.goOn(owner, m.wantMore(entry, c.Count))
		}
	}
	if entry == nil && int64(len(m.listOf(owner))) >= m.limits.WaitList {
		return Result{Code: LimitReached, Rule: RuleWaitList, Epoch: s.epoch}
	}
	r := &modelRequest{session: owner, members: []modelMember{want}, unowned: true, partial: true}
	m.rank(r, 0)
	members, now := m.servable(r)
	if now {
		if refusal := m.roomToHold(owner, r); refusal != nil {
			refusal.Epoch = s.epoch
			return *refusal
		}
	} else {
		if refusal := m.fullLines(r); refusal != nil {
			return *refusal
		}
		if refusal := m.roomToWait(owner, r); refusal != nil {
			refusal.Epoch = s.epoch
			return *refusal
		}
	}
	if entry == nil {
		m.numbers++
		entry = &modelEntry{number: m.numbers, session: owner, semaphore: s, name: s.name, epoch: s.epoch, in: modelIn{want.group, s.grouped()}}
		m.entries = append(m.entries, entry)
		if s.grouped() {
			m.groupNamed(s, want.group)
		}
	}
	r.entry = entry
	if now {
		m.grant(r, members)
	} else {
		entry.waiting = r
		m.enqueue(r)
	}
	result := m.goOn(owner, m.ofEntry(entry))
	m.serveAndEnd()
	return result
}

// entryOf is the entry of a session's wait list for a group of a semaphore.
func (m *model) entryOf(owner *modelSession, s *modelSemaphore, group string) *modelEntry {
	for _, in := range meantIn(owner, s, group) {
		for _, e := range m.listOf(owner) {
			if e.semaphore == s && e.in == in {
				return e
			}
		}
	}
	return nil
}

// wantMore: wanted grows, the place is kept.
func (m *model) wantMore(entry *modelEntry, count int64) Result {
	entry.waiting.members = slices.Clone(entry.waiting.members)
	entry.waiting.members[0].count += count
	entry.semaphore.modified = m.index
	m.waits(entry.waiting, entry.waiting.members[0])
	return m.ofEntry(entry)
}

func (m *model) ofEntry(e *modelEntry) Result {
	result := Result{Code: OK, Session: e.session.id, Epoch: e.epoch, Granted: e.granted, Asked: e.wanted()}
	if e.waiting != nil {
		result.Place = e.waiting.place
		result.Position = m.position(e.waiting, e.waiting.members[0])
	}
	return result
}

func (m *model) listRemove(c ListRemove) Result {
	if !ValidGroup(c.Group) {
		return Result{Code: Malformed}
	}
	owner := m.found(c.Session)
	if owner == nil {
		return m.noSession(c.Session)
	}
	result := Result{Code: OK}
	for _, e := range m.listOf(owner) {
		if e.name == c.Name && (c.Epoch == 0 || c.Epoch == e.epoch) && m.meansEntry(c.Group, e) {
			result.Found = true
			m.dropEntry(e, true)
		}
	}
	return m.afterList(owner, result)
}

// meansEntry: an entry of a deleted semaphore may also be named without the group of its owner.
func (m *model) meansEntry(group string, e *modelEntry) bool {
	return slices.Contains(meantIn(e.session, e.semaphore, group), e.in) ||
		e.orphaned() && group == "" && e.in.group == e.session.owner
}

func (m *model) listDeliver(c ListDeliver) Result {
	owner := m.found(c.Session)
	if owner == nil {
		return m.noSession(c.Session)
	}
	list := m.listOf(owner)
	result := Result{Code: NothingReady, Found: len(list) > 0}
	// In list order, beginning after the entry delivered last.
	first := slices.IndexFunc(list, func(e *modelEntry) bool { return e.number > owner.delivered })
	if first > 0 {
		list = append(slices.Clone(list[first:]), list[:first]...)
	}
	for _, e := range list {
		done := Completion{Semaphore: e.name, Epoch: e.epoch, Deleted: true, Group: e.in.group}
		if !e.orphaned() {
			done.Deleted, done.Granted, done.Token = false, e.granted, e.token
		}
		if e.granted == 0 && e.waiting != nil && !done.Deleted {
			continue
		}
		result.Code = OK
		result.Completed = append(result.Completed, done)
		owner.delivered = e.number
		m.dropEntry(e, false)
	}
	result = m.goOn(owner, result)
	return m.afterList(owner, result)
}

func (m *model) afterList(owner *modelSession, result Result) Result {
	result = m.of(owner, result)
	m.endIfSpent(owner, CauseEnded)
	m.serveAndEnd()
	return result
}

// dropEntry takes an entry off its list. An undelivered grant is given back as by an up, as
// far as the counter has room.
func (m *model) dropEntry(e *modelEntry, giveBack bool) {
	if e.waiting != nil {
		m.withdraw(e.waiting, CauseEnded, Result{Code: Withdrawn, Session: e.session.id, Place: e.waiting.place})
	}
	m.entries = slices.DeleteFunc(m.entries, func(other *modelEntry) bool { return other == e })
	m.effect(Effect{Kind: EffectListLeft, Semaphore: e.name, Epoch: e.epoch, Session: e.session.id, Details: detailsOf(e.in.group, 0, nil, "")})
	m.done.ended++
	if s := e.semaphore; !e.orphaned() && giveBack && e.granted > e.spent {
		back := big.NewInt(e.granted - e.spent)
		for _, whole := range []*big.Int{big.NewInt(s.offset), new(big.Int).Add(big.NewInt(s.permits), big.NewInt(s.offset))} {
			if room := new(big.Int).Sub(big.NewInt(math.MaxInt64), whole); room.Cmp(back) < 0 {
				back = room
			}
		}
		if s.settings.Slots {
			back = big.NewInt(min(back.Int64(), max(0, mostSlots-s.permits-s.offset)))
		}
		s.offset += back.Int64()
		s.modified = m.index
		m.changed(s)
	}
	if e.semaphore != nil {
		m.tidy(e.semaphore)
	}
}

// orphan: an entry of a deleted semaphore stays until it is delivered or removed.
func (m *model) orphan(e *modelEntry) {
	m.done.ended++
	s := e.semaphore
	e.semaphore, e.granted, e.token = nil, 0, 0
	m.tidy(s)
	m.effect(Effect{Kind: EffectListReady, Cause: CauseDeleted, Semaphore: e.name, Epoch: e.epoch, Session: e.session.id,
		Details: detailsOf(e.in.group, 0, nil, "")})
}

// deleteNotices: they are due at once.
func (m *model) deleteNotices(s *modelSemaphore) {
	for _, n := range m.notices {
		if n.semaphore == s {
			n.semaphore = nil
			m.noticeDue(n)
		}
	}
}

// leaveNotice is the end of a refused down.
func (m *model) leaveNotice(want modelMember, c Down, result Result) Result {
	s, here := want.semaphore, 0
	for _, n := range m.notices {
		if n.semaphore == s {
			here++
		}
	}
	if len(m.notices) >= 10_000 || here >= 100 {
		result.Code, result.Rule = LimitReached, RuleNotices
		return result
	}
	owner := m.caller.owner
	mine := func(n *modelNotice) bool { return n.owner == owner }
	if all := countFunc(m.notices, mine); owner != "" && all >= 5_000 {
		result.Code, result.Rule, result.explain().Limit = LimitReached, RuleOwnerNotices, 5_000
		return result
	}
	if countFunc(m.notices, func(n *modelNotice) bool { return mine(n) && n.semaphore == s }) >= 50 && owner != "" {
		result.Code, result.Rule, result.explain().Limit = LimitReached, RuleOwnerNotices, 50
		return result
	}
	m.places++
	n := &modelNotice{owner: owner, id: m.places, semaphore: s, name: s.name, epoch: s.epoch, url: c.Notice, count: c.Count, madeMS: m.nowMS, group: want.group}
	if c.Partial {
		n.count = 1
	}
	m.notices = append(m.notices, n)
	result.Place = n.id
	return result
}

// wakeNotices is done after each command: a down of its count would be granted at once.
func (m *model) wakeNotices() {
	for _, n := range m.notices {
		s := n.semaphore
		if s == nil || s.settings.Family && s.settings.WindowMS == 0 {
			continue
		}
		down := modelRequest{members: []modelMember{{semaphore: s, group: n.group, count: n.count}}, unowned: true}
		if !s.grouped() {
			down.members[0].group = ""
		}
		m.rank(&down, 0)
		if _, ok := m.servable(&down); ok {
			m.noticeDue(n)
		}
	}
}

func (m *model) noticeDue(n *modelNotice) {
	if !n.due {
		n.due, n.dueMS = true, m.nowMS
		m.effect(Effect{Kind: EffectNoticeDue, Semaphore: n.name, Epoch: n.epoch, Place: n.id, Count: n.count})
	}
}

func (m *model) noticeDone(c NoticeDone) Result {
	if len(c.IDs) == 0 || len(c.IDs) > 1024 {
		return Result{Code: Malformed}
	}
	before := len(m.notices)
	m.notices = slices.DeleteFunc(m.notices, func(n *modelNotice) bool { return slices.Contains(c.IDs, n.id) })
	return Result{Code: OK, Found: len(m.notices) < before}
}

// listsDiffer compares wait lists and notices with the machine's.
func (m *model) listsDiffer(machine *Machine) error {
	for _, s := range m.sessions {
		var list []WaitListView
		for _, e := range m.listOf(s) {
			view := WaitListView{Semaphore: e.name, Epoch: e.epoch, Deleted: e.orphaned(), Group: e.in.group}
			if !e.orphaned() {
				view.Wanted, view.Granted, view.Token = e.wanted(), e.granted, e.token
			}
			if e.waiting != nil && !e.orphaned() {
				view.Place, view.EnqueuedMS = e.waiting.place, e.waiting.enqueuedMS
				view.Position = m.position(e.waiting, e.waiting.members[0])
			}
			list = append(list, view)
		}
		if err := same("wait list", machine.WaitList(s.id), list); err != nil {
			return err
		}
	}
	var due []NoticeView
	for _, n := range m.notices {
		if n.due {
			view := NoticeView{ID: n.id, Semaphore: n.name, Epoch: n.epoch, URL: n.url, Count: n.count,
				Deleted: n.semaphore == nil, DueMS: n.dueMS}
			if n.semaphore != nil {
				view.Available = m.available(n.semaphore)
			}
			if single, ok := machine.DueNotice(n.id); !ok || single != view {
				return fmt.Errorf("notice %d alone is %+v, %v, want %+v", n.id, single, ok, view)
			}
			due = append(due, view)
		} else if _, ok := machine.DueNotice(n.id); ok {
			return fmt.Errorf("notice %d is not due", n.id)
		}
	}
	if err := same("notices that are due", machine.DueNotices(), due); err != nil {
		return err
	}
	return same("how many notices", machine.notices.live, len(m.notices))
}

// inOrder sorts neighbouring notices by id: in which order notices of several
// semaphores become due in one command is nowhere said.
func inOrder(effects []Effect) []Effect {
	effects = slices.Clone(effects)
	for i := range effects {
		for j := i; j > 0 && effects[j].Kind == EffectNoticeDue && effects[j-1].Kind == EffectNoticeDue && effects[j].Place < effects[j-1].Place; j-- {
			effects[j], effects[j-1] = effects[j-1], effects[j]
		}
	}
	return effects
}
