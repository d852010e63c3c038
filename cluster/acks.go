package cluster

import (
	"context"
	"errors"
	"sync"

	"github.com/hashicorp/raft"
)

// errTermOver ends a wait for acknowledgements in a term that can get no more.
var errTermOver = errors.New("the term is over")

// Stamp is a moment on an [AckClock]. It counts, where a wall clock would do
// almost: no two stamps are equal, so a send and a later read can't seem to be
// at the same time however coarse the clock. Stamps of different clocks don't
// compare.
type Stamp uint64

// AckClock keeps, for each peer, as of when it last acknowledged the local node
// as the leader of a term: the moment when the acknowledged message was *sent*.
// Raft keeps the moment when the reply came, and lets a reply to an older message
// confirm leadership. All methods are safe for concurrent use.
type AckClock struct {
	mu      sync.Mutex
	now     Stamp
	acks    map[raft.ServerID]ack
	over    uint64        // the terms up to this one are over
	changed chan struct{} // closed at the next change; nil if nobody waits
}

// ack says that a peer was with us in a term, as of a moment.
type ack struct {
	term uint64
	sent Stamp
}

// NewAckClock returns a clock on which nothing was acknowledged.
func NewAckClock() *AckClock {
	return &AckClock{acks: map[raft.ServerID]ack{}}
}

// Now returns a moment later than every one before it.
func (c *AckClock) Now() Stamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	return c.now
}

// Record notes that a peer acknowledged in a term what was sent at that moment.
// Replies may be recorded in any order.
func (c *AckClock) Record(peer raft.ServerID, term uint64, sent Stamp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.acks[peer]
	if term < last.term || (term == last.term && sent <= last.sent) {
		return
	}
	c.acks[peer] = ack{term, sent}
	c.broadcast()
}

// EndTerm ends the waits in that term and those before it. math.MaxUint64 ends
// them for good, at shutdown.
func (c *AckClock) EndTerm(term uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if term > c.over {
		c.over = term
		c.broadcast()
	}
}

// Wait blocks until a quorum of the voters has acknowledged in that term
// something sent at since or later. It fails with ctx's cause, or once the term
// is over.
//
// self counts, if it votes, as having acknowledged: the caller must have seen
// Raft's own current term equal to term after it took since. Else a node that has
// meanwhile voted for another would count against that vote.
func (c *AckClock) Wait(ctx context.Context, term uint64, since Stamp, voters []raft.ServerID, self raft.ServerID) error {
	for {
		done, changed, err := c.check(term, since, voters, self)
		if done || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// check reports whether Wait is done and, if not, what to wait for.
func (c *AckClock) check(term uint64, since Stamp, voters []raft.ServerID, self raft.ServerID) (bool, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if term <= c.over {
		return false, nil, errTermOver
	}
	count := 0
	for _, voter := range voters {
		a := c.acks[voter]
		if voter == self || (a.term == term && a.sent >= since) {
			count++
		}
	}
	if count > len(voters)/2 {
		return true, nil, nil
	}
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return false, c.changed, nil
}

// broadcast wakes all waits. The caller holds mu.
func (c *AckClock) broadcast() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}
