//go:build processes && linux

package main

import (
	"context"
	"testing"
	"time"
)

const (
	// stopWithin is how soon a node must be gone after SIGTERM.
	stopWithin = 5 * time.Second
	// gapAtMost is how long a call may take around one of 100 restarts. It does not apply to a few restarts beside other
	// tests, where the gap depends more on the processors than on the nodes.
	gapAtMost   = 250 * time.Millisecond
	rollsForGap = 25
)

// TestRollingRestart stops and starts one node after another under many clients. They must not notice more than a slow
// reply.
func TestRollingRestart(t *testing.T) {
	c := startProcesses(t, testProgram)
	f := startFleet(t, c.client, "db", 50, 200)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	p := startProbes(ctx, t, c.bases, 6)
	f.unchanged(t, 0)
	for round := range *rolls {
		for node := range c.running {
			led := c.leader(t.Context()) == node
			took := c.running[node].terminate(t, stopWithin)
			first, _ := others(node)
			f.unchanged(t, first) // while it is away
			c.start(node)
			c.waitReady(node)
			f.goOn(t)
			f.unchanged(t, node)
			t.Logf("round %d: n%d (leader: %v) ended %v after SIGTERM; the longest call took %v", round+1, node+1, led, took.Round(time.Millisecond), p.turn().Round(time.Millisecond))
		}
	}
	stop()
	f.finish(t)
	limit := gapAtMost
	if *rolls < rollsForGap {
		limit = 0
	}
	p.report(t, limit)
	sameState(t, c)
}
