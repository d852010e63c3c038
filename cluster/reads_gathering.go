package cluster

import (
	"context"
	"sync"
)

// gathering lets all callers that wait when a run starts share it; those that
// come later share the next. So nobody gets what was found out before it came.
// Safe for concurrent use; run is called by one goroutine at a time.
type gathering[T any] struct {
	run func() (T, error)

	mu      sync.Mutex
	next    *gathered[T] // nil if nobody waits
	working bool
}

// gathered is one run. done guards the results.
type gathered[T any] struct {
	done chan struct{}
	got  T
	err  error
}

// join blocks until a run that starts after the call is over, or ctx ends.
func (g *gathering[T]) join(ctx context.Context) (got T, err error) {
	g.mu.Lock()
	if g.next == nil {
		g.next = &gathered[T]{done: make(chan struct{})}
	}
	mine := g.next
	if !g.working {
		g.working = true
		go g.work()
	}
	g.mu.Unlock()
	select {
	case <-mine.done:
		return mine.got, mine.err
	case <-ctx.Done():
		return got, context.Cause(ctx)
	}
}

// work runs until nobody waits.
func (g *gathering[T]) work() {
	for {
		g.mu.Lock()
		mine := g.next
		g.next = nil
		g.working = mine != nil
		g.mu.Unlock()
		if mine == nil {
			return
		}
		mine.got, mine.err = g.run()
		close(mine.done)
	}
}
