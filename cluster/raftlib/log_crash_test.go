package raftlib

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/test/memnet"
)

// slowDisk is the log of a node whose writes take time. A crash loses those under way.
type slowDisk struct {
	*fakeLogs
	mu     sync.Mutex
	takes  time.Duration
	broken bool
}

var errCrashed = errors.New("the process is dead")

func (d *slowDisk) Logs() raft.LogStore { return d }

func (d *slowDisk) StoreLog(entry *raft.Log) error { return d.StoreLogs([]*raft.Log{entry}) }

func (d *slowDisk) StoreLogs(entries []*raft.Log) error {
	d.mu.Lock()
	takes := d.takes
	d.mu.Unlock()
	time.Sleep(takes) // virtual: the disk's work
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken {
		return errCrashed
	}
	return d.fakeLogs.StoreLogs(entries)
}

func (d *slowDisk) take(takes time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.takes = takes
}

func (d *slowDisk) crash() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = true
}

func (d *slowDisk) dead() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.broken
}

// crashNode is a node with such a disk.
type crashNode struct {
	raft.Server
	disk   *slowDisk
	stable *raft.InmemStore
	log    *Log
	trans  *Transport
	raft   *raft.Raft // nil while the node is dead
	fsm    *fakeMachine
}

// crashNodes is a cluster of them, for use inside a synctest bubble.
type crashNodes struct {
	t     *testing.T
	net   *memnet.Network
	all   []*crashNode
	first raft.Configuration
}

func startCrashNodes(t *testing.T, voters, others int) *crashNodes {
	c := &crashNodes{t: t, net: memnet.New()}
	for i := range voters + others {
		server := raft.Server{ID: raft.ServerID(fmt.Sprint("n", i+1)), Address: raft.ServerAddress(fmt.Sprintf("n%d:8711", i+1))}
		if i >= voters {
			server.Suffrage = raft.Nonvoter
		}
		c.first.Servers = append(c.first.Servers, server)
		c.all = append(c.all, &crashNode{Server: server, disk: &slowDisk{fakeLogs: newFakeLogs()}, stable: raft.NewInmemStore()})
	}
	for _, n := range c.all {
		c.start(n)
	}
	return c
}

func (c *crashNodes) must(err error) {
	c.t.Helper()
	must(c.t, err)
}

// start starts a node on what its disk has.
func (c *crashNodes) start(n *crashNode) {
	c.t.Helper()
	c.net.Rejoin(string(n.ID))
	disk := &slowDisk{fakeLogs: n.disk.fakeLogs}
	n.disk, n.fsm = disk, &fakeMachine{}
	n.log = NewLog(LogConfig{Storage: disk, Self: n.ID, Fatal: func(err error) {
		if !disk.dead() {
			c.t.Errorf("%s: %v", n.ID, err)
		}
	}})
	layer, err := openLayer(c.net, string(n.ID), string(n.Address))
	c.must(err)
	config, err := Config(n.ID, 1, hclog.NewNullLogger())
	c.must(err)
	n.trans = NewTransport(TransportConfig{
		Layer: layer, Acks: NewAckClock(), Logger: hclog.NewNullLogger(), Log: n.log,
		Stalled: func() bool { return false },
	})
	snapshots := raft.NewInmemSnapshotStore()
	if some, err := raft.HasExistingState(disk, n.stable, snapshots); err != nil || !some {
		c.must(errors.Join(err, raft.BootstrapCluster(config, disk, n.stable, snapshots, n.trans, c.first)))
	}
	n.raft, err = raft.NewRaft(config, n.fsm, n.log, n.stable, snapshots, n.trans)
	c.must(err)
	n.log.Attach(n.raft)
}

// crash kills nodes at the same moment.
func (c *crashNodes) crash(nodes ...*crashNode) {
	c.t.Helper()
	for _, n := range nodes {
		n.disk.crash()
		c.net.Isolate(string(n.ID))
		c.net.Crash(string(n.ID))
	}
	for _, n := range nodes { // where no other node sees it
		future := n.raft.Shutdown()
		_ = n.trans.Close()
		_ = n.log.Close()
		c.must(future.Error())
		n.raft = nil
	}
}

// leader waits for a leader.
func (c *crashNodes) leader() *crashNode {
	c.t.Helper()
	for began := time.Now(); time.Since(began) < patience; time.Sleep(time.Millisecond) { // virtual: the step of looking
		for _, n := range c.all {
			if n.raft != nil && n.raft.State() == raft.Leader {
				return n
			}
		}
	}
	c.t.Fatal("no leader")
	return nil
}

// check writes through a leader until that succeeds, and returns what that leader has
// applied then.
func (c *crashNodes) check() []string {
	c.t.Helper()
	for began := time.Now(); time.Since(began) < patience; {
		leader := c.leader()
		future := leader.raft.Apply([]byte("check"), 0)
		if future.Error() == nil {
			leader.fsm.await(c.t, future.Index())
			return leader.fsm.history()
		}
	}
	c.t.Fatal("no write succeeds")
	return nil
}

// TestAcknowledgedWritesOutliveCrashes: of a leader alone, of it with others, of all nodes, with
// entries sent that its disk does not have: an acknowledged write is there on whatever majority comes
// back, and no two nodes apply different entries.
func TestAcknowledgedWritesOutliveCrashes(t *testing.T) {
	for _, test := range []struct{ voters, others int }{{2, 0}, {3, 0}, {3, 1}, {5, 0}} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%d voters, %d others, seed %d", test.voters, test.others, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					crashRounds(t, rand.New(rand.NewPCG(seed, uint64(test.voters))), startCrashNodes(t, test.voters, test.others), test.voters)
				})
			})
		}
	}
}

func crashRounds(t *testing.T, random *rand.Rand, c *crashNodes, voters int) {
	upTo := func(limit time.Duration) time.Duration { return time.Duration(random.Int64N(int64(limit))) }
	defer c.stop()
	var acknowledged []string
	for round := range 12 {
		leader := c.leader()
		for _, n := range c.all {
			n.disk.take(upTo([]time.Duration{time.Millisecond, 20 * time.Millisecond, 300 * time.Millisecond}[random.IntN(3)]))
		}
		var mu sync.Mutex
		var calls sync.WaitGroup
		for i := range 30 {
			command := fmt.Sprintf("%d/%d", round, i)
			future := leader.raft.Apply([]byte(command), 0)
			calls.Go(func() {
				if future.Error() == nil {
					mu.Lock()
					defer mu.Unlock()
					acknowledged = append(acknowledged, command)
				}
			})
			time.Sleep(upTo(15 * time.Millisecond)) // virtual: the pace of the load
		}
		dying := slices.Clone(c.all)
		random.Shuffle(len(dying), func(i, j int) { dying[i], dying[j] = dying[j], dying[i] })
		dying = dying[:random.IntN(len(dying)+1)]
		if !slices.Contains(dying, leader) {
			dying = append(dying, leader)
		}
		c.crash(dying...)
		calls.Wait()
		away := 0 // a minority stays away at first
		for _, n := range dying {
			if n.Suffrage == raft.Voter && away < (voters-1)/2 && random.IntN(2) == 0 {
				away++
			} else {
				c.start(n)
			}
		}
		has := c.check()
		for _, command := range acknowledged {
			if !slices.Contains(has, command) {
				t.Fatalf("round %d: %s was acknowledged, and is lost", round, command)
			}
		}
		for _, n := range c.all {
			if n.raft == nil {
				c.start(n)
			}
		}
		c.sameHistory(c.check())
	}
	if len(acknowledged) < 50 {
		t.Errorf("only %d writes were acknowledged: the test shows little", len(acknowledged))
	}
}

// stop ends the nodes that live, and waits for their disks.
func (c *crashNodes) stop() {
	c.crash(slices.DeleteFunc(slices.Clone(c.all), func(n *crashNode) bool { return n.raft == nil })...)
	time.Sleep(time.Second) // virtual: longer than a write takes
}

// sameHistory makes sure that each node has applied a part of the history, from its beginning.
func (c *crashNodes) sameHistory(want []string) {
	c.t.Helper()
	for _, n := range c.all {
		if got := n.fsm.history(); len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
			c.t.Fatalf("%s applied %q, the leader %q", n.ID, got, want)
		}
	}
}
