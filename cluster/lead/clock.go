package lead

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// TickEvery bounds how much lease time a new leader grants twice, since its clock starts at the last stamp.
	TickEvery = 500 * time.Millisecond
	// tickAgain is the pause after a tick that failed.
	tickAgain = 20 * time.Millisecond
	// maxEntryTime is how long cluster time goes on while entries are in flight and no entry is applied: see clock. The
	// leader may be cut off. Two round trips over a slow link take less.
	maxEntryTime = time.Second
)

// clock is a leader's reading of cluster time, in milliseconds: the last stamp, and the time since then on this node's
// monotonic clock. It never goes back, and does not use the wall clock. It counts whole milliseconds, so that the
// difference of two stamps can be up to one millisecond less than the real time between them. Safe for concurrent use.
//
// Time stands still while the log does: when entries are in flight and no entry has come back for maxEntryTime. During
// that time renewals queue up, and sessions must not end before the log has them. So a renewal that has reached the
// leader is late by maxEntryTime at most, no matter how long it takes to store or apply an entry.
type clock struct {
	read     func() time.Time // monotonic
	mu       sync.Mutex
	lastMS   int64     // the last stamp
	at       time.Time // when the last stamp was taken, minus the fraction of a millisecond that the stamp dropped
	inFlight int       // entries that were proposed and not yet applied
	moved    time.Time // when the first of these entries was proposed, or when the last entry was applied
	held     bool      // time stands still
}

// newClock returns a clock that starts at the replica's cluster time, when a node has won an election. read is the
// node's clock.
func newClock(nowMS int64, read func() time.Time) *clock {
	return &clock{read: read, lastMS: nowMS, at: read()}
}

// stamp returns the time for the next entry. Later readings are not lower.
func (c *clock) stamp() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.advance()
}

// advance counts the time since the last stamp. The caller holds mu.
func (c *clock) advance() int64 {
	passed := c.passed()
	if passed > replica.MaxStampStep {
		c.lastMS += replica.MaxStampStep.Milliseconds()
		c.at = c.at.Add(passed) // the stalled time never counts
		return c.lastMS
	}
	whole := passed.Truncate(time.Millisecond)
	c.lastMS += whole.Milliseconds()
	c.at = c.at.Add(whole) // the fraction of a millisecond counts for the next stamp
	return c.lastMS
}

// entryProposed counts an entry in flight. The caller must call it before the entry's stamp.
func (c *clock) entryProposed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inFlight == 0 {
		c.moved = c.read()
	}
	c.inFlight++
}

// entryFinished ends the flight of an entry that was applied or has failed.
func (c *clock) entryFinished() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(c.stalled()) // the stalled time never counts
	c.inFlight--
	c.moved = c.read()
}

// stalled returns how long time has stood still because no entry was applied. The caller holds mu.
func (c *clock) stalled() time.Duration {
	if c.inFlight == 0 {
		return 0
	}
	return max(0, c.read().Sub(c.moved)-maxEntryTime)
}

// passed returns how much of the time since the last stamp counts. The caller holds mu.
func (c *clock) passed() time.Duration {
	if c.held {
		return 0
	}
	return c.read().Sub(c.at) - c.stalled()
}

// hold stops cluster time, or lets it continue. The time in between never counts.
func (c *clock) hold(held bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.held == held:
	case held:
		c.advance()
		c.held = true
	default:
		c.held, c.at, c.moved = false, c.read(), c.read()
	}
}

// holds reports whether time stands still.
func (c *clock) holds() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

// now returns the time without making a stamp. Later stamps are not lower.
func (c *clock) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastMS + min(c.passed(), replica.MaxStampStep).Milliseconds()
}

// until returns how long it takes until cluster time is ms; 0 if it is ms or later.
func (c *clock) until(ms int64) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	ahead := ms - c.lastMS
	if ahead > replica.MaxStampStep.Milliseconds() {
		return replica.MaxStampStep // the clock cannot read ms without another stamp
	}
	return max(0, time.Duration(ahead)*time.Millisecond-c.passed())
}

// ticker logs entries without commands: when the deadline of a session has come, at once while the last entry has left
// work, and every 500 ms while sessions exist and no other entry is logged. The machine ends sessions at each entry;
// the ticker only ensures that there is an entry. Without sessions, and while time stands still, it logs no entry.
type ticker struct {
	replica  *replica.Replica
	proposer *proposer
	news     wake.Signal // deadlines may have moved
}

func newTicker(r *replica.Replica, p *proposer) *ticker {
	return &ticker{replica: r, proposer: p, news: wake.NewSignal()}
}

// run ticks until ctx ends.
func (t *ticker) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait, needed := t.next()
		if needed && wait <= 0 {
			wait, needed = t.tick(ctx)
		}
		if needed {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		select {
		case <-t.news:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// tick logs an entry, waits until it is applied, and returns when to check again: at once, since more sessions may be
// due, or after a pause if it failed.
func (t *ticker) tick(ctx context.Context) (wait time.Duration, needed bool) {
	if _, err := t.proposer.ProposeTick(ctx); err != nil {
		return tickAgain, true
	}
	return 0, true
}

// next returns how long it takes until an entry is needed; needed is false if no entry will be.
func (t *ticker) next() (wait time.Duration, needed bool) {
	if t.replica.MoreDue() {
		return 0, true
	}
	deadline, ok := t.replica.NextDeadline()
	if !ok {
		return 0, false
	}
	if t.proposer.clock.holds() {
		return TickEvery, true // check again, because the clock does not report when it continues
	}
	return min(t.proposer.clock.until(deadline), TickEvery-t.proposer.IdleFor()), true
}

const (
	// beatEvery is how often the pulse beats.
	beatEvery = 100 * time.Millisecond
	// stoodStill is the time without a beat after which the process counts as suspended.
	stoodStill = 250 * time.Millisecond
	// hangUpGrace is how long commands wait after a suspension, so that the node notices which clients have hung up
	// before it sends their requests.
	hangUpGrace = 50 * time.Millisecond
)

// Pulse detects that the process was suspended. Clients may have given up meanwhile, and the process reads their
// requests before it notices that they hung up. Pulse delays no command before Run is called. Safe for concurrent use.
type Pulse struct {
	epoch   time.Time
	beaten  atomic.Int64 // the last beat, in ns since epoch; 0 before the first
	resumed atomic.Int64 // when the process continued, in ns since epoch; 0 if it was never suspended
}

// NewPulse returns a pulse that does not run yet.
func NewPulse() *Pulse { return &Pulse{epoch: time.Now()} }

// Run beats until ctx ends.
func (p *Pulse) Run(ctx context.Context) {
	defer p.beaten.Store(0)
	for {
		p.beat(time.Since(p.epoch))
		if wake.Pause(ctx, wake.Next(beatEvery)) != nil {
			return
		}
	}
}

// beat records that the process runs.
func (p *Pulse) beat(now time.Duration) {
	last := p.beaten.Load()
	if last > 0 && now-time.Duration(last) > stoodStill {
		p.resumed.Store(int64(now))
	}
	p.beaten.Store(max(int64(now), 1))
}

// resumeDelay returns how long commands still have to wait.
func (p *Pulse) resumeDelay(now time.Duration) time.Duration {
	last := p.beaten.Load()
	switch resumed := p.resumed.Load(); {
	case last == 0:
		return 0
	case now-time.Duration(last) > stoodStill: // the process was suspended, and the next beat will detect it
		return hangUpGrace
	case resumed == 0:
		return 0
	default:
		return max(0, time.Duration(resumed)+hangUpGrace-now)
	}
}

// WaitResumed blocks while commands have to wait, or until stop is closed.
func (p *Pulse) WaitResumed(stop <-chan struct{}) {
	for {
		wait := p.resumeDelay(time.Since(p.epoch))
		if wait <= 0 {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-stop:
			timer.Stop()
			return
		}
	}
}
