package fsm

import (
	"math/bits"
	"slices"
)

// A semaphore with slots says which of its permits a lease has. Slots are numbers from 0, and a grant takes the lowest
// free slots. The set of taken slots is derived from leases and returns.

// SlotRun is a run of consecutive slots.
type SlotRun struct{ From, Count uint32 }

// Bounds of slots.
const (
	maxSlots      = 1 << 20 // the largest total of a semaphore with slots
	maxLeaseSlots = 1 << 10 // of one lease
)

// slotList has the slots of a lease or of a return, ascending. It is immutable.
type slotList struct{ runs []SlotRun }

// newSlotList returns a list of runs, nil if there are no runs.
func newSlotList(runs []SlotRun) *slotList {
	if len(runs) == 0 {
		return nil
	}
	return &slotList{runs}
}

// all returns the runs of a list, which may be nil.
func (l *slotList) all() []SlotRun {
	if l == nil {
		return nil
	}
	return l.runs
}

// split divides a list: high gets the given number of highest slots, low the other slots.
func (l *slotList) split(highest int64) (low, high []SlotRun) {
	low = slices.Clone(l.all())
	for highest > 0 && len(low) > 0 {
		last := &low[len(low)-1]
		n := uint32(min(int64(last.Count), highest))
		last.Count -= n
		highest -= int64(n)
		high = append(high, SlotRun{last.From + last.Count, n})
		if last.Count == 0 {
			low = low[:len(low)-1]
		}
	}
	slices.Reverse(high)
	return low, high
}

// runsOf returns distinct slots as ascending runs. ok is false if a slot occurs twice or is too large for every
// semaphore.
func runsOf(numbers []uint32) (runs []SlotRun, ok bool) {
	sorted := slices.Sorted(slices.Values(numbers))
	for i, number := range sorted {
		switch last := len(runs) - 1; {
		case number >= maxSlots || i > 0 && sorted[i-1] == number:
			return nil, false
		case last >= 0 && runs[last].From+runs[last].Count == number:
			runs[last].Count++
		default:
			runs = append(runs, SlotRun{number, 1})
		}
	}
	return runs, true
}

// slotSet has the taken slots of a semaphore, in pages of 4,096 bits. Each page has a bit for each full word, and the
// set has a bit for each full page, so that the lowest free slot is found in three steps.
type slotSet struct {
	pages []*slotPage // nil: a page without a taken slot
	full  [maxSlots / slotPageBits / 64]uint64
}

const slotPageBits = 64 * 64

type slotPage struct {
	words [64]uint64
	full  uint64
	taken int
}

func (s *slotSet) lowest() uint32 {
	for i, word := range s.full {
		if word == ^uint64(0) {
			continue
		}
		at := i*64 + bits.TrailingZeros64(^word)
		if at >= len(s.pages) || s.pages[at] == nil {
			return uint32(at * slotPageBits)
		}
		p := s.pages[at]
		wordIndex := bits.TrailingZeros64(^p.full)
		return uint32(at*slotPageBits + wordIndex*64 + bits.TrailingZeros64(^p.words[wordIndex]))
	}
	panic("all slots are taken")
}

func (s *slotSet) has(slot uint32) bool {
	at := int(slot / slotPageBits)
	return at < len(s.pages) && s.pages[at] != nil && s.pages[at].words[slot/64%64]&(1<<(slot%64)) != 0
}

// mark makes a free slot taken.
func (s *slotSet) mark(slot uint32) {
	at, word := int(slot/slotPageBits), slot/64%64
	if missing := at + 1 - len(s.pages); missing > 0 {
		s.pages = append(s.pages, make([]*slotPage, missing)...)
	}
	if s.pages[at] == nil {
		s.pages[at] = &slotPage{}
	}
	p := s.pages[at]
	p.taken++
	if p.words[word] |= 1 << (slot % 64); p.words[word] == ^uint64(0) {
		p.full |= 1 << word
	}
	if p.full == ^uint64(0) {
		s.full[at/64] |= 1 << (at % 64)
	}
}

// free makes a taken slot free.
func (s *slotSet) free(slot uint32) {
	at, word := int(slot/slotPageBits), slot/64%64
	p := s.pages[at]
	p.words[word] &^= 1 << (slot % 64)
	p.full &^= 1 << word
	s.full[at/64] &^= 1 << (at % 64)
	if p.taken--; p.taken == 0 {
		s.pages[at] = nil
	}
}

func each(runs []SlotRun, visit func(uint32)) {
	for _, run := range runs {
		for slot := run.From; slot < run.From+run.Count; slot++ {
			visit(slot)
		}
	}
}

func slotCount(runs []SlotRun) (n int64) {
	for _, run := range runs {
		n += int64(run.Count)
	}
	return n
}

// slotsOf returns the set of the taken slots of a semaphore for changing, and creates it if needed.
func (m *Machine) slotsOf(semaphore ref) *slotSet {
	s := m.semaphores.mut(semaphore)
	if s.slots == nil {
		s.slots = &slotSet{} // state: made for the first slot that is taken
	}
	return s.slots
}

// takeSlots takes the lowest free slots of a semaphore for a lease.
func (m *Machine) takeSlots(semaphore ref, count int64) *slotList {
	set := m.slotsOf(semaphore)
	var runs []SlotRun
	for range count {
		slot := set.lowest()
		set.mark(slot)
		if last := len(runs) - 1; last >= 0 && runs[last].From+runs[last].Count == slot {
			runs[last].Count++
		} else {
			runs = append(runs, SlotRun{slot, 1})
		}
	}
	m.done.served += int(count) / slotsPerRecord
	return newSlotList(runs)
}

// slotsPerRecord is the number of slots whose change costs as much as one record.
const slotsPerRecord = 64

// markSlots marks the slots of a record as taken, and reports whether all were free.
func (m *Machine) markSlots(semaphore ref, list *slotList) bool {
	if list == nil {
		return true
	}
	set := m.slotsOf(semaphore)
	for _, run := range list.runs {
		if run.Count == 0 || run.Count > maxSlots || run.From > maxSlots-run.Count {
			return false
		}
	}
	free := true
	each(list.runs, func(slot uint32) {
		if free = free && !set.has(slot); free {
			set.mark(slot)
		}
	})
	return free
}

// freeSlots frees slots that no record names any more.
func (m *Machine) freeSlots(semaphore ref, runs []SlotRun) {
	if len(runs) == 0 {
		return
	}
	each(runs, m.slotsOf(semaphore).free)
	m.done.ended += int(slotCount(runs)) / slotsPerRecord
}

// fits reports whether the settings allow this total number of permits.
func (s *Settings) fits(total int64) bool { return !s.Slots || total <= maxSlots }

// slotRuns appends the slots of a lease or of a return.
func (e *encoder) slotRuns(runs []SlotRun) {
	e.uint(uint64(len(runs)))
	for _, run := range runs {
		e.uint(uint64(run.From))
		e.uint(uint64(run.Count))
	}
}

func (d *decoder) slotRuns() []SlotRun {
	n := d.Count(2)
	if n == 0 {
		return nil
	}
	runs := make([]SlotRun, n)
	end := uint64(0)
	for i := range runs {
		from, count := d.Uint(), d.Uint()
		if from < end || i > 0 && from == end || count == 0 || from > maxSlots || count > maxSlots-from {
			d.Fail()
			return nil
		}
		runs[i], end = SlotRun{uint32(from), uint32(count)}, from+count
	}
	return runs
}

// slotNumbers appends the slots that a restore names for a lease.
func (e *encoder) slotNumbers(numbers []uint32) {
	e.uint(uint64(len(numbers)))
	for _, number := range numbers {
		e.uint(uint64(number))
	}
}

func (d *decoder) slotNumbers() []uint32 {
	n := d.Count(1)
	if n == 0 {
		return nil
	}
	numbers := make([]uint32, n)
	for i := range numbers {
		v := d.Uint()
		if v > 1<<32-1 {
			d.Fail()
		}
		numbers[i] = uint32(v)
	}
	return numbers
}
