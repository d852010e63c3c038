package membership

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/election"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/cluster/raftlib"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/test/memnet"
)

// member is a node with a real Raft on its peer port, and a machine that only counts. It
// implements [Node], [Hashes] and [raft.BatchingFSM].
type member struct {
	id      string
	joining *Joining
	*Members
	raft  *raft.Raft
	trans *raftlib.Transport
	stop  context.CancelFunc
	disk  *memoryFolder

	applied                     atomic.Uint64
	level                       atomic.Uint32
	low, spent, drained, cutOff atomic.Bool
	hash                        atomic.Pointer[[16]byte] // of its state at every index
	fatal, halted               atomic.Pointer[error]
	chosen                      atomic.Pointer[func()] // called for each candidate of a hand-over
}

func (m *member) Applied() uint64          { return m.applied.Load() }
func (m *member) Level() uint32            { return m.level.Load() }
func (m *member) ClusterID() fsm.ClusterID { return m.joining.Cluster() }
func (m *member) Draining() bool           { return m.drained.Load() }
func (m *member) Space() (low, spent bool) { return m.low.Load(), m.spent.Load() }
func (m *member) Judge(context.Context, election.Question) election.Reply {
	return election.Reply{Agrees: true}
}
func (m *member) Reaches(context.Context, string) bool {
	if chosen := m.chosen.Load(); chosen != nil {
		(*chosen)()
	}
	return !m.cutOff.Load()
}
func (m *member) Leads() bool      { return m.raft.State() == raft.Leader }
func (m *member) Halted(why error) { m.halted.Store(&why) }
func (m *member) Fatal(err error)  { m.fatal.Store(&err) }

// why returns what Halted noted last.
func (m *member) why() error {
	if why := m.halted.Load(); why != nil {
		return *why
	}
	return nil
}

// Propose logs a level, which is all that a membership proposes.
func (m *member) Propose(_ context.Context, command fsm.Command) error {
	if m.raft.Apply([]byte{byte(command.(fsm.RaiseLevel).Level)}, 0).Error() != nil {
		return outcome.ErrNotLeader
	}
	return nil
}

func (m *member) Latest() (uint64, [16]byte)       { return m.applied.Load(), *m.hash.Load() }
func (m *member) At(index uint64) ([16]byte, bool) { return *m.hash.Load(), index <= m.applied.Load() }
func (m *member) All() iter.Seq2[uint64, [16]byte] {
	return func(yield func(uint64, [16]byte) bool) { yield(1, *m.hash.Load()) }
}

func (m *member) Apply(entry *raft.Log) any { return m.ApplyBatch([]*raft.Log{entry})[0] }

func (m *member) ApplyBatch(entries []*raft.Log) []any {
	for _, entry := range entries {
		switch entry.Type {
		case raft.LogConfiguration:
			m.joining.Configured(entry)
		case raft.LogCommand:
			m.level.Store(uint32(entry.Data[0]))
		}
		m.applied.Store(entry.Index)
	}
	return make([]any, len(entries))
}

func (m *member) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.New("no snapshots here") }
func (m *member) Restore(io.ReadCloser) error         { return errors.New("no snapshots here") }

// cluster is three members, which have formed, in a bubble.
type cluster struct {
	t   *testing.T
	net *memnet.Network
	all []*member
}

// inCluster runs a test with three members that have formed a cluster and have a leader.
func inCluster(t *testing.T, test func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, net: memnet.New(), all: make([]*member, 3)}
		var starting sync.WaitGroup
		for i := range c.all {
			starting.Go(func() { c.all[i] = c.start(i+1, newMemoryFolder()) })
		}
		starting.Wait()
		defer func() {
			for _, m := range c.all {
				c.end(m)
			}
		}()
		for _, m := range c.all {
			c.until(m.id+" sees two that are up", func() bool { return c.up(m) == 2 })
		}
		test(t, c)
	})
}

// start opens the nth node and blocks until it is in the cluster and its Raft runs.
func (c *cluster) start(nth int, folder *memoryFolder) *member {
	log := hclog.NewNullLogger()
	ctx, stop := context.WithCancel(c.t.Context())
	m := &member{id: fmt.Sprintf("n%d", nth), stop: stop, disk: folder}
	m.hash.Store(&[16]byte{1})
	self := bootstrapThree[nth-1]
	var err error
	m.joining, err = Open(Config{
		Self: self, Peers: bootstrapThree, Folder: folder, FolderID: folder.id(nth), Network: c.net.Host(m.id), Bind: self.Address,
		Hashes: m, Times: 1, Node: m, Logger: log, Stopping: ctx,
	})
	c.must(err)
	m.joining.Serve()
	c.must(m.joining.Form(ctx))
	layer, err := m.joining.Port().OpenRaft(func(peer.Hello) {})
	c.must(err)
	config, err := raftlib.Config(raft.ServerID(m.id), 1, log)
	c.must(err)
	m.trans = raftlib.NewTransport(raftlib.TransportConfig{
		Layer: layer, Acks: raftlib.NewAckClock(), Logger: log, Stalled: func() bool { return false }, Log: storedLog{},
	})
	state, err := folderState(folder, folder, folder.snapshots)
	c.must(err)
	if state == probe.Empty {
		c.must(raft.BootstrapCluster(config, folder, folder, folder.snapshots, m.trans, FirstConfiguration(bootstrapThree)))
	}
	m.raft, err = raft.NewRaft(config, m, folder, folder, folder.snapshots, m.trans)
	c.must(err)
	m.Members = m.joining.Start(m.raft)
	go m.Run(ctx)
	go m.trans.Run(ctx, m.raft)
	return m
}

// id returns the id of the nth node's folder: another one once it has been lost.
func (f *memoryFolder) id(nth int) peer.ID { return peer.ID{byte(nth), byte(f.lost)} }

// end stops a node.
func (c *cluster) end(m *member) {
	m.stop()
	future := m.raft.Shutdown()
	_ = m.trans.Close()
	c.must(future.Error())
	c.must(m.joining.Port().Close())
}

func (c *cluster) must(err error) {
	c.t.Helper()
	must(c.t, err)
}

// until waits, in virtual time, until something is so.
func (c *cluster) until(what string, condition func() bool) {
	c.t.Helper()
	for began := time.Now(); !condition(); {
		if time.Since(began) > time.Minute {
			c.t.Fatalf("waited in vain until %s", what)
		}
		time.Sleep(50 * time.Millisecond) // virtual: the step of looking
	}
}

// up returns how many members a node knows to be up, under a leader.
func (c *cluster) up(m *member) (count int) {
	for _, seen := range m.Seen() {
		if seen.Up() && seen.Answer.Leader != "" && m.raft.Leader() != "" {
			count++
		}
	}
	return count
}

// leader waits until a node leads, and returns it and the two others.
func (c *cluster) leader() (leader, a, b *member) {
	c.t.Helper()
	var others []*member
	c.until("a node leads", func() bool {
		leader, others = nil, nil
		for _, m := range c.all {
			if m.Leads() {
				leader = m
			} else {
				others = append(others, m)
			}
		}
		return len(others) == 2
	})
	return leader, others[0], others[1]
}

// suffrage describes a member as a node's latest configuration has it.
func suffrage(m *member, id string) string {
	server, ok := Find(m.Servers(), id)
	if !ok {
		return "none"
	}
	return server.Suffrage.String()
}

// TestLeaderChangesMembers: whichever node is asked.
func TestLeaderChangesMembers(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		leader, a, b := c.leader()
		c.must(a.Call(t.Context(), &probe.Request{Kind: probe.Remove, ID: b.id}))
		c.until("the others know", func() bool { return suffrage(leader, b.id) == "none" && suffrage(a, b.id) == "none" })
		c.until("it knows itself", b.Removed)
		err := a.Call(t.Context(), &probe.Request{Kind: probe.Add, ID: "n9", Address: peer.PlainAddress(a.Servers()[0].Address)})
		if !errors.Is(err, outcome.ErrMemberInvalid) {
			t.Errorf("a second member at an address: %v", err)
		}
		c.must(a.Call(t.Context(), &probe.Request{Kind: probe.Add, ID: b.id, Address: b.joining.config.Self.Address}))
		c.until("it has its vote", func() bool { return suffrage(b, b.id) == "Voter" && !b.Removed() })
		c.must(b.Call(t.Context(), &probe.Request{Kind: probe.Remove, ID: leader.id}))
		if now, _, _ := c.leader(); now == leader || suffrage(now, leader.id) != "none" {
			t.Errorf("%s leads, and has %s for %s", now.id, suffrage(now, leader.id), leader.id)
		}
	})
}

// TestChangeEndsWithItsCaller also while Raft's main loop hangs and takes no change. The
// next change waits for Raft's decision.
func TestChangeEndsWithItsCaller(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		leader, _, b := c.leader()
		release := leader.disk.hang()
		leader.raft.Apply([]byte{1}, 0)
		synctest.Wait() // the main loop writes
		attempt := func(do func(context.Context) error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			began := time.Now()
			if err := do(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 100*time.Millisecond {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		}
		attempt(func(ctx context.Context) error { return leader.changes.remove(ctx, b.id) })
		attempt(func(ctx context.Context) error {
			_, _, done, err := leader.changes.Begin(ctx)
			if err == nil {
				done()
			}
			return err
		})
		release()
		_, _, done, err := leader.changes.Begin(t.Context())
		c.must(err)
		done()
		if got := suffrage(leader, b.id); got != "none" {
			t.Errorf("after the removal was committed: %s", got)
		}
	})
}

// TestRemovalKeepsAMajority: a change that could not be committed is refused.
func TestRemovalKeepsAMajority(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		leader, a, b := c.leader()
		c.net.Isolate(b.id)
		c.until("the leader knows", func() bool { return !leader.Seen()[b.id].Up() })
		err := a.Call(t.Context(), &probe.Request{Kind: probe.Remove, ID: a.id})
		if !errors.Is(err, outcome.ErrMemberInvalid) || !strings.Contains(err.Error(), b.id) {
			t.Errorf("the leader alone: %v", err)
		}
		c.must(a.Call(t.Context(), &probe.Request{Kind: probe.Remove, ID: b.id}))
		c.net.Rejoin(b.id)
		c.until("it learns of its removal", b.Removed)
	})
}

// TestLeadershipMoves to the voter that is named, or to any that can take over.
func TestLeadershipMoves(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		leader, a, b := c.leader()
		c.must(a.Call(t.Context(), &probe.Request{Kind: probe.Transfer, ID: b.id}))
		if now, _, _ := c.leader(); now != b {
			t.Fatalf("%s leads, not %s", now.id, b.id)
		}
		if err := b.Call(t.Context(), &probe.Request{Kind: probe.Transfer, ID: "n9"}); !errors.Is(err, outcome.ErrNoTarget) {
			t.Errorf("to no member: %v", err)
		}
		b.cutOff.Store(true)
		if err := b.HandOver(t.Context()); !errors.Is(err, outcome.ErrNoTarget) {
			t.Errorf("to a node that entries don't reach: %v", err)
		}
		b.cutOff.Store(false)
		leader.low.Store(true)
		c.until("the first has no leader's news", func() bool { return b.Seen()[leader.id].Answer.StorageLow })
		c.must(b.GiveWay(t.Context(), false))
		if now, _, _ := c.leader(); now != a {
			t.Errorf("%s leads, though its disk is nearly full", now.id)
		}
		b.drained.Store(true)
		if err := a.HandOver(t.Context()); !errors.Is(err, outcome.ErrNoTarget) {
			t.Errorf("to a node that drains, or has no room: %v", err)
		}
		leader.spent.Store(true)
		b.spent.Store(true)
		c.until("two of three are full", func() bool { return a.why() == outcome.ErrStorageFull })
	})
}

// TestFrozenTargetIsUnknown: a member that does not reply to Raft's request to take over may do so later. Without
// a name no second hand-over is tried.
func TestFrozenTargetIsUnknown(t *testing.T) {
	for _, named := range []bool{true, false} {
		inCluster(t, func(t *testing.T, c *cluster) {
			leader, a, b := c.leader()
			b.drained.Store(true) // no target
			questions := 0
			freeze := func() {
				questions++
				c.net.Isolate(a.id)
				b.drained.Store(false) // a second hand-over would find it
			}
			leader.chosen.Store(&freeze)
			id := ""
			if named {
				id = a.id
			}
			err := leader.Call(t.Context(), &probe.Request{Kind: probe.Transfer, ID: id})
			if !errors.Is(err, outcome.ErrOutcomeUnknown) || errors.Is(err, outcome.ErrNoLeader) || questions != 1 && !named {
				t.Errorf("named %v: %v after %d attempts", named, err, questions)
			}
			leader.chosen.Store(nil)
			c.net.Rejoin(a.id)
			c.leader()
		})
	}
}

// TestRaiseAsksAllMembers whether they know the level.
func TestRaiseAsksAllMembers(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		_, a, b := c.leader()
		err := a.Call(t.Context(), &probe.Request{Kind: probe.Raise, Level: fsm.FeatureLevel + 1})
		if !errors.Is(err, outcome.ErrLevelUnknown) || !strings.Contains(err.Error(), b.id) {
			t.Errorf("a level of a later program: %v", err)
		}
		c.must(a.Call(t.Context(), &probe.Request{Kind: probe.Raise, Level: fsm.FeatureLevel}))
		c.until("it is applied", func() bool { return b.Level() == fsm.FeatureLevel })
		c.net.Isolate(b.id)
		if err := a.Call(t.Context(), &probe.Request{Kind: probe.Raise, Level: fsm.FeatureLevel}); !errors.Is(err, outcome.ErrLevelUnknown) {
			t.Errorf("beside a silent member: %v", err)
		}
		c.net.Rejoin(b.id)
	})
}

// TestLostFolderIsReadmitted: the node has no vote until it has caught up, and is known
// by its new folder from then on.
func TestLostFolderIsReadmitted(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		leader, a, b := c.leader()
		at := slices.Index(c.all, b)
		c.end(b)
		folder := newMemoryFolder()
		folder.lost = 1
		b = c.start(at+1, folder)
		c.all[at] = b
		if folder.cluster != leader.joining.Cluster().String() {
			t.Errorf("its folder is of cluster %q", folder.cluster)
		}
		c.until("it has its vote", func() bool { return suffrage(a, b.id) == "Voter" && suffrage(b, b.id) == "Voter" })
		server, _ := Find(a.Servers(), b.id)
		if _, admitted := peer.SplitAddress(server.Address); admitted != folder.id(at+1) {
			t.Errorf("folder %v was admitted", admitted)
		}
		// A copy of the node can't take its place while it is alive.
		_, err := leader.changes.Readmit(t.Context(), b.id, "", peer.Hello{Node: b.id, Incarnation: 1, Folder: peer.ID{9}}, "elsewhere")
		if !errors.Is(err, probe.ErrMemberAlive) {
			t.Errorf("a copy: %v", err)
		}
		_, err = leader.changes.Readmit(t.Context(), "n9", "", peer.Hello{Node: "n9", Incarnation: 1}, "elsewhere")
		if !errors.Is(err, probe.ErrNotMember) {
			t.Errorf("a stranger: %v", err)
		}
	})
}

// TestStatesAreCompared: a node that differs from a majority ends; without a majority
// all members know.
func TestStatesAreCompared(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		leader, a, b := c.leader()
		c.must(a.MatchLeader(t.Context()))
		a.hash.Store(&[16]byte{2})
		if err := a.MatchLeader(t.Context()); !errors.Is(err, ErrStateDiffers) || !strings.Contains(a.Differs(), a.id) {
			t.Errorf("%v, %q", err, a.Differs())
		}
		c.until("the odd one ends", func() bool { return a.fatal.Load() != nil })
		if err := *a.fatal.Load(); !errors.Is(err, ErrStateDiffers) || leader.fatal.Load() != nil || b.fatal.Load() != nil {
			t.Errorf("%v", err)
		}
		b.hash.Store(&[16]byte{3})
		c.until("the leader knows of three states", func() bool { return leader.Split() != "" && leader.why() == outcome.ErrSplitState })
		b.hash.Store(&[16]byte{1})
		c.until("a majority agrees again", func() bool { return leader.Split() == "" && leader.why() == nil })
	})
}

// TestMembersWithoutALeader: a call that finds no leader ends, and can be made again.
func TestMembersWithoutALeader(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		_, a, b := c.leader()
		c.net.Isolate(a.id)
		c.until("it has no leader", func() bool { return a.raft.Leader() == "" })
		if err := a.Call(t.Context(), &probe.Request{Kind: probe.Transfer}); !errors.Is(err, outcome.ErrNoLeader) {
			t.Errorf("cut off: %v", err)
		}
		if _, id, _ := b.LeaderElsewhere(0); id == "" || b.Strangers() != "" || b.joining.LastRefusal() != "" {
			t.Errorf("leader %q, strangers %q, outcast %q", id, b.Strangers(), b.joining.LastRefusal())
		}
		c.net.Rejoin(a.id)
	})
}

// storedLog is a log that has everything on the disk.
type storedLog struct{}

func (storedLog) WaitDurable(uint64, time.Duration) error { return nil }
func (storedLog) Failed() error                           { return nil }

// must ends a test upon an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
