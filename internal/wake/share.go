package wake

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// shareSlice is how long a turn keeps others from theirs: work that blocks, as a write to a client that
	// does not read, goes on beside the next turn.
	shareSlice = 2 * time.Millisecond
	// shareBurst is how much work may be done without a rest after an idle time. It is also as long as
	// other goroutines wait at most for what has a share.
	shareBurst = 5 * time.Millisecond
	// shareRest is how long a slot rests, in relation to the work of its turns.
	shareRest = 1
)

// Share lets goroutines that one change has woken do their work in turns, in the order in which they
// came. Together they take at most a share of the processors: all at once they would take all of them for as long as it
// takes, while Raft's goroutines wait in the same queue and miss a heartbeat. A turn is measured by the clock: on a
// busy machine it takes longer, and so does the rest after it. It is safe for concurrent use.
type Share struct {
	free chan *slot
	over <-chan struct{}
}

// slot is what a turn takes. Only the goroutine that has it uses it.
type slot struct {
	paid time.Time // until when work and rest have been paid for
}

// NewShare returns a share of an eighth of the processors, and of half of one at least. Once over is
// closed, a turn begins at once.
func NewShare(over <-chan struct{}) *Share { return newShare(max(1, runtime.GOMAXPROCS(0)/4), over) }

func newShare(slots int, over <-chan struct{}) *Share {
	s := &Share{make(chan *slot, slots), over}
	for range slots {
		s.free <- &slot{}
	}
	return s
}

// Begin blocks until it is the caller's turn, or ctx ends with its cause. The caller works, and then
// calls end, once. The turn counts as cost at least: for work that its goroutine does after the end.
func (s *Share) Begin(ctx context.Context, cost time.Duration) (end func(), err error) {
	select {
	case mine := <-s.free:
		return s.begun(mine, cost), nil
	case <-s.over:
		return func() {}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *Share) begun(mine *slot, cost time.Duration) (end func()) {
	began := time.Now()
	var ended atomic.Bool
	once := func() {
		if ended.CompareAndSwap(false, true) {
			s.rest(mine, began, cost)
		}
	}
	blocks := time.AfterFunc(shareSlice, once)
	return func() {
		blocks.Stop()
		once()
	}
}

// rest gives a slot back once its work is paid for.
func (s *Share) rest(mine *slot, began time.Time, cost time.Duration) {
	now := time.Now()
	if mine.paid.Before(began) {
		mine.paid = began
	}
	mine.paid = mine.paid.Add((1 + shareRest) * max(cost, now.Sub(began)))
	if rest := mine.paid.Sub(now) - shareBurst; rest > 0 {
		time.AfterFunc(rest, func() { s.free <- mine })
		return
	}
	s.free <- mine
}
