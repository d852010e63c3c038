package cluster

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/raftlib"
	"github.com/signalbox/signalbox/cluster/watchdog"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

// watchdogDisk is the free space of one node.
type watchdogDisk struct{ full, spent, failing atomic.Bool }

func (d *watchdogDisk) space() (store.Space, error) {
	switch {
	case d.failing.Load():
		return store.Space{}, errors.New("no answer")
	case d.spent.Load():
		return store.Space{Free: 1 << 10, Low: true, Spent: true}, nil
	case d.full.Load():
		return store.Space{Free: 1 << 20, Low: true}, nil
	}
	return store.Space{Free: 1 << 40}, nil
}

// watchdogDisks gives each node a disk.
func watchdogDisks(c *lifeNodes) map[string]*watchdogDisk {
	disks := map[string]*watchdogDisk{}
	for _, n := range c.all {
		disks[n.id] = &watchdogDisk{}
	}
	c.setups = append(c.setups, func(config *Config) { config.space = disks[config.NodeID].space })
	return disks
}

// TestFullDiskGivesLeadershipUp, and writes go on through a node that has room; when
// no node has, they are refused until one has again.
func TestFullDiskGivesLeadershipUp(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		disks := watchdogDisks(c)
		c.begin(c.all...)
		c.ready(c.all...)
		c.semaphore("db", 1)
		up := func(n *testNode) error {
			_, err := n.Do(t.Context(), Call{Command: fsm.Up{Name: "db", Count: 1}})
			return err
		}
		first := c.leader()
		disks[first.id].full.Store(true)
		second := c.leader(first)
		disks[second.id].full.Store(true)
		third := c.leader(first, second)
		for _, n := range c.all {
			if err := up(n); err != nil {
				t.Errorf("%s, while the leader has room: %v", n.id, err)
			}
			if check := c.check(n, "storage"); !check.OK || strings.Contains(check.Detail, "nearly full") == (n == third) {
				t.Errorf("%s: storage %+v", n.id, check)
			}
		}
		disks[third.id].full.Store(true)
		c.until("it is noticed", func() bool { return third.running.Load().space().Low })
		disks[second.id].spent.Store(true)
		c.until("each node knows the disks of all", func() bool {
			for _, n := range c.all {
				for _, m := range n.Status().Members {
					if !m.Low || m.Spent != (m.ID == second.id) {
						return false
					}
				}
			}
			return true
		})
		disks[second.id].spent.Store(false)
		for _, n := range c.all {
			if err := up(n); !errors.Is(err, outcome.ErrStorageFull) {
				t.Errorf("%s, while nobody has room: %v", n.id, err)
			}
		}
		disks[first.id].full.Store(false)
		c.until("leadership goes where there is room", func() bool { return first.established() != nil })
		if err := up(second); err != nil {
			t.Errorf("while one has room again: %v", err)
		}
		for _, d := range disks {
			d.full.Store(false)
		}
		c.ready(c.all...)
		disks[first.id].failing.Store(true)
		time.Sleep(5 * time.Second) // virtual
		if !first.Ready() {
			t.Error("a question for the free space that fails is taken for a full disk")
		}
	})
}

// TestFrozenTargetEndsNoProcess: the target of a hand-over freezes, at whichever moment of it. The leader refuses
// writes until Raft's message to the target has failed, and goes on: that is not raft#696.
func TestFrozenTargetEndsNoProcess(t *testing.T) {
	refused := time.Duration(0)
	for moment := time.Duration(0); moment < 240*time.Millisecond; moment += 8 * time.Millisecond {
		lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
			c.begin(c.all...)
			c.ready(c.all...)
			c.semaphore("db", 0)
			leader := c.leader()
			target := c.others(leader)[0]
			c.net.Delay(leader.id, target.id, 40*time.Millisecond) // the moments are within the hand-over
			go func() { _ = leader.TransferLeadership(t.Context(), target.id) }()
			time.Sleep(moment) // virtual
			c.net.Isolate(target.id)
			began := time.Now()
			for time.Since(began) < 2*raftlib.TransferTimeout(1) {
				wrote := time.Now()
				c.do(c.leader(target), fsm.Up{Name: "db", Count: 1}, fsm.OK)
				refused = max(refused, time.Since(wrote))
				time.Sleep(50 * time.Millisecond) // virtual
			}
			for _, n := range c.all {
				if err := c.fatal(n.id); err != nil {
					t.Errorf("frozen after %v: %s: %v", moment, n.id, err)
				}
			}
		})
	}
	if refused <= 3*raftlib.Tick || refused > raftlib.TransferTimeout(1) {
		t.Errorf("writes waited for up to %v, at most %v by Raft's time-outs", refused, raftlib.TransferTimeout(1))
	}
}

// TestHungDisk: the others elect another leader within seconds, and after half a
// minute the process ends.
func TestHungDisk(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		logs := map[string]*hungLogs{}
		c.wrap = func(id string) func(raft.LogStore) raft.LogStore {
			logs[id] = &hungLogs{}
			return logs[id].wrap
		}
		c.begin(c.all...)
		c.ready(c.all...)
		c.semaphore("db", 1)
		leader := c.leader()
		logs[leader.id].hang()
		began := time.Now()
		hung := background(t.Context(), leader, Call{Command: fsm.Up{Name: "db", Count: 1}})
		next := c.leader(leader)
		if took := time.Since(began); took < stallLimit || took > 6*time.Second {
			t.Errorf("another leader after %v", took)
		}
		c.do(next, fsm.Up{Name: "db", Count: 1}, fsm.OK)
		if check := c.check(leader, "storage"); check.OK || leader.Ready() {
			t.Errorf("ready with a hung disk: %+v", check)
		}
		c.until("the process ends", func() bool { return c.fatal(leader.id) != nil })
		took := time.Since(began)
		if err := c.fatal(leader.id); !errors.Is(err, watchdog.ErrStuck) || took < 30*time.Second || took > 31*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
		logs[leader.id].release()
		<-hung
		c.ready(c.all...) // had it not ended
	})
}

// TestTransferThatHangsIsSeen: while Raft refuses everything because of a transfer,
// and no longer.
func TestTransferThatHangsIsSeen(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		c.semaphore("db", 1)
		leader := c.leader()
		target := c.others(leader)[0]
		if (watchedLeader{leader.running.Load()}).Transferring(t.Context()) {
			t.Error("a transfer is seen where there is none")
		}
		c.net.Partition(leader.id, target.id)
		transfer := leader.raft().LeadershipTransferToServer(raft.ServerID(target.id), raft.ServerAddress(target.id+":8711"))
		time.Sleep(50 * time.Millisecond) // virtual
		call := background(t.Context(), leader, Call{Command: fsm.Up{Name: "db", Count: 1}})
		c.until("it is seen", func() bool { return watchedLeader{leader.running.Load()}.Transferring(t.Context()) })
		c.net.Rejoin(target.id)
		if got := <-call; got.err != nil {
			t.Errorf("the command, in the end: %v", got.err)
		}
		_ = transfer.Error() // it came to an end, one way or the other
		c.until("it is over", func() bool { return !watchedLeader{c.leader().running.Load()}.Transferring(t.Context()) })
	})
}

// TestKeysGauges: how full the table of keys is, and how full it may be, on every node.
func TestKeysGauges(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		c.semaphore("db", 1)
		once := func(key string, command fsm.Command) {
			if got, err := c.leader().Do(t.Context(), Call{Command: command, Key: key}); err != nil || got.Code != fsm.OK {
				t.Fatalf("%s: %v, %v", key, got.Code, err)
			}
		}
		once("a", fsm.AcquireOnce{Name: "db", Count: 1, TTLMS: 60_000, Session: 7})
		once("b", fsm.Up{Name: "db", Count: 1})
		once("", fsm.EndSession{Session: 7})
		for _, n := range c.all {
			c.until("it has applied that", func() bool { return metricsOf(t, n)["idempotency_keys{of=marks}"] == 1 })
			got := metricsOf(t, n)
			if got["idempotency_keys{of=keys}"] != 1 || got["idempotency_keys{of=bytes}"] < 128 || got["idempotency_keys_limit{of=keys}"] != 1_000_000 ||
				got["idempotency_keys_limit{of=bytes}"] != 256<<20 || got["idempotency_keys_limit{of=marks}"] != 6_000_000 {
				t.Errorf("%s: %v", n.id, got)
			}
		}
	})
}
