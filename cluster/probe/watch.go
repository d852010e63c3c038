package probe

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/internal/wake"
)

// WatchEvery is how often a watch asks the members if all of them reply.
const WatchEvery = 500 * time.Millisecond

// DownAfter is how long a member must be silent to count as down.
const DownAfter = 3 * time.Second

// Subject is the node whose fellow members a watch asks. Only one goroutine calls Round. The other methods may be
// called concurrently.
type Subject interface {
	// Servers returns the members of this node's latest configuration.
	Servers() []raft.Server
	// Committed returns the commit index that this node knows.
	Committed() uint64
	// Round is called after each round, with the latest reply of each member.
	Round(seen map[string]Seen)
}

// Watch asks all other members how they are, in rounds. It asks all of them at the same time, waits up to 1 s for their
// replies, and then pauses for wake.Next(WatchEvery). Safe for concurrent use.
type Watch struct {
	calls   *Calls
	subject Subject
	links   map[string]*link // by node id; used only by the goroutine of Run

	mu   sync.Mutex
	seen map[string]*Seen // by node id; only present members
}

// Seen is what a node knows of another member by its replies. The zero value is for a member that has never replied.
type Seen struct {
	Answer  Answer    // the last reply
	Asked   time.Time // when the question of that reply was sent
	Came    time.Time // when that reply came; zero: never
	Failing bool      // the last question had no reply
	Lag     uint64    // entries by which the member's machine trailed the commit index then
}

// NewWatch returns a watch. It asks after Run is called.
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

// askAll asks every other member once, all at the same time, and forgets nodes that are no longer members.
func (w *Watch) askAll(ctx context.Context) {
	var links []*link
	present := map[string]bool{}
	for _, server := range w.subject.Servers() {
		if id := string(server.ID); id != w.calls.self {
			present[id] = true
			links = append(links, w.link(id, string(server.Address)))
		}
	}
	state := w.calls.latest() // the same index for all members, so that a majority can be counted
	wake.AtOnce(links, func(l *link) error {
		began := time.Now()
		answer, err := l.ask(ctx, state)
		w.recordReply(l.id, answer, began, err)
		return err
	})
	w.forgetOthers(present)
}

// link returns the stream to a member, and a new one if the member has another address now.
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

// All returns what is known of each other member that was asked, by node id. The map belongs to the caller. It does not
// block.
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

// Down reports whether the last question had no reply, and the member's last reply is older than DownAfter, or it has
// never replied.
func (s Seen) Down() bool { return s.Failing && (s.Came.IsZero() || time.Since(s.Came) > DownAfter) }

// Lag returns by how many entries a machine that has applied the entries up to applied trails the commit index.
func Lag(commit, applied uint64) uint64 { return commit - min(applied, commit) }
