package calls

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"time"
)

const (
	// firstPause is how long a call rests after all nodes have failed once; it doubles with each further round.
	firstPause = 50 * time.Millisecond
	// longestPause bounds it.
	longestPause = 2 * time.Second
)

// BackOff returns a random pause between half and all of a bound, which doubles with each round. So clients
// that failed together do not come back together.
func BackOff(rounds int) time.Duration {
	full := min(longestPause, firstPause<<min(rounds-1, 10))
	return full/2 + mathrand.N(full/2)
}

// Sleep blocks for d, or until ctx ends, and returns ctx's error if it has ended.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Closed waits until a channel is closed, or ctx ends, and reports whether the channel is closed, also if ctx
// has ended.
func Closed(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// Both returns a ctx that also ends with another ctx, with the other's cause. The caller must call end.
func Both(ctx, other context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if other.Err() != nil { // AfterFunc would get round to it later
		cancel(context.Cause(other))
	}
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// Join joins two errors into one line; either may be nil.
func Join(first, second error) error {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return fmt.Errorf("%w: %w", first, second)
}

// NewKey draws an idempotency key: 130 random bits.
func NewKey() string { return rand.Text() }
