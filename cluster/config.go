package cluster

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/lead"
	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/cluster/notices"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
	"github.com/signalbox/signalbox/store"
)

// DefaultQueueSize is how many commands may wait by default.
const DefaultQueueSize = 16_384

// Peer is one configured member: every node has the same list.
type Peer = probe.Peer

// Config is the configuration of a node.
type Config struct {
	// NodeID never changes. It must be in Peers if Peers is not empty.
	NodeID string
	// Peers are the members with which a new cluster begins. If Peers is empty, this node forms a cluster alone, at Bind.
	Peers []Peer
	// Bind is the address on which the peer port listens.
	Bind string
	// PeerTLS is the TLS settings between nodes, for both ends of a connection, with this node's certificate; nil: no
	// TLS. The settings verify certificates, whose common names are the ids of nodes.
	PeerTLS *tls.Config
	// InsecurePeers allows Bind to be reachable from other hosts without PeerTLS. With PeerTLS, the port accepts
	// streams without TLS, too.
	InsecurePeers bool
	// Network connects the peers; nil: TCP.
	Network peer.Network
	// Store is the open data folder; required. The caller closes it, after Close.
	Store *store.Store
	// Limits are sent with this node's terms as leader; the zero value: fsm.DefaultLimits.
	Limits fsm.Limits
	// Cell is the top 6 of the 53 bits of the session ids that this node draws, 1 to calls.MaxCell, so that an id tells which
	// of several clusters has the session; 0: the node draws from all 53 bits. Alike on all nodes.
	Cell int
	// RaftMultiplier lengthens the election times and all time-outs between nodes, 1 to 20; 0: 1.
	RaftMultiplier int
	// Clock is the node's monotonic clock, by which cluster time passes while it leads; nil:
	// time.Now. A test gives it another rate.
	Clock func() time.Time
	// SnapshotEntries is the number of entries after which Raft takes a snapshot without a request. TrailingEntries is
	// how many entries before a snapshot Raft keeps in the log. 0: as in package raftlib.
	SnapshotEntries, TrailingEntries uint64
	// QueueSize bounds the commands that wait in this node's proposer, and the commands of its callers that have no
	// outcome yet; 0: DefaultQueueSize.
	QueueSize int
	// HistoryEvents and HistoryBytes bound the events that this node keeps for readers that follow them; 0: as in
	// package replica.
	HistoryEvents, HistoryBytes int64
	// MetricsSemaphores bounds how many semaphores have separate metrics; 0: no semaphore has.
	MetricsSemaphores int
	// Restored says that the data folder was restored from a backup or a copy. The first leader then makes the counters
	// jump, so that no token is used twice. Start fails while a member is alive whose folder was not restored.
	Restored bool
	// Logger gets the log lines of the node; nil: no log.
	Logger hclog.Logger
	// Notifier delivers notices while this node leads; nil: they end like notices that can't be delivered.
	Notifier notices.Notifier
	// Tracer learns which commands with a trace context this node has logged as the leader; it may be nil.
	Tracer lead.Tracer
	// OnFatal is called once, in a new goroutine, with the reason why this node must stop. The process should exit with
	// that message.
	OnFatal func(error)

	hooks // for tests
}

// hooks are the parts that a test replaces in a node. A nil field keeps the original.
type hooks struct {
	// space returns the free room, instead of the store.
	space func() (store.Space, error)
	// hashes replaces the hashes of the replica.
	hashes func(membership.Hashes) membership.Hashes
	// fault is TransportConfig.Fault.
	fault func(peer raft.ServerID, request any) error
	// firstSink is called before all other sinks of the state, and may block.
	firstSink replica.Sink
}

// withDefaults checks a configuration and fills in its defaults.
func withDefaults(c Config) (Config, error) {
	if c.NodeID == "" {
		return c, errors.New("the node has no id")
	}
	if len(c.Peers) == 0 {
		c.Peers = []Peer{{ID: c.NodeID, Address: c.Bind}}
	}
	if c.self() == nil {
		return c, fmt.Errorf("node %q is not among its peers", c.NodeID)
	}
	if c.Cell < 0 || c.Cell > calls.MaxCell {
		return c, fmt.Errorf("cell %d is not between 1 and %d, nor 0 (no cell)", c.Cell, calls.MaxCell)
	}
	c.RaftMultiplier = cmp.Or(c.RaftMultiplier, 1)
	c.QueueSize = cmp.Or(c.QueueSize, DefaultQueueSize)
	c.Limits = cmp.Or(c.Limits, fsm.DefaultLimits())
	if c.Network == nil {
		if err := peer.CheckAddress(c.Bind, c.InsecurePeers || c.PeerTLS != nil); err != nil {
			return c, err
		}
		c.Network = peer.TCPNetwork{Stretch: wake.Stretch(c.RaftMultiplier)}
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	if c.OnFatal == nil {
		c.OnFatal = func(error) {}
	}
	if c.hashes == nil {
		c.hashes = func(hashes membership.Hashes) membership.Hashes { return hashes }
	}
	if c.space == nil {
		c.space = c.Store.Space
	}
	return c, nil
}

// self returns this node's own entry among the peers, or nil.
func (c *Config) self() *Peer {
	for i := range c.Peers {
		if c.Peers[i].ID == c.NodeID {
			return &c.Peers[i]
		}
	}
	return nil
}
