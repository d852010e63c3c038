package calls

import (
	"context"
	"fmt"
	"time"

	"github.com/signalbox/signalbox/cluster/outcome"
)

// ReadTimeout bounds a read: the leader's reply, and the time until the local machine has caught up.
const ReadTimeout = 5 * time.Second

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
func (e *Executor) Read(ctx context.Context, c Consistency) (Reading, error) {
	end := time.Now().Add(e.config.Times.Patience(ReadTimeout))
	if err := e.awaitApplied(ctx, c.MinIndex, end); err != nil {
		return Reading{}, err
	}
	if !c.asksLeader() {
		return e.staleReading(), nil
	}
	asking, cancel := context.WithDeadlineCause(ctx, end, outcome.ErrNoLeader)
	defer cancel()
	index, nowMS, err := e.config.Router.ReadIndex(asking)
	if err != nil {
		return Reading{}, err
	}
	if err := e.awaitApplied(ctx, index, end); err != nil {
		return Reading{}, err
	}
	return Reading{Index: index, NowMS: nowMS, LastContact: e.config.LastContact()}, nil
}

// awaitApplied blocks until this node has applied an index. It fails with ErrBehind at end.
func (e *Executor) awaitApplied(ctx context.Context, index uint64, end time.Time) error {
	ctx, cancel := context.WithDeadlineCause(ctx, end, outcome.ErrBehind)
	defer cancel()
	if err := e.config.Replica.Await(ctx, index); err != nil {
		return fmt.Errorf("index %d has not come to this node: %w", index, err)
	}
	return nil
}

// staleReading describes this node's own state.
func (e *Executor) staleReading() Reading {
	return Reading{
		Index: e.config.Replica.Index(), NowMS: e.config.Replica.EstimateMS(),
		LastContact: e.config.LastContact(), Stale: true,
	}
}
