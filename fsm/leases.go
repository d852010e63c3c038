package fsm

import (
	"crypto/sha256"
	"encoding/binary"
)

// addLease files a lease under its session and its semaphore. The caller has
// moved held already.
func (m *Machine) addLease(sessionRef, semaphoreRef ref, l lease) ref {
	l.session, l.semaphore = sessionRef, semaphoreRef
	r := m.leases.add(l)
	m.linkLease(r)
	m.semaphores.mut(semaphoreRef).modified = m.index
	return r
}

// linkLease puts a lease into the indexes; the newest token comes last.
func (m *Machine) linkLease(r ref) {
	l := m.leases.at(r)
	m.byLease[leaseKey{l.session, l.semaphore}] = r
	owner := m.sessions.mut(l.session)
	owner.leased = true
	owner.leases.push(r, m.leaseInSession)
	m.semaphores.mut(l.semaphore).holders.push(r, m.leaseInSemaphore)
}

func (m *Machine) leaseInSession(r ref) *links   { return &m.leases.mut(r).inSession }
func (m *Machine) leaseInSemaphore(r ref) *links { return &m.leases.mut(r).inSemaphore }

// dropLease removes a lease, revoked or not, gives its permits back and
// touches the line. The session lives on.
func (m *Machine) dropLease(r ref, cause Cause, reason string) {
	l := *m.leases.at(r)
	m.rememberRevoked(&l, cause)
	s := m.semaphores.mut(l.semaphore)
	s.modified = m.index
	if l.revoked {
		l.count = 0 // given back when it was revoked
	}
	s.held -= l.count
	m.effect(Effect{Kind: EffectReleased, Cause: cause, Semaphore: s.name, Epoch: s.epoch,
		Session: m.sessionID(l.session), Token: l.token, Count: l.count, Reason: reason})
	m.sessions.mut(l.session).leases.unlink(r, m.leaseInSession)
	m.semaphores.mut(l.semaphore).holders.unlink(r, m.leaseInSemaphore)
	delete(m.byLease, leaseKey{l.session, l.semaphore})
	m.leases.remove(r)
	m.done.ended++
	m.touch(l.semaphore)
}

// revokeLease takes a lease's permits away and leaves the reason for its
// session to find.
func (m *Machine) revokeLease(r ref, reason string) {
	l := m.leases.mut(r)
	s := m.semaphores.mut(l.semaphore)
	s.held -= l.count
	s.modified = m.index
	l.revoked, l.reason = true, reason
	m.effect(Effect{Kind: EffectReleased, Cause: CauseRevoked, Semaphore: s.name, Epoch: s.epoch,
		Session: m.sessionID(l.session), Token: l.token, Count: l.count, Reason: reason})
	m.touch(l.semaphore)
}

// groupOf identifies a list with its mode, so that the same request from the
// same session is known again, waiting or granted. Never 0.
func groupOf(mode Mode, list []Want) uint64 {
	e := encoder{buf: make([]byte, 0, 64)}
	e.byte(byte(mode))
	e.wants(list)
	sum := sha256.Sum256(e.buf)
	return binary.BigEndian.Uint64(sum[:8]) | 1
}
