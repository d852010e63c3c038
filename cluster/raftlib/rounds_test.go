package raftlib

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// roundsFake is a Raft that leads three nodes in term 3, as n1. Its peers acknowledge
// when the test says so. It implements ReadSource.
type roundsFake struct {
	acks    *AckClock
	commit  atomic.Uint64
	kicks   atomic.Int64
	led     atomic.Bool
	asked   func(what string) // called before each reply
	release chan struct{}     // unless nil, a kick blocks until it is closed
}

func newRoundsFake() *roundsFake {
	f := &roundsFake{acks: NewAckClock(), asked: func(string) {}}
	f.commit.Store(100)
	f.led.Store(true)
	return f
}

func (f *roundsFake) rounds() *ReadRounds {
	return NewReadRounds(f, f.established, f.acks, "n1", ReadRoundTimeout)
}

func (f *roundsFake) established() uint64 {
	if !f.led.Load() {
		return 0
	}
	return 3
}

func (f *roundsFake) CurrentTerm() uint64 {
	f.asked("term")
	return 3
}

func (f *roundsFake) CommitIndex() uint64 {
	f.asked("commit")
	return f.commit.Load()
}

func (f *roundsFake) GetConfiguration() raft.ConfigurationFuture {
	f.asked("voters")
	return votersFake{}
}

func (f *roundsFake) VerifyLeader() raft.Future {
	f.kicks.Add(1)
	if f.release != nil {
		<-f.release
	}
	return nil
}

// votersFake is the configuration of acksThree.
type votersFake struct{ raft.ConfigurationFuture }

func (votersFake) Configuration() (c raft.Configuration) {
	for _, id := range acksThree {
		c.Servers = append(c.Servers, raft.Server{ID: id})
	}
	c.Servers = append(c.Servers, raft.Server{ID: "learner", Suffrage: raft.Nonvoter}, raft.Server{ID: "another", Suffrage: raft.Nonvoter})
	return c
}

// reply acknowledges, as one peer, what would be sent now.
func (f *roundsFake) reply() { f.acks.Record("n2", 3, f.acks.Now()) }

// roundsResult is what one reader got.
type roundsResult struct {
	index uint64
	err   error
}

// roundsRead starts so many readers and waits until all of them wait.
func roundsRead(t *testing.T, r *ReadRounds, readers int) <-chan roundsResult {
	results := make(chan roundsResult, readers)
	for range readers {
		go func() {
			index, err := r.ReadIndex(t.Context())
			results <- roundsResult{index, err}
		}()
	}
	synctest.Wait()
	return results
}

func roundsExpect(t *testing.T, results <-chan roundsResult, index uint64) {
	t.Helper()
	for range cap(results) {
		if got := <-results; got != (roundsResult{index, nil}) {
			t.Fatalf("a reader got %+v, want index %d", got, index)
		}
	}
}

func TestReadersShareTheNextRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newRoundsFake()
		r := f.rounds()
		first := roundsRead(t, r, 1)
		f.commit.Store(200)
		second := roundsRead(t, r, 1000) // they come while the first round is under way
		f.commit.Store(300)
		if got := f.kicks.Load(); got != 1 {
			t.Fatalf("%d kicks before the first round ended", got)
		}
		f.reply()
		synctest.Wait()
		roundsExpect(t, first, 100)
		if len(second) != 0 {
			t.Fatal("readers who came late were answered by the round under way")
		}
		if got := f.kicks.Load(); got != 2 {
			t.Fatalf("%d kicks for two rounds", got)
		}
		f.reply()
		roundsExpect(t, second, 300) // read after all of them had come
	})
}

// TestRoundAsksInOrder: this node's own vote counts only if Raft's term was seen
// after the round's stamp, and the commit index must not be older than that.
func TestRoundAsksInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newRoundsFake()
		var calls []string // by one goroutine, which is over when the reader has its index
		f.asked = func(what string) {
			calls = append(calls, what)
			if what == "term" {
				f.reply() // sent after the round's stamp, if that was taken first
			}
		}
		results := roundsRead(t, f.rounds(), 1)
		if len(results) == 0 {
			t.Fatal("the round took its stamp after it asked for the term")
		}
		roundsExpect(t, results, 100)
		if want := []string{"term", "commit", "voters"}; !slices.Equal(calls, want) {
			t.Fatalf("asked for %q, want %q", calls, want)
		}
	})
}

func TestReadFails(t *testing.T) {
	t.Run("no established term", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newRoundsFake()
			f.led.Store(false)
			if _, err := f.rounds().ReadIndex(t.Context()); !errors.Is(err, ErrNotEstablished) {
				t.Fatal(err)
			}
			if f.kicks.Load() != 0 {
				t.Fatal("a node that does not lead sends heartbeats")
			}
		})
	})
	t.Run("term over", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newRoundsFake()
			results := roundsRead(t, f.rounds(), 1)
			f.acks.EndTerm(3)
			if got := <-results; !errors.Is(got.err, ErrTermOver) {
				t.Fatal(got)
			}
		})
	})
	t.Run("no quorum", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			_, err := newRoundsFake().rounds().ReadIndex(t.Context())
			if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != ReadRoundTimeout {
				t.Fatalf("after %v: %v", took, err)
			}
		})
	})
	t.Run("reader leaves", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newRoundsFake()
			r := f.rounds()
			cause := errors.New("gone")
			ctx, cancel := context.WithCancelCause(t.Context())
			other := roundsRead(t, r, 1)
			time.AfterFunc(time.Second, func() { cancel(cause) })
			if _, err := r.ReadIndex(ctx); !errors.Is(err, cause) {
				t.Fatal(err)
			}
			f.reply() // the others go on
			roundsExpect(t, other, 100)
			f.acks.EndTerm(3) // ends the round that has no reader any more
		})
	})
}

// TestBlockedKickHoldsNothingUp: VerifyLeader blocks while Raft's main loop hangs.
func TestBlockedKickHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newRoundsFake()
		f.release = make(chan struct{})
		r := f.rounds()
		for range 5 {
			results := roundsRead(t, r, 1)
			f.reply() // an append's reply, say
			roundsExpect(t, results, 100)
		}
		if got := f.kicks.Load(); got != 1 {
			t.Fatalf("%d kicks at a time", got)
		}
		close(f.release)
		synctest.Wait()
		if got := f.kicks.Load(); got != 2 {
			t.Fatalf("%d kicks: those asked for meanwhile need one more, later", got)
		}
	})
}

// TestVerifyLeaderTakesOlderAcknowledgements shows why there are rounds: with every
// reply 200 ms late, Raft's own check is done before anything that was sent after
// it could have had a reply. A round never is.
func TestVerifyLeaderTakesOlderAcknowledgements(t *testing.T) {
	inLedNodes(t, func(t *testing.T, c *raftNodes, leader *raftNode) {
		const late = 200 * time.Millisecond
		const calls = 20
		for _, o := range c.others(leader) {
			c.net.Delay(string(o.id), string(leader.id), late)
		}
		time.Sleep(time.Second) // virtual: replies from before have come
		early := 0
		for i := range calls {
			time.Sleep(time.Duration(i) * 7 * time.Millisecond) // virtual: at all phases of the heartbeats
			start := time.Now()
			c.must(leader.raft.VerifyLeader().Error())
			if time.Since(start) < late {
				early++
			}
		}
		if early == 0 {
			t.Error("Raft has become strict: are the rounds still needed?")
		}
		r := leader.rounds()
		for i := range calls {
			time.Sleep(time.Duration(i) * 7 * time.Millisecond) // virtual
			start := time.Now()
			index, err := r.ReadIndex(t.Context())
			c.must(err)
			if took := time.Since(start); took < late || took > 3*late {
				t.Errorf("a round was done after %v", took)
			}
			if want := leader.raft.CommitIndex(); index != want {
				t.Errorf("read index %d, committed %d", index, want)
			}
		}
		t.Logf("VerifyLeader was early %d times of %d", early, calls)
	})
}

// TestRoundFailsOnALeaderCutOff: acknowledgements from before the cut don't count.
func TestRoundFailsOnALeaderCutOff(t *testing.T) {
	inLedNodes(t, func(t *testing.T, c *raftNodes, leader *raftNode) {
		r := leader.rounds()
		if _, err := r.ReadIndex(t.Context()); err != nil {
			t.Fatalf("a whole cluster: %v", err)
		}
		synctest.Wait()
		c.net.Isolate(string(leader.id))
		if leader.raft.State() != raft.Leader {
			t.Fatal("it knows already: the test shows nothing")
		}
		if index, err := r.ReadIndex(t.Context()); err == nil {
			t.Fatalf("a leader cut off confirmed %d", index)
		}
		c.net.Rejoin(string(leader.id))
	})
}

// rounds returns read rounds of a real node.
func (n *raftNode) rounds() *ReadRounds {
	established := func() uint64 {
		if n.raft.State() != raft.Leader {
			return 0
		}
		return n.raft.CurrentTerm()
	}
	return NewReadRounds(n.raft, established, n.acks, n.id, ReadRoundTimeout)
}
