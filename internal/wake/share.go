package wake

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// shareSlice is how long a turn may keep its slot while it works. After that the next turn begins too, because the
	// first may be blocked, for example by a write to a client that does not read.
	shareSlice = 2 * time.Millisecond
	// shareBurst is how much work may be done without a pause after an idle time. It also bounds how long other
	// goroutines wait for the processors that the share uses.
	shareBurst = 5 * time.Millisecond
	// shareRest is the pause of a slot after a turn, as a multiple of the turn's work.
	shareRest = 1
)

// Share lets goroutines that one change has woken work in turns, in the order in which they came. Together they use at
// most a share of the processors. Without it they would use all processors until their work is done, while Raft's
// goroutines wait in the same queue and miss a heartbeat. A turn is measured in wall-clock time: on a busy machine a
// turn takes longer, and so does the pause after it. Safe for concurrent use.
type Share struct {
	free chan *slot
	over <-chan struct{}
}

// slot is the right to work for one turn. Only the goroutine that has it uses it.
type slot struct {
	paid time.Time // the end of the pauses for the turns so far
}

// NewShare returns a share of an eighth of the processors, but at least of half a processor. Once over is closed, every
// turn begins at once.
func NewShare(over <-chan struct{}) *Share { return newShare(max(1, runtime.GOMAXPROCS(0)/4), over) }

func newShare(slots int, over <-chan struct{}) *Share {
	s := &Share{make(chan *slot, slots), over}
	for range slots {
		s.free <- &slot{}
	}
	return s
}

// Begin blocks until it is the caller's turn; it returns ctx's cause if ctx ends first. The caller works, and then
// calls end once. The turn counts as at least cost, for the work that its goroutine does after end.
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

// rest returns a slot to the share after the pause that its work requires.
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
