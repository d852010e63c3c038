package cluster

import (
	"context"
	"sync"
	"sync/atomic"
)

// progress is the index that a machine has reached, and who waits for it. Raft's
// own AppliedIndex says what was handed over, not what was applied. Safe for
// concurrent use; only the apply goroutine advances it.
type progress struct {
	reached atomic.Uint64

	mu      sync.Mutex
	waiting map[*indexWait]struct{}
}

// indexWait is one caller of await.
type indexWait struct {
	index   uint64
	arrived chan struct{}
}

// advance says that everything up to index is applied and delivered.
func (p *progress) advance(index uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reached.Store(index)
	for w := range p.waiting {
		if w.index <= index {
			close(w.arrived)
			delete(p.waiting, w)
		}
	}
}

// await blocks until index is applied, or ctx ends with its cause.
func (p *progress) await(ctx context.Context, index uint64) error {
	if p.reached.Load() >= index {
		return nil
	}
	w := &indexWait{index: index, arrived: make(chan struct{})}
	if !p.enter(w) {
		return nil
	}
	select {
	case <-w.arrived:
		return nil
	case <-ctx.Done():
		p.leave(w)
		return context.Cause(ctx)
	}
}

// enter reports whether there is something to wait for.
func (p *progress) enter(w *indexWait) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reached.Load() >= w.index {
		return false
	}
	if p.waiting == nil {
		p.waiting = map[*indexWait]struct{}{}
	}
	p.waiting[w] = struct{}{}
	return true
}

func (p *progress) leave(w *indexWait) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, w)
}
