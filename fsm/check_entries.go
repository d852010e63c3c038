package fsm

import (
	"errors"
	"fmt"
)

// checkEntries: every entry of a wait list is reachable from its session and,
// while that exists, its semaphore; what waits for it knows it.
func (m *Machine) checkEntries() error {
	listed, filed := 0, 0
	for id, owner := range m.bySession {
		last := uint64(0)
		for r := m.sessions.at(owner).entries.first; r != 0; r = m.entries.at(r).inSession.next {
			e := m.entries.at(r)
			listed++
			if e.session != owner || e.order <= last || e.order > m.orders {
				return fmt.Errorf("session %d: its wait list is out of order", id)
			}
			last = e.order
			if e.semaphore != 0 {
				filed++
			}
			if err := m.checkEntry(r, e); err != nil {
				return fmt.Errorf("session %d, wait list, %q: %w", id, e.name, err)
			}
		}
	}
	if listed != m.entries.live || filed != len(m.byEntry) {
		return errors.New("an entry of a wait list without its session")
	}
	return m.checkNotices()
}

// checkNotices: one is filed under its id and its semaphore, and none is left
// that should be due.
func (m *Machine) checkNotices() error {
	attached, waits := 0, 0
	for id, r := range m.byNotice {
		n := m.notices.at(r)
		if n.ends() {
			waits++
		}
		if n.place != id || id > m.places || n.semaphore == 0 && !n.due {
			return fmt.Errorf("notice %d is filed wrongly", id)
		}
		if n.semaphore != 0 {
			attached++
			if s := m.semaphores.at(n.semaphore); !n.due && s.available() >= n.count && s.waiting() == 0 {
				return fmt.Errorf("notice %d should be due", id)
			}
		}
	}
	for _, r := range m.byName {
		attached -= m.semaphores.at(r).notices.length
	}
	if waits != m.patience.length {
		return errors.New("the notices that end by time are filed wrongly")
	}
	if attached != 0 || len(m.byNotice) != m.notices.live {
		return errors.New("a notice without its semaphore")
	}
	return nil
}

func (m *Machine) checkEntry(r ref, e *entry) error {
	switch {
	case e.semaphore == 0 && (e.granted != 0 || e.waiting != 0):
		return errors.New("its semaphore is gone, and it still has something")
	case e.semaphore != 0 && (m.byEntry[leaseKey{e.session, e.semaphore}] != r || m.semaphores.at(e.semaphore).epoch != e.epoch):
		return errors.New("it is filed wrongly")
	case e.granted < 0 || e.granted > 0 && e.token == 0:
		return errors.New("its grant is out of range")
	case e.waiting != 0 && m.requests.at(e.waiting).entry != r:
		return errors.New("what waits for it does not know it")
	case !m.orphaned(e) && e.granted == 0 && e.waiting == 0:
		return errors.New("it neither waits nor was granted anything")
	}
	return nil
}
