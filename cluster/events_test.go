package cluster

import (
	"errors"
	"slices"
	"testing"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
)

// TestEventsAfterARestart: a node that starts again has the history since its
// snapshot, under the same ids, and says that the rest is gone.
func TestEventsAfterARestart(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		holder := taken(c, "db")
		n := c.others(c.leader())[0]
		_, at := c.read(n, "db")
		before, err := n.EventsAfter(replica.EventID{})
		c.must(err)
		c.must(n.raft().Snapshot().Error())
		c.kill(n)
		c.do(c.leader(), fsm.Release{Session: holder, Name: "db"}, fsm.OK)
		c.revive(n)
		_, later := c.read(n, "db")
		if _, err := n.EventsAfter(replica.EventID{}); !errors.Is(err, outcome.ErrHistoryGone) {
			t.Errorf("what a snapshot has jumped over: %v", err)
		}
		if later.Index <= at.Index {
			t.Errorf("read index %d after the restart, %d before it", later.Index, at.Index)
		}
		c.until("both nodes show the same, once both have applied the same", func() bool {
			mine, err := n.EventsAfter(replica.EventID{Index: at.Index})
			c.must(err)
			others, err := c.leader().EventsAfter(replica.EventID{Index: at.Index})
			c.must(err)
			same := slices.EqualFunc(mine.Entries, others.Entries, func(a, b replica.EventEntry) bool {
				return a.Index == b.Index && len(a.Effects) == len(b.Effects)
			})
			return same && len(mine.Entries) > 0 && mine.Next == others.Next
		})
		if len(before.Entries) == 0 {
			t.Error("there was nothing to lose")
		}
	})
}
