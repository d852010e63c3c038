package forward

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/cluster/lead"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/cluster/requests"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// routePause and routePauseMax bound the pause before the router looks for a leader again without news.
	routePause    = 10 * time.Millisecond
	routePauseMax = 200 * time.Millisecond
	// routeSettled is how long a lane must last so that the router looks for the next lane without a pause.
	routeSettled = time.Second
)

// Node is the part of the node that forwarding uses; package cluster has forwardNode for it. Only Dial blocks. All
// methods are safe for concurrent use.
type Node interface {
	// Leading returns this node's term while the node can carry commands in it, or nil.
	Leading() Term
	// Leader returns the leader that Raft follows here, and Raft's term; the id is empty if Raft knows no leader. For a
	// moment, the term may not be the term of that leader.
	Leader() (address, id string, term uint64)
	// Dial opens a stream for commands to another node.
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// Term is a term in which this node leads: [lead.Term].
type Term interface {
	Number() uint64
	Propose(commands []lead.Proposal) (taken bool)
	Tick(ctx context.Context) (index uint64, err error)
	Confirm(ctx context.Context) (index uint64, nowMS int64, err error)
}

// Config is what a router and a server need. All fields are required.
type Config struct {
	Log      hclog.Logger
	Self     string // this node's id
	Requests *requests.Registry
	Replica  *replica.Replica
	Node     Node
	Pulse    *lead.Pulse
	Times    wake.Stretch
	Stopping context.Context // ends when the node closes
}

// lane carries requests and reads to the leader of one term: to this node's own proposer, or over a stream to another
// node. Safe for concurrent use.
type lane interface {
	// send takes requests in their order, or returns them because the lane is closed. It does not block.
	send(reqs []*requests.Request) (back []*requests.Request)
	// term returns the term of the leader.
	term() uint64
	// read returns a read index and the leader's reading of cluster time.
	read(ctx context.Context) (index uint64, nowMS int64, err error)
	// valid reports whether the lane still leads to the leader.
	valid() bool
	// done is closed once the lane takes no more requests.
	done() <-chan struct{}
	// close closes the lane, and refuses the requests that it has not sent. It does not block.
	close()
}

// Router carries requests to the leader, on any node, and holds them while there is no leader. One goroutine, Run,
// finds the leader and opens and closes lanes. The other methods are safe for concurrent use.
type Router struct {
	config Config
	news   wake.Signal // Run must look for the leader again

	mu        sync.Mutex
	current   lane                // nil while there is no leader
	changed   wake.Bell           // rung when a lane is installed
	held      []*requests.Request // in their order, while current is nil
	compactAt int                 // length of held at which dropped requests are removed
}

// NewRouter returns a router without a lane. It holds all requests until Run.
func NewRouter(config Config) *Router {
	return &Router{config: config, news: wake.NewSignal(), compactAt: batchCommands}
}

// Look makes Run look for the leader again. It does not block.
func (r *Router) Look() { r.news.Set() }

// send hands requests to the lane in their order, or holds them.
func (r *Router) send(reqs []*requests.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != nil {
		if reqs = r.current.send(reqs); len(reqs) == 0 {
			return
		}
		r.clear()
	}
	r.held = append(r.held, reqs...)
	if len(r.held) > r.compactAt {
		r.held = r.config.Requests.Live(r.held)
		r.compactAt = 2*len(r.held) + batchCommands
	}
}

// clear closes the present lane. The caller holds mu.
func (r *Router) clear() {
	r.current.close()
	r.current = nil // state: the lanes come and go with the leaders
}

// lane returns the present lane, or nil and a channel that is closed when there may be a lane.
func (r *Router) lane() (lane, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current, r.changed.Next()
}

// install makes a lane the present one and sends the held commands on it.
func (r *Router) install(l lane) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = l // state: see clear
	r.changed.Ring()
	if len(r.held) == 0 {
		return
	}
	if r.held = l.send(r.held); len(r.held) > 0 {
		r.clear()
	}
}

// Drop closes the present lane if it leads to the leader of that term. That leader has refused commands, which must not
// be sent to it again at once.
func (r *Router) Drop(term uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != nil && r.current.term() == term {
		r.clear()
	}
}

// retire closes a lane, whether it is the present lane or not.
func (r *Router) retire(l lane) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == l {
		r.current = nil // state: see clear
	}
	l.close()
}

// Run keeps a lane to the leader open until ctx ends.
func (r *Router) Run(ctx context.Context) {
	pause := routePause
	for ctx.Err() == nil {
		if l := r.open(ctx); l != nil {
			opened := time.Now()
			r.install(l)
			r.keep(ctx, l)
			r.retire(l)
			if time.Since(opened) > routeSettled { // the lane worked for a while: look for the next lane at once
				pause = routePause
				continue
			}
		}
		timer := time.NewTimer(pause)
		select {
		case <-r.news:
			pause = routePause
		case <-timer.C:
			pause = min(2*pause, routePauseMax)
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// keep blocks until a lane is no longer valid, is closed, or ctx ends.
func (r *Router) keep(ctx context.Context, l lane) {
	for l.valid() {
		select {
		case <-r.news:
		case <-l.done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// open returns a lane to the leader, or nil if no leader can be reached.
func (r *Router) open(ctx context.Context) lane {
	if t := r.config.Node.Leading(); t != nil {
		return newLocalLane(t, &r.config)
	}
	address, id, term := r.config.Node.Leader()
	if id == "" || id == r.config.Self {
		return nil
	}
	same := func() bool {
		a, i, t := r.config.Node.Leader()
		return a == address && i == id && t == term
	}
	conn, err := r.reach(ctx, address, same)
	if err != nil {
		r.config.Log.Debug("cannot reach the leader", "leader", id, "address", address, "error", err)
		return nil
	}
	return openLink(conn, term, same, &r.config)
}

// reach dials the leader. It gives up when another node leads.
func (r *Router) reach(ctx context.Context, address string, same func() bool) (net.Conn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type result struct {
		conn net.Conn
		err  error
	}
	dialled := make(chan result, 1)
	go func() {
		conn, err := r.config.Node.Dial(ctx, address)
		dialled <- result{conn, err}
	}()
	for {
		select {
		case <-r.news:
			if !same() {
				cancel(outcome.ErrNoLeader) // ends the dial
			}
		case d := <-dialled:
			return d.conn, d.err
		}
	}
}

// Applied implements [replica.Sink]. The first entry of a term shows that it has a leader, so Run looks for it.
func (r *Router) Applied(entry *fsm.Applied) {
	if entry.Term != 0 {
		r.Look()
	}
}

// SnapshotRestored implements [replica.Sink].
func (r *Router) SnapshotRestored(*fsm.Machine, uint64) { r.Look() }

// localLane leads to this node's own proposer while it leads.
type localLane struct {
	leads  Term
	config *Config
	once   sync.Once
	ended  chan struct{}
}

func newLocalLane(t Term, config *Config) *localLane {
	return &localLane{leads: t, config: config, ended: make(chan struct{})}
}

// localCommand is a request of this node for its own proposer.
type localCommand struct {
	*requests.Request
	requests *requests.Registry
	term     uint64
}

// Command implements [lead.Proposal].
func (c localCommand) Command() []byte { return c.Data }

// Load implements [lead.Proposal].
func (c localCommand) Load() lead.Load { return c.Request.Load }

// Withdrawn implements [lead.Proposal].
func (c localCommand) Withdrawn() outcome.Verdict {
	if c.requests.Wanted(c.Request) {
		return outcome.Verdict{}
	}
	return outcome.Verdict{Fate: outcome.Refused}
}

// Failed implements [lead.Proposal]. If the outcome is open, the machine settles the command.
func (c localCommand) Failed(v outcome.Verdict) {
	if v.Fate != outcome.Open {
		c.requests.Failed(c.Request, c.term, 0, v)
	}
}

func (l *localLane) send(reqs []*requests.Request) (back []*requests.Request) {
	term := l.leads.Number()
	live, ok := l.config.Requests.MarkSent(reqs, term, 0)
	if !ok {
		return reqs
	}
	proposals := make([]lead.Proposal, 0, len(live))
	for _, q := range live {
		c := localCommand{q, l.config.Requests, term}
		if err := l.config.Replica.Admits(q.Data); err != nil {
			c.Failed(outcome.Failed.Because(err))
			continue
		}
		proposals = append(proposals, c)
	}
	if !l.leads.Propose(proposals) {
		l.config.Requests.Unmark(live)
		return live
	}
	return nil
}

func (l *localLane) read(ctx context.Context) (uint64, int64, error) { return l.leads.Confirm(ctx) }
func (l *localLane) term() uint64                                    { return l.leads.Number() }
func (l *localLane) valid() bool                                     { return l.config.Node.Leading() == l.leads }
func (l *localLane) done() <-chan struct{}                           { return l.ended }
func (l *localLane) close()                                          { l.once.Do(func() { close(l.ended) }) }
