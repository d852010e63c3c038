package calls

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"time"
)

const (
	// firstPause is the pause after all nodes have failed once. It doubles with each further round, up to
	// longestPause.
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

// BackOff returns a random pause between half and all of a bound that doubles with each round. Because it is random,
// clients that failed together do not retry together.
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

// Closed waits until done is closed or ctx ends, and reports whether done is closed. A closed done counts even if ctx
// has ended too.
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

// WithEither returns a copy of ctx that also ends when other ends, with other's cause. The caller must call end.
func WithEither(ctx, other context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if other.Err() != nil { // AfterFunc would cancel it in another goroutine, later
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

// NewKey returns a random idempotency key of 130 bits.
func NewKey() string { return rand.Text() }
