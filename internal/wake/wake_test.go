package wake

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestSignalKeepsOneAndNeverBlocks(t *testing.T) {
	s := NewSignal()
	if len(s) != 0 {
		t.Fatal("a new signal is set")
	}
	s.Set()
	s.Set()
	<-s
	if len(s) != 0 {
		t.Fatal("set twice, it wakes twice")
	}
	s.Set()
	if len(s) != 1 {
		t.Fatal("it can be set only once")
	}
}

func TestWatchersAreWokenByTheirKey(t *testing.T) {
	keys := func(keys ...string) func(w *Watchers[string]) {
		return func(w *Watchers[string]) { w.Wake(slices.Values(keys)) }
	}
	for name, test := range map[string]struct {
		wake func(w *Watchers[string])
		want []int // signals of the watchers of a, a again, b
	}{
		"one key":        {keys("a"), []int{1, 1, 0}},
		"one key twice":  {keys("b", "b"), []int{0, 0, 1}},
		"two keys":       {keys("b", "c", "a"), []int{1, 1, 1}},
		"no key":         {keys(), []int{0, 0, 0}},
		"another key":    {keys("c"), []int{0, 0, 0}},
		"all":            {(*Watchers[string]).WakeAll, []int{1, 1, 1}},
		"keys that fit":  {func(w *Watchers[string]) { w.WakeIf(func(k string) bool { return k < "b" }) }, []int{1, 1, 0}},
		"no key fits":    {func(w *Watchers[string]) { w.WakeIf(func(string) bool { return false }) }, []int{0, 0, 0}},
		"after stopping": {func(w *Watchers[string]) { _, stop := w.Watch("a"); stop(); stop(); w.WakeAll() }, []int{1, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var w Watchers[string]
			a, stopA := w.Watch("a")
			again, stopAgain := w.Watch("a")
			b, stopB := w.Watch("b")
			test.wake(&w)
			if got := []int{len(a), len(again), len(b)}; !slices.Equal(got, test.want) {
				t.Errorf("signals %v, want %v", got, test.want)
			}
			if w.Count("a") != 2 || w.Count("b") != 1 {
				t.Errorf("%d and %d watchers", w.Count("a"), w.Count("b"))
			}
			stopA()
			stopAgain()
			stopB()
			if len(w.byKey) != 0 {
				t.Errorf("%d keys are kept without watchers", len(w.byKey))
			}
		})
	}
}

func TestWatcherIsWokenUntilItStops(t *testing.T) {
	var w Watchers[int]
	news, stop := w.Watch(7)
	for range 2 {
		w.WakeAll()
		<-news
	}
	stop()
	w.WakeAll()
	if len(news) != 0 {
		t.Fatal("woken after it stopped")
	}
}

func TestWakeAsksForNoKeysWithoutWatchers(t *testing.T) {
	var w Watchers[int]
	w.Wake(func(func(int) bool) { t.Error("asked for keys") })
}

func TestBellWakesAllOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Bell
		b.Ring() // for no one
		if b.Awaited() {
			t.Error("awaited before anyone came")
		}
		woken := make(chan int, 2)
		for i := range 2 {
			next := b.Next()
			go func() { <-next; woken <- i }()
		}
		synctest.Wait()
		if len(woken) != 0 || !b.Awaited() {
			t.Fatalf("%d woken before it rang, awaited %v", len(woken), b.Awaited())
		}
		b.Ring()
		synctest.Wait()
		if len(woken) != 2 || b.Awaited() {
			t.Fatalf("%d woken when it rang, awaited %v", len(woken), b.Awaited())
		}
		select {
		case <-b.Next():
			t.Error("woken by a ring that is over")
		default:
		}
	})
}

// slowRuns returns a gathering whose runs take a second each and are counted.
func slowRuns() (g *Gathering[int], runs *atomic.Int64) {
	runs = new(atomic.Int64)
	return NewGathering(func() (int, error) {
		mine := runs.Add(1)
		time.Sleep(time.Second) // virtual
		return int(mine), nil
	}), runs
}

// TestGatheringSharesRuns: a caller that comes while a run is under way gets the
// results of the next.
func TestGatheringSharesRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := slowRuns()
		results := make(chan int, 100)
		join := func() {
			got, err := g.Join(t.Context())
			if err != nil {
				t.Error(err)
			}
			results <- got
		}
		go join()
		synctest.Wait()
		for range 50 {
			go join()
		}
		if first := <-results; first != 1 {
			t.Fatalf("run %d", first)
		}
		for range 50 {
			if got := <-results; got != 2 {
				t.Fatalf("run %d", got)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := g.Join(ctx); err != context.Canceled {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // virtual: the run without callers ends
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.working {
			t.Fatal("it works without callers")
		}
	})
}

// TestGatheringStartsOneMoreRun: starts while a run is under way are met by one run
// after it.
func TestGatheringStartsOneMoreRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, runs := slowRuns()
		g.Start()
		synctest.Wait()
		for range 50 {
			g.Start()
		}
		if got := runs.Load(); got != 1 {
			t.Fatalf("%d runs at a time", got)
		}
		time.Sleep(time.Minute) // virtual
		if got := runs.Load(); got != 2 {
			t.Fatalf("%d runs, want 2", got)
		}
	})
}

func TestGatheringReturnsTheError(t *testing.T) {
	errRun := errors.New("failed")
	g := NewGathering(func() (int, error) { return 7, errRun })
	if got, err := g.Join(t.Context()); got != 7 || err != errRun {
		t.Fatalf("%d, %v", got, err)
	}
}

var errCause = errors.New("the cause")

// TestWaitsEndAtTheirBound: each wait ends with what it waits for, or with the
// cause of its context.
func TestWaitsEndAtTheirBound(t *testing.T) {
	errDone := errors.New("done")
	after := func(length time.Duration) chan struct{} {
		done := make(chan struct{})
		time.AfterFunc(length, func() { close(done) })
		return done
	}
	for name, test := range map[string]struct {
		wait func(context.Context) error
		want error
		took time.Duration
	}{
		"until done":  {func(ctx context.Context) error { return Until(ctx, after(time.Second)) }, nil, time.Second},
		"until ended": {func(ctx context.Context) error { return Until(ctx, nil) }, errCause, 3 * time.Second},
		"pause":       {func(ctx context.Context) error { return Pause(ctx, time.Second) }, nil, time.Second},
		"pause ended": {func(ctx context.Context) error { return Pause(ctx, time.Minute) }, errCause, 3 * time.Second},
		"await done": {func(ctx context.Context) error {
			return Await(ctx, func() error { <-after(time.Second); return errDone })
		}, errDone, time.Second},
		"await ended": {func(ctx context.Context) error {
			return Await(ctx, func() error { <-after(time.Minute); return errDone })
		}, errCause, 3 * time.Second},
		"within":       {func(context.Context) error { return checkWithin(t, true, time.Second) }, nil, time.Second},
		"within ended": {func(context.Context) error { return checkWithin(t, false, time.Minute) }, nil, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, errCause)
				defer cancel()
				began := time.Now()
				if err := test.wait(ctx); err != test.want {
					t.Errorf("error %v, want %v", err, test.want)
				}
				if took := time.Since(began); took != test.took {
					t.Errorf("it took %v, want %v", took, test.took)
				}
				time.Sleep(2 * time.Minute) // virtual: the call that was given up ends
			})
		})
	}
}

func checkWithin(t *testing.T, want bool, length time.Duration) error {
	if got := Within(2*time.Second, func() { <-time.After(length) }); got != want {
		t.Errorf("within 2 s: %v, want %v", got, want)
	}
	return nil
}

func TestAtOnceRunsSideBySideAndKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		got := AtOnce([]int{3, 1, 2}, func(seconds int) int {
			time.Sleep(time.Duration(seconds) * time.Second) // virtual
			return 10 * seconds
		})
		if !slices.Equal(got, []int{30, 10, 20}) {
			t.Errorf("results %v", got)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("it took %v, want the longest call's 3 s", took)
		}
		if none := AtOnce(nil, func(int) int { return 1 }); len(none) != 0 {
			t.Errorf("results of no calls: %v", none)
		}
	})
}

func TestStretch(t *testing.T) {
	for _, test := range []struct {
		by           Stretch
		of, patience time.Duration
	}{
		{0, 5 * time.Second, 5 * time.Second},
		{1, 5 * time.Second, 5 * time.Second},
		{3, 15 * time.Second, 15 * time.Second},
		{20, 100 * time.Second, 30 * time.Second},
	} {
		if timeout, patience := test.by.Of(5*time.Second), test.by.Patience(5*time.Second); timeout != test.of || patience != test.patience {
			t.Errorf("stretch %d: %v and %v, want %v and %v", test.by, timeout, patience, test.of, test.patience)
		}
	}
}

// TestNextGathers: goroutines that pause until Next wake at the same moments, whenever they began, and
// no pause is much longer than its period, nor a fraction of it alone. NextAfter is the next one from a moment on.
func TestNextGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 100 * time.Millisecond
		var moments [2][]time.Time
		var both sync.WaitGroup
		for i := range moments {
			both.Go(func() {
				for range 10 {
					if Pause(t.Context(), Next(every)) == nil {
						moments[i] = append(moments[i], time.Now())
					}
				}
			})
			time.Sleep(37 * time.Millisecond) // virtual
		}
		both.Wait()
		for i := range moments[0] {
			if !moments[0][i].Equal(moments[1][i]) {
				t.Errorf("moment %d: %v and %v", i, moments[0][i], moments[1][i])
			}
		}
		for at := range every / time.Millisecond {
			if next := Next(every); next < every/8 || next >= every*9/8 {
				t.Errorf("%d ms after a multiple the next is in %v", at, next)
			}
			for _, ahead := range []time.Duration{0, 1, every - 1, every, 30 * time.Hour} {
				next := NextAfter(ahead, every)
				if next < ahead || next >= ahead+every || !time.Now().Add(next).Equal(time.Now().Add(next).Truncate(every)) {
					t.Errorf("%d ms after a multiple the next that is %v ahead is in %v", at, ahead, next)
				}
			}
			time.Sleep(time.Millisecond) // virtual
		}
	})
}
