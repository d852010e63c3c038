//go:build processes && linux

package main

import (
	"testing"
	"time"
)

// stopWithin is how soon a node must be gone after SIGTERM.
const stopWithin = 5 * time.Second

// TestRollingRestart stops and starts one node after another under a crowd of
// clients, which must not notice more than a slow reply.
func TestRollingRestart(t *testing.T) {
	c := startProcesses(t, testProgram)
	f := startFleet(t, c.client, "db", 50, 200)
	f.unchanged(t, 0)
	for round := range 4 {
		for node := range c.running {
			led := c.leader(t.Context()) == node
			took := c.running[node].terminate(t, stopWithin)
			first, _ := others(node)
			f.unchanged(t, first) // while it is away
			c.start(node)
			c.waitReady(node)
			f.goOn(t)
			f.unchanged(t, node)
			t.Logf("round %d: n%d (leader: %v) ended %v after SIGTERM", round+1, node+1, led, took.Round(time.Millisecond))
		}
	}
	f.finish(t)
	sameState(t, c)
}
