package cluster

import (
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestIdleNodesShareMoments: heartbeats leave to all followers at the same moment, and all nodes look at the same moment
// whether they are caught up, so that an idle cluster wakes up a few times a second.
func TestIdleNodesShareMoments(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		var mu sync.Mutex
		moments := map[time.Time]bool{} // at which messages of the leader left
		c.setups = append(c.setups, func(config *Config) {
			config.fault = func(raft.ServerID, any) error {
				mu.Lock()
				defer mu.Unlock()
				moments[time.Now().Truncate(20*time.Millisecond)] = true
				return nil
			}
		})
		c.begin(c.all...)
		c.ready(c.all...)
		for _, n := range c.others(c.leader()) { // their reads began at other moments
			_, err := c.closeTook(n)
			c.must(err)
			time.Sleep(330 * time.Millisecond) // virtual
			c.begin(n)
			c.ready(n)
		}
		time.Sleep(5 * time.Second) // virtual
		mu.Lock()
		clear(moments)
		mu.Unlock()
		const seconds = 10
		looks := map[*testNode]*catchUp{}
		for range seconds * 100 {
			time.Sleep(10 * time.Millisecond) // virtual
			for _, n := range c.all {
				last, found := looks[n], n.running.Load().caughtUp.Load()
				if looks[n] = found; last != nil && last != found && time.Since(time.Now().Truncate(time.Second)) > 10*time.Millisecond {
					t.Errorf("%s found at %v that it is caught up", n.id, time.Now())
				}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if len(moments) > 10*seconds {
			t.Errorf("in %d s messages left at %d moments", seconds, len(moments))
		}
	})
}
