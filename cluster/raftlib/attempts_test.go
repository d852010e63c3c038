package raftlib

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/test/memnet"
)

// TestSecondSilenceIsHeld: a reply in between, even a refusal, begins the count again.
func TestSecondSilenceIsHeld(t *testing.T) {
	var a attempts
	for n, step := range []struct{ replied, success, hold, failing bool }{
		{false, false, false, true},
		{false, false, true, true},
		{false, false, true, true},
		{true, false, false, true},
		{false, false, false, true},
		{true, true, false, false},
		{false, false, false, true},
	} {
		if hold := a.noteResult(step.replied, step.success); hold != step.hold || a.failing != step.failing {
			t.Errorf("append %d: %+v is held: %v", n+1, a, hold)
		}
	}
}

// TestFailuresAreHeld from the second one on, until the follower replies or waiting is of no use.
func TestFailuresAreHeld(t *testing.T) {
	const during = 10*time.Second + holdCheck/2
	for name, test := range map[string]struct {
		then func(from *Transport, led *leading)
		want time.Duration
	}{
		"another's reply": {func(from *Transport, _ *leading) { from.followers.noteHeartbeat("n3") }, 10 * during},
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
					if args, ok := request.(*raft.AppendEntriesRequest); ok && isHeartbeat(args) {
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
				release := time.AfterFunc(time.Minute, func() { from.followers.noteHeartbeat("n2") })
				if took := timed(entry); took > sendAgain {
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
				from.followers.noteHeartbeat("n2")
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
			time.AfterFunc(time.Minute, func() { from.followers.noteHeartbeat("n2") })
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
// and no attempt is left to a follower that has died.
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
		must(t, entry())
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

// TestFollowerComesBack: it is sent entries soon, however long it was away.
func TestFollowerComesBack(t *testing.T) {
	for name, write := range map[string]time.Duration{"under load": time.Second, "idle": time.Hour} {
		t.Run(name, func(t *testing.T) {
			inLedNodes(t, func(t *testing.T, c *raftNodes, leader *raftNode) {
				other := c.others(leader)
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
