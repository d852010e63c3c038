package fsm

import "slices"

// The model's slots. A lease or a return has a sorted list of numbers; the free numbers are
// found by a scan at each grant.

// Bounds of slots.
const (
	mostSlots      = 1_048_576 // in the range of a semaphore
	mostLeaseSlots = 1024      // of one lease
	slotsARecord   = 64        // they cost an entry as much as a record
)

// fits: a semaphore with slots has no more than a million permits.
func (s Settings) fitsIn(permits, offset int64) bool { return !s.Slots || permits+offset <= mostSlots }

// named lists the slots that leases and returns of a semaphore name.
func (m *model) named(s *modelSemaphore) map[uint32]bool {
	named := map[uint32]bool{}
	for _, l := range m.holders(s) {
		for _, slot := range l.slots {
			named[slot] = true
		}
	}
	for _, t := range m.returnsOf(s) {
		for _, slot := range t.slots {
			named[slot] = true
		}
	}
	return named
}

// giveSlots gives a new lease its slots: the lowest free ones, or those that a restore names. All of them are in the range
// of the semaphore, unless a restore names them.
func (m *model) giveSlots(l *modelLease, r *modelRequest, want modelMember) {
	s := l.semaphore
	switch {
	case r.restores:
		l.slots = r.slots[want]
	case s.settings.Slots:
		named := m.named(s)
		for slot := uint32(0); int64(len(l.slots)) < l.count; slot++ {
			if !named[slot] {
				l.slots = append(l.slots, slot)
			}
		}
		m.done.served += len(l.slots) / slotsARecord
		if last := int64(slices.Max(l.slots)); last >= s.permits+s.offset {
			m.breaks("%q grants slot %d of %d", s.name, last, s.permits+s.offset)
		}
		if l.count > mostLeaseSlots {
			m.breaks("%q grants %d slots at once", s.name, l.count)
		}
	}
}

// takeSlots takes the highest slots of a lease away from it.
func (l *modelLease) takeSlots(count int64) (highest []uint32) {
	kept := max(0, int64(len(l.slots))-count)
	highest = l.slots[kept:]
	l.slots = l.slots[:kept]
	return highest
}

// nameSlots notes the slots of the leases that a restore makes, or refuses them.
func (m *model) nameSlots(r *modelRequest, lists [][]uint32) *Result {
	r.slots = map[modelMember][]uint32{}
	taken := map[*modelSemaphore]map[uint32]bool{} // slots that leases and returns name, and earlier leases of this restore
	for i, want := range r.members {
		s := want.semaphore
		if !s.settings.Slots {
			continue
		}
		var list []uint32
		if i < len(lists) {
			list = slices.Sorted(slices.Values(lists[i]))
		}
		distinct := slices.Compact(slices.Clone(list))
		if int64(len(list)) != want.count || len(distinct) < len(list) || list[len(list)-1] >= mostSlots {
			refusal := m.refusal(SlotsNeeded, want)
			return &refusal
		}
		if taken[s] == nil {
			taken[s] = m.named(s)
		}
		if slices.ContainsFunc(list, func(slot uint32) bool { return taken[s][slot] }) {
			refusal := m.refusal(SlotTaken, want)
			return &refusal
		}
		for _, slot := range list {
			taken[s][slot] = true
		}
		r.slots[want] = list
	}
	return nil
}

// asRuns is how slots are shown: runs of consecutive numbers.
func asRuns(slots []uint32) (runs []SlotRun) {
	for i, slot := range slots {
		if i > 0 && slots[i-1]+1 == slot {
			runs[len(runs)-1].Count++
		} else {
			runs = append(runs, SlotRun{slot, 1})
		}
	}
	return runs
}
