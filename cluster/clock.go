package cluster

import (
	"sync"
	"time"
)

// maxStampStep is how far one stamp may be ahead of the one before. What an idle
// cluster sleeps beyond that never happened in cluster time: sessions opened
// after the sleep have nothing to do with it, and while sessions live the leader
// logs a tick every 500 ms.
const maxStampStep = 30 * time.Second

// clock is a leader's reading of cluster time, in milliseconds: the last stamp
// and what has passed since on this node's monotonic clock. It never goes back,
// and no wall clock takes part. It counts whole milliseconds, so that a span
// between two stamps can be up to one shorter than it really was. Safe for
// concurrent use.
type clock struct {
	mu     sync.Mutex
	lastMS int64     // the last stamp
	at     time.Time // when it was taken, less what was cut off below a millisecond
}

// newClock starts at the machine's cluster time, when a node has won.
func newClock(machineMS int64) *clock {
	return &clock{lastMS: machineMS, at: time.Now()}
}

// stamp answers the time for the next entry. Later readings are not before it.
func (c *clock) stamp() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := time.Since(c.at)
	if passed > maxStampStep {
		c.lastMS += maxStampStep.Milliseconds()
		c.at = c.at.Add(passed) // the rest is lost, never made up
		return c.lastMS
	}
	whole := passed.Truncate(time.Millisecond)
	c.lastMS += whole.Milliseconds()
	c.at = c.at.Add(whole) // the rest counts for the next one
	return c.lastMS
}

// now reads the time without a stamp. Later stamps are not before it.
func (c *clock) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastMS + min(time.Since(c.at), maxStampStep).Milliseconds()
}

// until answers how long it is until cluster time reads ms; 0 when it does.
func (c *clock) until(ms int64) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	ahead := ms - c.lastMS
	if ahead > maxStampStep.Milliseconds() {
		return maxStampStep // not to be read at all without another stamp
	}
	return max(0, time.Duration(ahead)*time.Millisecond-time.Since(c.at))
}
