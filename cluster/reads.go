package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
)

// readTimeout bounds a read: the leader's reply, and the time until the local machine
// has caught up with it.
const readTimeout = 5 * time.Second

// Consistency says how recent the state of a read must be. The zero value is linearizable: it sees
// everything that was acknowledged, to any client on any node, before it began.
type Consistency struct {
	// Stale reads this node's own state, at once but for MinIndex.
	Stale bool
	// MinIndex above 0 waits until this node has that index, without asking the
	// leader: for clients that read their own writes.
	MinIndex uint64
	// Linearizable asks the leader though there is a MinIndex. Not with Stale.
	Linearizable bool
}

// asksLeader reports whether a read must be linearizable.
func (c Consistency) asksLeader() bool { return !c.Stale && (c.MinIndex == 0 || c.Linearizable) }

// Reading is the moment that a read is from.
type Reading struct {
	// Index is the least that this node's machine has applied.
	Index uint64
	// NowMS is cluster time: the leader's reading of it when the read was
	// linearizable, otherwise this node's own estimate.
	NowMS int64
	// LastContact is how long ago this node heard from the leader; 0 on the leader,
	// negative when it never has.
	LastContact time.Duration
	// Stale is set unless the read was linearizable.
	Stale bool
}

// Read blocks until this node's machine is as recent as the consistency demands; View
// then shows the state. A linearizable read costs a round trip between the leader and a
// majority, which all reads that wait share, and one more to the leader from
// another node. After 5 s it fails with ErrNoLeader or, when it is this node's own
// state that is not there yet, ErrBehind; before, with ctx's cause.
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

// reach blocks until this node has an index; ErrBehind at the end.
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

// View calls read with the machine's state under a lock that holds entries up:
// read must be quick, must not block, and must not keep the machine, nor any value that
// the machine's methods forbid to keep.
func (n *Node) View(read func(m *fsm.Machine)) { n.replica.View(read) }

// Changed returns a channel that gets a value when an entry that changes the
// semaphore of that name has been applied here, or a restore. To miss no change,
// call it before View. stop frees it, and may be called more than once. Changed
// does not block.
func (n *Node) Changed(name string) (changed <-chan struct{}, stop func()) {
	return n.replica.Watch(name)
}

// WatchItems returns a watch of the changes of items here, see replica.ItemWatches.Watch.
func (n *Node) WatchItems(name string, below bool) *replica.ItemWatch {
	return n.replica.WatchItems(name, below)
}

// EventsAfter returns the events that follow one, see replica.EventsAfter.
func (n *Node) EventsAfter(after replica.EventID) (replica.EventPage, error) {
	return n.replica.EventsAfter(after)
}

// EventsBefore returns the events that precede an index, see replica.EventsBefore.
func (n *Node) EventsBefore(index uint64) []replica.EventEntry { return n.replica.EventsBefore(index) }
