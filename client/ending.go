package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/signalbox/signalbox/client/internal/calls"
)

// ending is the end of a session in the cluster. A goroutine repeats the DELETE of the session until a node confirms it.
// After the session's deadline the cluster ends the session itself. So the goroutine gives up at the deadline, or later,
// when the last caller of Close stops waiting. If the session was lost, the goroutine gives up at the deadline even
// while callers wait, but at the earliest withdrawGrace after it began.
type ending struct {
	s    *Session
	lost error         // why the session was lost before it was closed; nil: it was not lost
	done chan struct{} // closed when the goroutine has ended
	err  error         // result of the ending, set before done is closed; nil: a node confirmed the end

	// Guarded by Session.mu.
	callers int                // how many callers wait in await
	expired bool               // the deadline has passed
	failure error              // the error of the latest attempt
	cancel  context.CancelFunc // ends the goroutine's requests
}

// startEnding marks the session as over, and starts its ending. If an earlier call has started the ending, it returns
// that ending.
func startEnding(s *Session) *ending {
	s.mu.Lock()
	if e := s.ending; e != nil {
		s.mu.Unlock()
		return e
	}
	e := &ending{s: s, lost: s.Err(), done: make(chan struct{})}
	s.ending = e
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel = cancel
	left := s.c.calls.Until(s.deadline)
	if e.lost != nil {
		left = max(left, withdrawGrace)
	}
	expiry := time.AfterFunc(left, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if e.expired = true; e.callers == 0 || e.lost != nil {
			cancel()
		}
	})
	s.mu.Unlock()
	s.c.addEnding(s)
	s.finish(ErrClosed)
	go func() {
		defer close(e.done)
		defer cancel()
		defer expiry.Stop()
		s.work.Wait()
		e.err = e.lost
		mayExist := e.lost == nil || errors.Is(e.lost, ErrNotRenewed) // the session in the cluster
		if mayExist {
			if err := e.askForEnd(ctx); e.lost == nil {
				e.err = err
			}
		}
		s.c.removeEnding(s, e.err)
	}()
	return e
}

// endOf returns the operation that ends a session. It has no key: Late is set, because an end does no harm when it
// arrives after its caller has given up.
func endOf(id string) calls.Operation {
	return calls.Operation{Name: "end", Session: id, Late: true}
}

// askForEnd repeats the DELETE until a node confirms it, a repeat can't help, or ctx ends.
func (e *ending) askForEnd(ctx context.Context) error {
	s := e.s
	noteFailure := func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		e.failure = err
	}
	longest := max(s.ttl/12, time.Millisecond)
	for round := 1; ; round++ {
		_, err := s.c.calls.Do(ctx, calls.Call{Method: http.MethodDelete, Path: []string{"v1", "sessions", s.id},
			Patience: s.c.calls.Growing(withdrawGrace), MaxPause: longest, Failed: noteFailure, OutlivesCaller: true, Operation: endOf(s.id)})
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return e.unconfirmed(errors.New("its deadline has passed"))
		case sessionGone(err):
			return fmt.Errorf("%w: %w", ErrLost, err)
		case isAny(err, ErrInvalidRequest, ErrForbidden, ErrUnauthenticated):
			return err
		}
		noteFailure(err)
		_ = calls.Sleep(ctx, min(max(calls.BackOff(round), calls.AskedFor(err)), longest)) // the next round sees that ctx has ended
	}
}

// unconfirmed returns the error for a caller that stops waiting before a node has confirmed the end. The error wraps
// why, the reason for which the caller stops.
func (e *ending) unconfirmed(why error) error {
	s := e.s
	s.mu.Lock()
	failure := e.failure
	s.mu.Unlock()
	if failure != nil && !errors.Is(failure, ErrUnreachable) && !errors.Is(why, ErrUnreachable) {
		failure = fmt.Errorf("%w: %w", ErrUnreachable, failure)
	}
	return fmt.Errorf("signalbox: end of session %s: not confirmed: %w", s.id, calls.Join(why, failure))
}

// await blocks until the ending is over, or ctx ends, and returns the result for one caller of Close. If ctx has no
// deadline, await stops after GiveUpAfter. It needs no such limit if the session was lost, because the goroutine of
// that ending gives up at the time that the comment of ending says.
func (e *ending) await(ctx context.Context) error {
	s := e.s
	s.mu.Lock()
	e.callers++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if e.callers--; e.callers == 0 && e.expired {
			e.cancel()
		}
	}()
	if _, bounded := ctx.Deadline(); !bounded && e.lost == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.c.cfg.GiveUpAfter, ErrUnreachable)
		defer cancel()
	}
	switch {
	case calls.Closed(ctx, e.done):
		return e.err
	case e.lost != nil:
		return e.lost
	}
	return e.unconfirmed(context.Cause(ctx))
}
