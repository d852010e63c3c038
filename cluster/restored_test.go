package cluster

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/backup"
	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

// restoredFlag makes nodes start as restored.
func restoredFlag(config *Config) { config.Restored = true }

// restoredCopies stops nodes and copies their folders: a backup.
func restoredCopies(c *lifeNodes) map[string]string {
	c.t.Helper()
	copies := map[string]string{}
	for _, n := range c.all {
		c.kill(n)
		c.must(n.store.Close())
		copies[n.id] = c.t.TempDir()
		c.must(os.CopyFS(copies[n.id], os.DirFS(n.store.Path())))
		restoredOpen(c, n, n.store.Path())
	}
	return copies
}

func restoredOpen(c *lifeNodes, n *testNode, folder string) {
	c.t.Helper()
	var err error
	n.store, err = store.Open(store.Options{NodeID: n.id, Folder: folder, Journal: true})
	c.must(err)
}

// restoredPutBack stops nodes and gives them the copies of their folders.
func restoredPutBack(c *lifeNodes, copies map[string]string) {
	c.t.Helper()
	for _, n := range c.all {
		c.kill(n)
		c.must(n.store.Close())
		restoredOpen(c, n, copies[n.id])
	}
}

// restoredTokens acquires and releases so often, and returns the last token.
func restoredTokens(c *lifeNodes, count int) (token uint64) {
	c.t.Helper()
	n := c.leader()
	session := c.open(n, time.Hour)
	for range count {
		reply := c.do(n, fsm.Acquire{Session: session, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}, fsm.OK)
		token = reply.Grants[0].Token
		c.do(n, fsm.Release{Session: session, Name: "db"}, fsm.OK)
	}
	return token
}

// TestNoTokenIsGivenTwiceAfterARestore: also not when all nodes are restarted before
// they had a leader, and at the next restart all goes on without another jump.
func TestNoTokenIsGivenTwiceAfterARestore(t *testing.T) {
	for _, count := range []int{1, 3} {
		lifeBubble(t, count, func(t *testing.T, c *lifeNodes) {
			c.bolt = true
			c.begin(c.all...)
			c.semaphore("db", 9)
			restoredTokens(c, 5)
			copies := restoredCopies(c)
			c.begin(c.all...)
			last := restoredTokens(c, 5)
			restoredPutBack(c, copies)
			c.setups = append(c.setups, restoredFlag)
			if count == 1 { // it leads as soon as it has started
				c.begin(c.all...)
				c.kill(c.all[0])
			}
			for _, n := range c.all[1:] { // one at a time, so that there is no majority
				c.begin(n)
				c.kill(n)
			}
			c.setups = c.setups[:0]
			c.begin(c.all...)
			first := restoredTokens(c, 1)
			if first <= last+1<<31 {
				t.Errorf("%d nodes: token %d after %d", count, first, last)
			}
			for _, n := range c.all {
				c.until(n.id+" knows that it is dealt with", func() bool { return n.store.Restored() == 0 })
				c.kill(n)
			}
			c.begin(c.all...)
			if next := restoredTokens(c, 1); next <= first || next > first+1<<31 {
				t.Errorf("%d nodes: token %d after %d, without a restore", count, next, first)
			}
		})
	}
}

// TestPutBackCopiesPassALostRestore: the copies are older than a restore of a backup, whose
// state has given tokens.
func TestPutBackCopiesPassALostRestore(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.bolt = true
		c.begin(c.all...)
		c.semaphore("db", 9)
		restoredTokens(c, 5)
		copies := restoredCopies(c)
		c.begin(c.all...)
		file := c.backupOf(c.leader())
		_, err := c.leader().Restore(t.Context(), bytes.NewReader(file), backup.Order{})
		c.must(err)
		last := restoredTokens(c, 5)
		restoredPutBack(c, copies)
		c.setups = append(c.setups, restoredFlag)
		c.begin(c.all...)
		if first := restoredTokens(c, 1); first <= last {
			t.Errorf("token %d after %d", first, last)
		}
	})
}

// TestSecondRestoreJumpsAgain: the entry with which the first one was dealt with is in
// the folder that is put back, and must not count for the second.
func TestSecondRestoreJumpsAgain(t *testing.T) {
	lifeBubble(t, 1, func(t *testing.T, c *lifeNodes) {
		c.bolt = true
		c.begin(c.all...)
		c.semaphore("db", 9)
		last := restoredTokens(c, 1)
		for range 2 {
			copies := restoredCopies(c)
			c.setups = append(c.setups, restoredFlag)
			restoredPutBackStopped(c, copies)
			c.begin(c.all...)
			c.ready(c.all...)
			if next := restoredTokens(c, 1); next <= last+1<<31 {
				t.Errorf("token %d after %d", next, last)
			} else {
				last = next
			}
			c.setups = c.setups[:0]
			c.kill(c.all[0])
			c.begin(c.all...)
		}
	})
}

// restoredPutBackStopped is restoredPutBack for nodes that do not run.
func restoredPutBackStopped(c *lifeNodes, copies map[string]string) {
	c.t.Helper()
	for _, n := range c.all {
		c.must(n.store.Close())
		restoredOpen(c, n, copies[n.id])
	}
}

// TestRestoredNodeIsRefusedBesideLiveOnes that were not restored: it may have
// forgotten what it has acknowledged to them.
func TestRestoredNodeIsRefusedBesideLiveOnes(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		n := c.all[2]
		c.kill(n)
		c.net.Rejoin(n.id)
		time.Sleep(5 * time.Second) // virtual: its last process counts as dead
		config := Config{NodeID: n.id, Bind: n.id + ":8711", Network: c.net.Host(n.id), Store: n.store, Restored: true,
			Peers: []Peer{{ID: "n1", Address: "n1:8711"}, {ID: "n2", Address: "n2:8711"}, {ID: "n3", Address: "n3:8711"}}}
		node, err := Start(t.Context(), config)
		if err == nil {
			n.Node, n.up = node, true
			t.Fatal("a restored node was started beside live ones")
		}
		for _, want := range []string{"member n1 at n1:8711 is alive and its folder was not restored", "member n2"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not say %q", err, want)
			}
		}
		if n.store.Restored() != 0 {
			t.Error("the refused start has left its mark")
		}
		c.wipe(c.all[0])
		c.kill(c.all[1])
		c.setups = append(c.setups, restoredFlag)
		c.openStore(c.all[0])
		config.Store, config.NodeID, config.Bind, config.Network = c.all[0].store, "n1", "n1:8711", c.net.Host("n1")
		c.net.Rejoin("n1")
		if _, err := Start(t.Context(), config); err == nil || !strings.Contains(err.Error(), "empty") {
			t.Errorf("an empty folder was started as restored: %v", err)
		}
	})
}

// joinDiverged makes a stopped node's state differ from what its log says, as an
// error of the machine or of the disk would: it gets a snapshot of another state.
func joinDiverged(c *lifeNodes, n *testNode) {
	c.t.Helper()
	f := replica.New(replica.Config{}).Feed(replica.FeedConfig{
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
			entry.Data = replica.EncodeEntry(entry.Term, 1, nil) // another one than the others have
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
