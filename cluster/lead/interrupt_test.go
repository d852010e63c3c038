package lead

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/raftlib"
	"github.com/signalbox/signalbox/fsm"
)

// TestInterruptedTermGoesOn: during the work no term takes commands, reads or ticks; after
// it the same number has a new term, another first entry, and confirms reads.
func TestInterruptedTermGoesOn(t *testing.T) {
	inLoneBubble(t, func(t *testing.T, l *lone) {
		first := l.becomes(2, true)
		l.apply(fsm.OpenSession{Session: 5, TTLMS: 60_000})
		time.Sleep(1234 * time.Millisecond) // virtual
		broken := errors.New("broken")
		var entries int
		err := l.Interrupt(t.Context(), func(nowMS int64) error {
			entries = len(l.raft.log)
			if l.Established() != nil || !first.Over() || first.Propose(nil) {
				t.Error("the term takes commands during the work")
			}
			if _, _, err := first.ReadIndex(t.Context()); err == nil {
				t.Error("a read is confirmed during the work")
			}
			if nowMS != 1234 {
				t.Errorf("cluster time %d", nowMS)
			}
			time.Sleep(time.Minute) // virtual
			if len(l.raft.log) != entries {
				t.Error("an entry was made during the work")
			}
			return broken
		})
		synctest.Wait()
		second := l.Established()
		if !errors.Is(err, broken) || second == nil || second == first || second.Number() != 2 || len(l.raft.log) != entries+1 {
			t.Fatalf("%v; after it: %+v", err, second)
		}
		if _, nowMS, err := second.ReadIndex(t.Context()); err != nil || nowMS > 2000 {
			t.Errorf("a read after the work: cluster time %d, %v", nowMS, err)
		}
		l.apply(fsm.CreateSemaphore{Name: "a"})
	})
}

// TestOnlyALeaderIsInterrupted, and only for a caller that still waits.
func TestOnlyALeaderIsInterrupted(t *testing.T) {
	inLoneBubble(t, func(t *testing.T, l *lone) {
		work := func(int64) error {
			t.Error("the work was done")
			return nil
		}
		if err := l.Interrupt(t.Context(), work); !errors.Is(err, outcome.ErrNotLeader) {
			t.Errorf("a follower: %v", err)
		}
		first := l.becomes(2, true)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for range 10 { // the choice between the two is random
			if err := l.Interrupt(gone, work); !errors.Is(err, context.Canceled) {
				t.Errorf("a caller that is gone: %v", err)
			}
		}
		if l.Established() != first {
			t.Error("the term has ended")
		}
	})
}

// TestLossOfAnInterruptedTerm ends the waits for acknowledgements in it, as the loss of any other term does.
func TestLossOfAnInterruptedTerm(t *testing.T) {
	inLoneBubble(t, func(t *testing.T, l *lone) {
		l.becomes(2, true)
		waited := make(chan error, 1)
		err := l.Interrupt(t.Context(), func(int64) error {
			go func() { waited <- l.config.Acks.Wait(t.Context(), 2, 1, []raft.ServerID{"n1", "n2"}, "n1") }()
			l.raft.set(3, false)
			return nil
		})
		synctest.Wait()
		select {
		case got := <-waited:
			if err != nil || !errors.Is(got, raftlib.ErrTermOver) {
				t.Errorf("%v; the wait: %v", err, got)
			}
		default:
			t.Fatal("the wait goes on")
		}
	})
}

// TestNoWorkBesideEntriesUnderWay: entries that don't return in time leave the work undone,
// and the term goes on.
func TestNoWorkBesideEntriesUnderWay(t *testing.T) {
	inLoneBubble(t, func(t *testing.T, l *lone) {
		l.becomes(2, true).inFlight.Add(1)
		hung := l.Established()
		defer hung.inFlight.Done()
		err := l.Interrupt(t.Context(), func(int64) error {
			t.Error("the work was done")
			return nil
		})
		synctest.Wait()
		if !errors.Is(err, outcome.ErrNotApplied) || l.Established() == nil {
			t.Errorf("%v, then %v", err, l.Established())
		}
	})
}
