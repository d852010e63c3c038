package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/signalbox/signalbox/fsm"
)

// readTimeout bounds a read: the leader's answer, and the local machine's
// catching up with it.
const readTimeout = 5 * time.Second

// readAgain is the pause before a read that failed asks again.
const readAgain = 20 * time.Millisecond

// Consistency says what a read must see. The zero value is linearizable: it sees
// everything that was acknowledged, to any client on any node, before it began.
type Consistency struct {
	// Stale reads what this node has, at once but for MinIndex.
	Stale bool
	// MinIndex above 0 waits until this node has that index, without asking the
	// leader: for clients who read what they wrote.
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

// Read blocks until this node's machine has what the consistency asks for; View
// then shows it. A linearizable read costs a round trip between the leader and a
// majority, which all reads that wait share, and one more to the leader from
// another node. After 5 s it fails with ErrNoLeader or, when it is this node's own
// state that is not there yet, ErrBehind; before, with ctx's cause.
func (n *Node) Read(ctx context.Context, c Consistency) (Reading, error) {
	end := time.Now().Add(n.times().patience(readTimeout))
	if err := n.reach(ctx, c.MinIndex, end); err != nil {
		return Reading{}, err
	}
	if !c.asksLeader() {
		return n.staleReading(), nil
	}
	asking, cancel := context.WithDeadlineCause(ctx, end, ErrNoLeader)
	defer cancel()
	index, nowMS, err := n.readIndex(asking)
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
	ctx, cancel := context.WithDeadlineCause(ctx, end, ErrBehind)
	defer cancel()
	if err := n.machine.progress.await(ctx, index); err != nil {
		return fmt.Errorf("index %d has not come to this node: %w", index, err)
	}
	return nil
}

// staleReading describes what this node has.
func (n *Node) staleReading() Reading {
	return Reading{
		Index: n.machine.progress.reached.Load(), NowMS: n.machine.estimateMS(),
		LastContact: n.lastContact(), Stale: true,
	}
}

// lastContact answers how long ago this node heard from the leader.
func (n *Node) lastContact() time.Duration {
	if n.leadership.established() != nil {
		return 0
	}
	r := n.life.raft()
	if r == nil || r.LastContact().IsZero() {
		return -1
	}
	return time.Since(r.LastContact())
}

// readIndex asks the leader, whichever node that is, until one answers.
func (n *Node) readIndex(ctx context.Context) (index uint64, nowMS int64, err error) {
	for {
		l, changed := n.router.lane()
		if l != nil {
			if index, nowMS, err = l.read(ctx); err == nil {
				return index, nowMS, nil
			}
			changed = nil // it is there, and may just not be able to answer now
		}
		timer := time.NewTimer(readAgain)
		select {
		case <-changed:
		case <-timer.C:
		case <-n.stopping.Done():
			err = ErrDraining
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return 0, 0, context.Cause(ctx)
		}
		if err == ErrDraining {
			return 0, 0, err
		}
	}
}

// View calls read with the machine's state under a lock that holds entries up:
// read must be quick, must not block and must not keep the machine, nor anything
// that it says is not to be kept.
func (n *Node) View(read func(m *fsm.Machine)) { n.machine.view(read) }

// Changed answers a channel that is closed when the next entry that changes the
// semaphore of that name has been applied here, or a restore. To miss nothing,
// call it before View. stop frees it; it may be called often, also after the
// channel is closed. It does not block.
func (n *Node) Changed(name string) (changed <-chan struct{}, stop func()) {
	return n.changes.watch(name)
}
