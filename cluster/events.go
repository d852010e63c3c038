package cluster

import (
	"errors"

	"github.com/signalbox/signalbox/fsm"
)

// ErrHistoryGone says that events after the one named are not kept here any more,
// or were jumped over by a snapshot. Who followed them must look at the state anew.
var ErrHistoryGone = errors.New("the history of events does not go back so far")

// EventID says how far a reader of events has come. It is the same on all nodes.
type EventID struct {
	Index uint64 // of an entry
	// Ordinal counts the entry's events from 1; 0 is beyond all of them.
	Ordinal int
}

// EventEntry is what one entry of the log did. It is never changed.
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
	Next    EventID // after what the page after this one begins
	// News is closed when there is more; nil when there is more already.
	News <-chan struct{}
}

// EventsAfter answers what happened after an event, oldest first, as far as this
// node has applied the log; an id beyond that is waited for by News. It fails with
// ErrHistoryGone. It does not block, and what readers do not fetch is not kept for
// them.
func (n *Node) EventsAfter(after EventID) (EventPage, error) {
	return n.history.after(after)
}
