package items

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/internal/calls"
)

// Leadership is an item that this process holds, by a separate session. Its fields never change; all its methods are
// safe for concurrent use.
type Leadership struct {
	Name    string
	Session string
	// Token is larger than the token of every earlier leader of this item. Send it with each write to the resource
	// that the leader works on, and let the resource refuse a smaller token than it has seen, because a leader that
	// was paused may not have noticed a new leader.
	Token uint64

	locks  uint64 // Item.Locks at the election
	items  *Items
	held   *client.Session
	ctx    context.Context // ends with the leadership, with the reason as its cause
	cancel context.CancelCauseFunc
}

// Elect waits until no other session holds the item, and then acquires it: this process now leads. The item then has the
// value, which tells other processes who leads. Waiting processes are not served in order: for that, use a semaphore of
// one permit.
//
// Elect opens a new session if its session is lost during the wait. It fails when ctx ends.
func (i *Items) Elect(ctx context.Context, name string, value []byte, o client.SessionOptions) (*Leadership, error) {
	if name == "" {
		return nil, errNoName
	}
	for {
		s, err := i.client.OpenSession(ctx, o)
		if err != nil {
			return nil, err
		}
		led, err := i.elect(ctx, name, value, s)
		if err == nil {
			return led, nil
		}
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
		_ = s.Close(end) // err is the more useful error
		cancel()
		if ctx.Err() != nil || !replaceable(err) {
			return nil, fmt.Errorf("signalbox: elect %s: %w", name, err)
		}
	}
}

// replaceable reports whether Elect should open a new session after this error.
func replaceable(err error) bool {
	over := errors.Is(err, client.ErrLost) || errors.Is(err, client.ErrUnknownSession) || errors.Is(err, client.ErrExpiredSession)
	return over && !errors.Is(err, client.ErrRevoked)
}

// endWithin bounds how long a failed Elect waits for the end of its session.
const endWithin = 2 * time.Second

// elect waits with one session. It fails with ErrLost when that session is lost.
func (i *Items) elect(ctx context.Context, name string, value []byte, s *client.Session) (*Leadership, error) {
	alive, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go cancelWhenLost(alive, cancel, s)
	for {
		done, err := i.Acquire(alive, s.ID(), name, value)
		if err == nil {
			return i.lead(name, done, s), nil
		}
		if err := i.await(alive, name, s.ID(), err); err != nil {
			if lost := s.Err(); lost != nil {
				return nil, lost
			}
			return nil, err
		}
	}
}

// cancelWhenLost cancels ctx, with the reason, when the session is over. It blocks until ctx ends.
func cancelWhenLost(ctx context.Context, cancel context.CancelCauseFunc, s *client.Session) {
	select {
	case <-s.Lost():
		cancel(s.Err())
	case <-ctx.Done():
	}
}

// await blocks until the item is free and its delay is over, so that the refused acquire may succeed. It returns
// refused if another attempt can't succeed.
func (i *Items) await(ctx context.Context, name, session string, refused error) error {
	var refusal *client.Error
	if !errors.Is(refused, ErrDiffers) || !errors.As(refused, &refusal) {
		return refused
	}
	if refusal.Rule == "delay" {
		var ms int64
		_ = json.Unmarshal(refusal.Members["delay_ms"], &ms)
		return calls.Sleep(ctx, time.Duration(max(ms, 1))*time.Millisecond)
	}
	for item, err := range i.Watch(ctx, name) {
		if err != nil || !item.Held || item.Session == session {
			return err
		}
	}
	return context.Cause(ctx)
}

// lead makes the Leadership of a session that has just acquired the item.
func (i *Items) lead(name string, since Change, s *client.Session) *Leadership {
	l := &Leadership{Name: name, Session: s.ID(), Token: since.Version, locks: since.Locks, items: i, held: s}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	go cancelWhenLost(l.ctx, l.cancel, s)
	go l.follow()
	return l
}

// follow ends the leadership when the item is deleted, or released by another client that knows the session's id.
func (l *Leadership) follow() {
	for round := 1; l.ctx.Err() == nil; round++ {
		for item, err := range l.items.Watch(l.ctx, l.Name) {
			if err != nil {
				break
			}
			if l.taken(item) {
				l.depose()
				return
			}
			round = 1
		}
		_ = calls.Sleep(l.ctx, calls.BackOff(round)) // the next round notices the end of ctx
	}
}

// taken reports whether the session has lost the item since the election. Another session can acquire the item only
// after a release, which raises Locks, or after a delete and a new create, which raises Created. The session's id
// alone is not enough, because a node may hide it.
func (l *Leadership) taken(item *Item) bool {
	return !item.Held || item.Session != "" && item.Session != l.Session || item.Locks != l.locks || item.Created > l.Token
}

// depose ends the leadership because the item was taken from it.
func (l *Leadership) depose() {
	l.cancel(fmt.Errorf("%w: the session does not hold %s any more", client.ErrLost, l.Name))
}

// Lost returns a channel that is closed when the leadership is over: its session was lost, its item was taken from it,
// or Resign was called. Err has the reason.
func (l *Leadership) Lost() <-chan struct{} { return l.ctx.Done() }

// Err is nil while this process leads. Afterwards it is ErrLost with the reason, or client.ErrReleased after Resign.
func (l *Leadership) Err() error { return context.Cause(l.ctx) }

// Deadline returns the moment until which the session certainly lives, by this process's monotonic clock, if no
// further renewal succeeds. Renewals move it. It does not block.
func (l *Leadership) Deadline() time.Time { return l.held.Deadline() }

// Context returns a ctx for the leader's work. It ends with parent and with the leadership, in the latter case with
// Err as its cause. The cancel function must be called.
func (l *Leadership) Context(parent context.Context) (context.Context, context.CancelFunc) {
	return calls.WithEither(parent, l.ctx)
}

// Set gives the item another value. If the item was taken from this process before, Set ends the leadership. It blocks
// for one round trip; the change is durable on return.
func (l *Leadership) Set(ctx context.Context, value []byte) error {
	if err := l.Err(); err != nil {
		return err
	}
	done, err := l.items.Acquire(ctx, l.Session, l.Name, value)
	if errors.Is(err, ErrDiffers) || err == nil && (done.Locks != l.locks || done.Created) {
		l.depose()
		return l.Err()
	}
	return err
}

// Resign ends the leadership and its session, so that another process may lead. If the leadership was lost before, it
// returns the reason.
func (l *Leadership) Resign(ctx context.Context) error {
	l.cancel(client.ErrReleased)
	err := l.held.Close(ctx)
	if lost := l.Err(); errors.Is(lost, client.ErrLost) {
		return lost
	}
	return err
}
