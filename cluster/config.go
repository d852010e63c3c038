package cluster

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

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

// DefaultQueueSize is how many commands may wait unless configured otherwise.
const DefaultQueueSize = 16_384

// Peer is one member as configured: every node has the same list.
type Peer = probe.Peer

// Config says how to start a node.
type Config struct {
	// NodeID names this node for ever; it is one of Peers, unless they are empty.
	NodeID string
	// Peers are all first members. Empty: a cluster of this node alone, at Bind.
	Peers []Peer
	// Bind is the address that the peer port listens on.
	Bind string
	// PeerTLS is the settings of TLS between nodes, for both ends of a connection, with
	// this node's certificate; nil: none. They verify certificates, whose common names
	// are the ids of nodes.
	PeerTLS *tls.Config
	// InsecurePeers allows Bind to be reachable from outside this host without PeerTLS.
	// With PeerTLS, streams without TLS are taken beside those with it.
	InsecurePeers bool
	// Network is how peers reach each other; nil: TCP.
	Network peer.Network
	// Store is the open data folder; required. The caller closes it, after Close.
	Store *store.Store
	// Limits go out with this node's terms as leader; the zero value: fsm.DefaultLimits.
	Limits fsm.Limits
	// RaftMultiplier stretches the election times and all time-outs between nodes, 1 to
	// 20; 0: 1.
	RaftMultiplier int
	// Clock is the node's monotonic clock, by which cluster time passes while it leads; nil:
	// time.Now. A test gives it another rate.
	Clock func() time.Time
	// SnapshotEntries is after how many entries Raft takes a snapshot by itself, and
	// TrailingEntries how many of them it keeps in the log; 0: as package raftlib says.
	SnapshotEntries, TrailingEntries uint64
	// QueueSize bounds the commands that wait in this node's proposer, and those
	// of its own callers that are without an outcome; 0: DefaultQueueSize.
	QueueSize int
	// HistoryEvents and HistoryBytes bound the events that this node keeps for readers
	// that follow them; 0: as package replica says.
	HistoryEvents, HistoryBytes int64
	// MetricsSemaphores bounds the semaphores that have metrics of their own; 0: none has.
	MetricsSemaphores int
	// Restored says that the data folder was put back from a backup or a copy: the
	// first leader makes the counters jump, so that no token is given twice. Start
	// fails while a member is alive whose folder was not.
	Restored bool
	// Logger gets the log lines of the node; nil: they are dropped.
	Logger hclog.Logger
	// Notifier delivers notices while this node leads; nil: they end like notices that
	// can't be delivered.
	Notifier notices.Notifier
	// Tracer learns which commands with a trace context this node has logged while it
	// leads; nil: none does.
	Tracer lead.Tracer
	// OnFatal is called once, in a goroutine of its own, with the reason why this node
	// must not go on: the process should exit with that message.
	OnFatal func(error)

	hooks // for tests
}

// hooks are what a test replaces in a node. A nil field leaves the original.
type hooks struct {
	// space returns how much room there is, instead of the store.
	space func() (store.Space, error)
	// hashes replaces the hashes of the replica.
	hashes func(membership.Hashes) membership.Hashes
	// fault is TransportConfig.Fault.
	fault func(peer raft.ServerID, request any) error
	// firstSink is called before all other sinks of the state, and may block.
	firstSink replica.Sink
}

// withDefaults returns a configuration with its defaults, once it is checked.
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
		c.hashes = func(own membership.Hashes) membership.Hashes { return own }
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
