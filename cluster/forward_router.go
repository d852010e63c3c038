package cluster

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	// routePause … routePauseMax is how long the router waits before it looks for
	// a leader again without having heard anything.
	routePause    = 10 * time.Millisecond
	routePauseMax = 200 * time.Millisecond
	// routeSettled is how long a lane lasts that was worth opening.
	routeSettled = time.Second
)

// lane carries requests and reads to the leader of one term: this node's own
// proposer, or a stream to another node. Safe for concurrent use.
type lane interface {
	// send takes requests in their order, or gives them back because the lane is
	// over. It does not block.
	send(reqs []*request) (back []*request)
	// term is the leader's.
	term() uint64
	// read answers a read index and the leader's reading of cluster time.
	read(ctx context.Context) (index uint64, nowMS int64, err error)
	// valid reports whether the lane still leads to the leader.
	valid() bool
	// done is closed once the lane takes nothing any more.
	done() <-chan struct{}
	// close ends the lane; what it has not sent comes back to its callers. It does
	// not block.
	close()
}

// router leads requests to the leader, wherever it is, and holds them while there
// is none. One goroutine, run, looks for the leader and opens and closes lanes.
// send and lane are safe for concurrent use.
type router struct {
	log         hclog.Logger
	requests    *requests
	self        raft.ServerID
	leader      func() (raft.ServerAddress, raft.ServerID, uint64) // and Raft's term
	established func() *reign
	openLocal   func(*reign) lane
	openRemote  func(net.Conn, func() bool, uint64) lane
	dial        func(ctx context.Context, address string) (net.Conn, error)
	news        chan struct{} // has room for one: look again

	mu        sync.Mutex
	current   lane          // nil while there is none
	changed   chan struct{} // closed when current changes
	held      []*request    // in their order, while current is nil
	compactAt int           // length of held at which the dead are taken out
}

// look makes run look for the leader again. It does not block.
func (r *router) look() {
	signal(r.news)
}

// send takes requests in their order, on to the leader or to be held.
func (r *router) send(reqs []*request) {
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
		r.held = r.requests.live(r.held)
		r.compactAt = 2*len(r.held) + batchCommands
	}
}

// clear ends the present lane. The caller holds mu.
func (r *router) clear() {
	r.current.close()
	r.current = nil
}

// lane answers the present lane, or nil and a channel that is closed when there
// may be one.
func (r *router) lane() (lane, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current, r.changed
}

// install makes a lane the present one and sends on what was held.
func (r *router) install(l lane) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = l
	close(r.changed)
	r.changed = make(chan struct{})
	if len(r.held) == 0 {
		return
	}
	if r.held = l.send(r.held); len(r.held) > 0 {
		r.clear()
	}
}

// drop ends the present lane if it leads to the leader of that term: it has
// refused what it got, and what it gives back must not come to it again at once.
func (r *router) drop(term uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != nil && r.current.term() == term {
		r.clear()
	}
}

// retire ends a lane, whether it is the present one or not.
func (r *router) retire(l lane) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == l {
		r.current = nil
	}
	l.close()
}

// run keeps a lane to the leader open until ctx ends.
func (r *router) run(ctx context.Context) {
	pause := routePause
	for ctx.Err() == nil {
		opened := time.Now()
		if l := r.open(ctx); l != nil {
			r.install(l)
			r.keep(ctx, l)
			r.retire(l)
		}
		if time.Since(opened) > routeSettled { // it was of use: look for the next at once
			pause = routePause
			continue
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

// keep returns when a lane has come to its end.
func (r *router) keep(ctx context.Context, l lane) {
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

// open answers a lane to the leader, or nil when there is none to be reached.
func (r *router) open(ctx context.Context) lane {
	if reign := r.established(); reign != nil {
		return r.openLocal(reign)
	}
	address, id, term := r.leader()
	if id == "" || id == r.self {
		return nil
	}
	same := func() bool {
		a, i, t := r.leader()
		return a == address && i == id && t == term
	}
	conn, err := r.reach(ctx, string(address), same)
	if err != nil {
		r.log.Debug("cannot reach the leader", "leader", id, "address", address, "error", err)
		return nil
	}
	return r.openRemote(conn, same, term)
}

// reach dials the leader, and gives up at the news that it leads no more.
func (r *router) reach(ctx context.Context, address string, same func() bool) (net.Conn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type result struct {
		conn net.Conn
		err  error
	}
	dialled := make(chan result, 1)
	go func() {
		conn, err := r.dial(ctx, address)
		dialled <- result{conn, err}
	}()
	for {
		select {
		case <-r.news:
			if !same() {
				cancel(ErrNoLeader) // the dial ends with it
			}
		case d := <-dialled:
			return d.conn, d.err
		}
	}
}
