package cluster

import (
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/cluster/replica"
)

// joinDiverged makes a stopped node's state differ from what its log says, as an
// error of the machine or of the disk would: it gets a snapshot of another state.
func joinDiverged(c *lifeNodes, n *testNode) {
	c.t.Helper()
	f := replica.New(replica.Config{}).FSM(replica.FSMConfig{
		Fatal: c.must, SnapshotDue: func() {},
	})
	logs := n.store.Logs()
	first, err := logs.FirstIndex()
	c.must(err)
	last, err := logs.LastIndex()
	c.must(err)
	var entry raft.Log
	var servers raft.Configuration
	for index := first; index <= last; index++ {
		entry = raft.Log{}
		c.must(logs.GetLog(index, &entry))
		if entry.Type == raft.LogConfiguration {
			servers = raft.DecodeConfiguration(entry.Data)
		}
		if index == last-2 && entry.Type == raft.LogCommand {
			entry.Data = replica.EncodeTermEntry(entry.Term, 1, nil) // another one than the others have
		}
		f.ApplyBatch([]*raft.Log{&entry})
	}
	snapshot, err := f.Snapshot()
	c.must(err)
	sink, err := n.store.Snapshots().Create(1, last, entry.Term, servers, first, nil)
	c.must(err)
	c.must(snapshot.Persist(sink))
}

// TestNodeThatComesBackComparesItsState with the others' at the last index that it
// has, whichever that is.
func TestNodeThatComesBackComparesItsState(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		leases := c.holding(c.leader(), 5)
		c.ready(c.all...)
		n := c.others(c.leader())[0]
		if len(leases(n)) != 5 {
			t.Fatal("the node trails")
		}
		c.kill(n)
		if last, err := n.store.Logs().LastIndex(); err != nil || last >= replica.HashEvery {
			t.Fatalf("the log has come to %d, %v: the test shows nothing", last, err)
		}
		joinDiverged(c, n)
		c.begin(n)
		c.until("it stops", func() bool {
			if n.Ready() {
				t.Fatal("it is ready with another state than the others'")
			}
			return c.fatal(n.id) != nil
		})
		if err := c.fatal(n.id); !errors.Is(err, membership.ErrStateDiffers) || !strings.Contains(err.Error(), "state hashes at index") {
			t.Errorf("it stops for: %v", err)
		}
		for _, other := range c.others(n) {
			if !other.Ready() {
				t.Errorf("%s is not ready: %+v", other.id, other.Checks())
			}
		}
	})
}
