package wake

import (
	"context"
	"sync"
	"time"
)

// Signal wakes one goroutine that receives from it. Signals that are set before it
// receives count as one: it says "look again", not how often.
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

// Watchers wakes the watchers of a key. Each may be woken without need, and must
// look at what it watches. The zero value has no watchers.
type Watchers[K comparable] struct {
	mu    sync.Mutex
	byKey map[K]map[Signal]struct{}
}

// Watch returns a signal that is set whenever the key is woken, until stop is
// called. To miss no change, a caller watches before it looks. stop may be called
// more than once.
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

// Wake wakes the watchers of each key that keys yields. keys is not called when
// there are no watchers; it must not call w.
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

// WakeIf wakes the watchers of the keys for which match is true. Its cost grows
// with the number of keys that are watched.
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

// Bell wakes all goroutines that wait for the next change of something. The zero
// value is ready for use.
type Bell struct {
	mu   sync.Mutex
	next chan struct{} // nil if no goroutine waits
}

// Next returns a channel that the next Ring closes. To miss no change, a caller takes
// it before it looks.
func (b *Bell) Next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

// Ring closes the channel that Next returned. It does not block.
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

// Gathering lets all callers that wait when a run starts share it; those that come
// later share the next one. So a thousand callers cost one or two runs, and no
// caller gets a result that was found before it came.
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

// NewGathering returns a gathering that calls run, from one goroutine at a time,
// when there are callers.
func NewGathering[T any](run func() (T, error)) *Gathering[T] { return &Gathering[T]{run: run} }

// Join blocks until a run that starts after the call is over, and returns its
// results; or until ctx ends, and returns its cause.
func (g *Gathering[T]) Join(ctx context.Context) (got T, err error) {
	mine := g.start()
	if err := Until(ctx, mine.done); err != nil {
		return got, err
	}
	return mine.got, mine.err
}

// Start sees to a run that starts after the call, and does not wait for it.
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
	for mine := g.take(); mine != nil; mine = g.take() {
		mine.got, mine.err = g.run()
		close(mine.done)
	}
}

// take closes the next run to further callers and returns it, or nil.
func (g *Gathering[T]) take() *gathered[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	mine := g.next
	g.next = nil
	g.working = mine != nil
	return mine
}

// Until blocks until a value comes from done, or done is closed, or ctx ends with
// its cause.
func Until(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Pause blocks for a time, or until ctx ends with its cause.
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

// Next returns the time until the wall clock's next multiple of a period. What is done every so
// often, and need not be at a moment of its own, pauses for that long: an idle process then wakes up once for
// all of it. A clock that jumps changes the moments alone. A multiple less than an eighth of the period ahead
// doesn't count: it may be that of the last pause, on a clock that was slowed down.
func Next(every time.Duration) time.Duration { return NextAfter(every/8, every) }

// NextAfter returns the time until the wall clock's first multiple of a period that is at least ahead from now.
func NextAfter(ahead, every time.Duration) time.Duration {
	past := time.Duration(time.Now().Add(ahead).UnixNano()) % every
	return ahead + (every-past)%every
}

// Await calls do and returns its error, or ctx's cause if ctx ends first: do then
// goes on in a goroutine, until it returns.
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

// Within calls do and reports whether it returned within a limit; otherwise do goes
// on in a goroutine, until it returns.
func Within(limit time.Duration, do func()) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return Await(ctx, func() error { do(); return nil }) == nil
}

// AtOnce calls do for every item, all at the same time, and returns the results in
// the order of the items, once all calls have returned.
func AtOnce[T, R any](items []T, do func(T) R) []R {
	results := make([]R, len(items))
	var running sync.WaitGroup
	for i, item := range items {
		running.Go(func() { results[i] = do(item) })
	}
	running.Wait()
	return results
}

// patienceMax bounds how long a caller's command or read is held at any stretch.
const patienceMax = 30 * time.Second

// Stretch is the Raft multiplier, by which all time-outs between nodes grow: what
// is too short for an election on a slow network is too short for a question, too.
// 0 counts as 1.
type Stretch int

// Of returns a time-out, which is given for stretch 1, at this stretch.
func (s Stretch) Of(timeout time.Duration) time.Duration {
	return time.Duration(max(s, 1)) * timeout
}

// Patience returns how long a caller waits at this stretch, given the time for
// stretch 1: at most 30 s.
func (s Stretch) Patience(timeout time.Duration) time.Duration {
	return min(s.Of(timeout), patienceMax)
}
