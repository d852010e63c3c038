package cluster

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/backup"
	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/election"
	"github.com/signalbox/signalbox/cluster/forward"
	"github.com/signalbox/signalbox/cluster/lead"
	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/cluster/metrics"
	"github.com/signalbox/signalbox/cluster/raftlib"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/cluster/requests"
	"github.com/signalbox/signalbox/internal/wake"
	"github.com/signalbox/signalbox/store"
)

// Node is one member of a cluster. All methods are safe for concurrent use.
//
// In addition to Raft's goroutines, a node has these:
//
//   - always: Leadership.ForwardNotifications, Leadership.Run, Router.Run, watchLeader, takeSnapshots, Transport.Run,
//     Replica.Run, Members.Run, Election.Run, watchdog.Run, Pulse.Run, readProof.run; two for each incoming stream
//   - while another node leads: transmit and receive of a link
//   - while this node leads: proposer.run, ticker.run, notices.Sender.Run, and one for each due notice
//
// Callers learn the effects of the log from Raft's apply goroutine, through the sinks that the FSM calls.
type Node struct {
	*calls.Executor // Do, DoMany, Read and DrawSession, which the APIs call

	config Config
	times  wake.Stretch // of the time-outs between nodes
	log    hclog.Logger

	replica  *replica.Replica
	requests *requests.Registry
	pulse    *lead.Pulse
	router   *forward.Router
	server   *forward.Server
	metrics  *metrics.Counters

	joining *membership.Joining
	running atomic.Pointer[raftParts] // nil until Raft runs
	halt    atomic.Pointer[error]     // why the membership makes the node refuse all commands; nil: no reason
	opened  chan struct{}             // closed when Raft runs

	fatalOnce sync.Once

	stopping  context.Context // ends when the node closes
	stop      context.CancelFunc
	tasks     sync.WaitGroup // the goroutines above, except Leadership.ForwardNotifications
	closeOnce sync.Once
	closeErr  error
}

// fatal reports to the process, once, why the process must end.
func (n *Node) fatal(err error) {
	n.fatalOnce.Do(func() {
		n.log.Error("this node must not go on", "error", err)
		go n.config.OnFatal(err)
	})
}

// raftParts has the parts of a node that need its Raft, which runs.
type raftParts struct {
	log    hclog.Logger
	store  *store.Store
	times  wake.Stretch
	router *forward.Router
	die    func(error)            // ends the process
	halt   *atomic.Pointer[error] // the node's

	raft       *raft.Raft
	entries    *raftlib.Log // Raft's log
	raftNews   chan bool    // from Raft: this node has won or lost the leadership
	transport  *raftlib.Transport
	acks       *raftlib.AckClock
	members    *membership.Members
	election   *election.Election
	leadership *lead.Leadership
	restorer   *backup.Restorer

	snapshotDue wake.Signal
	caughtUp    atomic.Pointer[catchUp]     // nil: not known yet under the present leader
	refusedAt   atomic.Int64                // when Raft last refused an entry of this node, Unix ns
	room        atomic.Pointer[store.Space] // as last measured; nil before the first measurement
}

// catchUp says whether a node's linearizable reads succeed, which proves that the node reaches the leader and that its
// machine is up to date. One goroutine changes it.
type catchUp struct {
	ok  bool
	why string // the error of the last read, unless ok
}

// lastContact returns how long ago this node heard from the leader.
func (r *raftParts) lastContact() time.Duration {
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
