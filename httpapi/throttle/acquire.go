package throttle

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
)

// acquire acquires a lock. The status tells whether the peer still waits: 200 if the lock is held and the peer has no
// waiting request at all, else 202, even after blocking.
func (t *dialect) acquire(c echo.Context) error {
	id, name, err := t.lock(c)
	if err != nil {
		return err
	}
	q, err := readQuery(c.Request().URL.RawQuery, isDuration, "block_for", "expires_in")
	if err != nil {
		return err
	}
	count, err := t.readCount(c)
	if err != nil {
		return err
	}
	if !fsm.ValidName(name) {
		return errNoSuchSemaphore
	}
	command := fsm.Acquire{Session: id, Name: name, Count: count, TTLMS: fsm.KeepTTL}
	if ttlMS, present := q.duration("expires_in"); present {
		command.TTLMS = t.options.linger(ttlMS)
	}
	blockMS, _ := q.duration("block_for")
	return t.acquireFor(c, command, min(time.Duration(blockMS)*time.Millisecond, t.Config.MaxWait))
}

// acquireFor acquires a lock, and blocks until the peer has no waiting request or the time is over. If this node cannot
// observe the outcome, the status is 202: a client that repeats the request keeps its place in line.
func (t *dialect) acquireFor(c echo.Context, command fsm.Acquire, block time.Duration) error {
	began := time.Now()
	ctx := c.Request().Context()
	reply, err := t.Perform(ctx, c, calls.Call{Command: command, Wait: block})
	if err != nil {
		if reply.Code == fsm.Waiting && ctx.Err() == nil { // it was queued, and may still wait
			return t.sendID(c, http.StatusAccepted, command.Session)
		}
		return err
	}
	held := reply.Code == fsm.OK && !reply.Waiting
	switch reply.Code {
	case fsm.OK:
		if reply.Waiting && block > 0 {
			held, err = t.awaitPeer(ctx, command, reply.Index, block-time.Since(began))
		}
	case fsm.Waiting, fsm.Withdrawn: // withdrawn by a release of its lock
	default:
		if err = refusedWith(&reply.Result); err == error(errUnknownPeer) && command.Count < 1 && command.TTLMS == fsm.KeepTTL {
			err = countRefusal(command.Count) // throttle reads the peer before the count only to renew it
		}
	}
	switch {
	case err != nil:
		return err
	case held:
		return t.sendID(c, http.StatusOK, command.Session)
	}
	return t.sendID(c, http.StatusAccepted, command.Session)
}

// awaitPeer blocks while a peer that holds the lock waits for another lock. index is the log entry of the command: once
// this node has applied it, its own state is recent enough.
func (t *dialect) awaitPeer(ctx context.Context, lock fsm.Acquire, index uint64, limit time.Duration) (held bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if _, err := t.Node.Read(ctx, calls.Consistency{MinIndex: index}); err != nil {
		return false, t.unlessGone(ctx)
	}
	other := lock.Name
	for {
		lockMoved, stop := t.Node.Changed(lock.Name)
		otherMoved, stopOther := t.Node.Changed(other)
		p := t.peerOf(lock)
		if !p.decided() && p.waitsFor == other {
			select {
			case <-lockMoved:
			case <-otherMoved:
			case <-t.Waits.Closing():
			case <-ctx.Done():
			}
		}
		stop()
		stopOther()
		switch {
		case !p.lives:
			return false, errUnknownPeer
		case p.revoked:
			return false, revokedRefusal("lock", p.reason)
		case p.decided():
			return p.holds, nil
		case ctx.Err() != nil || t.Waits.Closed():
			return false, t.unlessGone(ctx)
		}
		other = p.waitsFor
	}
}

// unlessGone returns the error of a client that has hung up; nil at the end of the wait.
func (t *dialect) unlessGone(ctx context.Context) error {
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// peer is the state of a peer as far as a reply depends on it.
type peer struct {
	lives    bool
	holds    bool   // the requested lock
	revoked  bool   // an operator took the requested lock
	reason   string // of the operator
	waitsFor string // the first semaphore of its oldest waiting request, or ""
}

func (p *peer) decided() bool { return !p.lives || !p.holds || p.waitsFor == "" }

func (t *dialect) peerOf(lock fsm.Acquire) (p peer) {
	t.Node.View(func(m *fsm.Machine) {
		var session fsm.SessionView
		if session, p.lives = m.Session(lock.Session); !p.lives {
			return
		}
		for i := range session.Leases {
			l := &session.Leases[i]
			switch {
			case l.Semaphore != lock.Name:
			case l.Revoked:
				p.revoked, p.reason = true, l.Reason
			default:
				p.holds = true
			}
		}
		if len(session.Waiting) > 0 {
			p.waitsFor = session.Waiting[0].Wants[0].Semaphore
		}
	})
	return p
}
