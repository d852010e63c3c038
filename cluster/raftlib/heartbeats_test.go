package raftlib

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/internal/wake"
)

// TestHeartbeatDelay: no delay without a reply, else until heartbeatAfter has passed and all followers are due.
func TestHeartbeatDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h heartbeats
		if delay := h.delay(heartbeatAfter); delay != 0 {
			t.Errorf("the first heartbeat waits for %v", delay)
		}
		h.lastReply = time.Now() // a multiple of heartbeatEvery
		if delay := h.delay(heartbeatAfter); delay != 2*heartbeatEvery {
			t.Errorf("a heartbeat just after a reply waits for %v", delay)
		}
		time.Sleep(heartbeatAfter) // virtual
		if delay := h.delay(heartbeatAfter); delay != 0 {
			t.Errorf("a heartbeat long after a reply waits for %v", delay)
		}
	})
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
