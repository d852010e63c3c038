package raftlib

import (
	"errors"
	"fmt"
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
	inLedNodes(t, func(t *testing.T, c *raftNodes, leader *raftNode) {
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
		must(t, from.AppendEntries("n2", "n2:1", heartbeat, &reply))
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
	inLedNodes(t, func(t *testing.T, c *raftNodes, leader *raftNode) {
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
			if from.followers.aim != stretch.Of(appendAim) {
				t.Errorf("stretch %d: an append may take %v", stretch, from.followers.aim)
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

// TestVoteOfARestartedVoter: the request for a vote reaches the voter's next process, though all pooled connections lead to its
// former process.
func TestVoteOfARestartedVoter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		from, voter := transportOn(t, n, "n1", 1), transportOn(t, n, "n2", 1)
		vote := func() error {
			return from.RequestVote("n2", "n2:1", &raft.RequestVoteRequest{}, &raft.RequestVoteResponse{})
		}
		preVote := func() error {
			return from.RequestPreVote("n2", "n2:1", &raft.RequestPreVoteRequest{}, &raft.RequestPreVoteResponse{})
		}
		for _, ask := range []func() error{vote, preVote, vote} {
			var voting sync.WaitGroup
			for range raftMaxPool {
				voting.Go(func() {
					if err := ask(); err != nil {
						t.Error(err)
					}
				})
			}
			var together []raft.RPC
			for range raftMaxPool {
				select {
				case rpc := <-voter.Consumer():
					together = append(together, rpc)
				case <-time.After(time.Second): // virtual
				}
			}
			for _, rpc := range together { // each has come over another connection
				if _, ok := rpc.Command.(*raft.RequestVoteRequest); ok {
					rpc.Respond(&raft.RequestVoteResponse{}, nil)
				} else {
					rpc.Respond(&raft.RequestPreVoteResponse{}, nil)
				}
			}
			voting.Wait()
			_ = voter.Close()
			n.Crash("n2")
			voter = transportOn(t, n, "n2", 1)
		}
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
	must(t, err)
	transport := NewTransport(TransportConfig{
		Layer: layer, Acks: NewAckClock(), Logger: hclog.NewNullLogger(), Stalled: func() bool { return false },
		Log: &ownLog{}, Stretch: stretch,
	})
	t.Cleanup(func() { _ = transport.Close() })
	return transport
}
