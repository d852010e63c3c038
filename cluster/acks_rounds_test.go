package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// roundsFake is a Raft that leads three nodes in term 3. Its peers acknowledge
// when the test says so.
type roundsFake struct {
	acks   *AckClock
	commit atomic.Uint64
	kicks  atomic.Int64
	led    atomic.Bool
}

func newRoundsFake() *roundsFake {
	f := &roundsFake{acks: NewAckClock()}
	f.commit.Store(100)
	f.led.Store(true)
	return f
}

func (f *roundsFake) source() ReadSource {
	return ReadSource{
		Acks:        f.acks,
		Self:        "n1",
		Term:        func() (uint64, bool) { return 3, f.led.Load() },
		CommitIndex: f.commit.Load,
		Voters:      func() []raft.ServerID { return acksThree },
		Kick:        func() { f.kicks.Add(1) },
	}
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
			index, err := r.Confirm(t.Context())
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
		r := NewReadRounds(f.source(), readRoundTimeout)
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
		source := f.source()
		var mu sync.Mutex
		var asked []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, what)
		}
		term := source.Term
		source.Term = func() (uint64, bool) {
			note("term")
			f.reply() // sent after the round's stamp, if that was taken first
			return term()
		}
		source.CommitIndex = func() uint64 { note("commit"); return 100 }
		source.Voters = func() []raft.ServerID { note("voters"); return acksThree }
		results := roundsRead(t, NewReadRounds(source, readRoundTimeout), 1)
		if len(results) == 0 {
			t.Fatal("the round took its stamp after it asked for the term")
		}
		roundsExpect(t, results, 100)
		if want := []string{"term", "commit", "voters"}; !slices.Equal(asked, want) {
			t.Fatalf("asked for %q, want %q", asked, want)
		}
	})
}

func TestReadFails(t *testing.T) {
	t.Run("no established term", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newRoundsFake()
			f.led.Store(false)
			if _, err := NewReadRounds(f.source(), readRoundTimeout).Confirm(t.Context()); !errors.Is(err, errNotEstablished) {
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
			results := roundsRead(t, NewReadRounds(f.source(), readRoundTimeout), 1)
			f.acks.EndTerm(3)
			if got := <-results; !errors.Is(got.err, errTermOver) {
				t.Fatal(got)
			}
		})
	})
	t.Run("no quorum", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			_, err := NewReadRounds(newRoundsFake().source(), readRoundTimeout).Confirm(t.Context())
			if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != readRoundTimeout {
				t.Fatalf("after %v: %v", took, err)
			}
		})
	})
	t.Run("reader leaves", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newRoundsFake()
			r := NewReadRounds(f.source(), readRoundTimeout)
			cause := errors.New("gone")
			ctx, cancel := context.WithCancelCause(t.Context())
			other := roundsRead(t, r, 1)
			time.AfterFunc(time.Second, func() { cancel(cause) })
			if _, err := r.Confirm(ctx); !errors.Is(err, cause) {
				t.Fatal(err)
			}
			f.reply() // the others go on
			roundsExpect(t, other, 100)
			f.acks.EndTerm(3) // ends the round that nobody waits for
		})
	})
}

// TestBlockedKickHoldsNothingUp: VerifyLeader blocks while Raft's main loop hangs.
func TestBlockedKickHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newRoundsFake()
		source := f.source()
		release := make(chan struct{})
		source.Kick = func() {
			f.kicks.Add(1)
			<-release
		}
		r := NewReadRounds(source, readRoundTimeout)
		for range 5 {
			results := roundsRead(t, r, 1)
			f.reply() // an append's reply, say
			roundsExpect(t, results, 100)
		}
		if got := f.kicks.Load(); got != 1 {
			t.Fatalf("%d kicks at a time", got)
		}
		close(release)
		synctest.Wait()
		if got := f.kicks.Load(); got != 2 {
			t.Fatalf("%d kicks: those asked for meanwhile need one more, later", got)
		}
	})
}

// TestVerifyLeaderTakesOlderAcknowledgements shows why there are rounds: with every
// reply 200 ms late, Raft's own check is done before anything that was sent after
// it could have been answered. A round never is.
func TestVerifyLeaderTakesOlderAcknowledgements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const late = 200 * time.Millisecond
		const calls = 20
		c := transportStart(t)
		defer c.stop()
		leader := c.leader()
		c.apply(leader, "established", c.nodes...)
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
		r := NewReadRounds(roundsSource(leader), readRoundTimeout)
		for i := range calls {
			time.Sleep(time.Duration(i) * 7 * time.Millisecond) // virtual
			start := time.Now()
			index, err := r.Confirm(t.Context())
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
	synctest.Test(t, func(t *testing.T) {
		c := transportStart(t)
		defer c.stop()
		leader := c.leader()
		c.apply(leader, "established", c.nodes...)
		r := NewReadRounds(roundsSource(leader), readRoundTimeout)
		if _, err := r.Confirm(t.Context()); err != nil {
			t.Fatalf("a whole cluster: %v", err)
		}
		synctest.Wait()
		c.net.Isolate(string(leader.id))
		if leader.raft.State() != raft.Leader {
			t.Fatal("it knows already: the test shows nothing")
		}
		if index, err := r.Confirm(t.Context()); err == nil {
			t.Fatalf("a leader cut off confirmed %d", index)
		}
		c.net.Rejoin(string(leader.id))
	})
}

// roundsSource asks a real node, as the node's own code does.
func roundsSource(n *transportNode) ReadSource {
	return ReadSource{
		Acks:        n.acks,
		Self:        n.id,
		Term:        func() (uint64, bool) { return n.raft.CurrentTerm(), n.raft.State() == raft.Leader },
		CommitIndex: n.raft.CommitIndex,
		Voters:      func() []raft.ServerID { return acksThree },
		Kick:        func() { n.raft.VerifyLeader() },
	}
}
