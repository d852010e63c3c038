package raftlib

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/internal/wake"
	"github.com/signalbox/signalbox/test/memnet"
)

// TestFollowersLearnOfCommitsSoon: of the last entry of a load too, of which no entry follows that
// would tell them, and long before Raft's commit timeout.
func TestFollowersLearnOfCommitsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t)
		defer c.stop()
		leader := c.leader()
		c.apply(leader, "first", c.nodes...)
		for range 20 {
			time.Sleep(3 * time.Second) // virtual
			c.apply(leader, "more", leader)
			began := time.Now()
			for _, n := range c.others(leader) {
				n.fsm.await(t, leader.fsm.at())
			}
			if took := time.Since(began); took > 2*commitQuiet {
				t.Fatalf("a follower's machine is behind by %v", took)
			}
		}
	})
}

// TestCommitIndexWithoutEntries: followers learn of commits later than they could, so that later entries may bring
// it, also those of a lone client; but not while a read waits, nor after one that has come and gone.
func TestCommitIndexWithoutEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := transportPair(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		announced := make(chan time.Time, 1)
		go serveAppends(ctx, to, func(args *raft.AppendEntriesRequest) {
			if len(args.Entries) == 0 {
				announced <- time.Now()
			}
		})
		go from.Run(ctx, &leading{term: 3})
		index := uint64(0)
		send := func() {
			args := &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: index, LeaderCommitIndex: index, Entries: []*raft.Log{{Index: index + 1, Term: 3}}}
			if err := from.AppendEntries("n2", "n2:1", args, &raft.AppendEntriesResponse{}); err != nil {
				t.Error(err)
			}
			index++
		}
		for pause := range commitQuiet / time.Microsecond / 100 { // in 0.1 ms
			for range 20 {
				send()
				time.Sleep(pause * 100 * time.Microsecond) // virtual
			}
			if len(announced) > 0 {
				t.Fatalf("entries that follow after %v don't bring it", pause*100*time.Microsecond)
			}
			send()
			<-announced
		}
		read := func(ctx context.Context) { _ = from.config.Acks.Wait(ctx, 3, 1000, []raft.ServerID{"n2"}, "n1") }
		for _, test := range []struct {
			name      string
			meanwhile func()
			want      time.Duration
		}{
			{"no read", func() {}, commitQuiet},
			{"a read that has come and gone", func() {
				time.Sleep(readQuiet / 4) // virtual
				short, end := context.WithTimeout(ctx, readQuiet/4)
				defer end()
				read(short)
			}, readQuiet},
			{"a read of a later entry", func() {
				time.Sleep(readQuiet / 4) // virtual
				send()
				short, end := context.WithTimeout(ctx, readQuiet/4)
				defer end()
				read(short)
			}, readQuiet},
			{"a read that comes late", func() {
				time.Sleep(2 * readQuiet) // virtual
				go read(ctx)
			}, 2 * readQuiet},
			{"a read that waits", func() {}, readQuiet},
		} {
			time.Sleep(time.Second) // virtual: nothing is quiet
			began := time.Now()
			send()
			test.meanwhile()
			if took := (<-announced).Sub(began); took != test.want {
				t.Errorf("%s: after %v, want %v", test.name, took, test.want)
			}
			synctest.Wait()
			if from.commits.peers["n2"].knows != index {
				t.Errorf("%s: the follower was not sent the last index", test.name)
			}
		}
	})
}

// TestCommitIndexOfComparedEntries: a message commits no entry beyond those that it compares.
func TestCommitIndexOfComparedEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := transportPair(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		got := make(chan uint64, 1)
		go serveAppends(ctx, to, func(args *raft.AppendEntriesRequest) { got <- args.LeaderCommitIndex })
		for name, test := range map[string]struct {
			args raft.AppendEntriesRequest
			want uint64
		}{
			"no entries":        {raft.AppendEntriesRequest{PrevLogEntry: 5, LeaderCommitIndex: 9}, 5},
			"too few entries":   {raft.AppendEntriesRequest{Entries: paceEntries(3, 1), LeaderCommitIndex: 9}, 3},
			"entries cut short": {raft.AppendEntriesRequest{Entries: paceEntries(3, appendFirst), LeaderCommitIndex: 3}, 1},
			"all of them":       {raft.AppendEntriesRequest{Entries: paceEntries(3, 1), LeaderCommitIndex: 2}, 2},
		} {
			if err := from.AppendEntries("n2", "n2:1", &test.args, &raft.AppendEntriesResponse{}); err != nil {
				t.Fatal(err)
			}
			if index := <-got; index != test.want {
				t.Errorf("%s: the commit index %d was sent, want %d", name, index, test.want)
			}
		}
	})
}

// serveAppends has appends succeed until ctx ends.
func serveAppends(ctx context.Context, to *Transport, each func(*raft.AppendEntriesRequest)) {
	for {
		select {
		case rpc := <-to.Consumer():
			each(rpc.Command.(*raft.AppendEntriesRequest))
			rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
		case <-ctx.Done():
			return
		}
	}
}

// TestHeartbeatsAreHeld for a while after the last message, and until the moment at which they leave to all
// followers, but not while a read waits.
func TestHeartbeatsAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := transportPair(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go serveAppends(ctx, to, func(*raft.AppendEntriesRequest) {})
		beatOf := func(id raft.ServerID) time.Duration {
			began := time.Now()
			if err := from.AppendEntries(id, "n2:1", &raft.AppendEntriesRequest{}, &raft.AppendEntriesResponse{}); err != nil {
				t.Error(err)
			}
			return time.Since(began)
		}
		beat := func() time.Duration { return beatOf("n2") }
		if took := beat(); took != 0 {
			t.Errorf("the first one was held for %v", took)
		}
		time.Sleep(95 * time.Millisecond) // virtual
		if took := beatOf("n3"); took != 0 {
			t.Errorf("the first one to another follower was held for %v", took)
		}
		took := wake.AtOnce([]raft.ServerID{"n2", "n3"}, beatOf)
		if want := 2*heartbeatEvery - 95*time.Millisecond; took[0] != want || took[1] != want+heartbeatEvery {
			t.Errorf("95 and 0 ms after the last messages, 95 ms after the clock's multiple, two were held for %v", took)
		}
		held := make(chan time.Duration, 1)
		go func() { held <- beat() }()
		time.Sleep(10 * time.Millisecond) // virtual
		read, stop := context.WithCancel(ctx)
		go func() { _ = from.config.Acks.Wait(read, 1, 1, []raft.ServerID{"n2"}, "n1") }()
		if took := <-held; took != 10*time.Millisecond {
			t.Errorf("one that a read came to wait for was held for %v", took)
		}
		if took := beat(); took != 0 {
			t.Errorf("one that a read waits for was held for %v", took)
		}
		stop()
		synctest.Wait()
		if took := beat(); took != 2*heartbeatEvery-10*time.Millisecond {
			t.Errorf("one after the read, 10 ms after the clock's multiple, was held for %v", took)
		}
	})
}

// TestHeartbeatsAreHeldLonger on a slow network, as all times between nodes are.
func TestHeartbeatsAreHeldLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := transportPair(t, 5)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go serveAppends(ctx, to, func(*raft.AppendEntriesRequest) {})
		for _, want := range []time.Duration{0, (5 * heartbeatAfter).Truncate(heartbeatEvery) + heartbeatEvery} {
			began := time.Now()
			if err := from.AppendEntries("n2", "n2:1", &raft.AppendEntriesRequest{}, &raft.AppendEntriesResponse{}); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took != want {
				t.Errorf("held for %v, want %v", took, want)
			}
		}
	})
}

// TestLeaderOutlivesResets: an idle leader keeps its followers when all connections are reset at once.
func TestLeaderOutlivesResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t)
		defer c.stop()
		for _, from := range c.nodes {
			for _, to := range c.others(from) {
				c.net.Delay(string(from.id), string(to.id), 5*time.Millisecond)
			}
		}
		leader := c.leader()
		term := leader.raft.CurrentTerm()
		for range 50 {
			for range 4 { // beside heartbeats, so that there are several connections
				time.Sleep(time.Second + wake.Next(heartbeatEvery) + time.Millisecond) // virtual
				c.apply(leader, "more", c.nodes...)
			}
			for _, other := range c.others(leader) {
				c.net.Reset(string(leader.id), string(other.id))
			}
		}
		time.Sleep(3 * time.Second) // virtual
		if now := leader.raft.CurrentTerm(); now != term || c.leader() != leader {
			t.Errorf("term %d, and %d after resets", term, now)
		}
	})
}

// TestDeadFollowerIsLeftAlone: a leader under load does not tell a follower again and again what is committed
// that does not reply.
func TestDeadFollowerIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		dead := errors.New("dead")
		var away atomic.Pointer[raft.ServerID]
		c := startNodes(t, func(_ *raft.Config, config *TransportConfig, _ *raftNode) {
			config.Fault = func(peer raft.ServerID, _ any) error {
				if id := away.Load(); id != nil && *id == peer {
					asked.Add(1)
					return dead
				}
				return nil
			}
		})
		defer c.stop()
		leader := c.leader()
		c.apply(leader, "first", c.nodes...)
		leader.raft.Apply([]byte("second"), 0)
		synctest.Wait() // a follower has it, and doesn't know yet that it is committed
		commits := &leader.trans.commits
		commits.mu.Lock()
		for id, f := range commits.peers {
			if f.knows < f.next.PrevLogEntry {
				away.Store(&id)
			}
		}
		commits.mu.Unlock()
		for range 200 {
			c.apply(leader, "more", leader)
			time.Sleep(2 * commitQuiet) // virtual
		}
		if n := asked.Load(); n == 0 || n > 100 { // heartbeats and entries, in 1.2 s
			t.Errorf("%d messages to a dead follower", n)
		}
	})
}

// TestFailuresAreHeld from the second one on, until the follower replies or waiting is of no use.
func TestFailuresAreHeld(t *testing.T) {
	const during = 10*time.Second + holdCheck/2
	for name, test := range map[string]struct {
		then func(from *Transport, led *leading)
		want time.Duration
	}{
		"another's reply": {func(from *Transport, _ *leading) { from.commits.heard("n3") }, 10 * during},
		"a reply": {func(from *Transport, _ *leading) { // its term is 0
			_ = from.AppendEntries("n2", "n2:1", &raft.AppendEntriesRequest{Term: 3}, &raft.AppendEntriesResponse{})
		}, during},
		"another term":            {func(_ *Transport, led *leading) { led.change(4, raft.Leader, "n2") }, during},
		"the leadership ends":     {func(_ *Transport, led *leading) { led.change(3, raft.Follower, "n2") }, during},
		"the follower is removed": {func(_ *Transport, led *leading) { led.change(3, raft.Leader, "n1") }, during},
		"the transport is closed": {func(from *Transport, _ *leading) { _ = from.Close() }, during},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from, to := transportPair(t, 1)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go serveAppends(ctx, to, func(*raft.AppendEntriesRequest) {})
				led := &leading{}
				led.change(3, raft.Leader, "n1", "n2")
				go from.Run(ctx, led)
				synctest.Wait() // it knows led
				broken := errors.New("broken")
				from.config.Fault = func(_ raft.ServerID, request any) error {
					if args, ok := request.(*raft.AppendEntriesRequest); ok && heartbeat(args) {
						return nil
					}
					return broken
				}
				timed := func(send func() error) time.Duration {
					began := time.Now()
					if err := send(); !errors.Is(err, broken) {
						t.Error(err)
					}
					return time.Since(began)
				}
				entry := func() error {
					return from.AppendEntries("n2", "n2:1", &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 1}, &raft.AppendEntriesResponse{})
				}
				snapshot := func() error {
					return from.InstallSnapshot("n2", "n2:1", &raft.InstallSnapshotRequest{Term: 3}, &raft.InstallSnapshotResponse{}, nil)
				}
				release := time.AfterFunc(time.Minute, func() { from.commits.heard("n2") })
				if took := timed(entry); took > appendAgain {
					t.Errorf("the first one was held for %v", took)
				}
				if from.Reaches(ctx, "n2") {
					t.Error("leadership is handed over while Raft pauses")
				}
				release.Stop()
				held := [2]chan time.Duration{make(chan time.Duration, 1), make(chan time.Duration, 1)}
				go func() { held[0] <- timed(entry) }()
				go func() { held[1] <- timed(snapshot) }()
				time.Sleep(during) // virtual
				test.then(from, led)
				time.Sleep(9 * during) // virtual
				from.commits.heard("n2")
				for n, want := range []time.Duration{test.want, min(test.want, snapshotHold)} {
					if took := <-held[n]; took < want || took > want+holdCheck {
						t.Errorf("held for %v, want %v", took, want)
					}
				}
			})
		})
	}
}

// TestOwnDiskIsNoFault of a follower, which has the entries.
func TestOwnDiskIsNoFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := transportPair(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go serveAppends(ctx, to, func(*raft.AppendEntriesRequest) {})
		go from.Run(ctx, &leading{term: 3, state: raft.Leader, servers: []raft.Server{{ID: "n2"}}})
		synctest.Wait() // it knows that it leads
		from.config.Log = &ownLog{durable: func(uint64) error { return errFakeFull }}
		for range 3 {
			began := time.Now()
			time.AfterFunc(time.Minute, func() { from.commits.heard("n2") })
			args := raft.AppendEntriesRequest{Term: 3, Entries: paceEntries(1, 1)}
			if err := from.AppendEntries("n2", "n2:1", &args, &raft.AppendEntriesResponse{}); !errors.Is(err, errFakeFull) {
				t.Error(err)
			}
			if took := time.Since(began); took > 0 {
				t.Errorf("held for %v", took)
			}
			if from.Reaches(ctx, "n2") {
				t.Error("leadership is handed over while Raft pauses")
			}
		}
	})
}

// TestFailureClosesIdleConnections: the port of a node takes a connection for a sign of life of the other end's process,
// and none is left to one that has died.
func TestFailureClosesIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		from, to := transportOn(t, n, "n1", 1), transportOn(t, n, "n2", 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		announced := make(chan struct{}, 1)
		go serveAppends(ctx, to, func(args *raft.AppendEntriesRequest) {
			if len(args.Entries) == 0 {
				announced <- struct{}{}
			}
		})
		go from.Run(ctx, &leading{term: 3, state: raft.Leader})
		entry := func() error {
			args := raft.AppendEntriesRequest{Term: 3, Entries: paceEntries(1, 1)}
			return from.AppendEntries("n2", "n2:1", &args, &raft.AppendEntriesResponse{})
		}
		if err := entry(); err != nil {
			t.Fatal(err)
		}
		<-announced
		synctest.Wait()
		n.Crash("n2")
		if err := entry(); err == nil {
			t.Fatal("an entry reached a process that died")
		}
		layer := from.config.Layer.(*memLayer)
		if len(layer.conns) != 2 {
			t.Errorf("%d connections were made", len(layer.conns))
		}
		for _, conn := range layer.conns {
			if _, err := conn.Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
				t.Errorf("a connection to a process that died: %v", err)
			}
		}
	})
}

// leading is a Raft that is changed while it is asked.
type leading struct {
	mu      sync.Mutex
	term    uint64
	state   raft.RaftState
	servers []raft.Server
}

func (l *leading) change(term uint64, state raft.RaftState, servers ...raft.ServerID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term, l.state, l.servers = term, state, nil
	for _, id := range servers {
		l.servers = append(l.servers, raft.Server{ID: id})
	}
}

func (l *leading) CurrentTerm() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term
}

func (l *leading) State() raft.RaftState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

func (l *leading) CommitIndex() uint64 { return 1000 }

func (l *leading) GetConfiguration() raft.ConfigurationFuture {
	l.mu.Lock()
	defer l.mu.Unlock()
	return configured{servers: l.servers}
}

// configured is a configuration that is there.
type configured struct {
	raft.ConfigurationFuture
	servers []raft.Server
}

func (c configured) Configuration() raft.Configuration { return raft.Configuration{Servers: c.servers} }

// TestFollowerComesBack: it is sent entries soon, however long it was away.
func TestFollowerComesBack(t *testing.T) {
	for name, write := range map[string]time.Duration{"under load": time.Second, "idle": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startNodes(t)
				defer c.stop()
				leader := c.leader()
				other := c.others(leader)
				c.apply(leader, "first", c.nodes...)
				for _, away := range []time.Duration{35 * time.Second, 50 * time.Second, 20 * time.Minute} {
					c.net.Isolate(string(other[0].id))
					c.apply(leader, "meanwhile", other[1])
					for until := time.Now().Add(away); time.Now().Before(until); time.Sleep(min(write, time.Until(until))) { // virtual
						c.apply(leader, "more", leader)
					}
					c.net.Rejoin(string(other[0].id))
					began := time.Now()
					other[0].fsm.await(t, leader.fsm.at())
					if took := time.Since(began); took > 2*raftTimeout {
						t.Errorf("after %v away it took %v", away, took)
					}
					time.Sleep(time.Second) // virtual: the leader has its reply, too
				}
			})
		})
	}
}

// deposed is a Raft whose term ends, and whose commit index is that of the next one, when that is asked for.
type deposed struct{ leading }

func (d *deposed) CommitIndex() uint64 {
	d.change(4, raft.Follower)
	return 7
}

// TestDeposedLeaderCommitsNothing: its followers' entries are not those that a later leader has committed.
func TestDeposedLeaderCommitsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := transportPair(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var got atomic.Int32
		go serveAppends(ctx, to, func(*raft.AppendEntriesRequest) { got.Add(1) })
		source := &deposed{}
		source.change(3, raft.Leader)
		go from.Run(ctx, source)
		args := raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 9, PrevLogTerm: 3, LeaderCommitIndex: 4}
		if err := from.AppendEntries("n2", "n2:1", &args, &raft.AppendEntriesResponse{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // virtual
		if got.Load() != 1 {
			t.Errorf("%d messages, want that of the leader alone", got.Load())
		}
	})
}

// TestDueCommits: who is sent which commit index.
func TestDueCommits(t *testing.T) {
	later := func(c *commits, term, last, commit uint64, success bool) {
		args := raft.AppendEntriesRequest{Term: term, PrevLogEntry: last, PrevLogTerm: 1, LeaderCommitIndex: commit}
		c.begin("n2")
		c.end("n2", "n2:1", &args, 1, success)
	}
	reply := func(c *commits, term, last, commit uint64, success bool) {
		later(c, term, last, commit, success)
		c.mark()
	}
	for name, test := range map[string]struct {
		before func(c *commits)
		want   uint64 // 0: not due
	}{
		"no reply yet":        {func(*commits) {}, 0},
		"all acknowledged":    {func(c *commits) { reply(c, 3, 9, 4, true) }, 7},
		"some acknowledged":   {func(c *commits) { reply(c, 3, 5, 4, true) }, 5},
		"known":               {func(c *commits) { reply(c, 3, 9, 7, true) }, 0},
		"refused":             {func(c *commits) { reply(c, 3, 9, 4, false) }, 0},
		"the next one failed": {func(c *commits) { reply(c, 3, 9, 4, true); reply(c, 3, 10, 4, false); c.tried("n2", false, false) }, 0},
		"and then succeeded": {func(c *commits) {
			reply(c, 3, 9, 4, true)
			c.tried("n2", false, false)
			c.tried("n2", true, true)
			reply(c, 3, 10, 4, true)
		}, 7},
		"in an earlier term":  {func(c *commits) { reply(c, 2, 9, 4, true) }, 0},
		"known in one before": {func(c *commits) { reply(c, 2, 9, 7, true); reply(c, 3, 9, 4, true) }, 7},
		"known by the next":   {func(c *commits) { reply(c, 3, 5, 4, true); later(c, 3, 9, 5, true) }, 0},
		"not by the next":     {func(c *commits) { reply(c, 3, 5, 4, true); later(c, 3, 9, 4, true) }, 7},
		"an append under way": {func(c *commits) { reply(c, 3, 9, 4, true); c.begin("n2") }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := &commits{news: wake.NewSignal(), peers: map[raft.ServerID]*follower{}}
			test.before(c)
			got := c.due(3, 7)["n2"]
			if index := got.next.LeaderCommitIndex; index != test.want {
				t.Errorf("sent %d, want %d", index, test.want)
			}
			if got.next.LeaderCommitIndex > got.next.PrevLogEntry || len(got.next.Entries) > 0 {
				t.Errorf("sent %+v", got.next)
			}
		})
	}
}

// TestAnnouncementsKeepTheirConnections: an append that leaves while followers are sent what is committed finds
// its connection open. A new one would take two round trips more.
func TestAnnouncementsKeepTheirConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const away = 300 * time.Millisecond
		n := memnet.New()
		from, to := transportOn(t, n, "n1", 5), transportOn(t, n, "n2", 5)
		n.Delay("n1", "n2", away)
		n.Delay("n2", "n1", away)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var announced atomic.Int32
		go serveAppends(ctx, to, func(args *raft.AppendEntriesRequest) {
			if args.LeaderCommitIndex > 0 && len(args.Entries) == 0 {
				announced.Add(1)
			}
		})
		go from.Run(ctx, &leading{term: 3})
		send := func(args *raft.AppendEntriesRequest) time.Duration {
			began := time.Now()
			if err := from.AppendEntries("n2", "n2:1", args, &raft.AppendEntriesResponse{}); err != nil {
				t.Error(err)
			}
			return time.Since(began)
		}
		read, stop := context.WithCancel(ctx) // heartbeats are not held
		defer stop()
		go func() { _ = from.config.Acks.Wait(read, 3, 1000, []raft.ServerID{"n2"}, "n1") }()
		beating := make(chan struct{})
		go func() {
			defer close(beating)
			for read.Err() == nil {
				send(&raft.AppendEntriesRequest{Term: 3})
			}
		}()
		for index := range uint64(5) {
			entry := &raft.Log{Index: index + 1, Term: 3}
			took := send(&raft.AppendEntriesRequest{Term: 3, PrevLogEntry: index, Entries: []*raft.Log{entry}})
			if index > 0 && took != 2*away {
				t.Errorf("append %d took %v", index, took)
			}
			time.Sleep(2 * commitQuiet) // virtual: the announcement is under way
		}
		time.Sleep(time.Second) // virtual
		if announced.Load() == 0 {
			t.Error("nothing was announced")
		}
		stop()
		<-beating
	})
}
