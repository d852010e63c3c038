package wake

import (
	"context"
	"sync"
	"time"
)

// Signal wakes one goroutine that receives from it. Several calls of Set before it receives count as one: the receiver
// learns that it has to check again, but not how often Set was called.
type Signal chan struct{}

// NewSignal returns a signal that is not set.
func NewSignal() Signal { return make(Signal, 1) }

// Set wakes the receiver, now or when it receives next. It does not block.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Watchers wakes the watchers of a key. A watcher may be woken without need, and must check what it watches. The zero
// value has no watchers.
type Watchers[K comparable] struct {
	mu    sync.Mutex
	byKey map[K]map[Signal]struct{}
}

// Watch returns a signal that is set whenever the key is woken, until stop is called. To miss no change, a caller calls
// Watch before it checks. stop may be called more than once.
func (w *Watchers[K]) Watch(key K) (news <-chan struct{}, stop func()) {
	s := NewSignal()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byKey == nil {
		w.byKey = map[K]map[Signal]struct{}{}
	}
	if w.byKey[key] == nil {
		w.byKey[key] = map[Signal]struct{}{}
	}
	w.byKey[key][s] = struct{}{}
	return s, func() { w.stop(key, s) }
}

func (w *Watchers[K]) stop(key K, s Signal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byKey[key], s)
	if len(w.byKey[key]) == 0 {
		delete(w.byKey, key)
	}
}

// Count returns how many watchers a key has.
func (w *Watchers[K]) Count(key K) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.byKey[key])
}

// Wake wakes the watchers of each key that keys yields. It does not call keys if there are no watchers. keys must not
// call w.
func (w *Watchers[K]) Wake(keys func(yield func(K) bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.byKey) == 0 {
		return
	}
	for key := range keys {
		w.set(key)
	}
}

// WakeIf wakes the watchers of the keys for which match returns true. Its cost grows with the number of watched keys.
func (w *Watchers[K]) WakeIf(match func(K) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.byKey {
		if match(key) {
			w.set(key)
		}
	}
}

// WakeAll wakes every watcher.
func (w *Watchers[K]) WakeAll() { w.WakeIf(func(K) bool { return true }) }

// set wakes the watchers of one key. The caller holds mu.
func (w *Watchers[K]) set(key K) {
	for s := range w.byKey[key] {
		s.Set()
	}
}

// Bell wakes all goroutines that wait for the next change. The zero value is ready for use.
type Bell struct {
	mu   sync.Mutex
	next chan struct{} // nil if no goroutine waits
}

// Next returns a channel that the next Ring closes. To miss no change, a caller calls Next before it checks.
func (b *Bell) Next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

// Ring closes the channels that Next has returned since the last Ring. It does not block.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}

// Awaited reports whether Next was called since the bell rang last.
func (b *Bell) Awaited() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.next != nil
}

// Gathering lets all callers that wait when a run starts share the run; later callers share the next run. So a thousand
// callers cost one or two runs, and no caller gets a result that was computed before its call.
type Gathering[T any] struct {
	run func() (T, error)

	mu      sync.Mutex
	next    *gathered[T] // nil if no caller waits
	working bool
}

// gathered is one run. done guards the results.
type gathered[T any] struct {
	done chan struct{}
	got  T
	err  error
}

// NewGathering returns a gathering that calls run when there are callers, from one goroutine at a time.
func NewGathering[T any](run func() (T, error)) *Gathering[T] { return &Gathering[T]{run: run} }

// Join blocks until a run that starts after the call has ended, and returns its results. If ctx ends first it returns
// ctx's cause.
func (g *Gathering[T]) Join(ctx context.Context) (got T, err error) {
	mine := g.start()
	if err := Until(ctx, mine.done); err != nil {
		return got, err
	}
	return mine.got, mine.err
}

// Start causes a run that starts after the call, and does not wait for it.
func (g *Gathering[T]) Start() { g.start() }

func (g *Gathering[T]) start() *gathered[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next == nil {
		g.next = &gathered[T]{done: make(chan struct{})}
	}
	if !g.working {
		g.working = true
		go g.work()
	}
	return g.next
}

// work runs until no caller waits.
func (g *Gathering[T]) work() {
	for mine := g.takeNext(); mine != nil; mine = g.takeNext() {
		mine.got, mine.err = g.run()
		close(mine.done)
	}
}

// takeNext closes the next run to further callers and returns it, or nil if no caller waits.
func (g *Gathering[T]) takeNext() *gathered[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	mine := g.next
	g.next = nil
	g.working = mine != nil
	return mine
}

// Until blocks until done sends a value or is closed. If ctx ends first it returns ctx's cause.
func Until(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Pause blocks for a time. If ctx ends first it returns ctx's cause.
func Pause(ctx context.Context, length time.Duration) error {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Next returns the time until the next multiple of a period on the wall clock. Goroutines with periodic work pause for
// that time if the exact moment does not matter, so that an idle process wakes up once for all of them. A clock that
// jumps only changes the moments. Next skips a multiple that is less than an eighth of the period ahead: if the clock was
// slowed down, the last pause may have ended just before that multiple.
func Next(every time.Duration) time.Duration { return NextAfter(every/8, every) }

// NextAfter returns the time until the first multiple of a period on the wall clock that is at least ahead from now.
func NextAfter(ahead, every time.Duration) time.Duration {
	past := time.Duration(time.Now().Add(ahead).UnixNano()) % every
	return ahead + (every-past)%every
}

// Await calls do and returns its error. If ctx ends first it returns ctx's cause, and do goes on in its goroutine.
func Await(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Within calls do and reports whether it has returned within a limit. Otherwise do goes on in its goroutine.
func Within(limit time.Duration, do func()) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return Await(ctx, func() error { do(); return nil }) == nil
}

// AtOnce calls do for every item, all at the same time. It returns the results, in the order of the items, after all
// calls have returned.
func AtOnce[T, R any](items []T, do func(T) R) []R {
	results := make([]R, len(items))
	var running sync.WaitGroup
	for i, item := range items {
		running.Go(func() { results[i] = do(item) })
	}
	running.Wait()
	return results
}

// patienceMax bounds how long a caller's command or read waits at any stretch.
const patienceMax = 30 * time.Second

// Stretch is the Raft multiplier, by which all time-outs between nodes are multiplied: a slow network delays questions
// as it delays elections. 0 counts as 1.
type Stretch int

// Of returns the time-out at this stretch, given the time-out at stretch 1.
func (s Stretch) Of(timeout time.Duration) time.Duration {
	return time.Duration(max(s, 1)) * timeout
}

// Patience returns how long a caller waits at this stretch, given the time at stretch 1: at most 30 s.
func (s Stretch) Patience(timeout time.Duration) time.Duration {
	return min(s.Of(timeout), patienceMax)
}
