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

// contention remembers which semaphores are contended. A call that may wait first tries to have the permits in
// a request that it shares with other calls, since most permits can be had at once. It asks alone only after
// that, because a node holds a request that waits. On a contended semaphore the try would cost a round trip for
// each call, so there calls ask alone at once.
type contention struct {
	mu    sync.Mutex
	until map[string]time.Time // by semaphore
}

// expected reports whether a semaphore is contended.
func (c *contention) expected(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	until, found := c.until[name]
	return found && time.Now().Before(until)
}

// add makes a semaphore contended.
func (c *contention) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until == nil || len(c.until) >= maxContended {
		c.until = map[string]time.Time{}
	}
	c.until[name] = time.Now().Add(contended)
}
