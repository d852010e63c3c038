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
	Wanted   int64  `json:"wanted"`   // permits that the entry still waits for
	Granted  int64  `json:"granted"`  // permits taken, but not returned by WaitList yet
	Position int64  `json:"position"` // place in line; 1 is served next
}

// Completed is an entry of the wait list that was granted permits, or whose semaphore was deleted.
type Completed struct {
	Name    string `json:"name"`
	Group   string `json:"group"`
	Epoch   uint64 `json:"epoch"`
	Granted int64  `json:"granted"` // permits taken, at most the wanted ones; 0 if Deleted or Superseded
	Deleted bool   `json:"deleted"` // the semaphore is gone, and so are the permits taken
	Token   uint64 `json:"token"`   // token of the last grant, see Lease.Token; 0 without a grant

	Superseded bool `json:"superseded"` // a newer request took the place in a full line, see DropOldest
}

// AddToWaitList asks for permits in the background, in the same queue as a Down with Partial. As soon as a permit is
// available, up to count permits are taken and kept for WaitList. They come back by an Up, by RemoveFromWaitList or by
// the session's end; once WaitList has returned them, only by an Up. A second call adds to the count of the waiting
// request, which keeps its place. After a grant it makes a new request, and WaitList returns the sum of the grants.
//
// It blocks for one round trip. It fails with ErrLimitReached for more than 64 semaphores, with ErrLineFull, and with
// ErrNoTotal for a semaphore with NoTotal.
func (s *Session) AddToWaitList(ctx context.Context, name string, count int64, opts ...WaitListOption) (Listed, error) {
	k := s.listCall(http.MethodPut, name)
	k.Body = map[string]any{"count": count}
	var listed Listed
	if err := s.list(ctx, name, k, opts, &listed); err != nil {
		return Listed{}, fmt.Errorf("signalbox: add %s to the wait list: %w", name, err)
	}
	return listed, nil
}

// RemoveFromWaitList removes a semaphore from the list, if it is there: its waiting request is withdrawn, and permits
// that WaitList has not returned come back. Epoch selects the entry of that epoch; without it, all entries of the name
// and group are removed. It blocks for one round trip.
func (s *Session) RemoveFromWaitList(ctx context.Context, name string, opts ...WaitListOption) error {
	if err := s.list(ctx, name, s.listCall(http.MethodDelete, name), opts, nil); err != nil {
		return fmt.Errorf("signalbox: remove %s from the wait list: %w", name, err)
	}
	return nil
}

// WaitList waits until a semaphore of the list is granted permits, superseded or deleted, or ctx ends. It returns all such entries
// in order, and removes them from the list, each once even if the call is repeated. The other entries keep their
// places. For an empty list it returns at once, without an entry or an error.
//
// If ctx ends just as there is an entry, WaitList returns it with a nil error. If there was no entry in time, it fails
// with ctx's error and ErrUnavailable; if the session was lost, with ErrLost. If no node could tell within 2 s, it
// fails with ErrOutcomeUnknown, and the next call within 10 minutes returns the entries. Concurrent calls of one
// session wait for each other.
func (s *Session) WaitList(ctx context.Context) ([]Completed, error) {
	completed, err := s.deliver(ctx)
	if err = s.overOr(err); err != nil {
		return nil, fmt.Errorf("signalbox: wait list: %w", err)
	}
	return completed, nil
}

// listCall returns a call to an entry of the wait list, or to the route that waits for entries.
func (s *Session) listCall(method, segment string) calls.Call {
	return calls.Call{Method: method, Path: []string{"v1", "sessions", s.id, "waitlist", segment}, Key: calls.NewKey()}
}

// list changes an entry, and decodes the reply into a value unless that is nil.
func (s *Session) list(ctx context.Context, name string, k calls.Call, opts []WaitListOption, into any) error {
	if name == "" {
		return errNoName
	}
	for _, o := range opts {
		o.waitList(&k)
	}
	ctx, end := calls.WithEither(ctx, s.ctx)
	defer end()
	_, err := s.c.calls.Read(ctx, k, into)
	return s.overOr(err)
}

// overOr returns the reason for the end of the session if it is over, or else err.
func (s *Session) overOr(err error) error {
	if sessionGone(err) {
		s.lose(err)
	}
	if over := s.Err(); err != nil && over != nil {
		return over
	}
	return err
}

// deliver asks the cluster until it delivers entries. All HTTP requests have one key until a delivery has arrived,
// because the cluster records a delivery, but not an empty reply, under the key. So if an HTTP request is carried out
// after its caller has given up, the next caller gets that delivery.
func (s *Session) deliver(ctx context.Context) (completed []Completed, err error) {
	ctx, end := calls.WithEither(ctx, s.ctx)
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
			return s.finalAttempt(ctx, k)
		case err != nil:
			return nil, err
		}
		if !r.Early() {
			early = 0
			continue
		}
		// The node replied early because the list is empty or the node is about to stop.
		if empty, err := s.listEmpty(ctx); empty || err != nil && ctx.Err() == nil {
			return nil, err
		}
		if early++; calls.Sleep(ctx, calls.BackOff(early)) != nil {
			return s.finalAttempt(ctx, k)
		}
	}
}

// takeTurn blocks until no other call asks for entries, because two requests with one key would get the same delivery.
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

// finalAttempt asks once more after ctx has ended: an earlier request may have been carried out, and its entries must
// not be lost.
func (s *Session) finalAttempt(ctx context.Context, k calls.Call) ([]Completed, error) {
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawGrace)
	defer cancel()
	k.Listen, k.OtherNode = false, true
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

func (s *Session) askForResults(ctx context.Context, k calls.Call) ([]Completed, calls.Reply, error) {
	var body struct {
		Completed []Completed `json:"completed"`
	}
	r, err := s.c.calls.Read(ctx, k, &body)
	return body.Completed, r, err
}

func (s *Session) listEmpty(ctx context.Context) (bool, error) {
	var body struct {
		WaitList []struct{} `json:"waitlist"`
	}
	_, err := s.c.calls.Read(ctx, calls.Call{Method: http.MethodGet, Path: []string{"v1", "sessions", s.id}}, &body)
	return err == nil && len(body.WaitList) == 0, err
}
