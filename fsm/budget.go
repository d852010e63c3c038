package fsm

import "container/heap"

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
	return m.expired() || m.unswept.Len() > 0 || m.unserved.Len() > 0
}

// expired reports whether a session's deadline has passed.
func (m *Machine) expired() bool {
	first, ok := m.deadlines.next()
	return ok && first.ms <= m.nowMS
}

// leaveOver keeps the heads that this entry may not grant any more for the next one.
// Their number has no bound, so that no entry walks through them: it takes the first
// from them, and those that end leave them, see unlinkRequest.
func (m *Machine) leaveOver(heads headHeap) {
	for _, h := range heads {
		if m.requests.at(h.request).place == h.place {
			m.unserved.Set(h.place, h.request)
		}
	}
}

// nextHead takes the head with the lowest place, of those given and those left over.
func (m *Machine) nextHead(heads *headHeap) (next head, ok bool) {
	place, request, left := m.unserved.Min()
	switch {
	case left && (len(*heads) == 0 || place <= (*heads)[0].place):
		m.unserved.Delete(place)
		return head{place, request}, true
	case len(*heads) == 0:
		return head{}, false
	}
	return heap.Pop(heads).(head), true
}

// keepUnserved is the end of an entry: the first head left over can be granted, or
// none is left. A snapshot does not hold them: its reader finds all that can be.
func (m *Machine) keepUnserved() {
	for {
		place, request, ok := m.unserved.Min()
		if !ok || m.servable(m.requests.at(request)) >= 0 {
			return
		}
		m.unserved.Delete(place)
	}
}
