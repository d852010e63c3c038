package replica

import (
	"context"
	"iter"
	"slices"
	"sort"
	"sync"
	"time"
	"unsafe"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// DefaultHistoryEvents is how many events a node keeps unless configured
	// otherwise, if they don't take more than DefaultHistoryBytes.
	DefaultHistoryEvents = 100_000
	// DefaultHistoryBytes bounds the bytes that the events of a node take unless
	// configured otherwise.
	DefaultHistoryBytes = 64 << 20

	// eventPageEntries and eventPageEvents bound one page, so that the lock is held
	// for a moment; an entry is never divided.
	eventPageEntries = 64
	eventPageEvents  = 512

	// eventPace is the least time between two wakes of the readers of events: many of
	// them would otherwise be woken for each entry.
	eventPace = 2 * time.Millisecond

	entryBytes  = int64(unsafe.Sizeof(EventEntry{}))
	effectBytes = int64(unsafe.Sizeof(fsm.Effect{}))
)

// EventID is how far a reader of events has come. It is the same on all nodes.
type EventID struct {
	Index uint64 // of an entry
	// Ordinal counts the entry's events from 1; 0 is beyond all of them.
	Ordinal int
}

// EventEntry is the events of one entry of the log, at least one. It is never changed.
type EventEntry struct {
	Index uint64
	NowMS int64 // cluster time of the entry
	// Before is how many of the entry's effects come before these: the first one
	// has the ordinal Before + 1.
	Before  int
	Effects []fsm.Effect
}

// EventPage is a part of the history. The slice of entries is the caller's.
type EventPage struct {
	Entries []EventEntry
	Next    EventID // the next page follows this event
	// News is closed when there is more; nil when there is more already.
	News <-chan struct{}
}

// history is the latest events that this node has applied, in memory alone: no
// snapshot has them. Only the apply goroutine adds to it, without waiting for readers,
// and keeps no event for a slow one. Safe for concurrent use.
type history struct {
	maxEvents, maxBytes int64

	mu      sync.Mutex
	entries []EventEntry // those with effects, oldest first, from head on
	head    int
	floor   uint64 // everything above it is here
	reached uint64 // the index of the last entry or snapshot
	events  int64  // invariant: the sum of the entries' effects
	bytes   int64  // invariant: the sum of the entries' sizes

	news wake.Bell   // rung, by run, when there is more
	due  wake.Signal // a reader waits, and there is more
}

func newHistory(maxEvents, maxBytes int64) *history {
	return &history{maxEvents: maxEvents, maxBytes: maxBytes, due: wake.NewSignal()}
}

// applied adds the effects of an entry and forgets the oldest ones beyond the bounds.
func (h *history) applied(applied *fsm.Applied) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reached = applied.Index
	if len(applied.Effects) > 0 {
		e := EventEntry{Index: applied.Index, NowMS: applied.NowMS, Effects: applied.Effects}
		h.entries = append(h.entries, e)
		h.events += int64(len(e.Effects))
		h.bytes += e.size()
	}
	for h.events > h.maxEvents || h.bytes > h.maxBytes {
		h.forget()
	}
	if h.news.Awaited() {
		h.due.Set()
	}
}

// forget drops the oldest entry. The caller holds mu.
func (h *history) forget() {
	oldest := &h.entries[h.head]
	h.floor = oldest.Index
	h.events -= int64(len(oldest.Effects))
	h.bytes -= oldest.size()
	*oldest = EventEntry{} // its effects go now
	h.head++
	if h.head > len(h.entries)/2 {
		count := copy(h.entries, h.entries[h.head:])
		clear(h.entries[count:])
		h.entries, h.head = h.entries[:count], 0
	}
}

// size returns the bytes that an entry takes, names that others share included.
func (e *EventEntry) size() int64 {
	size := entryBytes + effectBytes*int64(cap(e.Effects))
	for i := range e.Effects {
		f := &e.Effects[i]
		size += int64(len(f.Semaphore) + len(f.Reason) + len(f.Item))
		for _, p := range f.Metadata {
			size += int64(len(p.Key) + len(p.Value))
		}
	}
	return size
}

// restored begins anew at index: the effects that led to the present state, or away
// from the state before, are not known here.
func (h *history) restored(index uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.floor = max(index, h.reached+1)
	h.reached = h.floor
	h.entries, h.head, h.events, h.bytes = nil, 0, 0, 0
	if h.news.Awaited() {
		h.due.Set()
	}
}

// after returns the page that follows an event.
func (h *history) after(id EventID) (EventPage, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if id.Index < h.floor || id.Index == h.floor && id.Ordinal > 0 && h.floor > 0 {
		return EventPage{}, outcome.ErrHistoryGone
	}
	entries := h.entries[h.head:]
	at := sort.Search(len(entries), func(i int) bool { return entries[i].Index >= id.Index })
	page, events := EventPage{}, 0
	for ; at < len(entries) && len(page.Entries) < eventPageEntries && events < eventPageEvents; at++ {
		if e, more := entries[at].following(id); more {
			page.Entries = append(page.Entries, e)
			events += len(e.Effects)
		}
	}
	switch {
	case at < len(entries):
		page.Next = EventID{Index: entries[at-1].Index}
		return page, nil
	case id.Index > h.reached:
		page.Next = id
	default:
		page.Next = EventID{Index: h.reached}
	}
	page.News = h.news.Next()
	return page, nil
}

// before returns the entries with events before an index, the latest last, one page at most. The slice is the
// caller's.
func (h *history) before(index uint64) []EventEntry {
	h.mu.Lock()
	defer h.mu.Unlock()
	entries := h.entries[h.head:]
	at := sort.Search(len(entries), func(i int) bool { return entries[i].Index >= index })
	return slices.Clone(entries[max(0, at-eventPageEntries):at])
}

// following returns the part of an entry that comes after an event, if there is one.
func (e EventEntry) following(id EventID) (EventEntry, bool) {
	if e.Index != id.Index {
		return e, true
	}
	if id.Ordinal == 0 || id.Ordinal >= len(e.Effects) {
		return e, false
	}
	e.Before, e.Effects = id.Ordinal, e.Effects[id.Ordinal:]
	return e, true
}

// run wakes the readers that wait for news, until ctx ends.
func (h *history) run(ctx context.Context) {
	for wake.Until(ctx, h.due) == nil {
		h.news.Ring()
		if wake.Pause(ctx, eventPace) != nil {
			return
		}
	}
}

const (
	// HashEvery is at which multiples of the log's index a state hash is kept.
	HashEvery = 4096
	// HashesKept is how many of them are kept: nodes that are apart by one less can
	// still be compared.
	HashesKept = 16
)

// Hashes has the state hashes at the last indexes divisible by HashEvery. The entry
// there may be Raft's own, which the state never gets. So the hash at an index is that
// after the last entry of the state at or below the index, which is the same on all
// nodes that have applied the same.
//
// Beside them it has the hash after each of the last HashEvery entries of the state, at
// the entry's own index: a node that joins compares its own at any of them.
//
// All methods are safe for concurrent use; only the apply goroutine adds to them.
type Hashes struct {
	mu     sync.Mutex
	kept   []stateHash          // by index, the latest last
	last   stateHash            // after the last entry
	known  bool                 // last is the hash before the next entry
	recent [HashEvery]stateHash // by index modulo HashEvery
	newest stateHash            // the last one in recent
}

// stateHash is the state hash at an index.
type stateHash struct {
	index uint64
	hash  [16]byte
}

// note adds the hash after an entry of the state.
func (h *Hashes) note(index uint64, hash [16]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before := (index - 1) / HashEvery * HashEvery; h.known && before > h.last.index {
		h.keep(stateHash{before, h.last.hash}) // no entry of the state was there
	}
	if index%HashEvery == 0 {
		h.keep(stateHash{index, hash})
	}
	h.last, h.known = stateHash{index, hash}, true
	h.newest, h.recent[index%HashEvery] = h.last, h.last
}

// keep appends one and forgets the oldest. The caller holds mu.
func (h *Hashes) keep(state stateHash) {
	if over := len(h.kept) + 1 - HashesKept; over > 0 {
		h.kept = slices.Delete(h.kept, 0, over)
	}
	h.kept = append(h.kept, state)
}

// restored begins anew with the hash of a state that came from a snapshot: the hashes
// at the indexes that it jumped over are not known here. Those before stay true of the
// log, but a backup that was restored starts another history, so they go as well.
func (h *Hashes) restored(index uint64, hash [16]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept, h.last, h.known = nil, stateHash{}, false
	clear(h.recent[:])
	h.newest = stateHash{index, hash}
	h.recent[index%HashEvery] = h.newest
}

// Latest returns the hash after the last entry of the state, and its index; 0 before
// the first.
func (h *Hashes) Latest() (index uint64, hash [16]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.newest.index, h.newest.hash
}

// At returns the hash after the entry with that index; known is false if it is not
// known here.
func (h *Hashes) At(index uint64) (hash [16]byte, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	found := h.recent[index%HashEvery]
	return found.hash, index > 0 && found.index == index
}

// All returns the hashes that are kept, by index.
func (h *Hashes) All() iter.Seq2[uint64, [16]byte] {
	h.mu.Lock()
	defer h.mu.Unlock()
	hashes := slices.Clone(h.kept)
	return func(yield func(uint64, [16]byte) bool) {
		for _, state := range hashes {
			if !yield(state.index, state.hash) {
				return
			}
		}
	}
}
