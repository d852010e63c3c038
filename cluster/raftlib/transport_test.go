package raftlib

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/internal/wake"
	"github.com/signalbox/signalbox/test/memnet"
)

// TestClusterInVirtualTime proves that Raft runs whole in a bubble on this
// transport: minutes pass at once, and every goroutine ends at shutdown, or the
// bubble reports a deadlock.
func TestClusterInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t)
		defer c.stop()
		start := time.Now()
		for round := range 3 {
			old := c.leader()
			c.apply(old, fmt.Sprint("all ", round), c.nodes...)
			c.net.Isolate(string(old.id))
			lost := old.raft.Apply([]byte("lost"), 0)
			rest := c.others(old)
			next := c.leader(old)
			c.apply(next, fmt.Sprint("majority ", round), rest...)
			if err := lost.Error(); !errors.Is(err, raft.ErrLeadershipLost) {
				t.Fatalf("a write of the isolated leader: %v", err)
			}
			time.Sleep(20 * time.Second) // virtual: how long the partition lasts
			c.net.Rejoin(string(old.id))
			c.apply(c.leader(), fmt.Sprint("healed ", round), c.nodes...)
		}
		if passed := time.Since(start); passed < time.Minute {
			t.Fatalf("only %v passed", passed)
		}
		want := c.nodes[0].fsm.history()
		if len(want) != 9 || slices.Contains(want, "lost") {
			t.Fatalf("history: %q", want)
		}
		for _, n := range c.nodes[1:] {
			if got := n.fsm.history(); !slices.Equal(got, want) {
				t.Fatalf("%s applied %q, n1 %q", n.id, got, want)
			}
		}
	})
}

// TestPreVoteIsOn: an isolated node that campaigns in vain raises no term, so its
// return deposes no leader. Raft turns pre-vote off for a transport that hides
// RequestPreVote.
func TestPreVoteIsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t)
		defer c.stop()
		leader := c.leader()
		c.apply(leader, "before", c.nodes...)
		away := c.others(leader)[0]
		term := away.raft.CurrentTerm()
		c.net.Isolate(string(away.id))
		time.Sleep(20 * time.Second) // virtual: many election times
		if away.raft.State() == raft.Follower {
			t.Fatal("the isolated node has not campaigned: the test shows nothing")
		}
		if got := away.raft.CurrentTerm(); got != term {
			t.Errorf("the isolated node went from term %d to %d", term, got)
		}
		c.net.Rejoin(string(away.id))
		c.apply(leader, "after", c.nodes...)
		if got := leader.raft.CurrentTerm(); got != term {
			t.Errorf("its return moved the leader from term %d to %d", term, got)
		}
	})
}

// TestHeartbeatsGoThroughTheMainLoop: no code handles a heartbeat beside the main
// loop, which takes its messages from Consumer (raft#695).
func TestHeartbeatsGoThroughTheMainLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := transportPair(t, 1)
		to.SetHeartbeatHandler(func(rpc raft.RPC) {
			t.Error("a heartbeat was handled beside the main loop")
			rpc.Respond(&raft.AppendEntriesResponse{}, nil)
		})
		served := make(chan raft.RPC, 1)
		go func() {
			select {
			case rpc := <-to.Consumer():
				served <- rpc
				rpc.Respond(&raft.AppendEntriesResponse{Term: 7, Success: true}, nil)
			case <-t.Context().Done(): // it was handled elsewhere
			}
		}()
		heartbeat := &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{Addr: []byte("n1:1")}, Term: 7}
		var reply raft.AppendEntriesResponse
		if err := from.AppendEntries("n2", "n2:1", heartbeat, &reply); err != nil {
			t.Fatal(err)
		}
		select {
		case rpc := <-served:
			if got, ok := rpc.Command.(*raft.AppendEntriesRequest); !ok || got.Term != 7 {
				t.Fatalf("the main loop got %+v", rpc.Command)
			}
		default:
			t.Fatal("the heartbeat did not reach the main loop")
		}
	})
}

// TestAcksAreStampedWhenSent: a reply counts as of the sending of its request, and
// only in the request's term.
func TestAcksAreStampedWhenSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := transportPair(t, 1)
		replies := make(chan uint64)
		arrived := make(chan struct{})
		go func() {
			for {
				select {
				case rpc := <-to.Consumer():
					arrived <- struct{}{}
					rpc.Respond(&raft.AppendEntriesResponse{Term: <-replies}, nil)
				case <-t.Context().Done():
					return
				}
			}
		}()
		exchange := func(term, replyTerm uint64) (before, during Stamp) {
			before = from.config.Acks.Now()
			done := make(chan error)
			go func() {
				var reply raft.AppendEntriesResponse
				done <- from.AppendEntries("n2", "n2:1", &raft.AppendEntriesRequest{Term: term}, &reply)
			}()
			<-arrived
			during = from.config.Acks.Now()
			replies <- replyTerm
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			return before, during
		}
		before, during := exchange(7, 7)
		acksExpect(t, from.config.Acks, 7, before, true)
		acksExpect(t, from.config.Acks, 7, during, false)
		before, _ = exchange(8, 9) // the peer has gone on to a later term
		acksExpect(t, from.config.Acks, 8, before, false)
		acksExpect(t, from.config.Acks, 9, before, false)
	})
}

// TestPipelineIsRefused: pipelined entries would pass neither fence nor stamp.
func TestPipelineIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, _ := transportPair(t, 1)
		pipeline, err := from.AppendEntriesPipeline("n2", "n2:1")
		if err == nil {
			_ = pipeline.Close()
		}
		if !errors.Is(err, raft.ErrPipelineReplicationNotSupported) {
			t.Fatalf("a pipeline: %v", err)
		}
	})
}

// TestBacklogDrainsAtOnce: what gathered behind a short cut goes out without
// pauses. A pipeline sends one chunk at each trigger or commit timeout, which is
// made long here.
func TestBacklogDrainsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const commitTimeout = 400 * time.Millisecond
		c := startNodes(t, func(config *raft.Config, _ *TransportConfig, _ *raftNode) {
			config.CommitTimeout = commitTimeout
		})
		defer c.stop()
		leader := c.leader()
		c.apply(leader, "first", c.nodes...)
		time.Sleep(5 * time.Second) // virtual: a pipeline would be set up by now
		for _, o := range c.others(leader) {
			c.net.Cut(string(leader.id), string(o.id))
		}
		var futures []raft.ApplyFuture
		for i := range 1000 {
			futures = append(futures, leader.raft.Apply(fmt.Appendf(nil, "%d", i), 0))
		}
		synctest.Wait()
		healed := time.Now()
		for _, o := range c.others(leader) {
			c.net.Heal(string(leader.id), string(o.id))
		}
		for _, f := range futures {
			c.must(f.Error())
		}
		if took := time.Since(healed); took >= commitTimeout {
			t.Fatalf("1000 entries took %v after the cut", took)
		}
	})
}

// TestFollowerRecoversFromRejectedAppends: writes of one follower fail now and
// then under load; once they don't, it catches up. With a pipeline it could stop
// for ever, its heartbeats in order (raft#611, raft#612).
func TestFollowerRecoversFromRejectedAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t)
		defer c.stop()
		leader := c.leader()
		c.apply(leader, "first", c.nodes...)
		sick := c.others(leader)[0]
		for _, o := range c.others(leader) { // a round trip, so that sends overlap
			c.net.Delay(string(leader.id), string(o.id), 3*time.Millisecond)
		}
		var writes, failures int
		sick.logs.fail = func() error {
			if writes++; writes%20 == 0 {
				failures++
				return errors.New("a transient error")
			}
			return nil
		}
		sick.logs.failing.Store(true)
		for i := range 2000 {
			leader.raft.Apply(fmt.Appendf(nil, "%d", i), 0)
			time.Sleep(time.Millisecond) // virtual: the pace of the load
		}
		sick.logs.failing.Store(false)
		synctest.Wait()
		if failures == 0 {
			t.Fatal("no append failed: the test shows nothing")
		}
		c.apply(leader, "last", c.nodes...)
	})
}

// TestLeaderWithHungLogLosesLeadership: while a write of the leader's log hangs,
// its heartbeats stop, and the others elect one that can write (raft#503). It
// follows once its disk is back.
func TestLeaderWithHungLogLosesLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t, func(_ *raft.Config, transport *TransportConfig, n *raftNode) {
			transport.Stalled = func() bool { return n.log.WaitingFor() > 2*time.Second }
		})
		defer c.stop()
		old := c.leader()
		c.apply(old, "before", c.nodes...)
		old.logs.hang()
		hung := time.Now()
		open := old.raft.Apply([]byte("open"), 0) // the followers have it, and the next leader commits it
		next := c.leader(old)
		if took := time.Since(hung); took < 2*time.Second || took > 6*time.Second {
			t.Errorf("a new leader after %v", took)
		}
		c.apply(next, "after", c.others(old)...)
		old.logs.release()
		if err := open.Error(); !errors.Is(err, raft.ErrLeadershipLost) {
			t.Errorf("the write that hung: %v", err)
		}
		c.apply(c.leader(), "healed", c.nodes...)
		if got := old.fsm.history(); !slices.Equal(got, []string{"before", "open", "after", "healed"}) {
			t.Errorf("the old leader applied %q", got)
		}
	})
}

// TestStalledTransportIsSilent: a snapshot holds a follower as heartbeats do, and a node that
// can't write must not win an election.
func TestStalledTransportIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, _ := transportPair(t, 1)
		from.config.Stalled = func() bool { return true }
		err := from.InstallSnapshot("n2", "n2:1", &raft.InstallSnapshotRequest{}, &raft.InstallSnapshotResponse{}, nil)
		if !errors.Is(err, errStalled) {
			t.Fatalf("a snapshot from a stalled leader: %v", err)
		}
		err = from.RequestPreVote("n2", "n2:1", &raft.RequestPreVoteRequest{}, &raft.RequestPreVoteResponse{})
		if !errors.Is(err, errStalled) {
			t.Fatalf("a pre-vote for a stalled node: %v", err)
		}
		err = from.RequestVote("n2", "n2:1", &raft.RequestVoteRequest{}, &raft.RequestVoteResponse{})
		if !errors.Is(err, errStalled) {
			t.Fatalf("a vote for a stalled node: %v", err)
		}
		from.config.Stalled, from.config.Log = func() bool { return false }, &ownLog{failed: errFakeFull}
		err = from.RequestPreVote("n2", "n2:1", &raft.RequestPreVoteRequest{}, &raft.RequestPreVoteResponse{})
		if !errors.Is(err, errFakeFull) {
			t.Fatalf("a pre-vote for a node without room: %v", err)
		}
		err = from.RequestVote("n2", "n2:1", &raft.RequestVoteRequest{}, &raft.RequestVoteResponse{})
		if !errors.Is(err, errFakeFull) {
			t.Fatalf("a vote for a node without room: %v", err)
		}
	})
}

// TestTransportTimesStretch: a message waits for its reply, and an append may take, as
// much longer as the stretch says.
func TestTransportTimesStretch(t *testing.T) {
	for _, stretch := range []wake.Stretch{1, 5} {
		synctest.Test(t, func(t *testing.T) {
			from, _ := transportPair(t, stretch)
			began := time.Now()
			err := from.AppendEntries("n2", "n2:1", &raft.AppendEntriesRequest{}, &raft.AppendEntriesResponse{}) // that no Raft reads
			if took := time.Since(began); err == nil || took != stretch.Of(raftTimeout) {
				t.Errorf("stretch %d: a message ended after %v: %v", stretch, took, err)
			}
			if from.paces.aim != stretch.Of(appendAim) {
				t.Errorf("stretch %d: an append may take %v", stretch, from.paces.aim)
			}
		})
	}
}

// TestFaultHook: what the hook fails is not sent.
func TestFaultHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failing atomic.Bool
		c := startNodes(t, func(_ *raft.Config, transport *TransportConfig, _ *raftNode) {
			transport.Fault = func(raft.ServerID, any) error {
				if failing.Load() {
					return errors.New("injected")
				}
				return nil
			}
		})
		defer c.stop()
		leader := c.leader()
		c.apply(leader, "before", c.nodes...)
		failing.Store(true)
		lost := leader.raft.Apply([]byte("lost"), 0)
		if err := lost.Error(); !errors.Is(err, raft.ErrLeadershipLost) {
			t.Fatalf("a write that no peer sees: %v", err)
		}
		failing.Store(false)
		c.apply(c.leader(), "after", c.nodes...)
	})
}

// transportPair opens two transports that no Raft uses, named n1 and n2, for the
// time of the test.
func transportPair(t *testing.T, stretch wake.Stretch) (from, to *Transport) {
	t.Helper()
	n := memnet.New()
	return transportOn(t, n, "n1", stretch), transportOn(t, n, "n2", stretch)
}

// transportOn opens a transport that no Raft uses, for the time of the test.
func transportOn(t *testing.T, n *memnet.Network, name string, stretch wake.Stretch) *Transport {
	t.Helper()
	layer, err := openLayer(n, name, name+":1")
	if err != nil {
		t.Fatal(err)
	}
	transport := NewTransport(TransportConfig{
		Layer: layer, Acks: NewAckClock(), Logger: hclog.NewNullLogger(), Stalled: func() bool { return false },
		Log: &ownLog{}, Stretch: stretch,
	})
	t.Cleanup(func() { _ = transport.Close() })
	return transport
}

// paceEntries makes so many entries of that many bytes.
func paceEntries(count, size int) (entries []*raft.Log) {
	for i := range count {
		entries = append(entries, &raft.Log{Index: uint64(i + 1), Data: make([]byte, size)})
	}
	return entries
}

// TestPaceLearnsFromTimeOuts: after failures an append gets smaller, down to one
// entry, and after successes larger again.
func TestPaceLearnsFromTimeOuts(t *testing.T) {
	p := &pace{budget: appendFirst}
	entries := paceEntries(16, 256<<10)
	last := len(p.fit(entries))
	if last != 3 {
		t.Errorf("%d entries at first", last)
	}
	for range 10 {
		sent := p.fit(entries)
		if len(sent) == 0 || len(sent) > last {
			t.Fatalf("%d entries after %d", len(sent), last)
		}
		last = len(sent)
		p.note(sent, 2*time.Second, errors.New("i/o timeout"), appendAim)
	}
	if last != 1 || p.budget != appendMin {
		t.Errorf("%d entries, %d bytes after ten time-outs", last, p.budget)
	}
	for range 12 {
		p.note(p.fit(entries), time.Millisecond, nil, appendAim)
	}
	if got := len(p.fit(entries)); got != 16 {
		t.Errorf("%d entries after successes", got)
	}
	p.note(p.fit(entries), 4*appendAim, nil, appendAim)
	if got := len(p.fit(entries)); got != 4 {
		t.Errorf("%d entries after an append of 4 MiB that took four times the aim", got)
	}
	for range 10 { // a slow disk, or a peer that is gone
		p.note(paceEntries(1, 10), time.Second, nil, appendAim)
		p.note(nil, 2*time.Second, errors.New("i/o timeout"), appendAim)
	}
	if got := len(p.fit(entries)); got != 4 {
		t.Errorf("%d entries after slow heartbeats", got)
	}
}

// TestPaceKnowsTheLatency: on a link that is fast and far, the bytes are not what takes
// long, and after failures the budget grows again.
func TestPaceKnowsTheLatency(t *testing.T) {
	const far = 2 * appendAim
	p := &pace{budget: appendFirst}
	entries := paceEntries(128, 256<<10)
	p.note(nil, far, nil, appendAim) // a heartbeat
	for range 5 {
		p.note(p.fit(entries), far+appendAim/10, nil, appendAim)
	}
	if p.budget != appendMax {
		t.Errorf("%d bytes on a fast link", p.budget)
	}
	for range 10 {
		p.note(p.fit(entries), far, errors.New("connection refused"), appendAim)
	}
	for range 10 {
		p.note(p.fit(entries), far+appendAim/10, nil, appendAim)
	}
	if p.budget != appendMax {
		t.Errorf("%d bytes after failures", p.budget)
	}
	p.note(p.fit(entries), far+4*appendAim, nil, appendAim)
	if p.budget > appendMax/3 {
		t.Errorf("%d bytes after an append that took long beyond the latency", p.budget)
	}
}

// TestCatchUpOnASlowLink: a follower that has missed 32 MiB gets them over a link of
// 1,500 KiB/s, which loses a burst now and then, nearly as fast as the link allows,
// and goes on following meanwhile.
func TestCatchUpOnASlowLink(t *testing.T) {
	for name, loss := range map[string]float64{"whole": 0, "lossy": 0.001} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startNodes(t)
				defer c.stop()
				leader := c.leader()
				rest := c.others(leader)
				away := rest[0]
				c.apply(leader, "before", c.nodes...)
				term := leader.raft.CurrentTerm()
				c.net.Isolate(string(away.id))
				entry := string(bytes.Repeat([]byte("x"), 256<<10))
				const count, rate = 128, 1500 << 10
				for range count {
					c.apply(leader, entry, leader, rest[1])
				}
				c.net.Bandwidth(string(leader.id), string(away.id), rate)
				c.net.Loss(string(leader.id), string(away.id), loss, 1)
				c.net.Rejoin(string(away.id))
				healed := time.Now()
				away.fsm.await(t, leader.raft.LastIndex())
				ideal := time.Second * count * (256 << 10) / rate
				took := time.Since(healed)
				t.Logf("%d entries of 256 KiB at 1,500 KiB/s took %v; the link needs %v", count, took, ideal)
				if limit := ideal*3/2 + 11*time.Second; took > limit { // Raft retries after up to 10.24 s
					t.Errorf("it took more than %v", limit)
				}
				if got := leader.raft.CurrentTerm(); got != term || leader.raft.State() != raft.Leader {
					t.Errorf("term %d has become %d", term, got)
				}
			})
		})
	}
}

// TestSmallEntriesShareAppends: a follower that has missed many small entries gets them
// in few appends, each of which costs it a synced write.
func TestSmallEntriesShareAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var appends atomic.Int64
		var away atomic.Pointer[raftNode]
		c := startNodes(t, func(_ *raft.Config, config *TransportConfig, _ *raftNode) {
			config.Fault = func(peer raft.ServerID, request any) error {
				if r, is := request.(*raft.AppendEntriesRequest); is && len(r.Entries) > 0 && away.Load() != nil && peer == away.Load().id {
					appends.Add(1)
				}
				return nil
			}
		})
		defer c.stop()
		leader := c.leader()
		rest := c.others(leader)
		away.Store(rest[0])
		c.apply(leader, "before", c.nodes...)
		c.net.Isolate(string(rest[0].id))
		const missed = 2000
		var last raft.ApplyFuture
		for range missed {
			last = leader.raft.Apply([]byte("small"), 0)
		}
		c.must(last.Error())
		time.Sleep(15 * time.Second) // virtual: attempts in vain end
		appends.Store(0)
		c.net.Rejoin(string(rest[0].id))
		rest[0].fsm.await(t, leader.raft.LastIndex())
		if got := appends.Load(); got > missed/100 {
			t.Errorf("%d entries took %d appends", missed, got)
		}
	})
}

var acksThree = []raft.ServerID{"n1", "n2", "n3"}

// acksExpect checks, inside a bubble, whether n1 has a quorum of three.
func acksExpect(t *testing.T, c *AckClock, term uint64, since Stamp, want bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // virtual
	defer cancel()
	err := c.Wait(ctx, term, since, acksThree, "n1")
	if want && err != nil {
		t.Errorf("no quorum in term %d since %d: %v", term, since, err)
	}
	if !want && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a quorum in term %d since %d: %v", term, since, err)
	}
}

func TestAckClockQuorum(t *testing.T) {
	five := []raft.ServerID{"n1", "n2", "n3", "n4", "n5"}
	type acked struct {
		peer raft.ServerID
		term uint64
		late bool // sent after the wait's moment
	}
	for _, test := range []struct {
		name   string
		voters []raft.ServerID
		self   raft.ServerID
		acks   []acked
		want   bool
	}{
		{"alone", []raft.ServerID{"n1"}, "n1", nil, true},
		{"no voters", nil, "n1", nil, false},
		{"none of two", five[:2], "n1", nil, false},
		{"one of two", five[:2], "n1", []acked{{"n2", 3, true}}, true},
		{"one of three", five[:3], "n1", []acked{{"n3", 3, true}}, true},
		{"sent before", five[:3], "n1", []acked{{"n2", 3, false}, {"n3", 3, false}}, false},
		{"an earlier term", five[:3], "n1", []acked{{"n2", 2, true}, {"n3", 2, true}}, false},
		{"a later term", five[:3], "n1", []acked{{"n2", 4, true}, {"n3", 4, true}}, false},
		{"an older reply comes last", five[:3], "n1", []acked{{"n2", 3, true}, {"n2", 3, false}}, true},
		{"a reply of an older term comes last", five[:3], "n1", []acked{{"n2", 3, true}, {"n2", 2, true}}, true},
		{"half of four", five[:4], "n1", []acked{{"n2", 3, true}}, false},
		{"more than half of four", five[:4], "n1", []acked{{"n2", 3, true}, {"n3", 3, true}}, true},
		{"two of five", five, "n1", []acked{{"n2", 3, true}}, false},
		{"three of five", five, "n1", []acked{{"n2", 3, true}, {"n5", 3, true}}, true},
		{"a peer that does not vote", five[:3], "n1", []acked{{"n4", 3, true}}, false},
		{"self does not vote", five[1:3], "n1", []acked{{"n2", 3, true}}, false},
		{"self does not vote, both others do", five[1:3], "n1", []acked{{"n2", 3, true}, {"n3", 3, true}}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := NewAckClock()
				early := c.Now()
				since := c.Now()
				for _, a := range test.acks {
					sent := early
					if a.late {
						sent = since
					}
					c.Record(a.peer, a.term, sent)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err := c.Wait(ctx, 3, since, test.voters, test.self)
				if test.want != (err == nil) {
					t.Fatalf("got %v", err)
				}
			})
		})
	}
}

func TestAckClockStampsRise(t *testing.T) {
	c := NewAckClock()
	var mu sync.Mutex
	var all []Stamp
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 100 {
				s := c.Now()
				mu.Lock()
				all = append(all, s)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	slices.Sort(all)
	if got := len(slices.Compact(all)); got != 800 {
		t.Fatalf("%d different stamps of 800", got)
	}
}

func TestAckClockWakesManyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewAckClock()
		since := c.Now()
		results := make(chan error, 1000)
		for range cap(results) {
			go func() { results <- c.Wait(t.Context(), 3, since, acksThree, "n1") }()
		}
		synctest.Wait()
		c.Record("n2", 3, since-1)
		synctest.Wait()
		if got := len(results); got != 0 {
			t.Fatalf("%d waits ended on an old acknowledgement", got)
		}
		start := time.Now()
		c.Record("n2", 3, since)
		for range cap(results) {
			if err := <-results; err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took != 0 {
			t.Fatalf("the waits polled: they took %v", took)
		}
	})
}

func TestAckClockEndTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewAckClock()
		since := c.Now()
		results := make(chan error, 2)
		for _, term := range []uint64{3, 4} {
			go func() { results <- c.Wait(t.Context(), term, since, acksThree, "n1") }()
		}
		synctest.Wait()
		c.EndTerm(3)
		if err := <-results; !errors.Is(err, ErrTermOver) {
			t.Fatalf("a wait in a term that is over: %v", err)
		}
		synctest.Wait()
		if len(results) != 0 {
			t.Fatal("the next term's wait ended too")
		}
		c.EndTerm(2) // late news of an older term
		c.Record("n2", 3, since)
		if err := c.Wait(t.Context(), 3, since, acksThree, "n1"); !errors.Is(err, ErrTermOver) {
			t.Fatalf("a quorum in a term that is over: %v", err)
		}
		c.EndTerm(math.MaxUint64)
		if err := <-results; !errors.Is(err, ErrTermOver) {
			t.Fatalf("a wait at shutdown: %v", err)
		}
	})
}
