package cluster

import (
	"sync"

	"github.com/signalbox/signalbox/fsm"
)

// changes wakes who waits for the next change of a semaphore. Safe for
// concurrent use.
type changes struct {
	mu       sync.Mutex
	watchers map[string]map[*watcher]struct{} // by semaphore
}

// watcher is told once.
type watcher struct{ changed chan struct{} }

func newChanges() *changes {
	return &changes{watchers: map[string]map[*watcher]struct{}{}}
}

// watch answers a channel that is closed at the next change of the semaphore, or
// restore. stop frees it, and may be called more than once.
func (c *changes) watch(name string) (changed <-chan struct{}, stop func()) {
	w := &watcher{changed: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers[name] == nil {
		c.watchers[name] = map[*watcher]struct{}{}
	}
	c.watchers[name][w] = struct{}{}
	return w.changed, func() { c.unwatch(name, w) }
}

func (c *changes) unwatch(name string, w *watcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.watchers[name], w)
	if len(c.watchers[name]) == 0 {
		delete(c.watchers, name)
	}
}

// deliver wakes the watchers of what an entry changed.
func (c *changes) deliver(effects []fsm.Effect) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.watchers) == 0 {
		return
	}
	for i := range effects {
		c.wake(effects[i].Semaphore)
	}
}

// wakeAll wakes every watcher: after a restore anything may have changed.
func (c *changes) wakeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.watchers {
		c.wake(name)
	}
}

// wake tells the watchers of one semaphore. The caller holds mu.
func (c *changes) wake(name string) {
	for w := range c.watchers[name] {
		close(w.changed)
	}
	delete(c.watchers, name)
}
