package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/forward"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
)

// TestSlowNetwork: nodes that are 300 ms from each other form a cluster, keep their
// leader, take a wiped node back, hand over, and replace the leader, when the
// multiplier fits.
func TestSlowNetwork(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.setups = append(c.setups, func(config *Config) { config.RaftMultiplier = 5 })
		for _, a := range c.all {
			for _, b := range c.all {
				if a != b {
					c.net.Host(a.id)
					c.net.Delay(a.id, b.id, 300*time.Millisecond)
				}
			}
		}
		began := time.Now()
		c.begin(c.all...)
		c.ready(c.all...)
		t.Logf("formed in %v", time.Since(began))
		leader := c.leader()
		term := leader.raft().CurrentTerm()
		c.semaphore("a", 5)
		time.Sleep(5 * time.Minute) // virtual: whoever loses the leader would campaign
		if now := leader.raft().CurrentTerm(); now != term || leader.established() == nil {
			t.Errorf("term %d has become %d", term, now)
		}
		for _, n := range c.all {
			began = time.Now()
			c.do(n, fsm.Up{Name: "a", Count: 1}, fsm.OK)
			if took := time.Since(began); took > 1900*time.Millisecond { // three round trips, and a little
				t.Errorf("%s: a write took %v", n.id, took)
			}
		}
		wiped := c.others(leader)[0]
		c.wipe(wiped)
		c.begin(wiped)
		c.voting([]string{"n1", "n2", "n3"}, c.all...)
		c.ready(c.all...)
		c.until("the wiped node leads", func() bool { return leader.TransferLeadership(t.Context(), wiped.id) == nil })
		next := c.leader(leader)
		began = time.Now()
		waiting := background(t.Context(), c.others(next)[0], calls.Call{Command: fsm.Up{Name: "a", Count: 1}})
		c.kill(next)
		held := 5 * forward.HoldTimeout // elections may take longer, when the votes are split again and again
		if got := <-waiting; got.err != nil && (!errors.Is(got.err, outcome.ErrNoLeader) || time.Since(began) < held) {
			t.Errorf("a call while the leader was replaced: %v after %v", got.err, time.Since(began))
		}
		c.leader(next)
		c.revive(next)
		c.ready(c.all...)
	})
}
