package raftlib

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// commitQuiet is how long after a success Run looks whether the follower knows the
	// commit index by then: under load, the next entries bring it.
	commitQuiet = time.Millisecond
	// heartbeatAfter is for how long after the last message a heartbeat is held, at
	// multiplier 1. Followers campaign after Tick without a message.
	heartbeatAfter = 150 * time.Millisecond
)

// commits knows what commit index each follower has been sent. Raft would send it with the next
// entries, or after its commit timeout: a short one costs an idle cluster most of its processor time,
// and after a long one the followers' machines would be behind for as long. Safe for concurrent use.
type commits struct {
	news wake.Signal // a follower may not know the commit index
	mu   sync.Mutex
	// peers are the followers that have replied.
	peers map[raft.ServerID]*follower
}

// follower is what a leader knows of one.
type follower struct {
	flying int       // appends to it under way
	last   time.Time // when the last message came back
	target raft.ServerAddress
	knows  uint64 // the commit index that it was sent, in the term of next
	// next is an append without entries behind the last entry that the follower has acknowledged in its term.
	next raft.AppendEntriesRequest
}

// heartbeat reports whether a message is one. It compares no entry.
func heartbeat(args *raft.AppendEntriesRequest) bool {
	return len(args.Entries) == 0 && args.PrevLogEntry == 0 && args.LeaderCommitIndex == 0
}

// end returns index and term of the last entry that an append compares.
func end(args *raft.AppendEntriesRequest) (index, term uint64) {
	if n := len(args.Entries); n > 0 {
		return args.Entries[n-1].Index, args.Entries[n-1].Term
	}
	return args.PrevLogEntry, args.PrevLogTerm
}

// of returns what is known of a follower. The caller holds mu.
func (c *commits) of(id raft.ServerID) *follower {
	if c.peers[id] == nil {
		c.peers[id] = &follower{}
	}
	return c.peers[id]
}

// begin notes that an append leaves.
func (c *commits) begin(id raft.ServerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(id).flying++
}

// end notes how an append came out, of which the last entry is of lastTerm. args has the commit index as it was sent.
func (c *commits) end(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, lastTerm uint64, success bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.of(id)
	f.flying--
	if !success || args.Term < f.next.Term {
		return
	}
	if args.Term > f.next.Term {
		f.knows = 0
		f.next = raft.AppendEntriesRequest{RPCHeader: args.RPCHeader, Term: args.Term}
	}
	f.target, f.last, f.knows = target, time.Now(), max(f.knows, args.LeaderCommitIndex)
	if last, _ := end(args); last > f.next.PrevLogEntry {
		f.next.PrevLogEntry, f.next.PrevLogTerm = last, lastTerm
	}
	if f.knows < f.next.PrevLogEntry {
		c.news.Set()
	}
}

// heard notes the reply to a heartbeat.
func (c *commits) heard(id raft.ServerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(id).last = time.Now()
}

// hold blocks until so long after the last message to a follower, but not while a read waits for an acknowledgement,
// nor when ctx has ended.
func (c *commits) hold(ctx context.Context, id raft.ServerID, after time.Duration, acks *AckClock) {
	hurry := acks.Hurry()
	c.mu.Lock()
	wait := after - time.Since(c.of(id).last)
	c.mu.Unlock()
	if hurry == nil || wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-hurry:
	case <-ctx.Done():
	}
}

// due returns the followers that have acknowledged entries in the term, up to commit or beyond, and have not
// been sent that they are committed, and what to send them. It leaves out those
// to which an append is under way: its end looks again.
func (c *commits) due(term, commit uint64) map[raft.ServerID]follower {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[raft.ServerID]follower{}
	for id, f := range c.peers {
		index := min(commit, f.next.PrevLogEntry)
		if f.next.Term == term && f.flying == 0 && f.knows < index {
			due := *f
			due.next.LeaderCommitIndex = index
			found[id] = due
		}
	}
	return found
}

// CommitSource is what the followers are to know of Raft. No method blocks.
type CommitSource interface {
	CurrentTerm() uint64
	CommitIndex() uint64
}

// Run sends followers what is committed, if no entries follow that would tell them, until ctx ends: one ordinary
// append without entries, behind the last entry that the follower has acknowledged in this term.
func (t *Transport) Run(ctx context.Context, source CommitSource) {
	for wake.Until(ctx, t.commits.news) == nil {
		if wake.Pause(ctx, commitQuiet) != nil {
			return
		}
		// In this order: what a later leader has committed may be another entry of that index.
		commit := source.CommitIndex()
		term := source.CurrentTerm()
		for id, f := range t.commits.due(term, commit) {
			go func() { // a follower that does not reply holds no other up
				_ = t.append(t.announcer, id, f.target, &f.next, &raft.AppendEntriesResponse{}, 1)
			}()
		}
	}
}

// dialler is a layer's half that dials. It does not close the layer.
type dialler struct {
	raft.StreamLayer
	closing context.Context
}

func (d dialler) Accept() (net.Conn, error) {
	<-d.closing.Done()
	return nil, net.ErrClosed
}

func (d dialler) Close() error { return nil }
