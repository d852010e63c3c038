package fsm

import "slices"

// budget bounds what one entry does because of the state, from feature level 1 on:
// what its commands list is bounded by the commands. What is left over is done at
// the start of the next entries, see MoreDue.
type budget struct {
	ended  int // see work.ended
	swept  int // of deleted semaphores at least this much is ended, whatever expired; so of what a ttl of 0 ends
	served int // see work.served
}

// work is what the entry under way has done.
type work struct {
	ended  int // leases, members of waiting requests, keys that waited, entries of wait lists, and sessions that are over
	served int // members of the requests granted from lines, and the keys that waited for them
	before int // what was ended before the first command
}

func defaultBudget() budget { return budget{ended: 2048, swept: 512, served: 2048} }

// bounded reports whether the budget is in force.
func (m *Machine) bounded() bool { return m.feature >= 1 }

// mayServe reports whether this entry may grant another request from a line.
func (m *Machine) mayServe() bool { return !m.bounded() || m.done.served < m.budget.served }

// mayEnd reports whether this entry may end more of what nobody named.
func (m *Machine) mayEnd() bool { return !m.bounded() || m.done.ended < m.budget.ended }

// mayEndAtOnce reports whether this entry may end another session to which a command
// gave a deadline that has passed. What expired by itself does not take all of the
// budget, or such a session would wait behind all that did.
func (m *Machine) mayEndAtOnce() bool {
	return !m.bounded() || m.done.ended < max(m.budget.ended, m.done.before+m.budget.swept)
}

// MoreDue reports whether work is left over that any entry goes on with: sessions
// past their deadline, a deleted semaphore, or waiting requests that could be
// granted or must end.
func (m *Machine) MoreDue() bool {
	return m.expired() || m.unswept.Len() > 0 || len(m.unserved) > 0
}

// expired reports whether a session's deadline has passed.
func (m *Machine) expired() bool {
	first, ok := m.deadlines.next()
	return ok && first.ms <= m.nowMS
}

// goOn touches the lines that the last entry could not serve to their end.
func (m *Machine) goOn() {
	m.touched = append(m.touched, m.unserved...)
	m.unserved = m.unserved[:0]
}

// keepUnserved is the end of an entry: of the lines left over, those remain whose
// head could be granted. A snapshot does not hold them: its reader finds the same.
func (m *Machine) keepUnserved() {
	if len(m.unserved) == 0 {
		return
	}
	slices.Sort(m.unserved)
	m.unserved = slices.DeleteFunc(slices.Compact(m.unserved), func(r ref) bool { return !m.headFits(r) })
}

// headFits reports whether the head of a semaphore's line could be granted.
func (m *Machine) headFits(r ref) bool {
	line := m.semaphores.at(r).line
	if line == nil {
		return false
	}
	_, waiting, _ := line.Min()
	return m.servable(m.requests.at(waiting)) >= 0
}
