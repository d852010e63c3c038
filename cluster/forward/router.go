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
	// routeSettled is how long a route must last so that the router looks for the next route without a pause.
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
	ProposeTick(ctx context.Context) (index uint64, err error)
	ReadIndex(ctx context.Context) (index uint64, nowMS int64, err error)
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

// route carries requests and reads to the leader of one term: to this node's own proposer, or over a stream to another
// node. Safe for concurrent use.
type route interface {
	// send takes requests in their order, or returns them because the route is closed. It does not block.
	send(reqs []*requests.Request) (back []*requests.Request)
	// term returns the term of the leader.
	term() uint64
	// readIndex returns a read index and the leader's reading of cluster time.
	readIndex(ctx context.Context) (index uint64, nowMS int64, err error)
	// valid reports whether the route still leads to the leader.
	valid() bool
	// done is closed once the route takes no more requests.
	done() <-chan struct{}
	// close closes the route, and refuses the requests that it has not sent. It does not block.
	close()
}

// Router carries requests to the leader, on any node, and holds them while there is no leader. One goroutine, Run,
// finds the leader and opens and closes routes. The other methods are safe for concurrent use.
type Router struct {
	config Config
	news   wake.Signal // Run must look for the leader again

	mu        sync.Mutex
	current   route               // nil while there is no leader
	changed   wake.Bell           // rung when a route is installed
	held      []*requests.Request // in their order, while current is nil
	compactAt int                 // length of held at which dropped requests are removed
}

// NewRouter returns a router without a route. It holds all requests until Run.
func NewRouter(config Config) *Router {
	return &Router{config: config, news: wake.NewSignal(), compactAt: batchCommands}
}

// Notify makes Run look for the leader again. It does not block.
func (r *Router) Notify() { r.news.Set() }

// send hands requests to the route in their order, or holds them.
func (r *Router) send(reqs []*requests.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != nil {
		if reqs = r.current.send(reqs); len(reqs) == 0 {
			return
		}
		r.closeRoute()
	}
	r.held = append(r.held, reqs...)
	if len(r.held) > r.compactAt {
		r.held = r.config.Requests.StillHeld(r.held)
		r.compactAt = 2*len(r.held) + batchCommands
	}
}

// closeRoute closes the present route. The caller holds mu.
func (r *Router) closeRoute() {
	r.current.close()
	r.current = nil // state: the routes come and go with the leaders
}

// currentRoute returns the present route, or nil and a channel that is closed when there may be a route.
func (r *Router) currentRoute() (route, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current, r.changed.Next()
}

// install makes a route the present one and sends the held commands on it.
func (r *Router) install(l route) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = l // state: see closeRoute
	r.changed.Ring()
	if len(r.held) == 0 {
		return
	}
	if r.held = l.send(r.held); len(r.held) > 0 {
		r.closeRoute()
	}
}

// Drop closes the present route if it leads to the leader of that term. That leader has refused commands, which must not
// be sent to it again at once.
func (r *Router) Drop(term uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != nil && r.current.term() == term {
		r.closeRoute()
	}
}

// retire closes a route, whether it is the present route or not.
func (r *Router) retire(l route) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == l {
		r.current = nil // state: see closeRoute
	}
	l.close()
}

// Run keeps a route to the leader open until ctx ends.
func (r *Router) Run(ctx context.Context) {
	pause := routePause
	for ctx.Err() == nil {
		if l := r.open(ctx); l != nil {
			opened := time.Now()
			r.install(l)
			r.keep(ctx, l)
			r.retire(l)
			if time.Since(opened) > routeSettled { // the route worked for a while: look for the next route at once
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

// keep blocks until a route is no longer valid, is closed, or ctx ends.
func (r *Router) keep(ctx context.Context, l route) {
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

// open returns a route to the leader, or nil if no leader can be reached.
func (r *Router) open(ctx context.Context) route {
	if t := r.config.Node.Leading(); t != nil {
		return newLocalRoute(t, &r.config)
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
		r.Notify()
	}
}

// SnapshotRestored implements [replica.Sink].
func (r *Router) SnapshotRestored(*fsm.Machine, uint64) { r.Notify() }

// localRoute leads to this node's own proposer while it leads.
type localRoute struct {
	leading Term
	config  *Config
	once    sync.Once
	ended   chan struct{}
}

func newLocalRoute(t Term, config *Config) *localRoute {
	return &localRoute{leading: t, config: config, ended: make(chan struct{})}
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

// WhyWithdrawn implements [lead.Proposal].
func (c localCommand) WhyWithdrawn() outcome.Verdict {
	if c.requests.Wanted(c.Request) {
		return outcome.Verdict{}
	}
	return outcome.Verdict{Fate: outcome.Refused}
}

// Failed implements [lead.Proposal]. If the outcome is unknown, the machine settles the command later.
func (c localCommand) Failed(v outcome.Verdict) {
	if v.Fate != outcome.Unknown {
		c.requests.Failed(c.Request, c.term, 0, v)
	}
}

func (l *localRoute) send(reqs []*requests.Request) (back []*requests.Request) {
	term := l.leading.Number()
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
	if !l.leading.Propose(proposals) {
		l.config.Requests.Unmark(live)
		return live
	}
	return nil
}

func (l *localRoute) readIndex(ctx context.Context) (uint64, int64, error) {
	return l.leading.ReadIndex(ctx)
}
func (l *localRoute) term() uint64          { return l.leading.Number() }
func (l *localRoute) valid() bool           { return l.config.Node.Leading() == l.leading }
func (l *localRoute) done() <-chan struct{} { return l.ended }
func (l *localRoute) close()                { l.once.Do(func() { close(l.ended) }) }
