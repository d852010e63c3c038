package fsm

import (
	"cmp"

	"github.com/tidwall/btree"
)

// The machine remembers for a while how sessions ended, in four lists with one bound each: ended by an operator, by
// max_hold, by a deadline, and all others. A session of the first two lists can't be restored by RestoreSession.
// Clients can fill every list but the first, so they can't make the machine forget an operator's decision. A full list
// drops the oldest end of the owner with the most ends, which protects the ends of the other owners.

// endedIndex has the remembered ends of sessions of one kind.
type endedIndex struct {
	order   list            // the oldest first
	byOwner map[string]list // the oldest first
	sizes   *btree.BTreeG[endedCount]
}

// endedCount is the number of ends of one kind that an owner has.
type endedCount struct {
	size  uint32
	owner string
}

func newEndedIndex() *endedIndex {
	return &endedIndex{byOwner: map[string]list{}, sizes: btree.NewBTreeGOptions(func(a, b endedCount) bool {
		return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.owner, b.owner)) < 0
	}, btree.Options{NoLocks: true})}
}

// revokes reports whether a cause ends a session against the will of its client. Such a session can't be restored.
func revokes(cause Cause) bool { return cause == CauseRevoked || cause == CauseMaxHold }

// endedIndexFor returns the remembered ends of the same kind as a cause.
func (m *Machine) endedIndexFor(cause Cause) *endedIndex {
	switch cause {
	case CauseRevoked:
		return m.endedByKind[0]
	case CauseExpired:
		return m.endedByKind[1]
	case CauseMaxHold:
		return m.endedByKind[2]
	}
	return m.endedByKind[3]
}

// rememberEnded records how a session ended.
func (m *Machine) rememberEnded(e ended) {
	m.forgetEndOf(e.id)
	m.orders++
	e.order, e.atMS = m.orders, m.nowMS
	m.fileEnded(e)
	for kind := m.endedIndexFor(e.cause); kind.order.length() > m.budget.kept; {
		largest, _ := kind.sizes.Max()
		oldest := kind.byOwner[largest.owner]
		m.forgetEnded(oldest.first)
	}
}

// fileEnded stores the record of an ended session as the newest record.
func (m *Machine) fileEnded(e ended) {
	r := m.ended.add(e)
	m.byEnded[e.id] = r
	kind := m.endedIndexFor(e.cause)
	kind.order.push(r, m.endedInOrder)
	kind.changeList(e.owner, func(l *list) { l.push(r, m.endedInOwner) })
}

// changeList applies change to the list of an owner, and updates sizes.
func (s *endedIndex) changeList(owner string, change func(*list)) {
	l := s.byOwner[owner]
	s.sizes.Delete(endedCount{l.size, owner})
	if change(&l); l.size == 0 {
		delete(s.byOwner, owner)
		return
	}
	s.byOwner[owner] = l
	s.sizes.Set(endedCount{l.size, owner})
}

func (m *Machine) endedInOrder(r ref) *links { return &m.ended.mut(r).inOrder }

func (m *Machine) endedInOwner(r ref) *links { return &m.ended.mut(r).inOwner }

// forgetEndOf drops the record of a session's end, if there is one.
func (m *Machine) forgetEndOf(id uint64) {
	if r, ok := m.byEnded[id]; ok {
		m.forgetEnded(r)
	}
}

func (m *Machine) forgetEnded(r ref) {
	e := *m.ended.at(r)
	delete(m.byEnded, e.id)
	kind := m.endedIndexFor(e.cause)
	kind.order.unlink(r, m.endedInOrder)
	kind.changeList(e.owner, func(l *list) { l.unlink(r, m.endedInOwner) })
	m.ended.remove(r)
}

// rememberRevoked records that a dropped lease was revoked. Beyond maxRevoked it forgets the oldest record of the same
// kind. It ignores leases of deleted semaphores, which can't be restored.
func (m *Machine) rememberRevoked(l *lease, cause Cause) {
	if !l.revoked() || cause == CauseDeleted {
		return
	}
	at := revokedKey{m.sessionID(l.session), m.semaphores.at(l.semaphore).epoch, m.groupOf(l.lane)}
	m.forgetRevocation(at)
	m.orders++
	m.fileRevoked(revoked{session: at.session, epoch: at.epoch, group: at.group, order: m.orders, atMS: m.nowMS, cause: l.endCause, reason: l.reason})
	if kind := m.revokedListFor(l.endCause); kind.length() > maxRevoked {
		m.forgetRevoked(kind.first)
	}
}

// revokedListFor returns the remembered leases of the same kind as a cause: ended by max_hold, or revoked by operators.
func (m *Machine) revokedListFor(cause Cause) *list {
	if cause == CauseMaxHold {
		return &m.revokedOrder[1]
	}
	return &m.revokedOrder[0]
}

func (m *Machine) fileRevoked(v revoked) {
	r := m.revoked.add(v)
	m.byRevoked[v.key()] = r
	m.revokedListFor(v.cause).push(r, m.revokedInOrder)
}

func (m *Machine) revokedInOrder(r ref) *links { return &m.revoked.mut(r).inOrder }

func (m *Machine) forgetRevoked(r ref) {
	v := m.revoked.at(r)
	delete(m.byRevoked, v.key())
	m.revokedListFor(v.cause).unlink(r, m.revokedInOrder)
	m.revoked.remove(r)
}

func (v *revoked) key() revokedKey { return revokedKey{v.session, v.epoch, v.group} }
