package probe

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/internal/wake"
)

// WatchEvery is the pause between two rounds of a watch if all members reply.
const WatchEvery = 500 * time.Millisecond

// DownAfter is how long a member must be silent before it counts as down.
const DownAfter = 3 * time.Second

// Subject is the node for which a watch asks the other members. Only one goroutine calls Round. The other methods may
// be called concurrently.
type Subject interface {
	// Servers returns the members of this node's latest configuration.
	Servers() []raft.Server
	// Committed returns the highest commit index that this node knows.
	Committed() uint64
	// Round is called after each round, with the latest reply of each member.
	Round(seen map[string]Seen)
}

// Watch asks all other members for their state, in rounds: it asks all of them at the same time, waits up to 1 s for
// the replies, and pauses for wake.Next(WatchEvery). Safe for concurrent use.
type Watch struct {
	calls   *Calls
	subject Subject
	links   map[string]*link // by node id; used only by the goroutine of Run

	mu   sync.Mutex
	seen map[string]*Seen // by node id; only current members
}

// Seen is what a node knows about another member from its replies. It is zero before the first reply.
type Seen struct {
	Answer  Answer    // the last reply
	Asked   time.Time // when the question to the last reply was sent
	Came    time.Time // when the last reply arrived; zero: never
	Failing bool      // the last question got no reply
	Lag     uint64    // entries by which the member's machine trailed the commit index at the last reply
}

// NewWatch returns a watch, which asks only after Run.
func NewWatch(calls *Calls, subject Subject) *Watch {
	return &Watch{calls: calls, subject: subject, seen: map[string]*Seen{}, links: map[string]*link{}}
}

// Run asks the members until ctx ends.
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

// askAll asks all other members once, at the same time, and forgets nodes that are no longer members.
func (w *Watch) askAll(ctx context.Context) {
	var links []*link
	present := map[string]bool{}
	for _, server := range w.subject.Servers() {
		if id := string(server.ID); id != w.calls.self {
			present[id] = true
			links = append(links, w.link(id, string(server.Address)))
		}
	}
	state := w.calls.latest() // the same index for all members, so that equal hashes can be counted
	wake.AtOnce(links, func(l *link) error {
		began := time.Now()
		answer, err := l.ask(ctx, state)
		w.recordReply(l.id, answer, began, err)
		return err
	})
	w.forgetOthers(present)
}

// link returns the stream to a member, or a new stream if the member's address has changed.
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

func (w *Watch) recordReply(id string, answer Answer, began time.Time, err error) {
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

// All returns a copy of what is known about each other member, by node id. It does not block.
func (w *Watch) All() map[string]Seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make(map[string]Seen, len(w.seen))
	for id, seen := range w.seen {
		all[id] = *seen
	}
	return all
}

// Up reports whether the member has replied to the last question.
func (s Seen) Up() bool { return !s.Failing && !s.Came.IsZero() }

// Down reports whether the last question got no reply and the member has not replied within DownAfter, or ever.
func (s Seen) Down() bool { return s.Failing && (s.Came.IsZero() || time.Since(s.Came) > DownAfter) }

// Lag returns how many entries applied is behind the commit index.
func Lag(commit, applied uint64) uint64 { return commit - min(applied, commit) }
