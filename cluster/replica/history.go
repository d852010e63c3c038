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
	// DefaultHistoryEvents is how many events a node keeps by default, if they don't take more than
	// DefaultHistoryBytes.
	DefaultHistoryEvents = 100_000
	// DefaultHistoryBytes bounds the bytes of the events that a node keeps by default.
	DefaultHistoryBytes = 64 << 20

	// eventPageEntries and eventPageEvents bound one page, so that the lock is held only briefly; an entry is never
	// divided.
	eventPageEntries = 64
	eventPageEvents  = 512

	// eventPace is the minimum time between two wake-ups of the readers of events. Without it, each entry would wake
	// all of them.
	eventPace = 2 * time.Millisecond

	entryBytes   = int64(unsafe.Sizeof(EventEntry{}))
	effectBytes  = int64(unsafe.Sizeof(fsm.Effect{}))
	detailsBytes = int64(unsafe.Sizeof(fsm.EffectDetails{}))
)

// EventID is the position of a reader of events. It is the same on all nodes.
type EventID struct {
	Index uint64 // of an entry
	// Ordinal counts the entry's events from 1; 0 is the position after the last of them.
	Ordinal int
}

// EventEntry is the events of one entry of the log, at least one. It is never changed.
type EventEntry struct {
	Index uint64
	NowMS int64 // cluster time of the entry
	// Before is how many of the entry's effects come before Effects: the first of Effects has the ordinal Before + 1.
	Before  int
	Effects []fsm.Effect
}

// EventPage is a part of the history. The slice of entries is the caller's.
type EventPage struct {
	Entries []EventEntry
	Next    EventID // the next page follows this event
	// News is closed when there are later events; it is nil if there already are later events.
	News <-chan struct{}
}

// history keeps the latest events that this node has applied. It is in memory only: no snapshot contains it. Only the
// apply goroutine adds events, and it does not wait for readers: a slow reader may miss events. Safe for concurrent
// use.
type history struct {
	maxEvents, maxBytes int64

	mu      sync.Mutex
	entries []EventEntry // entries with effects, oldest first, from head on
	head    int
	floor   uint64 // all events above this index are here
	reached uint64 // the index of the last entry or snapshot
	events  int64  // invariant: the sum of the entries' effects
	bytes   int64  // invariant: the sum of the entries' sizes

	news wake.Bell   // rung by run when there are new events
	due  wake.Signal // a reader waits and there are new events
}

func newHistory(maxEvents, maxBytes int64) *history {
	return &history{maxEvents: maxEvents, maxBytes: maxBytes, due: wake.NewSignal()}
}

// applied adds the effects of an entry, and removes the oldest entries beyond the bounds.
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
	*oldest = EventEntry{} // frees its effects at once
	h.head++
	if h.head > len(h.entries)/2 {
		count := copy(h.entries, h.entries[h.head:])
		clear(h.entries[count:])
		h.entries, h.head = h.entries[:count], 0
	}
}

// size returns the bytes that an entry takes, including names that it shares with other entries.
func (e *EventEntry) size() int64 {
	size := entryBytes + effectBytes*int64(cap(e.Effects))
	for i := range e.Effects {
		f := &e.Effects[i]
		size += int64(len(f.Semaphore) + len(f.Item))
		if f.Details == nil {
			continue
		}
		size += detailsBytes + int64(len(f.Details.Reason))
		for _, p := range f.Details.Metadata {
			size += int64(len(p.Key) + len(p.Value))
		}
	}
	return size
}

// restored clears the history and starts again at index or above: a snapshot does not show by which events the state
// changed.
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

// after returns the page that follows an event. With ErrHistoryGone the page has the first Next that is kept.
func (h *history) after(id EventID) (EventPage, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if id.Index < h.floor || id.Index == h.floor && id.Ordinal > 0 && h.floor > 0 {
		return EventPage{Next: EventID{Index: h.floor}}, outcome.ErrHistoryGone
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

// before returns the latest entries with events before an index, at most one page, in their order. The slice belongs to
// the caller.
func (h *history) before(index uint64) []EventEntry {
	h.mu.Lock()
	defer h.mu.Unlock()
	entries := h.entries[h.head:]
	at := sort.Search(len(entries), func(i int) bool { return entries[i].Index >= index })
	return slices.Clone(entries[max(0, at-eventPageEntries):at])
}

// following returns the part of an entry after an event, if there is such a part.
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
	// HashEvery is the distance of the indexes at which a state hash is kept.
	HashEvery = 4096
	// HashesKept is the number of hashes kept at a distance of HashEvery. Two nodes can be compared if their indexes
	// differ by less than HashesKept times HashEvery.
	HashesKept = 16
)

// Hashes has the state hashes at the last indexes divisible by HashEvery. The entry at such an index may be an internal
// entry of Raft, which the state never gets. So the hash at an index is the hash after the last entry of the state at
// or below it. All nodes that have applied the same entries have the same hash there.
//
// Hashes also has the hash after each of the last HashEvery entries of the state, at the index of the entry: a node
// that joins compares its hash at any of these indexes.
//
// All methods are safe for concurrent use; only the apply goroutine adds hashes.
type Hashes struct {
	mu     sync.Mutex
	kept   []stateHash          // by index, the latest last
	last   stateHash            // after the last entry
	known  bool                 // whether last is the hash just before the next entry
	recent [HashEvery]stateHash // by index modulo HashEvery
	newest stateHash            // the latest in recent
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

// keep appends a hash and removes the oldest. The caller holds mu.
func (h *Hashes) keep(state stateHash) {
	if over := len(h.kept) + 1 - HashesKept; over > 0 {
		h.kept = slices.Delete(h.kept, 0, over)
	}
	h.kept = append(h.kept, state)
}

// restored clears the hashes and starts again with the hash of a state from a snapshot. The hashes of the skipped
// indexes are unknown. The earlier hashes are dropped because a restored backup replaces the history that they belong
// to.
func (h *Hashes) restored(index uint64, hash [16]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept, h.last, h.known = nil, stateHash{}, false
	clear(h.recent[:])
	h.newest = stateHash{index, hash}
	h.recent[index%HashEvery] = h.newest
}

// Latest returns the hash after the last entry of the state, and its index, which is 0 before the first entry.
func (h *Hashes) Latest() (index uint64, hash [16]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.newest.index, h.newest.hash
}

// At returns the hash after the entry with that index; known is false if this node does not have it.
func (h *Hashes) At(index uint64) (hash [16]byte, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	found := h.recent[index%HashEvery]
	return found.hash, index > 0 && found.index == index
}

// All returns the kept hashes in the order of their indexes.
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
