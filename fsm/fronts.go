package fsm

// A request for all of a list stands in the line of its pool only while it is ready in all of its other lines: it is
// the first there and has room. Before that it waits aside. For example, in [db, pool], while db is taken, the request
// must not delay the pool's other groups. While it stands in the pool, the other lines name it as their front.

// standsAside reports whether a request must wait aside in its pool until its other lines are ready.
func (m *Machine) standsAside(r *request) bool {
	return r.mode == All && len(r.members) > 1 && m.poolOf(r) >= 0
}

// poolOf returns the index of the member of a list that is a pool, or -1.
func (m *Machine) poolOf(r *request) int {
	for i, w := range r.members {
		if w.lane != 0 && m.semaphores.at(w.semaphore).pool() {
			return i
		}
	}
	return -1
}

// readyIn reports whether a request is the first in a line outside of pools and has room there.
func (m *Machine) readyIn(r *request, w member) bool {
	s := m.semaphores.at(w.semaphore)
	return m.isFirst(s, r, w) && m.hasRoom(s, r, w)
}

// refreshFront moves requests into or out of the line of their pool after a change of a line outside of pools. The
// outcome depends on the state alone, so that a machine restored from a snapshot gets the same lines.
func (m *Machine) refreshFront(t target, line *line) {
	if line.front != 0 {
		r := m.requests.at(line.front)
		if !m.readyIn(r, memberOf(r.members, t)) {
			m.leavePoolLine(line.front)
		}
	}
	if first, ok := line.firstInOrder(); ok && line.front != first.request {
		if r := m.requests.at(first.request); m.standsAside(r) && m.readyElsewhere(r) {
			m.enterPoolLine(first.request)
		}
	}
}

// readyElsewhere reports whether a request is ready in all of its lines outside of pools.
func (m *Machine) readyElsewhere(r *request) bool {
	pool := m.poolOf(r)
	for i, w := range r.members {
		if i != pool && !m.readyIn(r, w) {
			return false
		}
	}
	return true
}

// enterPoolLine puts a request into the line of its pool, at its rank. It first moves the previous fronts of the other
// lines aside: a head start may put a newer request before them.
func (m *Machine) enterPoolLine(waiting ref) {
	r := m.requests.at(waiting)
	pool := m.poolOf(r)
	for i, w := range r.members {
		if i == pool {
			continue
		}
		if other := m.lineOf(w.target()); other.front != waiting {
			if other.front != 0 {
				m.leavePoolLine(other.front)
			}
			other.front = waiting
		}
	}
	w := r.members[pool]
	line := m.lineOf(w.target())
	line.aside.Delete(waiter{r.rank(), waiting})
	line.order.Set(waiter{r.rank(), waiting})
	m.updateHead(w.lane)
}

// leavePoolLine moves a front out of the line of its pool. The request keeps its rank.
func (m *Machine) leavePoolLine(waiting ref) {
	r := m.requests.at(waiting)
	w := r.members[m.poolOf(r)]
	line := m.lineOf(w.target())
	line.order.Delete(waiter{r.rank(), waiting})
	line.putAside(waiter{r.rank(), waiting})
	m.leaveFronts(r, waiting)
	m.updateHead(w.lane)
}

// leaveFronts clears a request as the front of its lines.
func (m *Machine) leaveFronts(r *request, waiting ref) {
	if !m.standsAside(r) {
		return
	}
	for _, w := range r.members {
		if other := m.lineOf(w.target()); other != nil && other.front == waiting {
			other.front = 0
		}
	}
}
