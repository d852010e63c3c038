package fsm

import (
	"math"

	"github.com/tidwall/btree"
)

// The primary records. They hold refs and immutable slices only, so that a
// frozen page is a true copy. Members marked derived are rebuilt at restore
// and are not part of a snapshot.

type semaphore struct {
	name     string
	epoch    uint64 // never reused
	permits  int64  // 0 … 2^63-1, moved only by put
	offset   int64  // moved only by up, down and set
	held     int64  // invariant: the sum of its leases' counts
	level    *int32 // immutable
	metadata []Pair // immutable
	modified uint64 // index of the last entry that moved permits, offset, leases or waiters
	deleted  bool   // out of the index of names, and being emptied; see sweep
	shrunk   bool   // requests in its line have become impossible, and are being ended; see sweep
	version  uint64 // of permits, level and metadata: 1 when made, one more at each change; 0 since level 0

	holders list // derived: its leases, oldest first
	entries list // derived: the wait lists' entries for it, oldest first
	notices list // derived: who wants to be told, oldest first
	// line is derived: who waits, by place. Nil until somebody waits. A frozen
	// copy must not read it: it belongs to the live machine.
	line *btree.Map[uint64, ref]
	// asked is derived, and the live machine's like line: the requests for leases.
	asked *askedCounts
}

// available is what could be granted now; negative after a shrink or a restore.
func (s *semaphore) available() int64 { return s.permits + s.offset - s.held }

// full is the most that one lease could ever hold here, without an up.
func (s *semaphore) full() int64 { return addInt(s.permits, max(s.offset, 0)) }

func (s *semaphore) waiting() int {
	if s.line == nil {
		return 0
	}
	return s.line.Len()
}

// position answers the rank of a place in the line, from 1: a binary search
// over the tree's counts, O(log² n).
func (s *semaphore) position(place uint64) int64 {
	low, high := 0, s.line.Len()
	for low < high {
		middle := (low + high) / 2
		if at, _, _ := s.line.GetAt(middle); at < place {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return int64(low) + 1
}

type session struct {
	id         uint64
	ttlMS      int64
	deadlineMS int64
	metadata   []Pair // immutable
	owner      string // the identity that opened it; empty: every caller finds it
	oneShot    bool   // ends with its last lease or request
	keep       bool   // on_end: what a wait list was granted is not given back
	leased     bool   // it has held a lease: its client knows its id
	first      uint64 // the place of a one-shot's own request while that waits, else 0
	delivered  uint64 // the order of the wait list's entry delivered last

	key      ref   // derived: the idempotency key that ends with this one-shot session, 0: none
	leases   list  // derived: oldest first, revoked ones too
	requests list  // derived: lowest place first
	reserved int64 // derived: how many leases its requests may become
	members  int   // derived: of its requests
	keys     int   // derived: that wait for its requests
	entries  list  // derived: its wait list, in the order added
}

// awaitsFirst reports whether the session is a one-shot whose own request still
// waits: its deadline is the end of that wait, and moves with the grant alone.
func (s *session) awaitsFirst() bool { return s.first != 0 }

type lease struct {
	session   ref
	semaphore ref
	count     int64
	token     uint64 // unique: also the order of leases everywhere
	grantedMS int64
	group     uint64 // which list asked for it, see groupOf; 0: a single acquire
	revoked   bool   // then it holds nothing, and its count is not in held
	reason    string

	inSession, inSemaphore links // derived
}

type member struct {
	semaphore ref
	count     int64
}

type request struct {
	place      uint64 // only rises
	session    ref
	members    []member // immutable; an "any" request gets a new slice when it loses one
	mode       Mode     // 0: a single semaphore
	unowned    bool     // a down: takes permits from the offset, makes no lease
	partial    bool     // unowned only: takes what there is, if anything
	group      uint64   // see groupOf
	enqueuedMS int64
	keys       []ref // immutable: idempotency keys that wait for its outcome
	entry      ref   // of a wait list, 0: none; then it is unowned and partial

	inSession links // derived
}

// entry is one semaphore on a session's wait list: what waits there in the
// background, and what it was granted and was not told of yet.
type entry struct {
	order     uint64 // unique: the place in the list
	session   ref
	semaphore ref // 0 once it is deleted
	name      string
	epoch     uint64
	granted   int64  // taken from the offset, not delivered yet
	token     uint64 // of the last grant
	waiting   ref    // derived: its request, 0 when nothing waits

	inSession, inSemaphore links // derived
}

// notice is a refused down's wish to be told when there is something again.
type notice struct {
	place     uint64 // unique: its id
	semaphore ref    // 0 once it is deleted
	name      string
	epoch     uint64
	url       string
	count     int64 // what must be available, with nobody waiting
	dueMS     int64 // when it became due, in cluster time; 0 before
	due       bool
	endsMS    int64 // when it ends unless it is due by then, in cluster time; 0: never, as at level 0

	inSemaphore links // derived
	inOrder     links // derived: among those that end by time
}

// ended remembers how a session ended.
type ended struct {
	id     uint64
	order  uint64 // rises with each ended session
	atMS   int64
	cause  Cause
	reason string
	owner  string // the session's
}

// key is an idempotency key: pending while its request waits (result empty).
type key struct {
	keyName
	order       uint64 // rises with each recording
	atMS        int64  // of the last recording
	fingerprint [16]byte
	place       uint64 // of the request that it waits for, 0 once it has an outcome
	session     uint64 // of that request; with an outcome the one-shot session that it ends with, 0: none
	result      string // the encoded outcome
	reserved    int64  // bytes kept for the outcome while the request waits

	inOrder links // derived: among the keys with an outcome
}

// keyName names a key: each owner has keys of its own.
type keyName struct{ owner, text string }

func (n keyName) bytes() int64 { return int64(len(n.owner) + len(n.text) + keyOverhead) }

func (k *key) bytes() int64 { return k.keyName.bytes() + int64(len(k.result)) + k.reserved }

// links and list chain the records of one table in the order of arrival.
type (
	links struct{ previous, next ref }
	list  struct {
		first, last ref
		length      int
	}
)

// push appends r; at answers the links of a record for changing.
func (l *list) push(r ref, at func(ref) *links) {
	if l.last == 0 {
		l.first = r
	} else {
		at(l.last).next = r
		at(r).previous = l.last
	}
	l.last = r
	l.length++
}

// unlink takes r out.
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
	l.length--
}

// addInt adds without leaving int64: at its ends it stays.
func addInt(a, b int64) int64 {
	sum := a + b
	if b > 0 && sum < a {
		return math.MaxInt64
	}
	if b < 0 && sum > a {
		return math.MinInt64
	}
	return sum
}

// sumFits reports whether a + b stays within int64.
func sumFits(a, b int64) bool {
	sum := a + b
	return (b >= 0) == (sum >= a)
}
