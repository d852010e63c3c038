package cluster

import (
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
)

// View calls read with the machine's state under a lock that delays entries: read must return quickly, must not block,
// and must not keep the machine, or any value that the machine's methods forbid to keep.
func (n *Node) View(read func(m *fsm.Machine)) { n.replica.View(read) }

// Changed returns a channel that gets a value when an entry that changes the semaphore of that name has been applied
// here, or a snapshot restored. To miss no change, call it before View. stop releases it, and may be called more than
// once. Changed does not block.
func (n *Node) Changed(name string) (changed <-chan struct{}, stop func()) {
	return n.replica.Watch(name)
}

// WatchItems returns a watch of the changes of items here: see replica.ItemWatches.Watch.
func (n *Node) WatchItems(name string, below bool) *replica.ItemWatch {
	return n.replica.WatchItems(name, below)
}

// HoldersChanged returns a channel that is closed at the next change of the sessions that open-holder opened: see
// replica.Replica.HoldersChanged.
func (n *Node) HoldersChanged() <-chan struct{} { return n.replica.HoldersChanged() }

// EventsAfter returns the events after an event: see replica.EventsAfter.
func (n *Node) EventsAfter(after replica.EventID) (replica.EventPage, error) {
	return n.replica.EventsAfter(after)
}

// EventsBefore returns the events before an index: see replica.EventsBefore.
func (n *Node) EventsBefore(index uint64) []replica.EventEntry { return n.replica.EventsBefore(index) }

// keys returns how full the table of idempotency keys is.
func (n *Node) keys() (now fsm.KeysView) {
	n.View(func(m *fsm.Machine) { now = m.Keys() })
	return now
}
