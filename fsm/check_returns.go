package fsm

import (
	"errors"
	"fmt"
	"math/bits"
)

// checkReturns: the returning count of a semaphore or a group is the sum of its returns. The indexes have each return,
// and each lease with an end time, once.
func (m *Machine) checkReturns() error {
	type counts struct {
		returning     int64
		returns, lost int32
	}
	semaphores, lanes := map[ref]counts{}, map[ref]int64{}
	due, lost, spends, ends := 0, 0, 0, 0
	for r, t := range m.returns.all() {
		s := m.semaphores.at(t.semaphore)
		sum := semaphores[t.semaphore]
		sum.returning, sum.returns = sum.returning+t.count, sum.returns+1
		lanes[t.lane] += t.count
		filed := dueReturn{t.dueMS, t.order, r}
		if t.dueMS != NeverMS {
			due++
			if found, _ := m.byReturn.due.Get(filed); found != filed {
				return fmt.Errorf("%q: a return is not filed under its time", s.name)
			}
		}
		if found, _ := m.byReturn.ofSemaphore.Get(semaphoreReturn{s.epoch, filed}); found.due != filed {
			return fmt.Errorf("%q: a return is not filed under its semaphore", s.name)
		}
		if t.spent {
			spends++
		}
		if t.spent && m.byReturn.spends[t.spendKey()] != r {
			return fmt.Errorf("%q: what is spent until one time is in two records", s.name)
		}
		if t.lost != nil {
			lost, sum.lost = lost+1, sum.lost+1
			if found, _ := m.byReturn.lost.Get(lostLease{epoch: s.epoch, token: t.lost.token}); found.at != r {
				return fmt.Errorf("%q: a lost hold is not filed under its token", s.name)
			}
		}
		semaphores[t.semaphore] = sum
		if t.count < 0 || t.dueMS <= 0 || t.order > m.orders {
			return fmt.Errorf("%q: a return has an impossible count, time or order", s.name)
		}
	}
	for r, l := range m.leases.all() {
		if l.endsMS == 0 {
			continue
		}
		ends++
		if found, _ := m.byReturn.leaseEnds.Get(leaseEnd{ms: l.endsMS, token: l.token}); found.at != r || l.revoked() {
			return fmt.Errorf("lease %d is not filed under its end", l.token)
		}
	}
	if m.byReturn.due.Len() != due || m.byReturn.ofSemaphore.Len() != m.returns.live || m.byReturn.lost.Len() != lost ||
		len(m.byReturn.spends) != spends || m.byReturn.leaseEnds.Len() != ends {
		return errors.New("returns and their indexes differ")
	}
	for _, r := range m.everySemaphore() {
		s := m.semaphores.at(r)
		if want := (counts{s.returning, s.returns, s.lost}); semaphores[r] != want {
			return fmt.Errorf("%q: its returns are %v, and it counts %v", s.name, semaphores[r], want)
		}
	}
	if err := m.checkSlots(); err != nil {
		return err
	}
	for r, l := range m.lanes.all() {
		if l.returning != lanes[r] {
			return fmt.Errorf("group %q: %d come back later, and it counts %d", l.group, lanes[r], l.returning)
		}
	}
	return nil
}

// checkSlots: the taken slots are the slots that leases and returns name, each is named once, and no record names more
// slots than its permits.
func (m *Machine) checkSlots() error {
	named := map[ref]map[uint32]bool{}
	name := func(semaphore ref, list *slotList, permits int64) error {
		if list == nil {
			return nil
		}
		if named[semaphore] == nil {
			named[semaphore] = map[uint32]bool{}
		}
		twice := false
		each(list.runs, func(slot uint32) {
			twice = twice || named[semaphore][slot] || !m.semaphores.at(semaphore).slots.has(slot)
			named[semaphore][slot] = true
		})
		if n := slotCount(list.runs); twice || n == 0 || n > permits {
			return fmt.Errorf("%q: %d slots for %d permits, or one of them named twice or free", m.semaphores.at(semaphore).name, n, permits)
		}
		return nil
	}
	for _, l := range m.leases.all() {
		if err := name(l.semaphore, l.slots, l.holds()); err != nil {
			return err
		}
	}
	for _, t := range m.returns.all() {
		if err := name(t.semaphore, t.slots, t.count); err != nil {
			return err
		}
	}
	for r, s := range m.semaphores.all() {
		if s.slots == nil {
			continue
		}
		taken := 0
		for i, p := range s.slots.pages {
			full := uint64(0)
			if p != nil {
				words := 0
				for w, word := range p.words {
					words += bits.OnesCount64(word)
					if word == ^uint64(0) {
						full |= 1 << w
					}
				}
				if taken += words; words != p.taken || full != p.full {
					return fmt.Errorf("%q: a page of its slots is counted wrongly", s.name)
				}
			}
			if (full == ^uint64(0)) != (s.slots.full[i/64]&(1<<(i%64)) != 0) {
				return fmt.Errorf("%q: a full page of its slots is not marked, or another one is", s.name)
			}
		}
		if taken != len(named[r]) {
			return fmt.Errorf("%q: %d slots are taken, and %d are named", s.name, taken, len(named[r]))
		}
	}
	return nil
}
