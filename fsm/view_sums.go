package fsm

// Views for those who need a number of each of many records: they make no view of
// the records themselves.

// SessionIDs lists up to limit ids of sessions in their order, after the id given.
func (m *Machine) SessionIDs(after uint64, limit int) []uint64 {
	var found []uint64
	m.ids.Ascend(after, func(id uint64, _ ref) bool {
		if len(found) == limit {
			return false
		}
		if id != after || after == 0 {
			found = append(found, id)
		}
		return true
	})
	return found
}

// Queued returns how many permits of a semaphore are waited for in all, and since
// when the first in its line waits, in cluster time; both 0 without one. Its cost
// goes with the line.
func (m *Machine) Queued(name string) (count, sinceMS int64) {
	r, ok := m.byName[name]
	if !ok || m.semaphores.at(r).line == nil {
		return 0, 0
	}
	first := true
	m.semaphores.at(r).line.Scan(func(_ uint64, waiting ref) bool {
		request := m.requests.at(waiting)
		if first {
			first, sinceMS = false, request.enqueuedMS
		}
		count += countOf(request.members, r)
		return true
	})
	return count, sinceMS
}
