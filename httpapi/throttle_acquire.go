package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

// acquire asks for a lock. The answer is about the peer: 200 when the lock is
// held and the peer waits for nothing at all, 202 while it waits for anything,
// however long it was to be blocked for.
func (t *throttle) acquire(c echo.Context) error {
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
	if ttlMS, given := q.duration("expires_in"); given {
		command.TTLMS = t.options.linger(ttlMS)
	}
	blockMS, _ := q.duration("block_for")
	return t.acquireFor(c, command, min(time.Duration(blockMS)*time.Millisecond, t.cfg.MaxWait))
}

// acquireFor acquires, and blocks until the peer waits for nothing or the time is
// over. Asked again, a client finds its place in the line kept: so a wait that
// can't be watched to its end ends with 202, unconfirmed.
func (t *throttle) acquireFor(c echo.Context, command fsm.Acquire, block time.Duration) error {
	began := time.Now()
	ctx := c.Request().Context()
	reply, err := t.node.Do(ctx, cluster.Call{Command: command, Wait: block})
	if err != nil {
		if reply.Code == fsm.Waiting && ctx.Err() == nil { // it was queued, and nothing is known since
			return t.sendID(c, http.StatusAccepted, command.Session)
		}
		return err
	}
	t.setIndex(c, reply.Index)
	held := reply.Code == fsm.OK && !reply.Waiting
	switch reply.Code {
	case fsm.OK:
		if reply.Waiting && block > 0 {
			held, err = t.awaitPeer(ctx, command, reply.Index, block-time.Since(began))
		}
	case fsm.Waiting, fsm.Withdrawn: // withdrawn: its own lock was released meanwhile
	default:
		if err = throttleRefused(&reply.Result); err == error(errUnknownPeer) && command.Count < 1 && command.TTLMS == fsm.KeepTTL {
			err = throttleCount(command.Count) // the peer is looked at first only to renew it
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

// awaitPeer blocks while a peer that holds the lock waits for another one. The
// command was applied at index: from there on, this node's own state tells all
// that the log says of the peer.
func (t *throttle) awaitPeer(ctx context.Context, lock fsm.Acquire, index uint64, limit time.Duration) (held bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if _, err := t.node.Read(ctx, cluster.Consistency{MinIndex: index}); err != nil {
		return false, t.unlessGone(ctx)
	}
	other := lock.Name
	for {
		lockMoved, stop := t.node.Changed(lock.Name)
		otherMoved, stopOther := t.node.Changed(other)
		p := t.peerOf(lock)
		if !p.decided() && p.waitsFor == other {
			select {
			case <-lockMoved:
			case <-otherMoved:
			case <-t.closing:
			case <-ctx.Done():
			}
		}
		stop()
		stopOther()
		switch {
		case !p.lives:
			return false, errUnknownPeer
		case p.revoked:
			return false, throttleRevoked("lock", p.reason)
		case p.decided():
			return p.holds, nil
		case ctx.Err() != nil || t.closed():
			return false, t.unlessGone(ctx)
		}
		other = p.waitsFor
	}
}

// unlessGone is nil for a wait that only its own time has ended, and the
// client's hanging up otherwise.
func (t *throttle) unlessGone(ctx context.Context) error {
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// throttlePeer is what an answer about a peer depends on.
type throttlePeer struct {
	lives    bool
	holds    bool   // the lock asked for
	revoked  bool   // an operator took that lock
	reason   string // why
	waitsFor string // the first semaphore of what it has waited for longest, "" nothing
}

// decided reports whether there is nothing more to wait for.
func (p *throttlePeer) decided() bool { return !p.lives || !p.holds || p.waitsFor == "" }

func (t *throttle) peerOf(lock fsm.Acquire) (p throttlePeer) {
	t.node.View(func(m *fsm.Machine) {
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
