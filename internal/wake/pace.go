package wake

import (
	"sync"
	"time"
)

// Pace lets one event of each kind through per interval, for example one line of the log for a fault that repeats. It
// keeps each kind that it has seen. Its methods are safe for concurrent use.
type Pace[K comparable] struct {
	interval time.Duration

	mu    sync.Mutex
	kinds map[K]paced
}

type paced struct {
	passed time.Time // when an event was last let through
	held   int       // the events since then
}

// NewPace returns a Pace that has seen no event.
func NewPace[K comparable](interval time.Duration) *Pace[K] {
	return &Pace[K]{interval: interval, kinds: map[K]paced{}}
}

// Pass reports whether an event of a kind is let through now. If so, held is the number of events of that kind that were
// held back since the last event that was let through, which may be long ago.
func (p *Pace[K]) Pass(kind K) (held int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.kinds[kind]
	if !last.passed.IsZero() && time.Since(last.passed) < p.interval {
		last.held++
		p.kinds[kind] = last
		return 0, false
	}
	p.kinds[kind] = paced{passed: time.Now()}
	return last.held, true
}
