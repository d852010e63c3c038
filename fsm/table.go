package fsm

import "slices"

// pageSize is how many records share one page: the unit of copy-on-write. A
// frozen copy costs one pointer a page; the first change to a page after it
// costs one copy of the page. docs/adr/0006 has the measurements.
const pageSize = 128

// ref names a record of a table: its slot + 1. 0 is no record. Slots are used
// again and are part of no output, so replicas may differ in them.
type ref uint32

// table holds records of one kind in pages that a frozen copy shares until
// they change. Lookups by anything but ref belong to the indexes beside it.
type table[T any] struct {
	pages []*page[T]
	free  []ref // given back, last first
	slots ref   // ever used
	live  int
	// generation is that of the pages that this table may change in place;
	// a page of another generation is shared with a frozen copy.
	generation uint64
	// touches counts the records looked up, where a test asks for it; else nil.
	touches *int
}

type page[T any] struct {
	generation uint64
	live       [pageSize]bool
	records    [pageSize]T
}

// at answers a record for reading. The pointer is good until the next change
// to the table.
func (t *table[T]) at(r ref) *T {
	if t.touches != nil {
		*t.touches++
	}
	slot := r - 1
	return &t.pages[slot/pageSize].records[slot%pageSize]
}

// mut answers a record for changing, on a page of this table's own.
func (t *table[T]) mut(r ref) *T {
	if t.touches != nil {
		*t.touches++
	}
	slot := r - 1
	return &t.own(int(slot / pageSize)).records[slot%pageSize]
}

func (t *table[T]) own(i int) *page[T] {
	p := t.pages[i]
	if p.generation != t.generation {
		copied := *p
		copied.generation = t.generation
		p = &copied
		t.pages[i] = p
	}
	return p
}

// add stores a record in a free slot.
func (t *table[T]) add(record T) ref {
	var r ref
	if n := len(t.free); n > 0 {
		r = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		t.slots++
		r = t.slots
		if int(r-1)/pageSize == len(t.pages) {
			t.pages = append(t.pages, &page[T]{generation: t.generation})
		}
	}
	p := t.own(int((r - 1) / pageSize))
	p.records[(r-1)%pageSize] = record
	p.live[(r-1)%pageSize] = true
	t.live++
	return r
}

// remove frees the slot and forgets the record, so that it pins no memory.
func (t *table[T]) remove(r ref) {
	p := t.own(int((r - 1) / pageSize))
	var zero T
	p.records[(r-1)%pageSize] = zero
	p.live[(r-1)%pageSize] = false
	t.free = append(t.free, r)
	t.live--
}

// freeze answers a copy that never changes again: one pointer a page.
func (t *table[T]) freeze() table[T] {
	frozen := table[T]{pages: slices.Clone(t.pages), slots: t.slots, live: t.live}
	t.generation++
	return frozen
}

// refs answers every live record's ref, in the order that key gives. Keys are
// unique, so that the order is the same whatever slots the records have.
func (t *table[T]) refs(key func(*T) uint64) []ref {
	found := make([]ref, 0, t.live)
	for i, p := range t.pages {
		for j := range p.live {
			if p.live[j] {
				found = append(found, ref(i*pageSize+j+1))
			}
		}
	}
	slices.SortFunc(found, func(a, b ref) int {
		ka, kb := key(t.at(a)), key(t.at(b))
		switch {
		case ka < kb:
			return -1
		case ka > kb:
			return 1
		}
		return 0
	})
	return found
}
