package cluster

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/backup"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
)

// diesRestoring kills a node in the middle of a restore: Raft has stored the snapshot of the
// backup, and not yet the entry after it.
func (c *nodes) diesRestoring(n *testNode, file []byte) (index uint64) {
	c.t.Helper()
	config := n.raft().GetConfiguration()
	c.must(config.Error())
	term := n.raft().CurrentTerm()
	c.kill(n)
	_, state, err := backup.Read(bytes.NewReader(file))
	c.must(err)
	by := fsm.Succession{}
	n.View(func(m *fsm.Machine) { by.Own, by.Index = m.Standing(), m.Index()+1000 })
	c.must(state.Succeed(by))
	sink, err := n.store.Snapshots().Create(raft.SnapshotVersionMax, by.Index, term, config.Configuration(), config.Index(), nil)
	c.must(err)
	c.must(replica.WriteSnapshot(sink, by.Index, state.Freeze()))
	c.must(sink.Close())
	return by.Index
}

// TestLeaderDiesInsideARestore: the others go on with the old state, and the node that comes
// back follows them, though its newest snapshot is ahead of their entries.
func TestLeaderDiesInsideARestore(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("db", 9)
		file := c.backupOf(c.leader())
		c.semaphore("later", 9)
		old := c.leader()
		c.diesRestoring(old, file)
		c.do(c.leader(), fsm.Up{Name: "later", Count: 1}, fsm.OK)
		c.revive(old)
		c.until("it is ready", old.Ready)
		c.agree()
		if value, _ := machineValue(old.replica, "later"); value != 10 {
			t.Errorf("it has %d", value)
		}
		if kept, err := old.store.Snapshots().List(); err != nil || len(kept) > 0 && kept[0].Index > old.raft().LastIndex() {
			t.Errorf("it still has the snapshot: %v, %v", kept, err)
		}
	})
}

// TestAllDieInsideARestore: the restore came to nothing, and no acknowledged change is lost.
func TestAllDieInsideARestore(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("db", 9)
		file := c.backupOf(c.leader())
		c.semaphore("later", 9)
		c.agree()
		for _, n := range c.all {
			if n == c.all[0] {
				c.diesRestoring(n, file)
			} else {
				c.kill(n)
			}
		}
		for _, n := range c.all {
			c.revive(n)
		}
		if view, _ := c.read(c.leader(), "later"); view.Permits != 9 {
			t.Errorf("an acknowledged semaphore: %+v", view)
		}
		c.agree()
	})
}

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

// TestCoveredEntriesAreRefused: where the log does not make up for the state of a restore, a
// node keeps it, stores and acknowledges no entry of the others that went on without it, never
// shows it, and says what to do.
func TestCoveredEntriesAreRefused(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("db", 9)
		file := c.backupOf(c.leader())
		c.semaphore("later", 9)
		old := c.leader()
		covered := c.diesRestoring(old, file)
		last, err := old.store.Logs().LastIndex()
		c.must(err)
		c.must(old.store.Logs().DeleteRange(1, last-1))
		c.do(c.leader(), fsm.Up{Name: "later", Count: 1}, fsm.OK)
		c.revive(old)
		reason := ""
		c.until("it says why it is not ready", func() bool {
			for _, check := range old.Checks() {
				if check.Name == "caught-up" && !check.OK {
					reason = check.Detail
				}
			}
			return strings.Contains(reason, "restore")
		})
		for range 20 {
			c.do(c.leader(old), fsm.Up{Name: "later", Count: 1}, fsm.OK)
		}
		time.Sleep(time.Minute) // virtual: the leader comes down to the entries that both have
		if now, err := old.store.Logs().LastIndex(); err != nil || now != last || now >= covered {
			t.Errorf("its log went from %d to %d, %v", last, now, err)
		}
		if _, found := machineValue(old.replica, "db"); found || old.Ready() {
			t.Error("it shows a state that is not in force")
		}
		if !strings.Contains(reason, "empty its data folder") {
			t.Errorf("its reason: %s", reason)
		}
	})
}
