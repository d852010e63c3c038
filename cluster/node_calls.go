package cluster

import (
	"context"
	"sync"
)

// calls counts the calls under way, so that a node that drains knows when the
// last one is answered. Safe for concurrent use.
type calls struct {
	mu       sync.Mutex
	active   int
	draining chan struct{} // closed when no further call may begin
	drained  bool
	idle     chan struct{} // closed when active falls to 0; nil if nobody waits
}

func newCalls() *calls { return &calls{draining: make(chan struct{})} }

// enter begins a call, unless the node drains.
func (c *calls) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drained {
		return false
	}
	c.active++
	return true
}

// continues begins work that a call under way leaves behind.
func (c *calls) continues() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active++
}

// leave ends a call.
func (c *calls) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active--
	if c.active == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// drain lets no further call begin and tells those that wait to end.
func (c *calls) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.drained {
		c.drained = true
		close(c.draining)
	}
}

// await blocks until no call is under way, or ctx ends with its cause.
func (c *calls) await(ctx context.Context) error {
	c.mu.Lock()
	if c.active == 0 {
		c.mu.Unlock()
		return nil
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
