package fsm

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
)

// The primary records. They hold refs and immutable slices only, so that a frozen page is a
// true copy. Restore rebuilds the members marked as derived, and a snapshot does not
// contain them.

type semaphore struct {
	// Each acquire and release reads these.
	name      string
	epoch     uint64    // never reused
	permits   int64     // 0 … 2^63-1; only put changes it
	offset    int64     // only up, down and set change it
	held      int64     // invariant: the sum of its leases' counts
	returning int64     // derived: the permits that come back later
	settings  *Settings // immutable; nil: no settings
	level     *int32    // immutable
	modified  uint64    // index of the last entry that changed permits, offset, leases or waiters

	// line and groups are derived: its waiting requests without groups, nil while no request waits,
	// and its groups. They belong to the live machine: a frozen copy must not read them.
	line    *line
	groups  *groups
	holders list // derived: its leases, oldest first
	notices list // derived: oldest first
	deleted bool // no longer in the index of names; sweep empties it
	shrunk  bool // its line has requests that can't be granted any more; sweep ends them

	passed    uint16   // of a pool: grants in a row that passed the head of lowest rank
	entries   list     // derived: entries of wait lists for it, oldest first
	returns   int32    // derived: the records of the returning permits
	lost      int32    // derived: the records among them of lost leases
	slots     *slotSet // derived: the taken slots, nil until the first is taken; it belongs to the live machine
	metadata  []Pair   // immutable
	version   uint64   // of permits, level, metadata and settings: starts at 1, rises at each change
	owner     string   // the identity that made it, which has a share of the names
	sweep     *string  // immutable: the first group that does not have its limit yet; nil: no sweep
	forgotten uint64   // receipts with tokens up to this one are void: a set forgot what they spent
}

type session struct {
	id         uint64
	ttlMS      int64
	deadlineMS int64
	metadata   []Pair // immutable
	owner      string // the identity that opened it; if empty, every caller finds it
	first      uint64 // the place of a one-shot's own request while it waits, else 0
	delivered  uint64 // the order of the entry of its wait list that was delivered last

	key      ref   // derived: the idempotency key that ends with this one-shot session, or 0
	leases   list  // derived: oldest first, revoked ones too
	requests list  // derived: lowest place first
	entries  list  // derived: its wait list, in the order added
	reserved int32 // derived: the number of leases that its requests may become
	members  int32 // derived: the members of its requests
	keys     int32 // derived: the keys that wait for its requests

	items list   // derived: the items that it holds
	terms *terms // immutable; nil unless open-holder opened it

	oneShot bool // ends with its last lease or request
	keep    bool // its end does not give back the undelivered grants of its wait list
	leased  bool // it has held a lease, so that its client knows its id
}

// awaitsFirst reports whether the session is a one-shot whose own request still waits. Its
// deadline is the end of that wait then, and only the grant moves it.
func (s *session) awaitsFirst() bool { return s.first != 0 }

type lease struct {
	session   ref
	semaphore ref
	count     int64
	token     uint64 // unique; leases are ordered by it
	grantedMS int64
	listHash  uint64 // of the list that asked for it, see listHashOf; 0: a single acquire
	lane      ref    // its group, or 0
	endCause  Cause  // CauseRevoked or CauseMaxHold: it holds no permits any more, and held does not include its count; or 0
	reason    string
	ends      int64     // when it ends, in cluster time; 0: with its session
	due       int64     // of a receipt: when what it spent comes back, in cluster time; 0: it holds its permits
	slots     *slotList // which permits it has; nil: it does not say

	inSession, inSemaphore links // derived
}

// revoked reports whether the lease was ended against the will of its session, which has not dropped it yet.
func (l *lease) revoked() bool { return l.endCause != 0 }

// holds returns the permits that the lease holds.
func (l *lease) holds() int64 {
	if l.revoked() || l.due != 0 {
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
	members    []member // immutable; an "any" request gets a new slice when it loses one
	mode       Mode     // 0: a single semaphore
	unowned    bool     // a down: takes permits from the offset, makes no lease
	partial    bool     // unowned only: takes less than count if less is available
	spends     uint8    // the returns that its grant may make, for which room is reserved
	listHash   uint64   // see listHashOf
	enqueuedMS int64
	rankMS     int64 // enqueuedMS less its head start, see rank
	keys       []ref // immutable: idempotency keys that wait for its outcome
	entry      ref   // of a wait list, or 0; with an entry it is unowned and partial

	inSession links // derived
}

// leases returns the number of leases that a request may become.
func (r *request) leases() int64 {
	switch {
	case r.unowned:
		return 0
	case r.mode == All:
		return int64(len(r.members))
	}
	return 1
}

// reserves returns the number of leases and returns that a request may become.
func (r *request) reserves() int64 { return r.leases() + int64(r.spends) }

// entry is one semaphore on the wait list of a session, with the request that waits in
// the background and the permits that were granted and not yet delivered.
type entry struct {
	order     uint64 // unique; entries of a list are ordered by it
	session   ref
	semaphore ref // 0 once it is deleted
	lane      ref // its group, or 0
	name      string
	epoch     uint64
	group     string // of the semaphore
	granted   int64  // taken, not yet delivered
	spent     int64  // of these in a window; the others from the offset
	token     uint64 // of the last grant
	waiting   ref    // derived: its request, or 0

	inSession, inSemaphore links // derived
}

// notice is the wish of a refused down to be notified when permits are available again.
type notice struct {
	place     uint64 // unique: its id
	semaphore ref    // 0 once it is deleted
	name      string
	epoch     uint64
	url       string
	count     int64 // it is due when so much is available and the line is empty
	dueMS     int64 // when it became due, in cluster time; 0 before that
	due       bool
	endsMS    int64 // when it ends unless it is due by then, in cluster time
	owner     string
	group     string // of the semaphore

	inSemaphore links // derived
	inOrder     links // derived: among the notices that end by time
}

// ended is the memory of how a session ended.
type ended struct {
	id     uint64
	order  uint64 // rises with each ended session
	atMS   int64
	cause  Cause
	reason string
	owner  string // the session's

	inOrder, inOwner links // derived: in the lists of its kind and of its owner
}

// key is an idempotency key. It is pending, without a result, while its request waits.
type key struct {
	keyName
	order       uint64 // rises with each recording
	atMS        int64  // when it was last recorded
	fingerprint [16]byte
	place       uint64 // of the request that it waits for, 0 once it has an outcome
	session     uint64 // of that request; with an outcome, the one-shot session that it ends with, or 0
	result      string // the encoded outcome
	reserved    int64  // bytes kept free for the outcome while the request waits

	inOrder links // derived: among the keys with an outcome
}

// keyName names a key: each owner has its own keys.
type keyName struct{ owner, text string }

// revoked is the memory of a lease that was revoked, or that max_hold ended, and that its session has
// dropped since, by its end or by a release. A restore of the session does not bring
// the lease back.
type revoked struct {
	session uint64
	epoch   uint64 // of the semaphore
	group   string // of the semaphore
	order   uint64 // rises with each; ended sessions and keys share the counter
	atMS    int64
	cause   Cause
	reason  string

	inOrder links // derived
}

// item is a small named value that a session may hold. A deleted item whose delay runs stays as
// a shade, which readers don't see; a new item of its name takes over its record and its delay.
type item struct {
	name    string
	value   string
	flags   uint64
	holder  ref    // a session, or 0
	locks   uint64 // how often a session acquired it while no session held it
	created uint64 // the number of the change that made it; no other item has it
	version uint64 // the number of its last change
	delayMS int64  // no session acquires it before this, in cluster time; 0: at any time
	owner   string // the identity that made it, or last made it longer

	inSession links // derived

	shade bool // it has name, created, delayMS and owner alone
}

// folder is the memory of the items that were deleted from one folder of names.
type folder struct {
	text   string // of the names up to the last slash, with it
	order  uint64 // rises with each delete; ended sessions and keys share the counter
	atMS   int64  // of the last delete
	folded uint64 // the number of the last delete that is not in names any more, or 0
	names  []deletedName

	inOrder links // derived
}

// deletedName is one delete. A folder has each name once, in the order of the deletes. Changes
// of the list append to its array or make another array, so that a frozen copy may share it.
type deletedName struct {
	name   string
	number uint64 // of the change
}

// revokedKey names the memory of a lease.
type revokedKey struct {
	session, epoch uint64
	group          string
}

// pageSize is the number of records in a page, the unit of copy-on-write. A frozen copy
// costs one pointer for each page; the first change to a page after it costs a copy of the
// page. docs/adr/0006 has the measurements.
const pageSize = 32

// ref names a record of a table: its slot + 1. 0 is no record. Slots are used again and
// appear in no output, so that replicas may differ in them.
type ref uint32

// table holds records of one kind in pages that a frozen copy shares until they change.
// Separate indexes find records by anything but their ref.
type table[T any] struct {
	pages []*page[T] // nil: all of its slots are free
	roomy []int32    // each page that has a free slot, nil ones too, once; the last one is used first
	spare int        // empty pages that are kept, so that one record that comes and goes makes no page each time
	live  int
	// generation marks the pages that this table may change in place. A frozen copy shares
	// the pages of other generations.
	generation uint64
	// touches counts the records looked up if a test asks for it, else it is nil.
	touches *int
}

type page[T any] struct {
	generation uint64
	live       uint32 // a bit for each slot in use
	records    [pageSize]T
}

const fullPage uint32 = 1<<pageSize - 1

// at returns a record for reading, for a free slot the zero record. The pointer is valid until the
// next change to the table.
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

// mut returns a record for changing, on a page of this table alone.
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
	if len(t.roomy) == 0 {
		t.roomy = append(t.roomy, int32(len(t.pages)))
		t.pages = append(t.pages, nil)
	}
	i := int(t.roomy[len(t.roomy)-1])
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
		t.roomy = t.roomy[:len(t.roomy)-1]
	}
	t.live++
	return ref(i*pageSize + at + 1)
}

// remove frees the slot and clears the record, so that it pins no memory. A page without records
// is given back.
func (t *table[T]) remove(r ref) {
	i, at := int((r-1)/pageSize), (r-1)%pageSize
	p := t.own(i)
	if p.live == fullPage {
		t.roomy = append(t.roomy, int32(i))
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

// refs returns the refs of all live records in the order of their keys. Keys are unique, so
// that the order does not depend on slots.
func (t *table[T]) refs(key func(*T) uint64) []ref {
	found := make([]ref, 0, t.live)
	for r := range t.all() {
		found = append(found, r)
	}
	slices.SortFunc(found, func(a, b ref) int { return cmp.Compare(key(t.at(a)), key(t.at(b))) })
	return found
}

// listPage is the number of values in a page of a paged list.
const listPage = 1024

// paged is a list that grows without copying its values, and frees pages that it does not need.
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

// pop removes the last value. One page more than is needed stays.
func (l *paged[T]) pop() T {
	l.length--
	last := *l.at(l.length)
	if unused := len(l.pages)*listPage - l.length; unused >= 2*listPage {
		l.pages[len(l.pages)-1] = nil
		l.pages = l.pages[:len(l.pages)-1]
	}
	return last
}

// trimAtOnce bounds the records of an index that an entry puts into a smaller map.
const trimAtOnce = 1 << 16

// trim copies an index into a smaller map if the index has had eight times as many records, since a Go map
// never shrinks, and reports whether it did. peak is the highest number of records since the last copy.
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

// trim gives back the room of one index that has become much smaller.
func (m *Machine) trim() {
	p := &m.peaks
	_ = trim(&m.byName, &p[0]) || trim(&m.byLease, &p[1]) || trim(&m.byWait, &p[2]) || trim(&m.byList, &p[3]) ||
		trim(&m.byPlace, &p[4]) || trim(&m.byEntry, &p[5]) || trim(&m.byNotice, &p[6]) || trim(&m.byEnded, &p[7]) ||
		trim(&m.byKey, &p[8]) || trim(&m.byRevoked, &p[9]) || trim(&m.marked, &p[10]) || trim(&m.holdersBy, &p[11]) ||
		trim(&m.owned, &p[12]) || trim(&m.byShade, &p[13]) || trim(&m.byReturn.spends, &p[14])
}

// links and list chain the records of one table in the order of arrival.
type (
	links struct{ previous, next ref }
	list  struct {
		first, last ref
		size        uint32
	}
)

// length returns the number of records in the list.
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

// unlink removes r.
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
