package raftlib

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/test/memnet"
)

// TestAnnouncements: which commit index a follower is sent.
func TestAnnouncements(t *testing.T) {
	later := func(f *followers, term, last, commit uint64, success bool) {
		args := raft.AppendEntriesRequest{Term: term, PrevLogEntry: last, PrevLogTerm: 1, LeaderCommitIndex: commit}
		f.update("n2", func(to *follower) { to.attempts.inFlight++ })
		f.noteAppend("n2", "n2:1", &args, 1, success)
	}
	reply := func(f *followers, term, last, commit uint64, success bool) {
		later(f, term, last, commit, success)
		f.mark()
	}
	result := func(f *followers, replied bool) {
		f.update("n2", func(to *follower) { to.attempts.noteResult(replied, replied) })
	}
	for name, test := range map[string]struct {
		before func(f *followers)
		want   uint64 // 0: not due
	}{
		"no reply yet":        {func(*followers) {}, 0},
		"all acknowledged":    {func(f *followers) { reply(f, 3, 9, 4, true) }, 7},
		"some acknowledged":   {func(f *followers) { reply(f, 3, 5, 4, true) }, 5},
		"known":               {func(f *followers) { reply(f, 3, 9, 7, true) }, 0},
		"refused":             {func(f *followers) { reply(f, 3, 9, 4, false) }, 0},
		"the next one failed": {func(f *followers) { reply(f, 3, 9, 4, true); reply(f, 3, 10, 4, false); result(f, false) }, 0},
		"and then succeeded": {func(f *followers) {
			reply(f, 3, 9, 4, true)
			result(f, false)
			result(f, true)
			reply(f, 3, 10, 4, true)
		}, 7},
		"in an earlier term":  {func(f *followers) { reply(f, 2, 9, 4, true) }, 0},
		"known in one before": {func(f *followers) { reply(f, 2, 9, 7, true); reply(f, 3, 9, 4, true) }, 7},
		"known by the next":   {func(f *followers) { reply(f, 3, 5, 4, true); later(f, 3, 9, 5, true) }, 0},
		"not by the next":     {func(f *followers) { reply(f, 3, 5, 4, true); later(f, 3, 9, 4, true) }, 7},
		"an append in flight": {func(f *followers) {
			reply(f, 3, 9, 4, true)
			f.update("n2", func(to *follower) { to.attempts.inFlight++ })
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFollowers(appendAim)
			test.before(f)
			got := f.needingCommit(3, 7)["n2"]
			if index := got.next.LeaderCommitIndex; index != test.want {
				t.Errorf("sent %d, want %d", index, test.want)
			}
			if got.next.LeaderCommitIndex > got.next.PrevLogEntry || len(got.next.Entries) > 0 {
				t.Errorf("sent %+v", got.next)
			}
		})
	}
}

// TestCommitIndexWithoutEntries: followers learn of commits later than they could, so that later entries may bring
// it, also commits of a lone client; but not while a read waits, nor after a read has ended.
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
			time.Sleep(time.Second) // virtual: the quiet of before is over
			began := time.Now()
			send()
			test.meanwhile()
			if took := (<-announced).Sub(began); took != test.want {
				t.Errorf("%s: after %v, want %v", test.name, took, test.want)
			}
			synctest.Wait()
			if from.followers.byID["n2"].announcement.sentCommit != index {
				t.Errorf("%s: the follower was not sent the last index", test.name)
			}
		}
	})
}

// TestFollowersLearnOfCommitsSoon: of the last entry of a load too, of which no entry follows that
// would tell them, and long before Raft's commit timeout.
func TestFollowersLearnOfCommitsSoon(t *testing.T) {
	inLedNodes(t, func(t *testing.T, c *raftNodes, leader *raftNode) {
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

// TestDeadFollowerIsLeftAlone: a leader under load does not tell a follower again and again what is committed
// that does not reply.
func TestDeadFollowerIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var messages atomic.Int32
		dead := errors.New("dead")
		var away atomic.Pointer[raft.ServerID]
		c := startNodes(t, func(_ *raft.Config, config *TransportConfig, _ *raftNode) {
			config.Fault = func(peer raft.ServerID, _ any) error {
				if id := away.Load(); id != nil && *id == peer {
					messages.Add(1)
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
		followers := leader.trans.followers
		followers.mu.Lock()
		for id, f := range followers.byID {
			if f.announcement.sentCommit < f.announcement.next.PrevLogEntry {
				away.Store(&id)
			}
		}
		followers.mu.Unlock()
		for range 200 {
			c.apply(leader, "more", leader)
			time.Sleep(2 * commitQuiet) // virtual
		}
		if n := messages.Load(); n == 0 || n > 100 { // heartbeats and entries, in 1.2 s
			t.Errorf("%d messages to a dead follower", n)
		}
	})
}

// deposed is a Raft whose term ends, and whose commit index belongs to the next term when a caller asks for it.
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
		must(t, from.AppendEntries("n2", "n2:1", &args, &raft.AppendEntriesResponse{}))
		time.Sleep(time.Second) // virtual
		if got.Load() != 1 {
			t.Errorf("%d messages, want that of the leader alone", got.Load())
		}
	})
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
