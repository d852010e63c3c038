package waiting

import (
	"context"
	"fmt"
	"io"
	"time"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

const (
	// firstAfter is the delay of the first line, so that no line appears for a request that is granted soon.
	firstAfter = 500 * time.Millisecond
	showEvery  = 2 * time.Second
	// placesRead is the number of waiters that each read returns.
	placesRead = 100
)

// Show keeps a line of text on w, if w is a terminal, until the caller calls stop, which removes the line. After an
// error of text, the line stays as it is.
func Show(ctx context.Context, w io.Writer, text func(context.Context) (string, error)) (stop func()) {
	if !cli.IsTerminal(w) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		line := cli.StatusLine{W: w}
		defer line.Remove()
		for pause := firstAfter; ; pause = showEvery {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			if shown, err := text(ctx); err == nil {
				line.Show(shown)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// pauseWithin bounds the read of Pause.
const pauseWithin = time.Second

// Pause returns the end of the message that permits were not free in time: that the semaphore is paused and why, or "".
func Pause(ctx context.Context, c *signalbox.Client, name string) string {
	ctx, cancel := context.WithTimeout(ctx, pauseWithin)
	defer cancel()
	s, err := c.Get(ctx, name, signalbox.Holders(0), signalbox.Waiters(0))
	if err != nil || s.Paused == "" {
		return ""
	}
	return fmt.Sprintf(": %s is paused: %s", name, s.Paused)
}

// For returns the text function of a request for permits. isOwn finds the request among the waiters.
func For(c *signalbox.Client, name string, count int64, isOwn func(*signalbox.Waiter) bool) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		s, err := c.Get(ctx, name, signalbox.Stale(), signalbox.Holders(1), signalbox.Waiters(placesRead))
		if err != nil {
			return "", err
		}
		return text(s, count, isOwn), nil
	}
}

func text(s *signalbox.Semaphore, count int64, isOwn func(*signalbox.Waiter) bool) string {
	shown := fmt.Sprintf("waiting for %d of %s", count, s.Name)
	for i := range s.Waiters {
		if isOwn(&s.Waiters[i]) {
			if s.Groups != "" {
				return shown + fmt.Sprintf(", at place %d of its group: %s", s.Waiters[i].Position, s.Waiters[i].Reason)
			}
			shown += fmt.Sprintf(", at place %d of %d", s.Waiters[i].Position, s.WaiterCount)
		}
	}
	switch {
	case s.Paused != "":
		return shown + ": paused: " + s.Paused
	case s.NoTotal:
		return shown
	}
	if s.NextReturnIn > 0 && (len(s.Holders) == 0 || s.Window > 0) {
		return shown + fmt.Sprintf(": %d returning, the next in %s", s.Returning, cli.ShortDuration(s.NextReturnIn))
	}
	if len(s.Holders) == 0 {
		return shown + fmt.Sprintf(": %d available", s.Available)
	}
	h := &s.Holders[0]
	shown += fmt.Sprintf(": held by %s for %s", cli.FormatClientOf(h.Metadata, h.Session), cli.ShortDuration(h.HeldFor))
	if more := s.HolderCount - 1; more > 0 {
		shown += fmt.Sprintf(", and by %d more", more)
	}
	return shown
}
