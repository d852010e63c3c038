package probe

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/internal/wake"
)

// WatchEvery is how often a watch asks, while all reply.
const WatchEvery = 500 * time.Millisecond

// DownAfter is how long a member has not replied when it counts as down.
const DownAfter = 3 * time.Second

// Subject is the node whose fellow members a watch asks. Round is called by one
// goroutine. The other methods may be called concurrently.
type Subject interface {
	// Servers returns the members of the latest configuration that this node has.
	Servers() []raft.Server
	// Committed returns the commit index that this node knows.
	Committed() uint64
	// Round notes the replies of one round.
	Round(seen map[string]Seen)
}

// Watch asks all other members how they are, in rounds: all at the same time, at most
// 1 s for their replies, then a pause of wake.Next(WatchEvery). Safe for concurrent use.
type Watch struct {
	calls   *Calls
	subject Subject
	links   map[string]*link // by node id; of the goroutine of Run alone

	mu   sync.Mutex
	seen map[string]*Seen // by node id, of the present members
}

// Seen is a node's knowledge of another node, by its replies. The zero value is for a
// member that has never replied.
type Seen struct {
	Answer  Answer    // the last one
	Asked   time.Time // when it was asked for
	Came    time.Time // when it came; zero: never
	Failing bool      // the last question had no reply
	Lag     uint64    // of its machine, behind the commit index known here when it came
}

// NewWatch returns a watch that has not asked yet.
func NewWatch(calls *Calls, subject Subject) *Watch {
	return &Watch{calls: calls, subject: subject, seen: map[string]*Seen{}, links: map[string]*link{}}
}

// Run asks until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	defer w.closeLinks()
	for {
		w.askAll(ctx)
		if ctx.Err() != nil {
			return
		}
		w.subject.Round(w.All())
		if wake.Pause(ctx, wake.Next(WatchEvery)) != nil {
			return
		}
	}
}

// askAll asks every other member once, all at the same time, and forgets the nodes that
// are not members any more.
func (w *Watch) askAll(ctx context.Context) {
	var links []*link
	present := map[string]bool{}
	for _, server := range w.subject.Servers() {
		if id := string(server.ID); id != w.calls.self {
			present[id] = true
			links = append(links, w.link(id, string(server.Address)))
		}
	}
	state := w.calls.latest() // the same for all peers, so that a majority can be counted
	wake.AtOnce(links, func(l *link) error {
		began := time.Now()
		answer, err := l.ask(ctx, state)
		w.note(l.id, answer, began, err)
		return err
	})
	w.forgetOthers(present)
}

// link returns the stream to a member, for the present round.
func (w *Watch) link(id, address string) *link {
	l := w.links[id]
	if l == nil || l.address != address {
		if l != nil {
			l.close()
		}
		l = &link{calls: w.calls, id: id, address: address}
		w.links[id] = l
	}
	return l
}

func (w *Watch) closeLinks() {
	for _, l := range w.links {
		l.close()
	}
}

func (w *Watch) note(id string, answer Answer, began time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen[id]
	if seen == nil {
		seen = &Seen{}
		w.seen[id] = seen
	}
	seen.Failing = err != nil
	if err == nil {
		seen.Answer, seen.Asked, seen.Came = answer, began, time.Now()
		seen.Lag = Lag(max(w.subject.Committed(), answer.Commit), answer.Applied)
	}
}

func (w *Watch) forgetOthers(present map[string]bool) {
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

// All returns the replies of each other member that was asked, by node id. The map is
// the caller's. It does not block.
func (w *Watch) All() map[string]Seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make(map[string]Seen, len(w.seen))
	for id, seen := range w.seen {
		all[id] = *seen
	}
	return all
}

// Up reports whether the member has replied when it was asked last.
func (s Seen) Up() bool { return !s.Failing && !s.Came.IsZero() }

// Down reports whether the member has not replied for DownAfter, or never when it was asked. A
// single question without a reply is no sign of that.
func (s Seen) Down() bool { return s.Failing && (s.Came.IsZero() || time.Since(s.Came) > DownAfter) }

// Lag returns by how many entries a machine trails a commit index.
func Lag(commit, applied uint64) uint64 { return commit - min(applied, commit) }
