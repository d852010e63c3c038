package hold

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	signalbox "github.com/signalbox/signalbox/client"
)

const (
	// releaseWithin bounds how long Run waits for a node to confirm the release.
	releaseWithin = 5 * time.Second
	// withdrawWithin bounds the same when no permits were acquired.
	withdrawWithin = 2 * time.Second
	// longestName bounds the command's name in the session's metadata.
	longestName = 200
)

// acquired is the outcome of open: a session with its lease, or an error.
type acquired struct {
	session *signalbox.Session
	lease   *signalbox.Lease
	err     error
}

// acquire waits for the permits. The first signal that asks to end makes it withdraw
// the request, the second one makes it return without waiting for that.
func (h *Holder) acquire(ctx context.Context) (*signalbox.Session, *signalbox.Lease, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan acquired, 1)
	go func() { done <- h.open(ctx) }()
	asked := syscall.Signal(0)
	for {
		select {
		case s := <-h.Signals:
			if !asksToEnd(s) {
				continue // there is no command yet to relay it to
			}
			if asked != 0 {
				return nil, nil, interrupted(asked)
			}
			asked = s.(syscall.Signal)
			cancel()
		case got := <-done:
			if asked == 0 {
				return got.session, got.lease, h.refused(got.err)
			}
			if got.err == nil {
				h.release(context.WithoutCancel(ctx), got.session)
			}
			return nil, nil, interrupted(asked)
		}
	}
}

func asksToEnd(s os.Signal) bool { return s != syscall.SIGUSR1 && s != syscall.SIGUSR2 }

func interrupted(s syscall.Signal) error {
	return &Exit{StatusSignal + int(s), fmt.Errorf("ended by a signal (%v) before the permits were acquired", s)}
}

// open makes the semaphore if Config asks for it, opens a session and acquires. When
// a session is lost during the wait, another one waits in its place, at the end of
// the line.
func (h *Holder) open(ctx context.Context) acquired {
	if h.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.Wait)
		defer cancel()
	}
	if h.Create {
		if _, _, err := h.client.Create(ctx, h.Semaphore, h.Permits); err != nil {
			return acquired{err: err}
		}
	}
	for {
		s, err := h.client.OpenSession(ctx, signalbox.SessionOptions{TTL: h.TTL, Margin: h.Grace + h.margin, Metadata: h.metadata()})
		if err != nil {
			return acquired{err: err}
		}
		acquire := s.Acquire
		if h.Wait == 0 {
			acquire = s.TryAcquire
		}
		lease, err := acquire(ctx, h.Semaphore, signalbox.Count(h.Count))
		if err == nil {
			return acquired{session: s, lease: lease}
		}
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawWithin)
		_ = s.Close(end) // err says more
		cancel()
		if ctx.Err() != nil || h.Wait == 0 || !errors.Is(err, signalbox.ErrLost) || errors.Is(err, signalbox.ErrRevoked) {
			return acquired{err: err}
		}
	}
}

// metadata identifies the holder to people who look at the semaphore.
func (h *Holder) metadata() map[string]string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return map[string]string{"host": plain(host), "pid": strconv.Itoa(os.Getpid()), "command": plain(filepath.Base(h.Command[0]))}
}

// plain removes the characters that metadata may not have, and shortens the text.
func plain(text string) string {
	text = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > longestName {
		text = strings.ToValidUTF8(text[:longestName], "")
	}
	return text
}

// refused gives a failure to acquire its exit status.
func (h *Holder) refused(err error) error {
	var refusal *signalbox.Error
	status := StatusUnavailable
	switch {
	case err == nil:
		return nil
	case errors.Is(err, signalbox.ErrUnavailable):
		return &Exit{StatusNotInTime, fmt.Errorf("%d of %s were not free within %v", h.Count, h.Semaphore, h.Wait)}
	case errors.Is(err, signalbox.ErrUnreachable), errors.Is(err, signalbox.ErrOutcomeUnknown):
	case errors.As(err, &refusal) && refusal.Status < http.StatusInternalServerError:
		status = StatusRefused
	}
	return &Exit{status, err}
}

// release gives everything back, and returns the loss of the session if it was lost.
// A release that no node confirms is only logged: the lease ends by itself. A signal
// that asks to end cuts the waiting short.
func (h *Holder) release(ctx context.Context, s *signalbox.Session) (lost error) {
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Close(ctx) }()
	for {
		select {
		case s := <-h.Signals:
			if asksToEnd(s) {
				cancel()
			}
		case err := <-done:
			if errors.Is(err, signalbox.ErrLost) {
				return err
			}
			if err != nil {
				h.Log.Warn("the release was not confirmed; the lease ends by itself", "semaphore", h.Semaphore, "within", h.TTL, "error", err)
			}
			return nil
		}
	}
}
