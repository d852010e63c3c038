package fsm

import "container/heap"

// settle ends every command that may have made room: it serves the lines that
// were touched, and then, as the last step, ends the sessions whose deadline
// was set to a moment that has passed, which may make room again.
func (m *Machine) settle() {
	for {
		m.serve()
		if len(m.endNow) == 0 {
			break
		}
		ids := m.endNow
		m.endNow = nil
		for _, id := range ids { // beyond the budget, the next entry finds them expired
			if r, ok := m.bySession[id]; ok && m.sessions.at(r).deadlineMS <= m.nowMS && m.mayEndAtOnce() {
				m.endSession(r, CauseExpired, "")
			}
		}
	}
	m.wakeNotices()
}

// touch notes that the line of a semaphore may have become servable, or its
// notices due.
func (m *Machine) touch(semaphore ref) {
	s := m.semaphores.at(semaphore)
	if s.deleted {
		return
	}
	if s.waiting() > 0 {
		m.touched = appendOnce(m.touched, semaphore)
	}
	if s.notices.length > 0 {
		m.freed = appendOnce(m.freed, semaphore)
	}
}

// appendOnce appends r unless it is the last already.
func appendOnce(list []ref, r ref) []ref {
	if n := len(list); n > 0 && list[n-1] == r {
		return list
	}
	return append(list, r)
}

// serve is the grant decision: among the heads of the touched lines that can
// be granted now, and those left over, it grants the one with the lowest place; lines touched by
// that join in; it stops when none can be granted. Tokens rise in this order.
//
// A head that can't be granted is dropped: what could change that is a change
// in one of its lines, and that line is then touched, and its head is looked
// at again. When the entry has granted enough, the heads that are left over
// stay for the next.
func (m *Machine) serve() {
	var heads headHeap
	for {
		for _, semaphore := range m.touched {
			if line := m.semaphores.at(semaphore).line; line != nil && line.Len() > 0 {
				place, request, _ := line.Min()
				heap.Push(&heads, head{place, request})
			}
		}
		m.touched = m.touched[:0]
		if !m.mayServe() {
			m.leaveOver(heads)
			return
		}
		next, ok := m.nextHead(&heads)
		if !ok {
			return
		}
		r := m.requests.at(next.request)
		if r.place != next.place {
			continue // a line was touched twice, and its head is gone already
		}
		if i := m.servable(r); i >= 0 {
			m.grantWaiting(next.request, i)
		}
	}
}

// servable answers which member of a request can be granted now, the first in
// the list's order (0 for an "all" request: every one), or -1. The request may
// be waiting, or new: then its place is higher than any.
func (m *Machine) servable(r *request) int {
	for i, want := range r.members {
		can := m.servableHere(r, want)
		switch {
		case r.mode == All && !can:
			return -1
		case r.mode != All && can:
			return i
		}
	}
	if r.mode == All {
		return 0
	}
	return -1
}

// servableHere: nobody waits before it in this line, and it fits.
func (m *Machine) servableHere(r *request, want member) bool {
	s := m.semaphores.at(want.semaphore)
	if s.deleted {
		return false
	}
	if s.waiting() > 0 {
		if first, _, _ := s.line.Min(); first < r.place {
			return false
		}
	}
	if r.partial {
		return s.available() > 0
	}
	return s.available() >= want.count
}

// grantWaiting takes a request out of all its lines, grants member i (every
// member, when all are asked) and tells the outcome.
func (m *Machine) grantWaiting(waiting ref, i int) {
	r := *m.requests.at(waiting)
	m.unlinkRequest(waiting)
	m.done.served += len(r.members) + len(r.keys)
	if r.mode == Any {
		for j, other := range r.members {
			if j != i {
				m.effect(Effect{Kind: EffectWithdrawn, Cause: CauseElsewhere, Place: r.place, Count: other.count,
					Session: m.sessionID(r.session), Semaphore: m.semaphores.at(other.semaphore).name,
					Epoch: m.semaphores.at(other.semaphore).epoch})
			}
		}
	}
	result := m.grant(&r, i)
	result.Trace = m.caller.Trace
	m.conclude(&r, result)
	m.endIfSpent(r.session, CauseEnded)
}

// grant gives a request what servable found, and answers its outcome. The
// request is in no line (any more).
func (m *Machine) grant(r *request, i int) Result {
	result := Result{Code: OK, Place: r.place}
	members := r.members
	if r.mode != All {
		members = members[i : i+1]
	}
	if m.waitOver(r) && !r.unowned {
		m.setTTL(r.session, m.sessions.at(r.session).ttlMS)
	}
	for _, want := range members {
		if r.unowned {
			m.take(r, want, &result)
		} else {
			m.lease(r, want, &result)
		}
	}
	m.describeSession(&result, r.session)
	return result
}

// take moves permits out of a semaphore for a down.
func (m *Machine) take(r *request, want member, result *Result) {
	s := m.semaphores.mut(want.semaphore)
	granted := min(want.count, s.available())
	s.offset -= granted
	s.modified = m.index
	result.Granted, result.Value, result.Epoch = granted, s.available(), s.epoch
	token := uint64(0)
	if r.entry != 0 {
		token = m.nextToken()
		e := m.entries.mut(r.entry)
		e.granted, e.token = e.granted+granted, token
	}
	if r.place != 0 {
		m.effect(Effect{Kind: EffectGranted, Semaphore: s.name, Epoch: s.epoch, Place: r.place,
			Session: m.sessionID(r.session), Count: granted, Token: token, Unowned: true, Trace: m.caller.Trace})
	}
	if r.entry != 0 {
		m.effect(Effect{Kind: EffectListReady, Semaphore: s.name, Epoch: s.epoch, Session: m.sessionID(r.session),
			Count: granted, Token: token})
	}
	m.changed(want.semaphore)
}

// lease makes a lease with a token of its own.
func (m *Machine) lease(r *request, want member, result *Result) {
	s := m.semaphores.mut(want.semaphore)
	s.held += want.count
	granted := m.addLease(r.session, want.semaphore, lease{
		count: want.count, token: m.nextToken(), grantedMS: m.nowMS, group: r.group,
	})
	l := m.leases.at(granted)
	m.forgetRevoked(revokedKey{m.sessionID(r.session), s.epoch})
	result.Grants = append(result.Grants, m.grantOf(l))
	m.effect(Effect{Kind: EffectGranted, Semaphore: s.name, Epoch: s.epoch, Place: r.place,
		Session: m.sessionID(r.session), Count: l.count, Token: l.token, Trace: m.caller.Trace})
}

func (m *Machine) grantOf(l *lease) Grant {
	s := m.semaphores.at(l.semaphore)
	return Grant{Semaphore: s.name, Epoch: s.epoch, Count: l.count, Token: l.token, GrantedMS: l.grantedMS}
}

// nextToken answers the next fencing token. Tokens never come to their bound:
// at a million grants a second it is 285 years away.
func (m *Machine) nextToken() uint64 {
	if m.tokens >= maxToken {
		panic("fencing tokens are used up")
	}
	m.tokens++
	return m.tokens
}

type head struct {
	place   uint64
	request ref
}

// headHeap orders heads of lines by place.
type headHeap []head

func (h headHeap) Len() int           { return len(h) }
func (h headHeap) Less(i, j int) bool { return h[i].place < h[j].place }
func (h headHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *headHeap) Push(x any)        { *h = append(*h, x.(head)) }
func (h *headHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
