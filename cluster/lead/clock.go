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
	// TickEvery bounds the lease time that a new leader, which starts from the last
	// stamp, hands out again.
	TickEvery = 500 * time.Millisecond
	// tickAgain is the pause after a tick that failed.
	tickAgain = 20 * time.Millisecond
	// maxEntryTime is how much time an entry may take from its proposal, or from the
	// return of the one before it, until it is applied. Time that an entry takes
	// beyond that does not count: see clock. It is more than two round trips over a
	// slow link take.
	maxEntryTime = time.Second
)

// clock is a leader's reading of cluster time, in milliseconds: the last stamp
// and the time since then on this node's monotonic clock. It never goes back,
// and no wall clock takes part. It counts whole milliseconds, so that a span
// between two stamps can be up to one shorter than it really was. Safe for
// concurrent use.
//
// Time stands still while the log does: while entries are on their way and not one
// has come back for maxEntryTime. Renewals queue up meanwhile, and sessions must
// not end before the log has taken them. So a renewal that has reached the leader
// is late by maxEntryTime at most, however long an entry applies or is stored.
type clock struct {
	read   func() time.Time // monotonic
	mu     sync.Mutex
	lastMS int64     // the last stamp
	at     time.Time // when it was taken, less the part below a millisecond that was cut off
	flying int       // entries on their way
	moved  time.Time // when the first of them left, or the last one came back
	held   bool      // time stands still
}

// newClock starts at the replica's cluster time, when a node has won an election. read is
// the node's clock.
func newClock(nowMS int64, read func() time.Time) *clock {
	return &clock{read: read, lastMS: nowMS, at: read()}
}

// stamp returns the time for the next entry. Later readings are not before it.
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
		c.at = c.at.Add(passed) // the rest is lost, never made up
		return c.lastMS
	}
	whole := passed.Truncate(time.Millisecond)
	c.lastMS += whole.Milliseconds()
	c.at = c.at.Add(whole) // the rest counts for the next one
	return c.lastMS
}

// leaves notes that an entry sets out for the log. It comes before the entry's stamp.
func (c *clock) leaves() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flying == 0 {
		c.moved = c.read()
	}
	c.flying++
}

// returns notes that an entry is applied, or has failed.
func (c *clock) returns() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(c.stalled()) // lost, never made up
	c.flying--
	c.moved = c.read()
}

// stalled returns how long time has stood still because no entry has come back.
// The caller holds mu.
func (c *clock) stalled() time.Duration {
	if c.flying == 0 {
		return 0
	}
	return max(0, c.read().Sub(c.moved)-maxEntryTime)
}

// passed returns the time since the last stamp, as far as it counts. The caller
// holds mu.
func (c *clock) passed() time.Duration {
	if c.held {
		return 0
	}
	return c.read().Sub(c.at) - c.stalled()
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
		c.held, c.at, c.moved = false, c.read(), c.read()
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
	return c.lastMS + min(c.passed(), replica.MaxStampStep).Milliseconds()
}

// until returns how long it is until cluster time reads ms; 0 when it does.
func (c *clock) until(ms int64) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	ahead := ms - c.lastMS
	if ahead > replica.MaxStampStep.Milliseconds() {
		return replica.MaxStampStep // not to be read at all without another stamp
	}
	return max(0, time.Duration(ahead)*time.Millisecond-c.passed())
}

// ticker logs entries without commands: when a session's deadline has
// come, at once while the machine has work left over from the last entry, and every
// 500 ms while sessions exist and no other entry is logged. The machine ends sessions at
// each entry; the ticker only sees to it that there is one. Without sessions, and
// while time stands still, it logs no entry.
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

// tick logs an entry, waits until it is applied, and returns when to look again:
// at once, since more may be due, or after a pause if it failed.
func (t *ticker) tick(ctx context.Context) (wait time.Duration, needed bool) {
	if _, err := t.proposer.Tick(ctx); err != nil {
		return tickAgain, true
	}
	return 0, true
}

// next returns how long it is until an entry is needed, if one is.
func (t *ticker) next() (wait time.Duration, needed bool) {
	if t.replica.MoreDue() {
		return 0, true
	}
	deadline, ok := t.replica.NextDeadline()
	if !ok {
		return 0, false
	}
	if t.proposer.clock.holds() {
		return TickEvery, true // to look again: the clock does not say when it goes on
	}
	return min(t.proposer.clock.until(deadline), TickEvery-t.proposer.IdleFor()), true
}

const (
	// beatEvery is how often the pulse beats.
	beatEvery = 100 * time.Millisecond
	// stoodStill is how long the pulse may be without a beat before the process counts
	// as suspended meanwhile.
	stoodStill = 250 * time.Millisecond
	// hangUpGrace is how long after a suspension commands wait, so that the hang-ups
	// that came meanwhile are noticed before the requests that came before them are
	// sent.
	hangUpGrace = 50 * time.Millisecond
)

// Pulse finds out that the process was suspended: its clients may have given up
// meanwhile, and their requests are read before their hang-ups are noticed. Before it
// runs it holds no command up. Safe for concurrent use.
type Pulse struct {
	epoch   time.Time
	beaten  atomic.Int64 // the last beat, in ns since epoch; 0: not yet
	resumed atomic.Int64 // when the process went on, in ns since epoch; 0: never suspended
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

// beat notes that the process runs.
func (p *Pulse) beat(now time.Duration) {
	last := p.beaten.Load()
	if last > 0 && now-time.Duration(last) > stoodStill {
		p.resumed.Store(int64(now))
	}
	p.beaten.Store(max(int64(now), 1))
}

// hold returns for how long commands still have to wait.
func (p *Pulse) hold(now time.Duration) time.Duration {
	last := p.beaten.Load()
	switch resumed := p.resumed.Load(); {
	case last == 0:
		return 0
	case now-time.Duration(last) > stoodStill: // the beat is about to notice
		return hangUpGrace
	case resumed == 0:
		return 0
	default:
		return max(0, time.Duration(resumed)+hangUpGrace-now)
	}
}

// Settle blocks while commands have to wait, or until stop is closed.
func (p *Pulse) Settle(stop <-chan struct{}) {
	for {
		wait := p.hold(time.Since(p.epoch))
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
