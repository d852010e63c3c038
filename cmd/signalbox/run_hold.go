package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	// releaseWithin bounds how long run waits for a node to confirm the release.
	releaseWithin = 5 * time.Second
	// withdrawWithin bounds the same when nothing was acquired.
	withdrawWithin = 2 * time.Second
	// longestName bounds the command's name in the session's metadata.
	longestName = 200
)

// runner is one run: it holds a lease while a command runs.
type runner struct {
	semaphore      string
	command        []string
	addresses      []string
	count, permits int64
	create         bool // the semaphore, if there is none
	ttl, wait      time.Duration
	grace, margin  time.Duration // see guard

	client  *signalbox.Client
	http    *http.Client // nil: the client's own
	signals <-chan os.Signal
	log     *slog.Logger
	begin   func(command, environment []string) (child, error)
}

// connect makes the client; it sends nothing yet.
func (r *runner) connect() (err error) {
	r.client, err = signalbox.New(signalbox.Config{Addresses: r.addresses, HTTPClient: r.http, Logger: r.log})
	if err != nil {
		return fmt.Errorf("--addr: %s", strings.TrimPrefix(err.Error(), "signalbox: "))
	}
	return nil
}

// run acquires, runs the command and releases. Its error says with which status to
// end; nil is the command's own 0.
func (r *runner) run(ctx context.Context) error {
	session, lease, err := r.acquire(ctx)
	if err != nil {
		return err
	}
	started, err := r.begin(r.command, append(os.Environ(),
		"SIGNALBOX_SEMAPHORE="+lease.Semaphore, "SIGNALBOX_SESSION="+lease.Session, "SIGNALBOX_TOKEN="+strconv.FormatUint(lease.Token, 10)))
	if err != nil {
		r.release(ctx, session)
		return &exit{statusCantRun, err}
	}
	g := &guard{lease: lease, child: started, signals: r.signals, grace: r.grace, margin: r.margin}
	lost := g.watch()
	if late := r.release(ctx, session); lost == nil {
		lost = late
	}
	switch status := started.status(); {
	case lost != nil:
		return &exit{statusLost, fmt.Errorf("the lease of %s is %w", r.semaphore, lost)}
	case status != 0:
		return &exit{status: status}
	}
	return nil
}

// held is what acquire ends with.
type held struct {
	session *signalbox.Session
	lease   *signalbox.Lease
	err     error
}

// acquire waits for the permits. A signal that asks to end makes it give up.
func (r *runner) acquire(ctx context.Context) (*signalbox.Session, *signalbox.Lease, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan held, 1)
	go func() { done <- r.hold(ctx) }()
	asked := syscall.Signal(0)
	for {
		select {
		case s := <-r.signals:
			if !asksToEnd(s) {
				continue // there is nobody yet to hand it on to
			}
			if asked != 0 {
				return nil, nil, interrupted(asked) // whoever asks twice doesn't want to wait
			}
			asked = s.(syscall.Signal)
			cancel()
		case h := <-done:
			if asked == 0 {
				return h.session, h.lease, r.refused(h.err)
			}
			if h.err == nil {
				r.release(context.WithoutCancel(ctx), h.session)
			}
			return nil, nil, interrupted(asked)
		}
	}
}

func asksToEnd(s os.Signal) bool { return s != syscall.SIGUSR1 && s != syscall.SIGUSR2 }

func interrupted(s syscall.Signal) error {
	return &exit{statusSignal + int(s), fmt.Errorf("ended by a signal (%v) before the permits were acquired", s)}
}

// hold makes the semaphore if it is to, opens a session and acquires. A session that
// is lost while it waits is no loss yet: another one waits, at the line's end.
func (r *runner) hold(ctx context.Context) held {
	if r.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.wait)
		defer cancel()
	}
	if r.create {
		if _, _, err := r.client.Create(ctx, r.semaphore, r.permits); err != nil {
			return held{err: err}
		}
	}
	for {
		s, err := r.client.OpenSession(ctx, signalbox.SessionOptions{TTL: r.ttl, Margin: r.grace + r.margin, Metadata: r.metadata()})
		if err != nil {
			return held{err: err}
		}
		acquire := s.Acquire
		if r.wait == 0 {
			acquire = s.TryAcquire
		}
		lease, err := acquire(ctx, r.semaphore, signalbox.Count(r.count))
		if err == nil {
			return held{session: s, lease: lease}
		}
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawWithin)
		_ = s.Close(end) // err says more
		cancel()
		if ctx.Err() != nil || r.wait == 0 || !errors.Is(err, signalbox.ErrLost) || errors.Is(err, signalbox.ErrRevoked) {
			return held{err: err}
		}
	}
}

// metadata tells people who holds or waits.
func (r *runner) metadata() map[string]string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return map[string]string{"host": plain(host), "pid": strconv.Itoa(os.Getpid()), "command": plain(filepath.Base(r.command[0]))}
}

// plain is a text without what metadata may not have, and not long.
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

// refused translates why the permits were not acquired.
func (r *runner) refused(err error) error {
	var refusal *signalbox.Error
	status := statusUnavailable
	switch {
	case err == nil:
		return nil
	case errors.Is(err, signalbox.ErrUnavailable):
		return &exit{statusNotInTime, fmt.Errorf("%d of %s were not free within %v", r.count, r.semaphore, r.wait)}
	case errors.Is(err, signalbox.ErrUnreachable), errors.Is(err, signalbox.ErrOutcomeUnknown):
	case errors.As(err, &refusal) && refusal.Status < http.StatusInternalServerError:
		status = statusRefused
	}
	return &exit{status, errors.New(strings.TrimPrefix(err.Error(), "signalbox: "))}
}

// release gives everything back, and answers why the session was lost if it was. A
// release that no node confirms is only told: the lease ends by itself. A signal that
// asks to end ends the waiting.
func (r *runner) release(ctx context.Context, s *signalbox.Session) (lost error) {
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Close(ctx) }()
	for {
		select {
		case s := <-r.signals:
			if asksToEnd(s) {
				cancel()
			}
		case err := <-done:
			if errors.Is(err, signalbox.ErrLost) {
				return err
			}
			if err != nil {
				r.log.Warn("the release was not confirmed; the lease ends by itself", "semaphore", r.semaphore, "within", r.ttl, "error", err)
			}
			return nil
		}
	}
}
