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

// maxEntryTime is how much time an entry may take from its proposal, or from the
// return of the one before it, until it is applied. Time that an entry takes
// beyond that does not count: see clock. It is more than two round trips over a
// slow link take.
const maxEntryTime = time.Second

// clock is a leader's reading of cluster time, in milliseconds: the last stamp
// and the time since then on this node's monotonic clock. It never goes back,
// and no wall clock takes part. It counts whole milliseconds, so that a span
// between two stamps can be up to one shorter than it really was. Safe for
// concurrent use.
//
// Time stands still while the log does: while entries are on their way and none
// has come back for maxEntryTime. Renewals queue up meanwhile, and sessions must
// not end before the log has taken them. So a renewal that has reached the leader
// is late by maxEntryTime at most, however long an entry applies or is stored.
type clock struct {
	mu     sync.Mutex
	lastMS int64     // the last stamp
	at     time.Time // when it was taken, less what was cut off below a millisecond
	flying int       // entries on their way
	moved  time.Time // when the first of them left, or the last one came back
	held   bool      // time stands still
}

// newClock starts at the machine's cluster time, when a node has won.
func newClock(machineMS int64) *clock {
	return &clock{lastMS: machineMS, at: time.Now()}
}

// stamp answers the time for the next entry. Later readings are not before it.
func (c *clock) stamp() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.advance()
}

// advance counts the time since the last stamp. The caller holds mu.
func (c *clock) advance() int64 {
	passed := c.passed()
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

// leaves notes that an entry sets out for the log, before it is stamped.
func (c *clock) leaves() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flying == 0 {
		c.moved = time.Now()
	}
	c.flying++
}

// returns notes that an entry is applied, or has failed.
func (c *clock) returns() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(c.stalled()) // lost, never made up
	c.flying--
	c.moved = time.Now()
}

// stalled returns how long time has stood still because no entry has come back.
// The caller holds mu.
func (c *clock) stalled() time.Duration {
	if c.flying == 0 {
		return 0
	}
	return max(0, time.Since(c.moved)-maxEntryTime)
}

// passed returns the time since the last stamp, as far as it counts. The caller
// holds mu.
func (c *clock) passed() time.Duration {
	if c.held {
		return 0
	}
	return time.Since(c.at) - c.stalled()
}

// hold makes time stand still from now on, or go on. What passes meanwhile never
// happened in cluster time.
func (c *clock) hold(held bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.held == held:
	case held:
		c.advance()
		c.held = true
	default:
		c.held, c.at, c.moved = false, time.Now(), time.Now()
	}
}

// holds reports whether time stands still.
func (c *clock) holds() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

// now reads the time without a stamp. Later stamps are not before it.
func (c *clock) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastMS + min(c.passed(), maxStampStep).Milliseconds()
}

// until answers how long it is until cluster time reads ms; 0 when it does.
func (c *clock) until(ms int64) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	ahead := ms - c.lastMS
	if ahead > maxStampStep.Milliseconds() {
		return maxStampStep // not to be read at all without another stamp
	}
	return max(0, time.Duration(ahead)*time.Millisecond-c.passed())
}
