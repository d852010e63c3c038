package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

// ErrStateDiffers is why a node stops whose machine came to another state than a
// majority's.
var ErrStateDiffers = errors.New("this node's state differs from that of a majority")

// life is what a node does besides serving commands and reads: it comes into its
// cluster, is watched, and leaves. Its goroutines, beside those of Node: form
// until Raft is open, then peerWatch.run, watchdog.run, keepReady and promote.
type life struct {
	node     *Node
	identity *identity
	found    nodeState // of the folder, when the node started
	restored bool      // the folder was put back, see Config.Restored

	calls     *peerCalls
	watch     *peerWatch
	hashes    hashHistory
	configs   *configurationLog
	members   *membership // nil until opened is closed
	promotion *promotion
	watchdog  *watchdog
	figures   *figures

	opened    chan struct{} // closed when Raft runs and all parts do
	draining  atomic.Bool
	caughtUp  atomic.Pointer[catchUp] // nil: not known since the leader is
	split     atomic.Pointer[string]  // why no majority's state is known
	fullPeers atomic.Bool             // too few voters have room, see countFullPeers
	strangers atomic.Pointer[string]  // who of another cluster is around this node
	coming    atomic.Pointer[string]  // why this node could not come into its cluster yet
	differs   atomic.Pointer[string]  // how this node's state differs from the leader's
	proposal  atomic.Pointer[fsm.ClusterID]
	refusedAt atomic.Int64 // when Raft last refused an entry of ours, Unix ns
	fatalOnce sync.Once
	exclusion exclusion
}

// newLife makes the parts that need no Raft.
func newLife(n *Node) *life {
	l := &life{
		node: n, found: stateLive, // until settle has looked
		configs: newConfigurationLog(n.config.Store.Snapshots()),
		figures: newFigures(), opened: make(chan struct{}),
	}
	l.identity = &identity{
		node: n.config.NodeID, address: n.config.self().Address, folder: n.config.Store.FolderID(), incarnation: drawID(),
		known: l.memberAt, admitted: l.admittedFolder, neighbours: newNeighbours(n.config.NodeID, n.config.Peers),
	}
	l.calls = &peerCalls{self: n.config.NodeID, log: n.log, answer: l.answer, latest: l.hashes.latest, serve: l.serve, stopping: n.stopping, times: n.times()}
	l.watch = newPeerWatch(l.calls, n.config.NodeID, l.servers)
	l.watch.round = l.round
	l.watchdog = &watchdog{
		log: n.log, stuckFor: n.config.Store.StuckFor, space: n.config.space,
		leads: func() bool { return n.established() != nil },
		handOver: func(ctx context.Context, has store.Space) error {
			return l.members.transferTo(ctx, "", func(a *probeAnswer) bool { return a.roomier(has) })
		},
		transferring: l.transferring,
		stand:        l.stand,
		giveBack:     l.giveBack,
		wedgedAfter:  3 * time.Duration(n.config.RaftMultiplier) * raftTick,
		fatal:        n.fatal,
	}
	return l
}

// begin opens the probe and, unless the folder is empty and there are others to
// ask, Raft.
func (l *life) begin() error {
	n := l.node
	l.calls.port = n.port
	l.calls.open()
	if n.config.Restored {
		if err := l.noteRestored(n.stopping); err != nil {
			return err
		}
	}
	switch {
	case l.found != stateEmpty:
		return l.launch()
	case len(n.config.Peers) == 1:
		return l.launchIn(formedID(map[string]store.FolderID{n.config.NodeID: l.identity.folder}))
	}
	n.running.Go(func() {
		if err := l.form(n.stopping); err != nil && n.stopping.Err() == nil {
			n.fatal(err)
		}
	})
	return nil
}

// form finds out what this node is, and then starts its Raft.
func (l *life) form(ctx context.Context) error {
	n := l.node
	f := &formation{
		self: n.config.NodeID, folder: l.identity.folder, peers: n.config.Peers, ask: l.calls.ask, log: n.log,
		propose: func(id fsm.ClusterID) { l.proposal.Store(&id) }, waits: func(why string) { l.coming.Store(&why) },
	}
	live, cluster, err := f.run(ctx)
	if err != nil {
		return err
	}
	if !live {
		return l.launchIn(cluster)
	}
	r := &readmission{
		self: n.config.NodeID, address: n.config.self().Address, peers: n.config.Peers,
		ask: l.calls.ask, call: l.calls.call, log: n.log, waits: func(why string) { l.coming.Store(&why) },
	}
	admitted, err := r.run(ctx)
	if err != nil {
		return err
	}
	if err := n.config.Store.SetClusterID(admitted.cluster.String()); err != nil {
		return err
	}
	if err := admitted.keep(n.config.Store.Stable()); err != nil {
		return fmt.Errorf("store the term of the leader: %w", err)
	}
	l.identity.bind(admitted.cluster)
	return l.launch()
}

// launchIn starts Raft in a cluster that forms with that id; zero: a cluster whose
// other nodes were set up by a release without ids.
func (l *life) launchIn(cluster fsm.ClusterID) error {
	if cluster == (fsm.ClusterID{}) {
		l.identity.stand(standingOld)
		return l.launch()
	}
	if err := l.node.config.Store.SetClusterID(cluster.String()); err != nil {
		return err
	}
	l.identity.bind(cluster)
	return l.launch()
}

// launch starts Raft and all that needs it. A store that is still empty is
// bootstrapped.
func (l *life) launch() error {
	n := l.node
	if err := n.openRaft(); err != nil {
		return err
	}
	leads := func() bool { return n.established() != nil }
	l.members = newMembership(n.raft, n.config.NodeID, n.log, l.configs, l.watch, l.calls, leads, n.proposeHere)
	l.watch.commit = n.raft.CommitIndex
	l.promotion = &promotion{members: l.members, commit: n.raft.CommitIndex}
	l.coming.Store(nil)
	if l.alone() { // without a majority of others it would serve before it has looked
		l.strangers.Store(&notLooked)
	}
	close(l.opened)
	if moved := l.checkAddress(); moved.Moved != nil {
		n.log.Warn("this node's address has changed", "detail", moved.Detail)
	}
	n.work()
	n.running.Go(func() { l.watch.run(n.stopping) })
	n.running.Go(func() { l.watchdog.run(n.stopping) })
	n.running.Go(func() { l.lookAround(n.stopping) })
	n.running.Go(func() { l.keepReady(n.stopping) })
	n.running.Go(func() { l.alarmOfKeys(leads).run(n.stopping) })
	n.running.Go(func() { l.promote(n.stopping) })
	return nil
}

// raft answers this node's Raft, or nil while it is not open.
func (l *life) raft() *raft.Raft {
	select {
	case <-l.opened:
		return l.node.raft
	default:
		return nil
	}
}

// promote looks for members that have caught up, until ctx ends.
func (l *life) promote(ctx context.Context) {
	for pause(ctx, watchEvery) == nil {
		l.promotion.step(ctx)
	}
}

// fatal tells the process, once, why it must end.
func (n *Node) fatal(err error) {
	n.life.fatalOnce.Do(func() {
		n.log.Error("this node must not go on", "error", err)
		go n.config.OnFatal(err)
	})
}

// applied notes what an entry did, in the apply goroutine.
func (l *life) applied(entry *fsm.Applied) {
	l.hashes.note(entry.Index, l.node.machine.state.Hash()) // only this goroutine changes the state
	if entry.Term != 0 {
		l.bindTo(l.node.machine.state.ClusterID())
		l.jumped(entry)
	}
	l.figures.applied(entry, l.node.requests.origin, l.node.established() != nil)
}

// replaced notes, in the apply goroutine, that the machine has jumped.
func (l *life) replaced(state *fsm.Machine) {
	l.hashes.restored(stateHash{state.Index(), state.Hash()})
	l.bindTo(state.ClusterID())
	l.configs.jumped()
	l.figures.restores.Inc()
}

// refused notes that Raft did not take an entry of this node's reign.
func (l *life) refused() { l.refusedAt.Store(time.Now().UnixNano()) }

// transferring asks Raft whether it refuses entries because leadership is being
// handed over, if it has refused one lately. The entry with which it asks is an
// empty one, and harmless if it is taken.
func (l *life) transferring() bool {
	reign := l.node.established()
	refused := l.refusedAt.Load()
	if reign == nil || refused == 0 || time.Since(time.Unix(0, refused)) > 2*time.Second {
		return false
	}
	ctx, cancel := context.WithTimeout(l.node.stopping, time.Second)
	defer cancel()
	_, err := reign.proposer.tick(ctx)
	return errors.Is(err, raft.ErrLeadershipTransferInProgress)
}

// watchedMachine is the FSM that Raft gets: the machine, and the configurations that it
// passes over.
type watchedMachine struct {
	*machine
	configs *configurationLog
	figures *figures
}

var _ raft.BatchingFSM = watchedMachine{}

// watched answers the FSM for Raft.
func (l *life) watched() watchedMachine { return watchedMachine{l.node.machine, l.configs, l.figures} }

// ApplyBatch implements [raft.BatchingFSM].
func (w watchedMachine) ApplyBatch(entries []*raft.Log) []any {
	answers := w.machine.ApplyBatch(entries)
	w.configs.note(entries)
	return answers
}

// Apply implements [raft.FSM].
func (w watchedMachine) Apply(entry *raft.Log) any { return w.ApplyBatch([]*raft.Log{entry})[0] }

// Snapshot implements [raft.FSM].
func (w watchedMachine) Snapshot() (raft.FSMSnapshot, error) {
	snapshot, err := w.machine.Snapshot()
	if err == nil {
		w.figures.snapshots.Inc()
	}
	return snapshot, err
}
