package cluster

import (
	"testing"

	"github.com/hashicorp/raft"
)

// TestEntriesBeforeAStateInForceAreTaken: a leader sends them if the first one after a snapshot
// could not be stored.
func TestEntriesBeforeAStateInForceAreTaken(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("db", 9)
		n := c.leader()
		c.must(n.raft().Snapshot().Error())
		c.kill(n)
		kept, err := n.store.Snapshots().List()
		c.must(err)
		var entry raft.Log
		c.must(n.store.Logs().GetLog(kept[0].Index, &entry))
		c.must(n.store.Logs().DeleteRange(entry.Index, entry.Index))
		c.must(n.store.Logs().StoreLog(&entry))
		c.revive(n)
		c.until("it is ready", n.Ready)
	})
}
