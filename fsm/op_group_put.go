package fsm

// GroupPut gives a group of a semaphore a limit, or removes this limit. A higher limit may grant waiting requests at
// once. Requests that can't be granted any more end with Never. A lower limit ends no lease.
//
// Codes: OK, Malformed (RuleGroup: a plain semaphore), UnknownSemaphore, EpochMismatch,
// LimitReached.
type GroupPut struct {
	Name  string
	Group string
	Limit int64  // 0 or more; NoLimit: the group gets the limit of Settings.PerGroup again
	Epoch uint64 // of the semaphore, 0: any
}

// Op is OpGroupPut.
func (GroupPut) Op() Op            { return OpGroupPut }
func (c GroupPut) names() []string { return []string{c.Name} }
func (GroupPut) session() uint64   { return 0 }

func (c GroupPut) encode(e *encoder) {
	e.string(c.Name)
	e.string(c.Group)
	e.int(c.Limit)
	e.uint(c.Epoch)
}

func decodeGroupPut(d *decoder) Command {
	return GroupPut{Name: d.Text(), Group: d.Text(), Limit: d.Int(), Epoch: d.Uint()}
}

func (c GroupPut) apply(m *Machine) Result {
	if !ValidGroup(c.Group) || c.Limit < NoLimit {
		return Result{Code: Malformed}
	}
	var result Result
	r, ok := m.findSemaphore(c.Name, c.Epoch, &result)
	if !ok {
		return result
	}
	s := m.semaphores.at(r)
	if !s.grouped() && (c.Limit != NoLimit || s.lane(c.Group) == 0) { // without groups, only a limit from an earlier time with groups may be removed
		return Result{Code: Malformed, Rule: RuleGroup, Subject: c.Name, Epoch: s.epoch}
	}
	at := m.getOrCreateLane(r, c.Group)
	before := *m.lanes.at(at)
	result.Found = before.hasOwnLimit
	if c.Limit != NoLimit && !before.hasOwnLimit && !m.roomForOwnLimit(&result) {
		result.Subject = c.Name
		return result
	}
	hasLimit, limit := c.Limit != NoLimit, c.Limit
	if !hasLimit {
		limit = s.groupLimit()
	}
	if hasLimit == before.hasOwnLimit && (!hasLimit || limit == before.limit) {
		return result
	}
	m.semaphores.mut(r).modified = m.index
	m.setOwnLimit(at, hasLimit, limit)
	m.emit(Effect{Kind: EffectGroupChanged, Semaphore: c.Name, Epoch: result.Epoch, Details: &EffectDetails{Group: c.Group, Limit: c.Limit}})
	if at = m.semaphores.at(r).lane(c.Group); at != 0 && !m.sweepLane(r, at, m.budget.ended) {
		m.sweepFrom(r, c.Group)
	}
	m.finishCommand()
	return result
}

// roomForOwnLimit reports whether another group may get a limit.
func (m *Machine) roomForOwnLimit(result *Result) bool {
	return m.withinShare(m.owned[m.caller.Owner].ownLimits, 1, maxOwnLimits, RuleOwnerOwnLimits, result) &&
		within(m.ownLimits, maxOwnLimits, RuleOwnLimits, result)
}

// countOwnLimit counts groups with limits, in all and for the owner of the limit.
func (m *Machine) countOwnLimit(owner string, more int64) {
	m.ownLimits += more
	m.count(owner, owned{ownLimits: more})
}

// setOwnLimit gives a group a limit, or removes it so that Settings.PerGroup applies again.
func (m *Machine) setOwnLimit(r ref, hasLimit bool, limit int64) {
	m.useLane(r)
	l := m.lanes.mut(r)
	if hasLimit != l.hasOwnLimit {
		l.hasOwnLimit = hasLimit
		if hasLimit {
			l.owner = m.caller.Owner
			m.countOwnLimit(l.owner, 1)
		} else {
			m.countOwnLimit(l.owner, -1)
			l.owner = ""
		}
	}
	l.limit = limit
	m.updateHead(r)
	m.touch(member{semaphore: l.semaphore, lane: r})
	m.leaveLane(r)
}
