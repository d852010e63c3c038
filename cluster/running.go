package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/backup"
	"github.com/signalbox/signalbox/cluster/election"
	"github.com/signalbox/signalbox/cluster/lead"
	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/raftlib"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// raftShutdownTimeout bounds Raft's own end. It is a share of the 5 s in which a process ends, see drainTimeout.
	raftShutdownTimeout = 700 * time.Millisecond
	// shutDownPause is the pause before Raft is shut down, so that Raft is idle by then. It is part of
	// raftShutdownTimeout.
	shutDownPause = time.Millisecond
)

var errRaftRuns = errors.New("raft has not ended in time")

// openRaft starts Raft on the node's store, and makes the parts that need it. It bootstraps the store if it is empty.
func openRaft(n *Node) (*raftParts, error) {
	config, err := raftlib.Config(raft.ServerID(n.config.NodeID), n.config.RaftMultiplier, n.config.Logger)
	if err != nil {
		return nil, err
	}
	config.SnapshotThreshold = cmp.Or(n.config.SnapshotEntries, config.SnapshotThreshold)
	config.TrailingLogs = cmp.Or(n.config.TrailingEntries, config.TrailingLogs)
	layer, err := n.joining.Port().OpenRaft(n.streamEnded)
	if err != nil {
		return nil, err
	}
	s := n.config.Store
	r := &raftParts{
		log: n.log, store: s, times: n.times, router: n.router, die: n.fatal, halt: &n.halt,
		raftNews: make(chan bool, 8), acks: raftlib.NewAckClock(), snapshotDue: wake.NewSignal(),
	}
	config.NotifyCh = r.raftNews
	r.entries = raftlib.NewLog(raftlib.LogConfig{Storage: s, Self: config.LocalID, Fatal: n.fatal})
	r.transport = raftlib.NewTransport(raftlib.TransportConfig{
		Layer: layer, Acks: r.acks, Logger: n.config.Logger, Stretch: n.times, Fault: n.config.fault,
		Stalled: r.hung, Log: r.entries,
	})
	if s.Empty() {
		err = raft.BootstrapCluster(config, s.Logs(), s.Stable(), s.Snapshots(), r.transport, membership.FirstConfiguration(n.config.Peers))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("bootstrap: %w", err), r.transport.Close(), r.entries.Close())
		}
	}
	switch removed, err := backup.DropUncommittedRestore(s); {
	case err != nil:
		return nil, errors.Join(fmt.Errorf("look at the newest snapshot: %w", err), r.transport.Close(), r.entries.Close())
	case removed != nil:
		n.log.Warn("the newest snapshot is that of a restore which is not in force: this node goes on from the state before it", "snapshot", removed.ID, "index", removed.Index)
	}
	s.RefuseCovered(n.replica.RestorePending)
	r.leadership = lead.New(lead.Config{
		Log: n.log, Self: raft.ServerID(n.config.NodeID), Node: leadNode{r, n}, Replica: n.replica, Acks: r.acks, Pulse: n.pulse,
		Limits: n.config.Limits, QueueSize: n.config.QueueSize, ReadTimeout: r.times.Of(raftlib.ReadRoundTimeout), Clock: n.config.Clock,
		Tracer: n.config.Tracer,
	})
	f := n.replica.FSM(replica.FSMConfig{
		Cluster: n.joining, Sinks: sinks(n, r.leadership), Fatal: n.fatal, SnapshotDue: r.snapshotDue.Set,
	})
	r.raft, err = raft.NewRaft(config, f, r.entries, s.Stable(), r.entries.Snapshots(s.Snapshots()), r.transport)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start raft: %w", cmp.Or(f.Unread(), err)), r.transport.Close(), r.entries.Close())
	}
	r.entries.Attach(r.raft)
	r.members = n.joining.Start(r.raft)
	r.election = election.New(config.LocalID, r.raft, electionCandidate{r, n}, n.times, n.config.Logger)
	r.restorer = backup.NewRestorer(n.log, backupLeadership{r}, r.raft, n.replica, n.times)
	return r, nil
}

// sinks lists the parts of the node that follow the state, in the order in which the FSM calls them. The order
// matters:
//
//   - The metrics come first, so that they are up to date when a caller has its reply.
//   - Requests come next, with the waits that end.
//   - Leadership and the router come last, since an entry only wakes them.
//
// Before them the FSM calls the node's membership, which follows the configurations in the log; after them it calls the
// replica's own watchers.
func sinks(n *Node, l *lead.Leadership) []replica.Sink {
	list := []replica.Sink{n.metrics, n.requests, l, n.router}
	if n.config.firstSink != nil {
		list = slices.Insert(list, 0, n.config.firstSink)
	}
	return list
}

// watchLeader notifies the router when Raft follows another leader, and when this node begins or ends a term, until
// ctx ends.
func (r *raftParts) watchLeader(ctx context.Context) {
	seen := make(chan raft.Observation, 16)
	// Raft calls this before it continues, so the election learns of each vote in time.
	observer := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		_, leader := o.Data.(raft.LeaderObservation)
		if _, vote := o.Data.(raft.RequestVoteRequest); leader || vote {
			r.election.Changed()
		}
		return leader
	})
	r.raft.RegisterObserver(observer)
	defer r.raft.DeregisterObserver(observer)
	r.router.Notify() // for changes before the observer
	for {
		select {
		case <-seen:
			r.router.Notify()
		case <-r.leadership.Changed():
			r.router.Notify()
		case <-ctx.Done():
			return
		}
	}
}

// takeSnapshots takes a snapshot whenever the machine has asked for one, until ctx ends.
func (r *raftParts) takeSnapshots(ctx context.Context) {
	for wake.Until(ctx, r.snapshotDue) == nil {
		err := wake.Await(ctx, func() error { return r.raft.Snapshot().Error() })
		switch {
		case err == nil, ctx.Err() != nil, outcome.NothingNew(err):
		default: // the machine asks again later
			r.log.Warn("no snapshot was taken", "error", err)
		}
	}
}

// shutDown ends Raft, and then the draining of its notifications.
func (r *raftParts) shutDown() error {
	r.acks.EndTerm(math.MaxUint64)
	ctx, cancel := context.WithTimeoutCause(context.Background(), raftShutdownTimeout, errRaftRuns)
	defer cancel()
	return wake.Await(ctx, func() error {
		// Raft must first take in requests that it got just before, for example the barrier of a term: it would never
		// reply to a request that is left in its queue.
		<-time.After(shutDownPause)
		r.restorer.Close()
		future := r.raft.Shutdown()
		_ = r.transport.Close() // otherwise Raft would wait for messages to unreachable peers
		defer close(r.raftNews)
		late := r.entries.Close()                // after the last message: no message reports the entries as stored
		return errors.Join(late, future.Error()) // waits for Raft's goroutines
	})
}
