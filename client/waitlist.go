package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/signalbox/signalbox/client/internal/calls"
)

// Listed is a semaphore on a session's wait list.
type Listed struct {
	Name     string `json:"name"`
	Group    string `json:"group"`
	Epoch    uint64 `json:"epoch"`
	Wanted   int64  `json:"wanted"`   // permits that it still waits for
	Granted  int64  `json:"granted"`  // permits taken that WaitList has not returned yet
	Position int64  `json:"position"` // in line; 1 is served next
}

// Completed is a semaphore that WaitList returns.
type Completed struct {
	Name    string `json:"name"`
	Group   string `json:"group"`
	Epoch   uint64 `json:"epoch"`
	Granted int64  `json:"granted"` // permits taken, at most the wanted ones; 0 if Deleted or Superseded
	Deleted bool   `json:"deleted"` // the semaphore is gone, and so are the permits taken
	Token   uint64 `json:"token"`   // of the last grant, see Lease.Token; 0 without one

	Superseded bool `json:"superseded"` // a newer request took the place in a full line, see DropOldest
}

// AddToWaitList asks for permits in the background, in the same queue as a Down with
// Partial: up to count are taken as soon as one is available, and kept for WaitList. A
// second call while the request waits adds to its count, and the request keeps its
// place; after a grant it makes a new request, whose grant is added. Only an Up brings the
// permits back, or, until WaitList returns them, RemoveFromWaitList or the session's end.
// It blocks for one round trip. ErrLimitReached beyond 64 semaphores,
// ErrLineFull, and ErrNoTotal where there are no permits in all.
func (s *Session) AddToWaitList(ctx context.Context, name string, count int64, opts ...WaitListOption) (Listed, error) {
	k := s.listCall(http.MethodPut, name)
	k.Body = map[string]any{"count": count}
	var listed Listed
	if err := s.list(ctx, name, k, opts, &listed); err != nil {
		return Listed{}, fmt.Errorf("signalbox: add %s to the wait list: %w", name, err)
	}
	return listed, nil
}

// RemoveFromWaitList takes a semaphore off the list, if it is there: a waiting request
// is withdrawn, and permits that WaitList has not returned go back. Epoch chooses the
// entry of that epoch; without it, all entries of the name and group go. It blocks for one round
// trip.
func (s *Session) RemoveFromWaitList(ctx context.Context, name string, opts ...WaitListOption) error {
	if err := s.list(ctx, name, s.listCall(http.MethodDelete, name), opts, nil); err != nil {
		return fmt.Errorf("signalbox: remove %s from the wait list: %w", name, err)
	}
	return nil
}

// WaitList waits until a semaphore of the list was granted permits, superseded or deleted, or
// ctx ends, and returns all of these, in order. They are off the list then: each is
// returned once, however often the call had to be repeated; the others keep their
// places. For an empty list it returns at once, without a result or an error.
//
// When ctx ends just as there is a result, WaitList returns it with a nil error. Else it
// fails with ctx's error and ErrUnavailable when there was no result; with
// ErrOutcomeUnknown when no node could be asked about that within 2 s: then the next
// call returns the result, up to 10 minutes later; with ErrLost when the
// session was lost; and with the cluster's refusals. Calls of one session take turns.
func (s *Session) WaitList(ctx context.Context) ([]Completed, error) {
	completed, err := s.deliver(ctx)
	if err = s.overOr(err); err != nil {
		return nil, fmt.Errorf("signalbox: wait list: %w", err)
	}
	return completed, nil
}

// listCall is a call to an entry of the wait list, or to its delivery.
func (s *Session) listCall(method, segment string) calls.Call {
	return calls.Call{Method: method, Path: []string{"v1", "sessions", s.id, "waitlist", segment}, Key: calls.NewKey()}
}

// list changes an entry. Its reply is decoded into a value that is not nil.
func (s *Session) list(ctx context.Context, name string, k calls.Call, opts []WaitListOption, into any) error {
	if name == "" {
		return errNoName
	}
	for _, o := range opts {
		o.waitList(&k)
	}
	ctx, end := calls.Both(ctx, s.ctx)
	defer end()
	_, err := s.c.calls.Read(ctx, k, into)
	return s.overOr(err)
}

// overOr returns the reason for the session's end, if an error reports its end, or the error itself.
func (s *Session) overOr(err error) error {
	if sessionGone(err) {
		s.lose(err)
	}
	if over := s.Err(); err != nil && over != nil {
		return over
	}
	return err
}

// deliver asks until there is a result. All asks have one key, which the session keeps until a delivery has
// arrived: the cluster records the key with the delivery, and not with an empty reply. So an ask that is
// carried out late, when its caller has given up, delivers to the next caller.
func (s *Session) deliver(ctx context.Context) (completed []Completed, err error) {
	ctx, end := calls.Both(ctx, s.ctx)
	defer end()
	if err := s.takeTurn(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if len(completed) > 0 {
			s.listKey = calls.NewKey()
		}
		<-s.listTurn
	}()
	k := s.listCall(http.MethodPost, "wait")
	k.Key, k.Listen = s.listKey, true
	for early := 0; ; {
		completed, r, err := s.askForResults(ctx, k)
		switch {
		case len(completed) > 0:
			return completed, nil
		case ctx.Err() != nil:
			return s.lastWord(ctx, k)
		case err != nil:
			return nil, err
		}
		if !r.Early() {
			early = 0
			continue
		}
		// An early reply: the list is empty, or the node is about to stop.
		if empty, err := s.listEmpty(ctx); empty || err != nil && ctx.Err() == nil {
			return nil, err
		}
		if early++; calls.Sleep(ctx, calls.BackOff(early)) != nil {
			return s.lastWord(ctx, k)
		}
	}
}

// takeTurn blocks until no other call asks for deliveries: two asks with one key would both get the same one.
func (s *Session) takeTurn(ctx context.Context) error {
	select {
	case s.listTurn <- struct{}{}:
		return nil
	default:
	}
	select {
	case s.listTurn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", context.Cause(ctx), ErrUnavailable)
	}
}

// lastWord asks once more, for a caller whose time is over: one of its earlier asks may have been carried out.
func (s *Session) lastWord(ctx context.Context, k calls.Call) ([]Completed, error) {
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawGrace)
	defer cancel()
	k.Listen, k.Elsewhere = false, true
	completed, _, err := s.askForResults(grace, k)
	switch {
	case len(completed) > 0:
		return completed, nil
	case err == nil:
		return nil, fmt.Errorf("%w: %w", context.Cause(ctx), ErrUnavailable)
	case sessionGone(err):
		return nil, err
	case errors.Is(err, ErrOutcomeUnknown):
		return nil, calls.Join(context.Cause(ctx), err)
	}
	return nil, fmt.Errorf("%w (%w)", calls.Join(context.Cause(ctx), err), ErrOutcomeUnknown)
}

// askForResults asks once for results.
func (s *Session) askForResults(ctx context.Context, k calls.Call) ([]Completed, calls.Reply, error) {
	var body struct {
		Completed []Completed `json:"completed"`
	}
	r, err := s.c.calls.Read(ctx, k, &body)
	return body.Completed, r, err
}

// listEmpty reports whether the wait list is empty.
func (s *Session) listEmpty(ctx context.Context) (bool, error) {
	var body struct {
		WaitList []struct{} `json:"waitlist"`
	}
	_, err := s.c.calls.Read(ctx, calls.Call{Method: http.MethodGet, Path: []string{"v1", "sessions", s.id}}, &body)
	return err == nil && len(body.WaitList) == 0, err
}
