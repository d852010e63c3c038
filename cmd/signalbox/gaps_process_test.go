//go:build processes && linux

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	signalbox "github.com/signalbox/signalbox/client"
)

// probes are Go clients that each add to a different semaphore, one call after another, and measure each call. The
// longest call is the gap in service that a client has noticed.
type probes struct {
	running sync.WaitGroup

	mu    sync.Mutex
	calls int
	worst time.Duration // since the last turn
	gaps  []time.Duration
}

// startProbes starts a number of clients, each of which prefers another node. They end with ctx.
func startProbes(ctx context.Context, t *testing.T, addresses []string, count int) *probes {
	t.Helper()
	p := &probes{}
	for i := range count {
		order := append(slices.Clone(addresses[i%len(addresses):]), addresses[:i%len(addresses)]...)
		c, err := signalbox.New(signalbox.Config{Addresses: order, InOrder: true})
		must(t, err)
		name := fmt.Sprintf("probe-%d", i)
		_, _, err = c.Create(ctx, name, 0)
		must(t, err)
		p.running.Go(func() {
			for n := int64(1); ctx.Err() == nil; n++ {
				began := time.Now()
				if value, err := c.Up(context.WithoutCancel(ctx), name, 1); err != nil || value != n {
					t.Errorf("%s: the value is %d after %d calls, %v", name, value, n, err)
					return
				}
				p.took(time.Since(began))
			}
		})
	}
	return p
}

func (p *probes) took(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	p.worst = max(p.worst, d)
}

// turn ends the measurement around one restart, and begins the next.
func (p *probes) turn() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	gap := p.worst
	p.gaps, p.worst = append(p.gaps, gap), 0
	return gap
}

// report prints the gaps, and holds their 99th percentile to a bound.
func (p *probes) report(t *testing.T, limit time.Duration) {
	t.Helper()
	p.running.Wait()
	slices.Sort(p.gaps)
	at := func(share int) time.Duration { return p.gaps[(len(p.gaps)-1)*share/100].Round(time.Millisecond) }
	t.Logf("%d restarts, %d calls of probes; the longest call around a restart: p50 %v, p99 %v, at most %v", len(p.gaps), p.calls, at(50), at(99), at(100))
	if limit > 0 && at(99) > limit {
		t.Errorf("around one of 100 restarts a client waits %v, more than %v", at(99), limit)
	}
}
