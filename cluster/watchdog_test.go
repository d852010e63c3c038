package cluster

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

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
// none has, they are refused until one has again.
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
		c.until("it is noticed", func() bool { return third.life.watchdog.spaceNow().Low })
		for _, n := range c.all {
			if err := up(n); !errors.Is(err, ErrStorageFull) {
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
		if err := c.fatal(leader.id); !errors.Is(err, errStuck) || took < stuckAfter || took > stuckAfter+time.Second {
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
		if leader.life.transferring() {
			t.Error("a transfer is seen where there is none")
		}
		c.net.Partition(leader.id, target.id)
		transfer := leader.raft.LeadershipTransferToServer(raft.ServerID(target.id), raft.ServerAddress(target.id+":8711"))
		time.Sleep(50 * time.Millisecond) // virtual
		call := background(t.Context(), leader, Call{Command: fsm.Up{Name: "db", Count: 1}})
		c.until("it is seen", leader.life.transferring)
		c.net.Rejoin(target.id)
		if got := <-call; got.err != nil {
			t.Errorf("the command, in the end: %v", got.err)
		}
		_ = transfer.Error() // it came to an end, one way or the other
		c.until("it is over", func() bool { return !c.leader().life.transferring() })
	})
}

// TestWatchdogEndsAWedgedNode: only when the leader refuses without a break for
// longer than a transfer may take.
func TestWatchdogEndsAWedgedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leads, transferring atomic.Bool
		fatals := make(chan error, 10)
		w := &watchdog{
			log: hclog.NewNullLogger(), stuckFor: func() time.Duration { return 0 },
			space: (&watchdogDisk{}).space, leads: leads.Load, transferring: transferring.Load,
			wedgedAfter: 3 * raftTick, stand: func() {}, giveBack: func() {}, fatal: func(err error) { fatals <- err },
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.run(ctx)
		for range 5 { // transfers that end, and one of a node that does not lead
			leads.Store(true)
			transferring.Store(true)
			time.Sleep(3 * raftTick) // virtual
			transferring.Store(false)
			time.Sleep(time.Second) // virtual
			leads.Store(false)
			transferring.Store(true)
			time.Sleep(time.Minute) // virtual
		}
		if len(fatals) != 0 {
			t.Fatal(<-fatals)
		}
		leads.Store(true)
		time.Sleep(10 * time.Second) // virtual
		if len(fatals) != 1 {
			t.Fatalf("%d times fatal", len(fatals))
		}
		if err := <-fatals; !errors.Is(err, errWedged) {
			t.Error(err)
		}
	})
}
