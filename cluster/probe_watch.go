package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// watchEvery is how often a node asks each other member how it is.
const watchEvery = 500 * time.Millisecond

// peerWatch asks all other members twice a second how they are. From the answers
// come the status of the cluster on a node that doesn't lead too, the comparison
// of state hashes, the choice of a successor, and the promotion of members that
// have caught up. Safe for concurrent use.
type peerWatch struct {
	calls *peerCalls
	self  string
	// members are those of the latest configuration that this node knows.
	members func() []raft.Server
	// commit is the commit index that this node knows.
	commit func() uint64
	// round is called after each round, in the goroutine of run.
	round func()

	mu    sync.Mutex
	seen  map[string]*peerSeen // by node id; those of the present members
	links map[string]*probeLink
}

// peerSeen is what a node knows of another.
type peerSeen struct {
	answer  probeAnswer // the last one
	asked   time.Time   // when it was asked for
	came    time.Time   // when it came; zero: never
	failing bool        // no answer came since
	lag     uint64      // of its machine, behind the commit index known here when it came
}

func newPeerWatch(calls *peerCalls, self string, members func() []raft.Server) *peerWatch {
	return &peerWatch{calls: calls, self: self, members: members, commit: func() uint64 { return 0 }, round: func() {},
		seen: map[string]*peerSeen{}, links: map[string]*probeLink{}}
}

// run asks until ctx ends.
func (w *peerWatch) run(ctx context.Context) {
	defer w.closeLinks()
	for {
		w.askAll(ctx)
		if ctx.Err() != nil {
			return
		}
		w.round()
		if pause(ctx, watchEvery) != nil {
			return
		}
	}
}

// askAll asks every member once, all at the same time, and forgets who is none.
func (w *peerWatch) askAll(ctx context.Context) {
	var asking sync.WaitGroup
	present := map[string]bool{}
	state := w.calls.state() // the same for all peers, so that a majority can be counted
	for _, server := range w.members() {
		id := string(server.ID)
		if id == w.self {
			continue
		}
		present[id] = true
		link := w.link(id, string(server.Address))
		asking.Go(func() {
			asked := time.Now()
			answer, err := link.askAt(ctx, id, state)
			w.note(id, answer, asked, err)
		})
	}
	asking.Wait()
	w.forgetOthers(present)
}

// link answers the stream to a member. Only askAll uses the links, each in one
// goroutine at a time.
func (w *peerWatch) link(id, address string) *probeLink {
	l := w.links[id]
	if l == nil || l.address != address {
		if l != nil {
			l.close()
		}
		l = &probeLink{calls: w.calls, id: id, address: address}
		w.links[id] = l
	}
	return l
}

func (w *peerWatch) closeLinks() {
	for _, l := range w.links {
		l.close()
	}
}

func (w *peerWatch) note(id string, answer probeAnswer, asked time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen[id]
	if seen == nil {
		seen = &peerSeen{}
		w.seen[id] = seen
	}
	seen.failing = err != nil
	if err == nil {
		seen.answer, seen.asked, seen.came = answer, asked, time.Now()
		seen.lag = lagBehind(max(w.commit(), answer.Commit), answer.Applied)
	}
}

func (w *peerWatch) forgetOthers(present map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.seen {
		if !present[id] {
			delete(w.seen, id)
		}
	}
	for id, l := range w.links {
		if !present[id] {
			l.close()
			delete(w.links, id)
		}
	}
}

// all answers what is known of each other member that was asked.
func (w *peerWatch) all() map[string]peerSeen {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make(map[string]peerSeen, len(w.seen))
	for id, seen := range w.seen {
		all[id] = *seen
	}
	return all
}

// up reports whether a member answered when it was asked last.
func (s peerSeen) up() bool { return !s.failing && !s.came.IsZero() }
