package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
)

// readTimeout bounds a read: the leader's reply, and the time until the local machine has caught up.
const readTimeout = 5 * time.Second

// Consistency says how recent the state of a read must be. The zero value is linearizable: the read sees everything
// that was acknowledged, to any client on any node, before the read began.
type Consistency struct {
	// Stale reads this node's own state. It waits only for MinIndex.
	Stale bool
	// MinIndex above 0 waits until this node has that index, without asking the leader. For example, a client reads its
	// own writes that way.
	MinIndex uint64
	// Linearizable asks the leader in spite of a MinIndex. Not with Stale.
	Linearizable bool
}

// asksLeader reports whether a read must be linearizable.
func (c Consistency) asksLeader() bool { return !c.Stale && (c.MinIndex == 0 || c.Linearizable) }

// Reading is the moment as of which a read shows the state.
type Reading struct {
	// Index is the index that this node's machine has applied, at least.
	Index uint64
	// NowMS is cluster time: the leader's reading if the read was linearizable, otherwise this node's own estimate.
	NowMS int64
	// LastContact is how long ago this node heard from the leader; 0 on the leader, negative before the first time.
	LastContact time.Duration
	// Stale is set unless the read was linearizable.
	Stale bool
}

// Read blocks until this node's machine is as recent as the consistency requires; View then shows the state. A
// linearizable read costs a round trip between the leader and a majority, which all waiting reads share, and from
// another node a round trip to the leader. After 5 s it fails with ErrNoLeader, or with ErrBehind if only this node's
// own state is missing entries; before that, with ctx's cause.
func (n *Node) Read(ctx context.Context, c Consistency) (Reading, error) {
	end := time.Now().Add(n.times.Patience(readTimeout))
	if err := n.reach(ctx, c.MinIndex, end); err != nil {
		return Reading{}, err
	}
	if !c.asksLeader() {
		return n.staleReading(), nil
	}
	asking, cancel := context.WithDeadlineCause(ctx, end, outcome.ErrNoLeader)
	defer cancel()
	index, nowMS, err := n.router.Read(asking)
	if err != nil {
		return Reading{}, err
	}
	if err := n.reach(ctx, index, end); err != nil {
		return Reading{}, err
	}
	return Reading{Index: index, NowMS: nowMS, LastContact: n.lastContact()}, nil
}

// reach blocks until this node has applied an index. It fails with ErrBehind at end.
func (n *Node) reach(ctx context.Context, index uint64, end time.Time) error {
	ctx, cancel := context.WithDeadlineCause(ctx, end, outcome.ErrBehind)
	defer cancel()
	if err := n.replica.Await(ctx, index); err != nil {
		return fmt.Errorf("index %d has not come to this node: %w", index, err)
	}
	return nil
}

// staleReading describes this node's own state.
func (n *Node) staleReading() Reading {
	return Reading{
		Index: n.replica.Index(), NowMS: n.replica.EstimateMS(),
		LastContact: n.lastContact(), Stale: true,
	}
}

// lastContact returns how long ago this node heard from the leader.
func (n *Node) lastContact() time.Duration {
	r := n.running.Load()
	switch {
	case r == nil:
		return -1
	case r.leadership.Established() != nil:
		return 0
	case r.raft.LastContact().IsZero():
		return -1
	}
	return time.Since(r.raft.LastContact())
}

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
