package fsm

// A request for all of a list stands in the line of its pool only while it is ready in all of its
// other lines: first there, with room. So a request that waits elsewhere delays
// no other request in the pool. It is the front of these other lines then.

// standsAside reports whether a request stands in the line of its pool only at times.
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

// readyIn reports whether a request is first with room in a line that is no pool's.
func (m *Machine) readyIn(r *request, w member) bool {
	s := m.semaphores.at(w.semaphore)
	return m.isFirst(s, r, w) && m.hasRoom(s, r, w)
}

// restand makes requests stand or step aside after a change of a line that is no pool's. Whether a
// request stands depends on the state alone, so that a machine from a snapshot agrees.
func (m *Machine) restand(t target, waiting *line) {
	if waiting.front != 0 {
		r := m.requests.at(waiting.front)
		if !m.readyIn(r, memberOf(r.members, t)) {
			m.stepAside(waiting.front)
		}
	}
	if first, ok := waiting.first(); ok && waiting.front != first.request {
		if r := m.requests.at(first.request); m.standsAside(r) && m.readyElsewhere(r) {
			m.stand(first.request)
		}
	}
}

// readyElsewhere reports whether a request is ready in each of its lines that is no pool's.
func (m *Machine) readyElsewhere(r *request) bool {
	pool := m.poolOf(r)
	for i, w := range r.members {
		if i != pool && !m.readyIn(r, w) {
			return false
		}
	}
	return true
}

// stand puts a request into the line of its pool, at its rank. The requests that were the fronts of
// its other lines step aside before: a head start may put one list before another.
func (m *Machine) stand(waiting ref) {
	r := m.requests.at(waiting)
	pool := m.poolOf(r)
	for i, w := range r.members {
		if i == pool {
			continue
		}
		if other := m.lineOf(w.target()); other.front != waiting {
			if other.front != 0 {
				m.stepAside(other.front)
			}
			other.front = waiting
		}
	}
	w := r.members[pool]
	in := m.lineOf(w.target())
	in.aside.Delete(waiter{r.rank(), waiting})
	in.order.Set(waiter{r.rank(), waiting})
	m.refile(w.lane)
}

// stepAside takes a front out of the line of its pool. It keeps its rank.
func (m *Machine) stepAside(waiting ref) {
	r := m.requests.at(waiting)
	w := r.members[m.poolOf(r)]
	in := m.lineOf(w.target())
	in.order.Delete(waiter{r.rank(), waiting})
	in.putAside(waiter{r.rank(), waiting})
	m.leaveFronts(r, waiting)
	m.refile(w.lane)
}

// leaveFronts makes a request the front of no line.
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
