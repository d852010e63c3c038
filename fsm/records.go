package fsm

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
)

// The primary records. They contain only refs and immutable slices, so that copying a page is a true copy. A snapshot
// does not contain members marked as derived; Restore computes them.

type semaphore struct {
	// Each acquire and release reads these.
	name      string
	epoch     uint64    // never reused
	permits   int64     // 0 … 2^63-1; only put changes it
	offset    int64     // only up, down and set change it
	held      int64     // invariant: the sum of its leases' counts
	returning int64     // derived: the permits that no lease holds and that come back later
	settings  *Settings // immutable; nil: no settings
	level     *int32    // immutable
	modified  uint64    // index of the last log entry that changed permits, offset, leases or waiters

	// line has the waiting requests outside of groups, nil if no such request waits; groups has the groups. Both are
	// derived and change in place, so a frozen copy must not read them.
	line          *line
	groups        *groups
	holders       list // derived: its leases, oldest first
	notices       list // derived: oldest first
	deleted       bool // no longer in the index of names; sweep removes its records over several entries
	hasImpossible bool // its lines have requests that can't be granted any more; sweep ends these requests

	passed    uint16   // of a pool: consecutive grants that passed the head of lowest rank; at passedAtMost this head is served
	entries   list     // derived: entries of wait lists that name it, oldest first
	returns   int32    // derived: the number of returns, see returns.go
	lost      int32    // derived: the number of lost leases among the returns
	slots     *slotSet // derived: the taken slots, nil until the first is taken; it changes in place, so a frozen copy must not read it
	metadata  []Pair   // immutable
	version   uint64   // of permits, level, metadata and settings: starts at 1, rises at each change
	owner     string   // the identity that made it and whose share of the semaphores it counts in
	sweep     *string  // immutable: the first group to which sweep has not given the new limit; nil: no sweep runs
	forgotten uint64   // tokens up to this: their receipts (see windows.go) can't be settled, because a set dropped the spent permits
}

type session struct {
	id         uint64
	ttlMS      int64
	deadlineMS int64
	metadata   []Pair // immutable
	owner      string // the identity that opened it; if empty, every caller may use it
	first      uint64 // place of the request for which a one-shot was opened, while the request waits; else 0
	delivered  uint64 // the order of the last delivered entry of its wait list

	key      ref   // derived: the idempotency key that ends with this one-shot session, or 0
	leases   list  // derived: oldest first, including revoked leases
	requests list  // derived: lowest place first
	entries  list  // derived: its wait list, in the order added
	reserved int32 // derived: the number of leases that its requests can become
	members  int32 // derived: the semaphores that its requests list
	keys     int32 // derived: the keys that wait for its requests

	items     list       // derived: the items that it holds
	itemTerms *itemTerms // immutable; nil unless open-holder opened it

	oneShot bool // ends with its last lease or request
	keep    bool // the undelivered grants of its wait list stay taken when it ends
	leased  bool // it has had a lease, so its client knows its id
}

// awaitsFirst reports whether the session is a one-shot whose first request still waits. The deadline of the session is
// then the end of that wait, and only the grant changes it.
func (s *session) awaitsFirst() bool { return s.first != 0 }

type lease struct {
	session   ref
	semaphore ref
	count     int64
	token     uint64 // unique; leases are ordered by it
	grantedMS int64
	listHash  uint64 // of the list of semaphores that was requested, see listHashOf; 0: a single acquire
	lane      ref    // its group, or 0
	endCause  Cause  // CauseRevoked or CauseMaxHold: it holds no permits any more, so semaphore.held excludes its count; 0: it holds them
	reason    string
	endsMS    int64     // when it ends, in cluster time; 0: with its session
	dueMS     int64     // of a receipt: when the permits spent in a window come back, in cluster time; 0: it holds its permits
	slots     *slotList // which permits it has; nil: unknown, for example because it was granted before the semaphore had slots

	inSession, inSemaphore links // derived
}

// revoked reports whether the lease was revoked or ended by max_hold. Its record stays until its session drops it.
func (l *lease) revoked() bool { return l.endCause != 0 }

// holds returns the permits that the lease holds.
func (l *lease) holds() int64 {
	if l.revoked() || l.dueMS != 0 {
		return 0
	}
	return l.count
}

type member struct {
	semaphore ref
	lane      ref // its group, or 0
	count     int64
}

type request struct {
	place      uint64 // unique, rises with each request
	session    ref
	members    []member // immutable; an "any" request that loses a member gets a new slice
	mode       Mode     // 0: a single semaphore
	isDown     bool     // a down: takes permits from the offset and makes no lease
	partial    bool     // downs only: takes less than count if less is available
	spends     uint8    // the number of returns that its grant may make
	listHash   uint64   // see listHashOf
	enqueuedMS int64
	rankMS     int64 // enqueuedMS less the head start, see rank
	keys       []ref // immutable: idempotency keys that wait for its outcome
	listEntry  ref   // the entry of a wait list that it belongs to, or 0; such a request is a partial down

	inSession links // derived
}

// leases returns the largest number of leases that a request can become.
func (r *request) leases() int64 {
	switch {
	case r.isDown:
		return 0
	case r.mode == All:
		return int64(len(r.members))
	}
	return 1
}

// reserves returns the largest number of leases and returns that a request can become.
func (r *request) reserves() int64 { return r.leases() + int64(r.spends) }

// listEntry is one semaphore on the wait list of a session. It has the request that waits for the semaphore, and the
// permits that were granted and not yet delivered.
type listEntry struct {
	order     uint64 // unique; entries of a list are ordered by it
	session   ref
	semaphore ref // 0 after it was deleted
	lane      ref // its group, or 0
	name      string
	epoch     uint64
	group     string // of the semaphore
	granted   int64  // permits granted and not yet delivered
	spent     int64  // the part of granted that a window counts; the rest was taken from the offset
	token     uint64 // of the last grant
	waiting   ref    // derived: its request, or 0

	inSession, inSemaphore links // derived
}

// notice tells a caller that permits are available again, after a down of this caller was refused.
type notice struct {
	place     uint64 // unique: its id
	semaphore ref    // 0 after it was deleted
	name      string
	epoch     uint64
	url       string
	count     int64 // it is due when this many permits are available and no request waits
	dueMS     int64 // when it became due, in cluster time; 0 before that
	due       bool
	endsMS    int64 // when a notice that is not due ends, in cluster time
	owner     string
	group     string // of the semaphore

	inSemaphore links // derived
	inOrder     links // derived: among the notices with a time limit
}

// ended records how a session ended.
type ended struct {
	id     uint64
	order  uint64 // rises with each ended session
	atMS   int64
	cause  Cause
	reason string
	owner  string // of the session

	inOrder, inOwner links // derived: in the lists of its kind and of its owner
}

// key is an idempotency key. It has no result while its request waits.
type key struct {
	keyName
	order       uint64 // rises with each recording
	atMS        int64  // when it was last recorded
	fingerprint [16]byte
	place       uint64 // of its waiting request; 0 after the outcome
	session     uint64 // of its waiting request; after the outcome, the one-shot session with which the key ends, or 0
	result      string // the encoded outcome
	reserved    int64  // bytes kept free for the outcome while the request waits

	inOrder links // derived: among the keys with an outcome
}

// keyName names a key: each owner has its own keys.
type keyName struct{ owner, text string }

// revoked records a lease that was revoked or ended by max_hold, after its session has dropped it. Because of the
// record, a restore of the session does not bring the lease back.
type revoked struct {
	session uint64
	epoch   uint64 // of the semaphore
	group   string // of the semaphore
	order   uint64 // rises with each record; ended sessions and keys share the counter
	atMS    int64
	cause   Cause
	reason  string

	inOrder links // derived
}

// item is a small named value that a session may hold. A deleted item whose delay still runs stays as a tombstone,
// which readers don't see. A new item of the same name reuses the tombstone's record and delay.
type item struct {
	name    string
	value   string
	flags   uint64
	holder  ref    // a session, or 0
	locks   uint64 // how often a session acquired it while no session held it
	created uint64 // the number of the change that made it; unique
	version uint64 // the number of its last change
	delayMS int64  // no session may acquire it before this cluster time; 0: no delay
	owner   string // the identity that made it or last made it longer

	inSession links // derived

	tombstone bool // a deleted item; only name, created, delayMS and owner are set
}

// folder records the items that were deleted from one folder of names.
type folder struct {
	text   string // the common start of the names, up to and including the last slash
	order  uint64 // rises with each delete; ended sessions and keys share the counter
	atMS   int64  // of the last delete
	folded uint64 // the number of the last delete that was dropped from names, or 0
	names  []deletedName

	inOrder links // derived
}

// deletedName is one delete. A folder lists each name once, in the order of the deletes. A change appends to the list
// or makes a new array, so that a frozen copy may share the array.
type deletedName struct {
	name   string
	number uint64 // of the change
}

type revokedKey struct {
	session, epoch uint64
	group          string
}

// pageSize is the number of records in a page, the unit of copy-on-write. A frozen copy costs one pointer for each
// page. The first change to a page after the freeze copies the page. docs/adr/0006 has the measurements.
const pageSize = 32

// ref names a record of a table: its slot + 1, or 0 for no record. Slots are reused, and replicas may differ in them,
// so refs appear in no output.
type ref uint32

// table stores records of one kind in pages that a frozen copy shares until they change.
type table[T any] struct {
	pages         []*page[T] // nil: all of its slots are free
	pagesWithRoom []int32    // each page that has a free slot, once, including nil pages; the last is used first
	spare         int        // empty pages kept, so that a single record that comes and goes does not allocate a page each time
	live          int
	// generation marks the pages that this table may change in place. The table shares pages of other generations with
	// frozen copies.
	generation uint64
	// touches counts the lookups of records if a test sets it.
	touches *int
}

type page[T any] struct {
	generation uint64
	live       uint32 // a bit for each slot in use
	records    [pageSize]T
}

const fullPage uint32 = 1<<pageSize - 1

// at returns a record for reading; a free slot gives the zero record. The pointer is valid until the next change to the
// table.
func (t *table[T]) at(r ref) *T {
	if t.touches != nil {
		*t.touches++
	}
	slot := r - 1
	p := t.pages[slot/pageSize]
	if p == nil {
		return new(T)
	}
	return &p.records[slot%pageSize]
}

// mut returns a record for changing. It first copies a page that a frozen copy shares.
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
	if len(t.pagesWithRoom) == 0 {
		t.pagesWithRoom = append(t.pagesWithRoom, int32(len(t.pages)))
		t.pages = append(t.pages, nil)
	}
	i := int(t.pagesWithRoom[len(t.pagesWithRoom)-1])
	switch p := t.pages[i]; {
	case p == nil:
		t.pages[i] = &page[T]{generation: t.generation}
	case p.live == 0:
		t.spare--
	}
	p := t.own(i)
	at := bits.TrailingZeros32(^p.live)
	p.records[at] = record
	if p.live |= 1 << at; p.live == fullPage {
		t.pagesWithRoom = t.pagesWithRoom[:len(t.pagesWithRoom)-1]
	}
	t.live++
	return ref(i*pageSize + at + 1)
}

// remove frees the slot and clears the record, so that it keeps no memory alive. It frees a page without records.
func (t *table[T]) remove(r ref) {
	i, at := int((r-1)/pageSize), (r-1)%pageSize
	p := t.own(i)
	if p.live == fullPage {
		t.pagesWithRoom = append(t.pagesWithRoom, int32(i))
	}
	var zero T
	p.records[at] = zero
	p.live &^= 1 << at
	t.live--
	if p.live != 0 {
		return
	}
	if t.spare > 0 {
		t.pages[i] = nil
	} else {
		t.spare++
	}
}

// freeze returns a copy that never changes. It costs one pointer for each page.
func (t *table[T]) freeze() table[T] {
	frozen := table[T]{pages: slices.Clone(t.pages), live: t.live}
	t.generation++
	return frozen
}

// all returns the live records in the order of their slots, for reading.
func (t *table[T]) all() func(yield func(ref, *T) bool) {
	return func(yield func(ref, *T) bool) {
		for i, p := range t.pages {
			if p == nil {
				continue
			}
			for left := p.live; left != 0; left &= left - 1 {
				at := bits.TrailingZeros32(left)
				if !yield(ref(i*pageSize+at+1), &p.records[at]) {
					return
				}
			}
		}
	}
}

// refs returns the refs of all live records in the order of their unique keys.
func (t *table[T]) refs(key func(*T) uint64) []ref {
	found := make([]ref, 0, t.live)
	for r := range t.all() {
		found = append(found, r)
	}
	slices.SortFunc(found, func(a, b ref) int { return cmp.Compare(key(t.at(a)), key(t.at(b))) })
	return found
}

const listPage = 1024

// paged is a list that grows without copying its values, and frees unused pages.
type paged[T any] struct {
	pages  []*[listPage]T
	length int
}

func (l *paged[T]) at(i int) *T { return &l.pages[i/listPage][i%listPage] }

func (l *paged[T]) push(value T) {
	if l.length == len(l.pages)*listPage {
		l.pages = append(l.pages, new([listPage]T))
	}
	l.length++
	*l.at(l.length - 1) = value
}

// pop removes the last value. It keeps one unused page.
func (l *paged[T]) pop() T {
	l.length--
	last := *l.at(l.length)
	if unused := len(l.pages)*listPage - l.length; unused >= 2*listPage {
		l.pages[len(l.pages)-1] = nil
		l.pages = l.pages[:len(l.pages)-1]
	}
	return last
}

// trimAtOnce is the largest index that trim copies in one entry.
const trimAtOnce = 1 << 16

// trim copies an index into a smaller map if the index once had eight times as many records, because a Go map never
// shrinks. It reports whether it copied. peak is the largest size since the last copy.
func trim[K comparable, V any](index *map[K]V, peak *int) bool {
	records := len(*index)
	*peak = max(*peak, records)
	if *peak < listPage || records > min(*peak/8, trimAtOnce) {
		return false
	}
	smaller := make(map[K]V, records)
	maps.Copy(smaller, *index)
	*index, *peak = smaller, records
	return true
}

// trim shrinks one index that has become much smaller.
func (m *Machine) trim() {
	p := &m.peaks
	_ = trim(&m.byName, &p[0]) || trim(&m.byLease, &p[1]) || trim(&m.byWait, &p[2]) || trim(&m.byList, &p[3]) ||
		trim(&m.byPlace, &p[4]) || trim(&m.byEntry, &p[5]) || trim(&m.byNotice, &p[6]) || trim(&m.byEnded, &p[7]) ||
		trim(&m.byKey, &p[8]) || trim(&m.byRevoked, &p[9]) || trim(&m.marked, &p[10]) || trim(&m.holdersBy, &p[11]) ||
		trim(&m.owned, &p[12]) || trim(&m.tombstoneOf, &p[13]) || trim(&m.byReturn.spends, &p[14])
}

// links and list chain records of one table in insertion order.
type (
	links struct{ previous, next ref }
	list  struct {
		first, last ref
		size        uint32
	}
)

func (l *list) length() int { return int(l.size) }

// push appends r. at returns the links of a record for changing.
func (l *list) push(r ref, at func(ref) *links) {
	if l.last == 0 {
		l.first = r
	} else {
		at(l.last).next = r
		at(r).previous = l.last
	}
	l.last = r
	l.size++
}

func (l *list) unlink(r ref, at func(ref) *links) {
	gone := *at(r)
	if gone.previous == 0 {
		l.first = gone.next
	} else {
		at(gone.previous).next = gone.next
	}
	if gone.next == 0 {
		l.last = gone.previous
	} else {
		at(gone.next).previous = gone.previous
	}
	*at(r) = links{}
	l.size--
}
