package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/forward"
	"github.com/signalbox/signalbox/cluster/lead"
	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/cluster/metrics"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/cluster/raftlib"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/cluster/requests"
	"github.com/signalbox/signalbox/cluster/watchdog"
	"github.com/signalbox/signalbox/internal/wake"
)

// A process has 5 s from SIGTERM to its end. Each step has a share of it, no matter what the disk and the other nodes
// do. Raft's share is raftShutdownTimeout.
const (
	// drainTimeout bounds Drain, and the draining in Close.
	drainTimeout = 1800 * time.Millisecond
	// handOverTimeout bounds the hand-over of leadership, and the wait until another leader is seen.
	handOverTimeout = 1200 * time.Millisecond
	// workTimeout bounds the end of the node's own goroutines, and then, with the same limit again, the end of the
	// entries in flight.
	workTimeout = 400 * time.Millisecond
	// portTimeout bounds the end of the port's handlers.
	portTimeout = 300 * time.Millisecond
)

var (
	errTasksRun = errors.New("the node's goroutines have not ended in time")
	errPortRuns = errors.New("the peer port has not ended in time")
	errNoReply  = errors.New("some calls got no reply in time")
)

// Start opens the node's port and its Raft and returns; it does not wait for a leader. With an empty folder and other
// peers, Raft opens later: first the peers must report whether the cluster forms or has lost this node, see
// [membership.Joining]. ctx bounds only the start itself.
func Start(ctx context.Context, config Config) (*Node, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	config, err := withDefaults(config)
	if err != nil {
		return nil, err
	}
	n, err := newNode(config)
	if err != nil {
		n.stop()
		return nil, err
	}
	if err := n.join(); err != nil {
		return nil, errors.Join(err, n.abort())
	}
	return n, nil
}

// newNode makes and connects the parts of a node that do not need Raft. After it, the peer port is open and refuses all
// streams.
func newNode(config Config) (*Node, error) {
	n := &Node{
		config: config, times: wake.Stretch(config.RaftMultiplier), log: config.Logger.Named("cluster"),
		pulse: lead.NewPulse(), opened: make(chan struct{}),
	}
	n.stopping, n.stop = context.WithCancel(context.Background())
	n.replica = replica.New(replica.Config{HistoryEvents: config.HistoryEvents, HistoryBytes: config.HistoryBytes, Logger: n.log})
	n.requests = requests.New(config.QueueSize, n.replica)
	n.metrics = metrics.New(metrics.Config{
		Origin: n.requests.Origin(), Leads: membershipNode{n}.Leads, Snapshots: n.replica.Snapshots,
		Semaphores: config.MetricsSemaphores, State: n.replica,
	})
	forwarding := forward.Config{
		Log: n.log, Self: config.NodeID, Requests: n.requests, Replica: n.replica,
		Node: forwardNode{n}, Pulse: n.pulse, Times: n.times, Stopping: n.stopping,
	}
	n.router, n.server = forward.NewRouter(forwarding), forward.NewServer(forwarding)
	n.Executor = calls.New(calls.Config{
		Log: n.log, Cell: config.Cell, Times: n.times, Requests: n.requests, Replica: n.replica, Router: n.router,
		LastContact: func() time.Duration { return n.running.Load().lastContact() }, Stopping: n.stopping,
	})
	var err error
	n.joining, err = membership.Open(membership.Config{
		Self: *config.self(), Peers: config.Peers, Network: config.Network, Bind: config.Bind,
		Security: peer.Security{TLS: config.PeerTLS, PlainToo: config.InsecurePeers},
		Folder:   config.Store, FolderID: peer.ID(config.Store.FolderID()), FolderRestored: config.Restored,
		Hashes: config.hashes(n.replica.Hashes()), Times: n.times, Node: membershipNode{n}, Logger: n.log, Stopping: n.stopping,
	})
	return n, err
}

// A reply to the probe has room for all hashes that a replica keeps.
const _ = uint(probe.MaxHashes - replica.HashesKept)

// join brings the node into its cluster. Raft runs when it returns, or later if the node must ask other nodes first.
func (n *Node) join() error {
	n.joining.Serve()
	if err := n.joining.PrepareRestored(n.stopping); err != nil {
		return err
	}
	begin := func() error {
		if err := n.joining.Form(n.stopping); err != nil {
			return err
		}
		return n.run()
	}
	if !n.joining.AsksPeers() {
		return begin()
	}
	n.tasks.Go(func() {
		if err := begin(); err != nil && n.stopping.Err() == nil {
			n.fatal(err)
		}
	})
	return nil
}

// run opens Raft and starts all parts that need it.
func (n *Node) run() error {
	r, err := openRaft(n)
	if err != nil {
		return err
	}
	if n.stopping.Err() != nil { // Close may have returned without it
		return errors.Join(context.Cause(n.stopping), r.shutDown())
	}
	n.running.Store(r)
	close(n.opened)
	if moved := (checker{n, r}).address(); moved.Moved != nil {
		n.log.Warn("this node's address has changed", "detail", moved.Detail)
	}
	n.joining.Port().Handle(peer.StreamForward, n.server.Serve)
	go r.leadership.ForwardNotifications(r.raftNews) // ends when Raft has, and the channel is closed
	lead := func(ctx context.Context) { r.leadership.Run(ctx, r.raft) }
	watch := func(ctx context.Context) {
		watchdog.Run(ctx, watchdog.Config{
			Log: n.log, Leader: watchedLeader{r}, StuckFor: r.stuckFor, Space: n.config.space, Keys: n.keys,
			WedgedAfter: raftlib.TransferTimeout(n.times),
		})
	}
	commits := func(ctx context.Context) { r.transport.Run(ctx, r.raft) }
	for _, task := range []func(context.Context){
		lead, commits, n.router.Run, r.watchLeader, n.pulse.Run, r.takeSnapshots, n.replica.Run,
		r.members.Run, r.election.Run, watch, newReadProof(n, r).run,
	} {
		n.tasks.Go(func() { task(n.stopping) })
	}
	return nil
}

// Drain makes the node not ready, ends the waits of its callers and refuses further calls. Calls of ordinary sessions
// return Waiting, calls for a wait list return NothingReady, and their places are kept. One-shots with a key get
// ErrDraining, and their place is kept for the repeat on another node; other one-shots are withdrawn first. Drain
// blocks until every call has returned, at most 1.8 s.
func (n *Node) Drain() { n.drain(context.Background()) }

func (n *Node) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, drainTimeout, errNoReply)
	defer cancel()
	if err := n.Executor.Drain(ctx); err != nil {
		n.log.Warn("drained in part", "error", err)
	}
}

// Close drains the node, unless that is done already, hands leadership over, once, and stops the node, within 5 s in
// all. Once ctx has ended, it skips the drain and the hand-over. Later calls return the same error.
//
// The error names the parts that have not ended in time; the process may exit nevertheless. While a write hangs on the
// disk, Raft cannot end, and closing the store would block.
func (n *Node) Close(ctx context.Context) error {
	n.closeOnce.Do(func() {
		n.drain(ctx)
		n.handOver(ctx)
		last := n.running.Load().established()
		n.stop()
		var late error
		if !wake.Within(workTimeout, n.tasks.Wait) {
			late = errTasksRun
		}
		if last != nil { // Raft's end completes the entries that are still in flight after that
			wake.Within(workTimeout, last.WaitInFlight)
		}
		n.closeErr = errors.Join(late, n.abort())
	})
	return n.closeErr
}

// handOver hands leadership to another node and waits until a new leader is seen. Otherwise the cluster would first
// have to find out that this node is gone.
func (n *Node) handOver(ctx context.Context) {
	r := n.running.Load()
	if r == nil || r.leadership.Established() == nil || ctx.Err() != nil || len(membership.Voters(r.members.Servers())) < 2 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, handOverTimeout)
	defer cancel()
	// One attempt only: a second attempt, with a target that hangs, could make Raft refuse everything (raft#696).
	if err := r.members.HandOver(ctx); err != nil {
		n.log.Warn("leadership was not handed over", "error", err)
		return
	}
	for {
		if _, id := r.raft.LeaderWithID(); id != "" && string(id) != n.config.NodeID {
			return
		}
		if wake.Pause(ctx, 5*time.Millisecond) != nil {
			n.log.Warn("leadership was handed over, but no leader was seen in time")
			return
		}
	}
}

// abort stops all parts that join has started: Raft, which closes its transport, and the port.
func (n *Node) abort() error {
	n.stop()
	var errs []error
	if r := n.running.Load(); r != nil {
		errs = append(errs, r.shutDown())
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), portTimeout, errPortRuns)
	defer cancel()
	return errors.Join(append(errs, wake.Await(ctx, n.joining.Port().Close))...)
}
