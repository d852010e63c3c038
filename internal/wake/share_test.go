package wake

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A thousand goroutines that work a millisecond each, by the clock, get a half of it together, in
// the order in which they came; the first few do not wait.
func TestShareIsAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShare(1, nil)
		began, done := time.Now(), make(chan int, 1000)
		for i := range cap(done) {
			go func() {
				end, err := s.Begin(t.Context(), 0)
				if err != nil {
					t.Error(err)
				}
				<-time.After(time.Millisecond) // virtual: the work
				done <- i
				end()
			}()
			synctest.Wait()
		}
		for i := range cap(done) {
			if got := <-done; got != i {
				t.Fatalf("%d has the turn of %d", got, i)
			}
			if i == 4 && time.Since(began) != 5*time.Millisecond {
				t.Errorf("five turns without a rest take %v", time.Since(began))
			}
		}
		if took := time.Since(began); took != 2*1000*time.Millisecond-6*time.Millisecond {
			t.Errorf("a second of work takes %v", took)
		}
	})
}

// A turn counts as its cost at least; one that blocks holds up the next for a moment alone; a caller that has
// gone takes no turn.
func TestShareOfTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShare(1, nil)
		turn := func(cost time.Duration) (end func(), waited time.Duration) {
			began := time.Now()
			end, err := s.Begin(t.Context(), cost)
			if err != nil {
				t.Fatal(err)
			}
			return end, time.Since(began)
		}
		end, _ := turn(10 * time.Millisecond)
		end()
		end, waited := turn(0) // a client that does not read
		if waited != 15*time.Millisecond {
			t.Errorf("after 10 ms of work a turn waits for %v", waited)
		}
		again, waited := turn(0)
		if waited != shareSlice+shareRest*shareSlice {
			t.Errorf("beside one that blocks a turn waits for %v", waited)
		}
		end()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("gone"))
		if _, err := s.Begin(ctx, 0); err == nil || err.Error() != "gone" {
			t.Errorf("a caller that has gone: %v", err)
		}
		again()
		if end, waited = turn(0); waited != 0 {
			t.Errorf("after a turn without work one waits for %v", waited)
		}
		end()
	})
}

// TestShareEnds: when it is over, callers wait for no turn of others, nor for its rest.
func TestShareEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		s := newShare(1, over)
		if _, err := s.Begin(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		var late sync.WaitGroup
		for range 100 {
			late.Go(func() {
				end, err := s.Begin(t.Context(), time.Hour)
				if err != nil {
					t.Error(err)
					return
				}
				end()
			})
		}
		began := time.Now()
		close(over)
		late.Wait()
		if took := time.Since(began); took > 0 {
			t.Errorf("100 turns took %v", took)
		}
		time.Sleep(2 * time.Hour) // virtual: the first turn's timer
	})
}
