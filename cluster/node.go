package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

const (
	// DefaultQueueSize is how many commands may wait unless configured otherwise.
	DefaultQueueSize = 16_384
	// stallLimit is how long a write of the local log may hang before this node
	// stops holding its followers: see Transport.
	stallLimit = 2 * time.Second
)

// Peer is one member as configured: every node has the same list.
type Peer struct {
	ID      string
	Address string // host:port, as the others dial it
}

// Config says how to start a node.
type Config struct {
	// NodeID names this node for ever; it is one of Peers, unless they are empty.
	NodeID string
	// Peers are all first members. Empty: a cluster of this node alone, at Bind.
	Peers []Peer
	// Bind is the address that the peer port listens on.
	Bind string
	// InsecurePeers allows Bind to be reachable from outside this host.
	InsecurePeers bool
	// Network is how peers reach each other; nil: TCP.
	Network Network
	// Store is the open data folder. The caller closes it, after Close.
	Store *store.Store
	// Limits go out with this node's reigns; the zero value: fsm.DefaultLimits.
	Limits fsm.Limits
	// RaftMultiplier stretches the election times and all time-outs between nodes, 1 to
	// 20; 0: 1.
	RaftMultiplier int
	// QueueSize bounds the commands that wait in this node's proposer, and those
	// of its own callers that are without an outcome; 0: DefaultQueueSize.
	QueueSize int
	// HistoryEvents and HistoryBytes bound the events that this node keeps for who
	// follows them; 0: DefaultHistoryEvents, DefaultHistoryBytes.
	HistoryEvents, HistoryBytes int64
	// Restored says that the data folder was put back from a backup or a copy: the
	// first leader makes the counters jump, so that no token is given twice. Start
	// fails while a member is alive whose folder was not.
	Restored bool
	// Logger gets everything that is worth telling; nil: nothing.
	Logger hclog.Logger
	// Notifier delivers notices while this node leads; nil: none are delivered, and
	// they end as those that can't be.
	Notifier Notifier
	// OnFatal is told once, from a goroutine of its own, why this node must not go
	// on: the process should exit with that message.
	OnFatal func(error)

	// space returns how much room there is; nil: as the store says.
	space func() (store.Space, error)
	// applying is called in the apply goroutine with each entry before its results
	// are delivered, and may block, for tests; nil: none.
	applying func(*fsm.Applied)
	// fault is TransportConfig.Fault, for tests.
	fault func(peer raft.ServerID, request any) error
}

// Node is one member of a cluster. All methods are safe for concurrent use.
//
// Its goroutines, beside Raft's: leadership.drain and leadership.run, router.run
// with a link's two while another node leads, proposer.run, ticker.run and
// courier.run with one for each notice that is due while this one does, watchLeader,
// takeSnapshots, history.run, and two for each stream that another
// node forwards on. What the log says reaches callers in Raft's apply goroutine,
// by applied.
type Node struct {
	config Config
	log    hclog.Logger

	port      *PeerPort
	acks      *AckClock
	raft      *raft.Raft
	raftNews  chan bool // leadership won and lost, from Raft
	transport *Transport

	machine    *machine
	changes    *changes
	history    *eventHistory
	waits      *waits
	lists      *lists
	requests   *requests
	router     *router
	carrier    *carrier
	leadership *leadership
	confirmer  *confirmer
	renewals   *renewals
	calls      *calls

	life *life

	snapshotDue chan struct{} // has room for one

	stopping  context.Context // ends when the node closes
	stop      context.CancelFunc
	running   sync.WaitGroup // the goroutines above, but for drain
	closeOnce sync.Once
	closeErr  error
}

// Start opens the node's port and its Raft and returns; it does not wait for a
// leader. With an empty folder and other peers, Raft opens later, once these have
// said whether the cluster forms or has lost this node: see life. ctx bounds only
// the start itself.
func Start(ctx context.Context, config Config) (*Node, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := config.complete(); err != nil {
		return nil, err
	}
	n := newNode(config)
	if err := n.open(); err != nil {
		return nil, errors.Join(err, n.abort())
	}
	return n, nil
}

// complete checks a configuration and fills in what is not given.
func (c *Config) complete() error {
	if c.NodeID == "" {
		return errors.New("the node has no id")
	}
	if len(c.Peers) == 0 {
		c.Peers = []Peer{{ID: c.NodeID, Address: c.Bind}}
	}
	if c.self() == nil {
		return fmt.Errorf("node %q is not among its peers", c.NodeID)
	}
	if c.Network == nil {
		if err := CheckPeerAddress(c.Bind, c.InsecurePeers); err != nil {
			return err
		}
		c.Network = TCPNetwork{Multiplier: c.RaftMultiplier}
	}
	if c.Limits == (fsm.Limits{}) {
		c.Limits = fsm.DefaultLimits()
	}
	if c.RaftMultiplier == 0 {
		c.RaftMultiplier = 1
	}
	if c.QueueSize == 0 {
		c.QueueSize = DefaultQueueSize
	}
	if c.HistoryEvents == 0 {
		c.HistoryEvents = DefaultHistoryEvents
	}
	if c.HistoryBytes == 0 {
		c.HistoryBytes = DefaultHistoryBytes
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	if c.applying == nil {
		c.applying = func(*fsm.Applied) {}
	}
	if c.Notifier == nil {
		c.Notifier = noNotifier{}
	}
	if c.OnFatal == nil {
		c.OnFatal = func(error) {}
	}
	if c.space == nil {
		c.space = c.Store.Space
	}
	return nil
}

// self answers this node's own entry among the peers, or nil.
func (c *Config) self() *Peer {
	for i := range c.Peers {
		if c.Peers[i].ID == c.NodeID {
			return &c.Peers[i]
		}
	}
	return nil
}

// times stretches the time-outs between nodes.
func (n *Node) times() stretch { return stretch(n.config.RaftMultiplier) }

// newNode makes the parts of a node and joins them; nothing runs yet.
func newNode(config Config) *Node {
	n := &Node{
		config: config, log: config.Logger.Named("cluster"),
		acks: NewAckClock(), raftNews: make(chan bool, 8),
		changes: newChanges(), waits: newWaits(), lists: newLists(), calls: newCalls(),
		history:     newEventHistory(config.HistoryEvents, config.HistoryBytes),
		snapshotDue: make(chan struct{}, 1),
	}
	n.stopping, n.stop = context.WithCancel(context.Background())
	n.requests = newRequests(config.QueueSize, n.waits)
	n.requests.pulse = newPulse()
	n.machine = newMachine(n.log)
	n.machine.deliver = n.applied
	n.machine.restored = n.restored
	n.machine.fatal = n.fatal
	n.machine.snapshotDue = func() { signal(n.snapshotDue) }
	n.router = &router{
		log: n.log, requests: n.requests, self: raft.ServerID(config.NodeID),
		leader: n.leader, established: n.leading,
		openLocal: n.openLocal, openRemote: n.openRemote, dial: n.dialForward,
		news: make(chan struct{}, 1), changed: make(chan struct{}), compactAt: batchCommands,
	}
	n.requests.times = n.times()
	n.carrier = &carrier{requests: n.requests, router: n.router}
	n.leadership = &leadership{
		log: n.log, self: config.NodeID, machine: n.machine, acks: n.acks, limits: config.Limits,
		cluster: func() fsm.ClusterID { return n.life.identity.bound() }, jump: func() bool { return config.Store.Restored() != 0 },
		open: n.openProposer, hire: n.hireCourier, changed: n.router.look, news: make(chan struct{}, 1),
	}
	n.renewals = &renewals{submit: n.submitRenewals}
	n.life = newLife(n)
	return n
}

// signal tells a goroutine that waits on a channel with room for one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// openProposer makes the proposer of a reign.
func (n *Node) openProposer(term uint64, c *clock) *proposer {
	p := newProposer(term, c, n.raft, n.config.QueueSize)
	p.refuses = n.life.refuses
	c.hold(n.life.standstill() != nil)
	p.pulse = n.requests.pulse
	p.refused = func() {
		n.life.refused()
		n.router.drop(term)
	}
	return p
}

// established returns this node's term as leader, or nil, also while it finds itself
// among nodes of another cluster: then it serves nobody.
func (n *Node) established() *reign {
	if n.life.strangers.Load() != nil {
		return nil
	}
	return n.leadership.established()
}

// leader answers whom Raft follows here, and in which term. The two may not fit
// together for a moment: a node that does not lead in the term refuses. While this
// node's disk hangs and Raft takes it for the leader, the others are believed.
func (n *Node) leader() (raft.ServerAddress, raft.ServerID, uint64) {
	address, id := n.raft.LeaderWithID()
	term := n.raft.CurrentTerm()
	if string(id) == n.config.NodeID && n.life.hung() {
		return n.life.leaderElsewhere(term)
	}
	return address, id, term
}

// submitRenewals proposes what the renewals have gathered.
func (n *Node) submitRenewals(renew fsm.Renew) (Reply, error) {
	reply, err := n.do(n.stopping, Call{Command: renew})
	if errors.Is(err, context.Canceled) { // the node's end, and none of the callers'
		err = ErrOutcomeUnknown
	}
	return reply, err
}

// applied tells the node what an entry did, in the apply goroutine: first whose
// command it was, then whose wait it ended, then who watches what it changed.
func (n *Node) applied(entry *fsm.Applied) {
	n.config.applying(entry)
	n.life.applied(entry)
	n.requests.large.deliver(n.machine.state, entry)
	n.requests.deliver(entry)
	n.waits.deliver(entry)
	n.lists.deliver(entry)
	n.changes.deliver(entry.Effects)
	n.history.deliver(entry)
	if reign := n.established(); reign != nil {
		reign.ticker.poke()
		reign.courier.poke(entry.Effects)
	}
	if entry.Term != 0 {
		n.router.look()
	}
}

// restored tells the node, in the apply goroutine, that the machine has jumped.
func (n *Node) restored(state *fsm.Machine, index uint64) {
	n.life.replaced(state)
	n.requests.large.restored(state)
	n.requests.restored(state)
	n.waits.restored(state, index)
	n.lists.wakeAll()
	n.changes.wakeAll()
	n.history.restored(index)
	if reign := n.established(); reign != nil {
		reign.courier.lookAtAll()
	}
	n.router.look()
}
