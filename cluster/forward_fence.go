package cluster

import (
	"errors"
	"sync"
)

var errStreamRefused = errors.New("not the leader of the stream's term, or a later stream has come")

// guestStreams knows the last stream that each origin has opened in a term. Only that
// one brings commands: an origin that opens another has given the earlier ones up.
// Safe for concurrent use.
type guestStreams struct {
	mu   sync.Mutex
	term uint64
	// last is kept when its stream ends: one that was opened before it may still come.
	last map[uint64]*guestStream // by origin
}

// enter makes a stream the last one of its origin, and fences the one before. It
// reports false when a later one has come.
func (s *guestStreams) enter(g *guestStream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.term < s.term {
		return false
	}
	if g.term > s.term { // streams of earlier terms bring nothing any more
		s.term, s.last = g.term, map[uint64]*guestStream{}
	}
	before := s.last[g.origin]
	if before != nil {
		if before.number >= g.number {
			return false
		}
		before.fenced.Store(true)
	}
	s.last[g.origin] = g
	return true
}

// hello begins a stream: it welcomes the origin, or returns why the stream ends.
func (g *guestStream) hello(f helloFrame) error {
	reign := g.server.established()
	if g.welcomed || reign == nil || reign.term != f.term {
		return errStreamRefused
	}
	g.term, g.origin, g.number = f.term, f.origin, f.number
	if !g.server.streams.enter(g) {
		return errStreamRefused
	}
	g.welcomed = true
	g.outbox.begin(g.clock) // welcomes it
	if f.open {
		go g.fence(reign)
	}
	return nil
}

// fence sends the index that bounds what earlier streams of the origin have brought.
// Those are fenced, so a command of theirs that is not in a batch now never will be;
// an entry made after that is behind all the batches. When none can be made, nothing
// is sent, and the origin learns no more than it knows.
func (g *guestStream) fence(reign *reign) {
	index, err := reign.proposer.tick(g.ctx)
	if err != nil {
		g.server.log.Debug("no fence for a peer's earlier streams", "from", g.from, "error", err)
		return
	}
	g.outbox.add(func(m *mail) { m.fences = append(m.fences, fenceFrame{index}) })
}

// withdrawn implements withdrawable.
func (c *guestCommand) withdrawn() error {
	if c.stream.fenced.Load() {
		return errRefused
	}
	if c.stream.server.nowMS() > c.takeByMS+queueGrace.Milliseconds() {
		return errLate
	}
	return nil
}
