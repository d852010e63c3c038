package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// readRoundTimeout bounds a round at multiplier 1, so that readers who come during one that can't
// succeed wait no longer than that for their own.
const readRoundTimeout = 2 * time.Second

// errNotEstablished ends a read on a node that does not lead, or has not yet
// committed and applied an entry of its term.
var errNotEstablished = errors.New("not the leader of an established term")

// ReadSource is what a read round asks of Raft. All functions are called from one
// goroutine at a time and, but for Kick, must not block.
type ReadSource struct {
	Acks *AckClock
	Self raft.ServerID

	// Term returns Raft's current term, asked from Raft now (not what a
	// notification once said), and whether this node leads in it and its machine
	// has applied that term's first entry.
	Term func() (term uint64, established bool)
	// CommitIndex returns Raft's commit index.
	CommitIndex func() uint64
	// Voters returns the voters of the latest configuration.
	Voters func() []raft.ServerID
	// Kick makes Raft send a heartbeat to all peers now, as VerifyLeader does; its
	// future is of no interest, and must not be waited for. It may block while
	// Raft's main loop does, and is not called again until it returns.
	Kick func()
}

// ReadRounds confirms reads in rounds: all readers that wait when a round starts
// share it, and those that come later share the next. So a thousand readers cost
// one exchange of heartbeats, and none is answered from before it came.
type ReadRounds struct {
	source  ReadSource
	timeout time.Duration

	mu      sync.Mutex
	next    *readRound // gathers readers; nil if none waits
	running bool       // a goroutine works off rounds
	kicking bool       // a goroutine kicks
	again   bool       // and shall do so once more
}

// readRound is one exchange with the peers. done guards the results.
type readRound struct {
	done  chan struct{}
	index uint64
	err   error
}

// NewReadRounds returns rounds that start nothing until the first reader, and that
// fail without a quorum after the time-out.
func NewReadRounds(source ReadSource, timeout time.Duration) *ReadRounds {
	return &ReadRounds{source: source, timeout: timeout}
}

// Confirm returns an index such that a machine that has applied it has applied
// everything acknowledged before the call: the strict read index. It blocks for
// a round trip to a quorum, for two if a round is under way, and no longer than
// ctx. It fails when this node does not lead an established term, or ceases to,
// and after the time-out without a quorum. Safe for concurrent use.
func (r *ReadRounds) Confirm(ctx context.Context) (index uint64, err error) {
	round := r.join()
	select {
	case <-round.done:
		return round.index, round.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// join enters the round that has not started yet.
func (r *ReadRounds) join() *readRound {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &readRound{done: make(chan struct{})}
	}
	if !r.running {
		r.running = true
		go r.run()
	}
	return r.next
}

// run works off rounds until nobody waits.
func (r *ReadRounds) run() {
	for round := r.start(); round != nil; round = r.start() {
		round.index, round.err = r.confirm()
		close(round.done)
	}
}

// start closes the gathering round to further readers and returns it.
func (r *ReadRounds) start() *readRound {
	r.mu.Lock()
	defer r.mu.Unlock()
	round := r.next
	r.next = nil
	r.running = round != nil
	return round
}

// confirm does one round. All its readers have come by now, so everything that
// was acknowledged before any of them came is below the commit index that it
// reads, if this node still led at since; which a quorum then shows that has not
// voted for another by then. The order of the lines is the proof.
func (r *ReadRounds) confirm() (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
	defer cancel()
	s := &r.source
	since := s.Acks.Now()
	term, established := s.Term() // after since: this node's own acknowledgement
	if !established {
		return 0, errNotEstablished
	}
	index := s.CommitIndex()
	r.kick()
	if err := s.Acks.Wait(ctx, term, since, s.Voters(), s.Self); err != nil {
		return 0, err
	}
	return index, nil
}

// kick asks for heartbeats without waiting. A round that finds an earlier kick
// still under way has one more follow it, which is later than its own start.
func (r *ReadRounds) kick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kicking {
		r.again = true
		return
	}
	r.kicking = true
	go func() {
		for more := true; more; more = r.kickAgain() {
			r.source.Kick()
		}
	}()
}

// kickAgain reports whether another kick was asked for meanwhile.
func (r *ReadRounds) kickAgain() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kicking, r.again = r.again, false
	return r.kicking
}
