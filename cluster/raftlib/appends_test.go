package raftlib

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/internal/wake"
)

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
			must(t, from.AppendEntries("n2", "n2:1", &test.args, &raft.AppendEntriesResponse{}))
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
