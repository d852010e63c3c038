package fsm

// EntryWeight and EntryBytes bound the commands of one entry by their Cost and
// their size, so that an entry applies within 50 ms. They bind the leader that fills an entry, not the
// machine that applies it: other bounds may come with another version.
const (
	EntryWeight = 1024
	EntryBytes  = 256 << 10 // of encoded commands
)

// Weight returns how much a command lists, in units of one semaphore: at least 1.
// Four renewals of one command count as one.
func Weight(c Command) int {
	weight := 1
	switch c := c.(type) {
	case AcquireMany:
		weight = len(c.Wants)
	case RestoreSession:
		weight = len(c.Leases)
	case Renew:
		weight = (len(c.Renewals) + 3) / 4
	case NoticeDone:
		weight = len(c.IDs)
	}
	return max(weight, 1)
}

const (
	// costRelease and costDeliver allow for a request for 64 semaphores that a release
	// withdraws, and for a wait list of 64 entries.
	costRelease = 3
	costDeliver = 4
	// recordsPerUnit is how many records end in the time of an acquire, and
	// walkedPerUnit how many an acquire with a level looks at in that time.
	recordsPerUnit = 4
	walkedPerUnit  = 256
)

// Cost returns how much work a command is, in units of one acquire of one
// semaphore: its Weight, what it ends and what it looks through. records is what
// the session has that [CostlySession] names, see SessionRecords. Other work that the state decides, like the
// waiters that an up serves, is bounded by the machine.
func Cost(c Command, records int) int {
	switch c.(type) {
	case Release:
		return costRelease
	case ListDeliver:
		return costDeliver
	case EndSession, RevokeLease: // a one-shot session ends with the lease that is revoked
		return 1 + records/recordsPerUnit
	case Acquire, AcquireMany, RestoreSession:
		return Weight(c) + records/walkedPerUnit
	}
	return Weight(c)
}

// CostlySession returns the session whose size a command's Cost depends on, 0 for
// none: it may end all that the session has, or look through it.
func CostlySession(c Command) uint64 {
	switch c := c.(type) {
	case EndSession:
		return c.Session
	case RevokeLease:
		return c.Session
	case Acquire:
		return c.Session
	case AcquireMany:
		return c.Session
	case RestoreSession: // it looks for leases of deleted semaphores
		return c.Session
	}
	return 0
}

// SessionRecords returns how many leases, members of waiting requests, keys that wait
// for these, and entries of its wait list a session has.
func (m *Machine) SessionRecords(id uint64) int {
	r, ok := m.bySession[id]
	if !ok {
		return 0
	}
	s := m.sessions.at(r)
	return s.leases.length + s.members + s.keys + s.entries.length
}

// LargeSessions calls yield with each session that has at least so many records.
// It looks at every session: O(sessions).
func (m *Machine) LargeSessions(records int, yield func(id uint64, records int)) {
	m.ids.Scan(func(id uint64, _ ref) bool {
		if has := m.SessionRecords(id); has >= records {
			yield(id, has)
		}
		return true
	})
}
