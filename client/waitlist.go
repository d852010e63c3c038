package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// Listed is a semaphore on a session's wait list.
type Listed struct {
	Name     string `json:"name"`
	Epoch    uint64 `json:"epoch"`
	Wanted   int64  `json:"wanted"`   // permits that it still waits for; 0: none
	Granted  int64  `json:"granted"`  // permits taken and not told by WaitList yet
	Position int64  `json:"position"` // of what waits, from 1, the next one
}

// Completed is a semaphore that WaitList tells of.
type Completed struct {
	Name    string `json:"name"`
	Epoch   uint64 `json:"epoch"`
	Granted int64  `json:"granted"` // permits taken, up to what was asked for; 0 if Deleted
	Deleted bool   `json:"deleted"` // the semaphore is gone, and what was granted with it
	Token   uint64 `json:"token"`   // of the last grant, see Lease.Token; 0 if Deleted
}

// AddToWaitList asks for permits in the background, as a Down with Partial does and
// in the same queue: up to count are taken as soon as there is any, and kept for
// WaitList to tell. Added again while it waits, the counts are added and the place is
// kept; after a grant it is a new request, whose grant is added. Nothing brings
// the permits back but an Up, or, before they are told, RemoveFromWaitList and the
// end of the session. It blocks for one round trip. ErrLimitReached beyond 64
// semaphores.
func (s *Session) AddToWaitList(ctx context.Context, name string, count int64, opts ...CallOption) (Listed, error) {
	k := s.listCall(http.MethodPut, name)
	k.body = map[string]any{"count": count}
	var listed Listed
	r, err := s.list(ctx, name, k, opts)
	if err == nil {
		err = r.decode(&listed)
	}
	if err != nil {
		return Listed{}, fmt.Errorf("signalbox: add %s to the wait list: %w", name, err)
	}
	return listed, nil
}

// RemoveFromWaitList takes a semaphore off the list, if it is there: what waits is
// withdrawn, what was granted and not told goes back. Epoch means the entry of that
// epoch, without it every one of the name. It blocks for one round trip.
func (s *Session) RemoveFromWaitList(ctx context.Context, name string, opts ...CallOption) error {
	if _, err := s.list(ctx, name, s.listCall(http.MethodDelete, name), opts); err != nil {
		return fmt.Errorf("signalbox: remove %s from the wait list: %w", name, err)
	}
	return nil
}

// WaitList waits until a semaphore of the list was granted permits or deleted, or
// ctx ends, and tells all of these, in turn. They are off the list then, each told
// once, however often the call had to be repeated; the others keep their places. An
// empty list is answered at once, with nothing and no error.
//
// When ctx ends just as something is told, it is answered, with a nil error. Else it
// fails with ctx's error and ErrUnavailable when nothing was ready; with
// ErrOutcomeUnknown when no node could be asked whether something was, within 2 s:
// then the next call returns what was, up to 10 minutes later; with ErrLost when the
// session was lost; and with the cluster's refusals. Calls of one session take turns.
func (s *Session) WaitList(ctx context.Context) ([]Completed, error) {
	told, err := s.deliver(ctx)
	if err = s.overOr(err); err != nil {
		return nil, fmt.Errorf("signalbox: wait list: %w", err)
	}
	return told, nil
}

// listCall is a call to an entry of the wait list, or to its delivery.
func (s *Session) listCall(method, segment string) call {
	return call{method: method, path: []string{"v1", "sessions", s.id, "waitlist", segment}, key: newKey()}
}

// list changes an entry.
func (s *Session) list(ctx context.Context, name string, k call, opts []CallOption) (reply, error) {
	if name == "" {
		return reply{}, errNoName
	}
	for _, o := range opts {
		o.call(&k)
	}
	ctx, end := joined(ctx, s.ctx)
	defer end()
	r, err := s.c.do(ctx, k)
	return r, s.overOr(err)
}

// overOr answers why the session is over, if an error is that it is, or the error.
func (s *Session) overOr(err error) error {
	if sessionGone(err) {
		s.lose(err)
	}
	if over := s.Err(); err != nil && over != nil {
		return over
	}
	return err
}

// deliver asks until something is told. All asks have one key, which the session
// keeps until a delivery has arrived: the cluster records it with the delivery, and
// not with a reply that told nothing. So an ask that is carried out late, when its
// caller has given up, delivers to the next caller.
func (s *Session) deliver(ctx context.Context) (told []Completed, err error) {
	ctx, end := joined(ctx, s.ctx)
	defer end()
	if err := s.takeTurn(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if len(told) > 0 {
			s.listKey = newKey()
		}
		<-s.listTurn
	}()
	k := s.listCall(http.MethodPost, "wait")
	k.key, k.listen = s.listKey, true
	for early := 0; ; {
		told, r, err := s.completed(ctx, k)
		switch {
		case len(told) > 0:
			return told, nil
		case ctx.Err() != nil:
			return s.lastWord(ctx, k)
		case err != nil:
			return nil, err
		}
		if !r.early() {
			early = 0
			continue
		}
		// Answered early: the list is empty, or the node is about to stop.
		if empty, err := s.nothingListed(ctx); empty || err != nil && ctx.Err() == nil {
			return nil, err
		}
		if early++; sleep(ctx, backOff(early)) != nil {
			return s.lastWord(ctx, k)
		}
	}
}

// takeTurn blocks until no other call asks for deliveries: two of them with one key
// would both be told the same one.
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

// lastWord asks, for a caller whose time is over, what its asks came to: one of them
// may have been carried out.
func (s *Session) lastWord(ctx context.Context, k call) ([]Completed, error) {
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawGrace)
	defer cancel()
	k.listen, k.elsewhere = false, true
	told, _, err := s.completed(grace, k)
	switch {
	case len(told) > 0:
		return told, nil
	case err == nil:
		return nil, fmt.Errorf("%w: %w", context.Cause(ctx), ErrUnavailable)
	case sessionGone(err):
		return nil, err
	case errors.Is(err, ErrOutcomeUnknown):
		return nil, join(context.Cause(ctx), err)
	}
	return nil, fmt.Errorf("%w (%w)", join(context.Cause(ctx), err), ErrOutcomeUnknown)
}

// completed asks once for what is ready.
func (s *Session) completed(ctx context.Context, k call) ([]Completed, reply, error) {
	var told struct {
		Completed []Completed `json:"completed"`
	}
	r, err := s.c.do(ctx, k)
	if err == nil {
		err = r.decode(&told)
	}
	return told.Completed, r, err
}

// nothingListed reports whether the wait list is empty.
func (s *Session) nothingListed(ctx context.Context) (bool, error) {
	var body struct {
		WaitList []struct{} `json:"waitlist"`
	}
	r, err := s.c.do(ctx, call{method: http.MethodGet, path: []string{"v1", "sessions", s.id}})
	if err == nil {
		err = r.decode(&body)
	}
	return err == nil && len(body.WaitList) == 0, err
}
