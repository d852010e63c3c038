package cluster

import (
	"context"
	"time"
)

const (
	// tickEvery bounds what a new leader, which starts from the last stamp, hands
	// out of lease time again.
	tickEvery = 500 * time.Millisecond
	// tickAgain is the pause after a tick that failed.
	tickAgain = 20 * time.Millisecond
)

// ticker logs an entry without commands when a session's deadline has come, at once
// while the machine has work left over from the last entry, and
// every 500 ms while sessions exist and nothing else is logged. Expiry is done
// by the machine at each entry; the ticker only sees to it that there is one.
// Without sessions, and while time stands still, it logs nothing. One goroutine,
// run.
type ticker struct {
	machine  *machine
	proposer *proposer
	applied  chan struct{} // has room for one: deadlines may have moved
}

func newTicker(m *machine, p *proposer) *ticker {
	return &ticker{machine: m, proposer: p, applied: make(chan struct{}, 1)}
}

// poke tells that an entry was applied. It does not block.
func (t *ticker) poke() {
	signal(t.applied)
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
		case <-t.applied:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// tick logs an entry, waits until it is applied, and answers when to look again:
// at once, since more may be due, or after a pause if it failed.
func (t *ticker) tick(ctx context.Context) (wait time.Duration, needed bool) {
	if _, err := t.proposer.tick(ctx); err != nil {
		return tickAgain, true
	}
	return 0, true
}

// next answers how long there is until an entry is needed, if one is.
func (t *ticker) next() (wait time.Duration, needed bool) {
	if t.machine.moreDue() {
		return 0, true
	}
	deadline, ok := t.machine.nextDeadline()
	if !ok {
		return 0, false
	}
	if t.proposer.clock.holds() {
		return tickEvery, true // to look again: the clock does not say when it goes on
	}
	return min(t.proposer.clock.until(deadline), tickEvery-t.proposer.idleFor()), true
}
