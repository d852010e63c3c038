package cluster

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// beatEvery is how often the pulse beats.
	beatEvery = 50 * time.Millisecond
	// stoodStill is how long the pulse may be without a beat before the process counts
	// as suspended meanwhile.
	stoodStill = 200 * time.Millisecond
	// hangUpGrace is how long after a suspension commands wait, so that the hang-ups
	// that came meanwhile are noticed before the requests that came before them are
	// sent.
	hangUpGrace = 50 * time.Millisecond
)

// pulse finds out that the process was suspended: its clients may have given up
// meanwhile, and their requests are read before their hang-ups are noticed. Safe for
// concurrent use. A nil pulse, or one that has not begun, never holds anything up.
type pulse struct {
	epoch   time.Time
	beaten  atomic.Int64 // the last beat, in ns since epoch; 0: none
	resumed atomic.Int64 // when the process went on, in ns since epoch; 0: never suspended
}

func newPulse() *pulse { return &pulse{epoch: time.Now()} }

// run beats until ctx ends.
func (p *pulse) run(ctx context.Context) {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for {
		p.beat(time.Since(p.epoch))
		select {
		case <-ticker.C:
		case <-ctx.Done():
			p.beaten.Store(0)
			return
		}
	}
}

// beat notes that the process runs.
func (p *pulse) beat(now time.Duration) {
	last := p.beaten.Load()
	if last > 0 && now-time.Duration(last) > stoodStill {
		p.resumed.Store(int64(now))
	}
	p.beaten.Store(max(int64(now), 1))
}

// hold returns for how long commands still have to wait.
func (p *pulse) hold(now time.Duration) time.Duration {
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

// settle blocks while commands have to wait, or until stop is closed.
func (p *pulse) settle(stop <-chan struct{}) {
	if p == nil {
		return
	}
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
