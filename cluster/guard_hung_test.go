package cluster

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/fsm"
)

// TestHungLeaderGivesItsQueueBack: commands and reads that wait at a leader whose disk
// hangs, of its own callers and of other nodes, are carried out by the next leader; only
// the commands that Raft had taken have no outcome.
func TestHungLeaderGivesItsQueueBack(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		logs := map[string]*hungLogs{}
		c.wrap = func(id string) func(raft.LogStore) raft.LogStore {
			logs[id] = &hungLogs{}
			return logs[id].wrap
		}
		c.begin(c.all...)
		c.ready(c.all...)
		c.semaphore("db", 0)
		leader, follower := c.leader(), c.follower()
		logs[leader.id].hang()
		up := Call{Command: fsm.Up{Name: "db", Count: 1}}
		var flying []<-chan answer
		for range 2 { // each an entry of its own; cluster/lead has no more in flight
			flying = append(flying, background(t.Context(), leader, up))
			time.Sleep(20 * time.Millisecond) // virtual
		}
		var waiting []<-chan answer
		for range 20 {
			waiting = append(waiting, background(t.Context(), leader, up), background(t.Context(), follower, up))
		}
		time.Sleep(stallLimit / 2) // virtual: they lie there before anything is noticed
		waiting = append(waiting, background(t.Context(), leader, up))
		next := c.leader(leader)
		for i, w := range waiting {
			if got := <-w; got.err != nil {
				t.Errorf("command %d, which was never given to Raft: %v", i, got.err)
			}
		}
		if _, err := leader.Read(t.Context(), Consistency{Stale: true}); err != nil {
			t.Error(err)
		}
		if got, err := leader.Do(t.Context(), up); err != nil || got.Code != fsm.OK {
			t.Errorf("a command that comes while the disk hangs: %v, %v", got.Code, err)
		}
		if value, _ := c.read(next, "db"); value.Available < int64(len(waiting)+1) || value.Available > int64(len(waiting)+1+len(flying)) {
			t.Errorf("%d were applied of %d and %d that nobody knows of", value.Available, len(waiting)+1, len(flying))
		}
		logs[leader.id].release()
		for _, f := range flying {
			<-f
		}
		c.ready(c.all...)
		if got, err := leader.Do(t.Context(), up); err != nil || got.Code != fsm.OK {
			t.Errorf("once the disk goes on: %v, %v", got.Code, err)
		}
	})
}
