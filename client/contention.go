package client

import (
	"sync"
	"time"
)

const (
	// contended is how long a semaphore counts as contended after a call could not have its permits at once.
	contended = time.Second
	// maxContended bounds how many semaphores a Client remembers as contended.
	maxContended = 1024
)

// contention remembers which semaphores, or which of their groups, are contended. A call that may wait first tries
// to have the permits in a request that it shares with other calls, since most permits can be had at once. It asks
// alone only after that, because a node holds a request that waits. On a contended semaphore the try would cost a
// round trip for each call, so there calls ask alone at once.
type contention struct {
	mu    sync.Mutex
	until map[target]time.Time
}

// expected reports whether a line is contended.
func (c *contention) expected(line target) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	until, found := c.until[line]
	return found && time.Now().Before(until)
}

// add makes a line contended.
func (c *contention) add(line target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until == nil || len(c.until) >= maxContended {
		c.until = map[target]time.Time{}
	}
	c.until[line] = time.Now().Add(contended)
}
