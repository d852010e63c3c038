package raftlib

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/internal/wake"
)

// ReadRoundTimeout bounds one round if the Raft multiplier (cluster.Config.RaftMultiplier) is 1. So a reader that comes
// during a round without a quorum waits no longer than that until its own round starts.
const ReadRoundTimeout = 2 * time.Second

// ErrTermOver ends the ticks, reads and waits for acknowledgements of a term that is
// over.
var ErrTermOver = errors.New("the term is over")

// ErrNotEstablished ends a read on a node that does not lead, or has not yet
// committed and applied an entry of its term.
var ErrNotEstablished = errors.New("no established term to read in")

// ReadSource is the part of this node's Raft that a round reads. Each method is called from one goroutine at a time.
// Only VerifyLeader may block, while Raft's main loop does.
type ReadSource interface {
	CurrentTerm() uint64 // as of the call, not of an earlier notification
	CommitIndex() uint64
	GetConfiguration() raft.ConfigurationFuture
	VerifyLeader() raft.Future
}

// ReadRounds confirms reads in rounds: all readers that wait when a round starts share it, and later readers share the
// next round. So a thousand readers cost one exchange of heartbeats. No reader gets an index from before its call.
type ReadRounds struct {
	source      ReadSource
	established func() uint64
	acks        *AckClock
	self        raft.ServerID
	timeout     time.Duration
	rounds      *wake.Gathering[uint64]
	heartbeats  *wake.Gathering[struct{}] // to all peers, at once
}

// NewReadRounds returns the rounds of node self, whose transport notes
// acknowledgements in acks. established returns the term in which the node leads and
// whose first entry its machine has applied, or 0; it must not block. The first reader
// starts the first round; a round without a quorum fails after the time-out.
func NewReadRounds(source ReadSource, established func() uint64, acks *AckClock, self raft.ServerID, timeout time.Duration) *ReadRounds {
	r := &ReadRounds{source: source, established: established, acks: acks, self: self, timeout: timeout}
	r.rounds = wake.NewGathering(r.confirm)
	r.heartbeats = wake.NewGathering(func() (struct{}, error) {
		source.VerifyLeader() // sends heartbeats; its result may be due to older replies, and is not used
		return struct{}{}, nil
	})
	return r
}

// ReadIndex returns the strict read index: a machine that has applied it has applied
// every command that was acknowledged before the call. It blocks for
// a round trip to a quorum, for two if a round is under way, and no longer than
// ctx. It fails if this node does not lead an established term, or no longer does,
// and after the time-out without a quorum. Safe for concurrent use.
func (r *ReadRounds) ReadIndex(ctx context.Context) (index uint64, err error) {
	return r.rounds.Join(ctx)
}

// confirm does one round. All its readers have called by now, so the commit index that it reads covers every command
// that was acknowledged before their calls, provided that this node still led at since. The quorum proves that: it has
// acknowledged messages sent at since or later, so it had not voted for another leader by then. The proof needs the
// lines in this order.
func (r *ReadRounds) confirm() (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
	defer cancel()
	since := r.acks.Now()
	term := r.established()
	if term == 0 || r.source.CurrentTerm() != term { // after since: this node's own acknowledgement
		return 0, ErrNotEstablished
	}
	index := r.source.CommitIndex()
	r.heartbeats.Start() // new ones: the heartbeats under way may have left before since
	if err := r.acks.Wait(ctx, term, since, r.voters(), r.self); err != nil {
		return 0, err
	}
	return index, nil
}

// voters returns the members with a vote in the latest configuration. The future never
// blocks.
func (r *ReadRounds) voters() (found []raft.ServerID) {
	for _, server := range r.source.GetConfiguration().Configuration().Servers {
		if server.Suffrage == raft.Voter {
			found = append(found, server.ID)
		}
	}
	return found
}

// Wait blocks until a quorum of the voters has acknowledged, in that term, messages sent at since or later. It fails
// with the cause of ctx, or with ErrTermOver once the term is over.
//
// self counts as having acknowledged, if it votes. For this, the caller must take since first and then see that term is
// Raft's current term. Otherwise this node could already have voted for another leader, and still count for itself.
func (c *AckClock) Wait(ctx context.Context, term uint64, since Stamp, voters []raft.ServerID, self raft.ServerID) error {
	c.count(1)
	defer c.count(-1)
	for {
		done, changed, err := c.check(term, since, voters, self)
		if done || err != nil {
			return err
		}
		if err := wake.Until(ctx, changed); err != nil {
			return err
		}
	}
}

// count adds 1 when a call of Wait begins, and -1 when it ends.
func (c *AckClock) count(change int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits += change
	c.hurried.Ring()
}

// check reports whether Wait is done and, if not, returns the channel that the next
// change closes.
func (c *AckClock) check(term uint64, since Stamp, voters []raft.ServerID, self raft.ServerID) (bool, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if term <= c.over {
		return false, nil, ErrTermOver
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
	return false, c.changed.Next(), nil
}

// EndTerm ends all waits in this term and in earlier terms. math.MaxUint64 ends them for good, at shutdown.
func (c *AckClock) EndTerm(term uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if term > c.over {
		c.over = term
		c.changed.Ring()
	}
}
