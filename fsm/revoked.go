package fsm

// revoked remembers a lease that an operator took away and that its session has let
// go of, by its end or by a release: a restore of the session does not bring it back.
type revoked struct {
	session uint64
	epoch   uint64 // of the semaphore
	order   uint64 // rises with each; shared with ended sessions and keys
	atMS    int64
	reason  string

	inOrder links // derived
}

// revokedKey finds the memory of a lease.
type revokedKey struct{ session, epoch uint64 }

// rememberRevoked keeps that a lease was revoked, and forgets the oldest beyond the
// bound. Of a deleted semaphore nothing can be restored.
func (m *Machine) rememberRevoked(l *lease, cause Cause) {
	if m.feature < 1 || !l.revoked || cause == CauseDeleted {
		return
	}
	at := revokedKey{m.sessionID(l.session), m.semaphores.at(l.semaphore).epoch}
	m.forgetRevoked(at)
	m.orders++
	m.fileRevoked(revoked{session: at.session, epoch: at.epoch, order: m.orders, atMS: m.nowMS, reason: l.reason})
	if m.revoked.live > maxRevoked {
		oldest := m.revoked.at(m.revokedOrder.first)
		m.forgetRevoked(revokedKey{oldest.session, oldest.epoch})
	}
}

func (m *Machine) fileRevoked(v revoked) {
	r := m.revoked.add(v)
	m.byRevoked[revokedKey{v.session, v.epoch}] = r
	m.revokedOrder.push(r, m.revokedInOrder)
}

func (m *Machine) revokedInOrder(r ref) *links { return &m.revoked.mut(r).inOrder }

// forgetRevoked drops the memory of one lease, if there is any: its session has
// acquired it anew.
func (m *Machine) forgetRevoked(at revokedKey) {
	r, ok := m.byRevoked[at]
	if !ok {
		return
	}
	m.revokedOrder.unlink(r, m.revokedInOrder)
	delete(m.byRevoked, at)
	m.revoked.remove(r)
}

// forgetOldRevoked drops what is older than it is kept, so many an entry.
func (m *Machine) forgetOldRevoked() {
	for range forgetKeys {
		first := m.revokedOrder.first
		if first == 0 || m.revoked.at(first).atMS+endedKeptMS > m.nowMS {
			return
		}
		m.forgetRevoked(revokedKey{m.revoked.at(first).session, m.revoked.at(first).epoch})
	}
}

// wasRevoked returns the refusal to restore the first of the members that an operator
// has taken away from the session.
func (m *Machine) wasRevoked(session uint64, members []member) (result Result, was bool) {
	for _, want := range members {
		if r, ok := m.byRevoked[revokedKey{session, m.semaphores.at(want.semaphore).epoch}]; ok {
			m.refuse(&result, Revoked, want.semaphore, want.count)
			result.Session, result.Reason = session, m.revoked.at(r).reason
			return result, true
		}
	}
	return result, false
}

func (e *encoder) revoked(v *revoked) {
	e.uint(v.session)
	e.uint(v.epoch)
	e.uint(v.order)
	e.int(v.atMS)
	e.string(v.reason)
}

func (b *builder) addRevoked(d *decoder) {
	v := revoked{session: d.uint(), epoch: d.uint(), order: d.uint(), atMS: d.int(), reason: d.string()}
	b.rises(d, v.order)
	if _, twice := b.m.byRevoked[revokedKey{v.session, v.epoch}]; twice || d.err != nil {
		d.fail()
		return
	}
	b.m.fileRevoked(v)
}
