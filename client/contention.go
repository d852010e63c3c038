package client

import (
	"sync"
	"time"
)

const (
	// contended is how long a semaphore counts as contended after a call found too few available permits.
	contended = time.Second
	// maxContended bounds how many semaphores a Client remembers as contended.
	maxContended = 1024
)

// contention remembers which semaphores, or which of their groups, are contended. A call that may wait first sends a
// try, which shares an HTTP request with other calls, because permits are usually available. Only then does it wait,
// in a separate HTTP request, because a node holds it during the wait. On a contended semaphore the try would waste a
// round trip, so calls wait at once.
type contention struct {
	mu    sync.Mutex
	until map[target]time.Time
}

func (c *contention) expected(line target) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	until, found := c.until[line]
	return found && time.Now().Before(until)
}

func (c *contention) add(line target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until == nil || len(c.until) >= maxContended {
		c.until = map[target]time.Time{}
	}
	c.until[line] = time.Now().Add(contended)
}
