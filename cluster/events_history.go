package cluster

import (
	"context"
	"sort"
	"sync"
	"time"
	"unsafe"

	"github.com/signalbox/signalbox/fsm"
)

const (
	// DefaultHistoryEvents is how many events a node keeps unless configured
	// otherwise, if they don't take more than DefaultHistoryBytes.
	DefaultHistoryEvents = 100_000
	// DefaultHistoryBytes is what the events of a node take at most unless
	// configured otherwise.
	DefaultHistoryBytes = 64 << 20

	// eventPageEntries and eventPageEvents bound one page, so that the lock is held
	// for a moment; an entry is never divided.
	eventPageEntries = 64
	eventPageEvents  = 512

	// eventPace is the least time between two wakes of those who wait for events:
	// a thousand of them would else be woken for each entry.
	eventPace = 2 * time.Millisecond

	entryBytes  = int64(unsafe.Sizeof(EventEntry{}))
	effectBytes = int64(unsafe.Sizeof(fsm.Effect{}))
)

// eventHistory is the events that this node has applied lately, in memory alone: it is
// part of no snapshot. Only the apply goroutine adds to it, without waiting for
// readers. Safe for concurrent use.
type eventHistory struct {
	maxEvents, maxBytes int64

	mu      sync.Mutex
	entries []EventEntry // those with effects, oldest first, from head on
	head    int
	floor   uint64        // everything above it is here
	reached uint64        // up to where it was told
	events  int64         // invariant: the sum of the entries' effects
	bytes   int64         // invariant: the sum of the entries' sizes
	news    chan struct{} // closed when there is more; nil: nobody waits

	due chan struct{} // has room for one: somebody waits, and there is more
}

func newEventHistory(maxEvents, maxBytes int64) *eventHistory {
	return &eventHistory{maxEvents: maxEvents, maxBytes: maxBytes, due: make(chan struct{}, 1)}
}

// deliver adds what an entry did and forgets what is beyond the bounds.
func (h *eventHistory) deliver(applied *fsm.Applied) {
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
	if h.news != nil {
		signal(h.due)
	}
}

// forget drops the oldest entry. The caller holds mu.
func (h *eventHistory) forget() {
	oldest := &h.entries[h.head]
	h.floor = oldest.Index
	h.events -= int64(len(oldest.Effects))
	h.bytes -= oldest.size()
	*oldest = EventEntry{} // its effects go now
	h.head++
	if h.head > len(h.entries)/2 {
		kept := copy(h.entries, h.entries[h.head:])
		clear(h.entries[kept:])
		h.entries, h.head = h.entries[:kept], 0
	}
}

// size is what an entry takes, names that others share included.
func (e *EventEntry) size() int64 {
	size := entryBytes + effectBytes*int64(cap(e.Effects))
	for i := range e.Effects {
		f := &e.Effects[i]
		size += int64(len(f.Semaphore) + len(f.Reason))
		for _, p := range f.Metadata {
			size += int64(len(p.Key) + len(p.Value))
		}
	}
	return size
}

// restored notes that the machine has jumped: what led to where it is now, or
// away from where it was, was never told.
func (h *eventHistory) restored(index uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.floor = max(index, h.reached+1)
	h.reached = h.floor
	h.entries, h.head, h.events, h.bytes = nil, 0, 0, 0
	if h.news != nil {
		signal(h.due)
	}
}

// after answers the page that follows an event.
func (h *eventHistory) after(id EventID) (EventPage, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if id.Index < h.floor || id.Index == h.floor && id.Ordinal > 0 && h.floor > 0 {
		return EventPage{}, ErrHistoryGone
	}
	kept := h.entries[h.head:]
	at := sort.Search(len(kept), func(i int) bool { return kept[i].Index >= id.Index })
	page, events := EventPage{}, 0
	for ; at < len(kept) && len(page.Entries) < eventPageEntries && events < eventPageEvents; at++ {
		if e, more := kept[at].following(id); more {
			page.Entries = append(page.Entries, e)
			events += len(e.Effects)
		}
	}
	switch {
	case at < len(kept):
		page.Next = EventID{Index: kept[at-1].Index}
		return page, nil
	case id.Index > h.reached:
		page.Next = id
	default:
		page.Next = EventID{Index: h.reached}
	}
	if h.news == nil {
		h.news = make(chan struct{})
	}
	page.News = h.news
	return page, nil
}

// following answers what of an entry comes after an event.
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

// run wakes who waits for news, until ctx ends.
func (h *eventHistory) run(ctx context.Context) {
	pace := time.NewTimer(0)
	defer pace.Stop()
	for {
		select {
		case <-h.due:
		case <-ctx.Done():
			return
		}
		h.wake()
		pace.Reset(eventPace)
		select {
		case <-pace.C:
		case <-ctx.Done():
			return
		}
	}
}

// wake tells all who wait. It holds no lock while it does.
func (h *eventHistory) wake() {
	h.mu.Lock()
	news := h.news
	h.news = nil
	h.mu.Unlock()
	if news != nil {
		close(news)
	}
}
