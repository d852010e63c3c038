package cluster

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"time"

	"github.com/signalbox/signalbox/fsm"
)

const (
	// drawnIDs bounds the ids that nodes draw: JavaScript keeps integers exact
	// below 2^53.
	drawnIDs = 1 << 53
	// redraws is how often a call draws another id before it gives up. With a
	// million sessions the first draw collides once in nine billion times.
	redraws = 8
)

// Call is one command, to be applied by the cluster's machine.
type Call struct {
	Command fsm.Command
	// Key is the idempotency key with its scope, "" for none.
	Key string
	// Owner is the identity for which the command acts, "" for none; Trace a trace
	// context to hand on with grants. Both as in [fsm.Envelope]; they need level 1.
	Owner, Trace string
	// Wait is how long this call listens when the result is Waiting, or a
	// ListDeliver's NothingReady; 0 answers at once. For a one-shot acquire or down it
	// should be the command's own WaitMS.
	Wait time.Duration

	listed bool // by DoMany
}

// class returns the class of the call's command.
func (c *Call) class() class {
	if c.listed {
		return classListed
	}
	return classOf(c.Command.Op())
}

// Reply is how a call came out. NowMS, WaitedMS and WaitingMS are milliseconds
// of cluster time.
type Reply struct {
	fsm.Result
	Index uint64 // of the entry that this reply is from
	// NowMS is cluster time at that entry: what is left of a lease is
	// max(0, DeadlineMS - NowMS).
	NowMS int64
	// WaitedMS is the time from the entry of this call to the grant; 0 when it was
	// held already.
	WaitedMS int64
	// WaitingMS is, in a Waiting result, the time since the request was queued.
	WaitingMS int64
}

// DrawSession answers a random session id from 1 to 2^53-1.
func (n *Node) DrawSession() uint64 {
	for {
		var drawn [8]byte
		_, _ = rand.Read(drawn[:]) // never fails
		if id := binary.BigEndian.Uint64(drawn[:]) % drawnIDs; id != 0 {
			return id
		}
	}
}

// Do proposes a command, here or through the leader, and answers once it is
// committed and applied: what it reports survives as long as a majority of disks.
//
// While there is no leader the command is held, up to 5 s. A Waiting result is
// listened for as long as call.Wait. When that is over, an ordinary session's
// request keeps its place and the answer is Waiting, confirmed by a read index;
// a one-shot's wait is ended by the machine, for whose word Do waits a little
// longer. When ctx ends, a one-shot without key is ended in the background. A
// node that drains ends the waits: see Drain.
//
// A ListDeliver that finds nothing ready on a list with entries listens as long as
// call.Wait for one that is, and answers NothingReady when none was; what is on the
// list stays there.
//
// It fails with the errors of errors.go, or with ctx's cause; see each for what
// is known of the command then. Beside the error that the end of an ordinary
// session's wait could not be confirmed stands the Waiting reply, of when the
// request was queued; beside any other error, nothing.
func (n *Node) Do(ctx context.Context, call Call) (Reply, error) {
	if !n.calls.enter() {
		return Reply{}, ErrDraining
	}
	defer n.calls.leave()
	renew, is := call.Command.(fsm.Renew)
	if is && call.Key == "" && call.Owner == "" && len(renew.Renewals) > 0 && len(renew.Renewals) <= renewalsTogether {
		return n.renewals.renew(ctx, renew.Renewals)
	}
	return n.do(ctx, call)
}

// do is Do without counting the call.
func (n *Node) do(ctx context.Context, call Call) (Reply, error) {
	if list, is := call.Command.(fsm.ListDeliver); is && call.Wait > 0 {
		return n.deliver(ctx, call, list.Session)
	}
	for range redraws {
		q := n.build(call)
		reply, err := n.propose(ctx, call, q)
		if err == nil && reply.Code == fsm.SessionIDTaken && redraw(&call.Command, n.DrawSession()) {
			continue
		}
		if err == nil && reply.Code == fsm.Waiting {
			return n.wait(ctx, call, q.listener, reply)
		}
		return reply, err
	}
	return Reply{}, ErrNotApplied
}

// build makes the request of a call.
func (n *Node) build(call Call) *request {
	q := n.requests.build(call.Command, fsm.Envelope{Key: call.Key, Owner: call.Owner, Trace: call.Trace})
	q.load.class = call.class()
	if call.Wait > 0 {
		q.listener = newListener(wantsOf(call.Command))
	}
	return q
}

// propose carries one command to the log and back.
func (n *Node) propose(ctx context.Context, call Call, q *request) (Reply, error) {
	return n.replyOf(ctx, call, n.carrier.carry(ctx, []*request{q})[0])
}

// replyOf makes a reply of an outcome. A one-shot that its client can't be told
// of, or that may live without anybody who knows its id, is ended.
func (n *Node) replyOf(ctx context.Context, call Call, got outcome) (Reply, error) {
	err := got.err
	listens := call.Wait > 0 && got.result.Code == fsm.Waiting // wait sees to it
	if err == nil && ctx.Err() != nil && !listens {
		err = context.Cause(ctx)
		got.open = true
	}
	if err != nil {
		if got.open {
			n.abandon(call)
		}
		return Reply{}, err
	}
	return Reply{Result: got.result, Index: got.index, NowMS: got.nowMS}, nil
}

// DoMany proposes commands in their order, in one round trip, and answers them in
// the same order once each is applied. Replies and errors are as long as calls.
// Waits are not listened for. After the first error, a call that was certainly
// not applied has ErrNotTried; one that was sent with it has what became of it.
func (n *Node) DoMany(ctx context.Context, list []Call) ([]Reply, []error) {
	replies, errs := make([]Reply, len(list)), make([]error, len(list))
	if !n.calls.enter() {
		for i := range errs {
			errs[i] = ErrNotTried
		}
		if len(errs) > 0 {
			errs[0] = ErrDraining
		}
		return replies, errs
	}
	defer n.calls.leave()
	reqs := make([]*request, len(list))
	for i := range list {
		list[i].Wait, list[i].listed = 0, true
		reqs[i] = n.build(list[i])
	}
	var waiting []*Reply
	for i, got := range n.carrier.carry(ctx, reqs) {
		replies[i], errs[i] = n.replyOf(ctx, list[i], got)
		if errs[i] == nil && replies[i].Code == fsm.SessionIDTaken {
			replies[i], errs[i] = n.do(ctx, list[i])
		}
		if errs[i] == nil && replies[i].Code == fsm.Waiting {
			waiting = append(waiting, &replies[i])
		}
	}
	n.tellWaiting(ctx, waiting...)
	return replies, errs
}

// redraw gives a command another session id, if its id was drawn by a node.
func redraw(command *fsm.Command, id uint64) bool {
	switch c := (*command).(type) {
	case fsm.OpenSession:
		c.Session = id
		*command = c
	case fsm.AcquireOnce:
		c.Session = id
		*command = c
	case fsm.Down:
		c.Session = id
		*command = c
	default:
		return false
	}
	return true
}

// wantsOf answers the leases that a command asks for.
func wantsOf(command fsm.Command) []fsm.Want {
	switch c := command.(type) {
	case fsm.Acquire:
		return []fsm.Want{{Semaphore: c.Name, Count: c.Count}}
	case fsm.AcquireOnce:
		return []fsm.Want{{Semaphore: c.Name, Count: c.Count}}
	case fsm.AcquireMany:
		return c.Wants
	}
	return nil
}

// oneShot answers the session that a command makes for itself alone, or 0.
func oneShot(command fsm.Command) uint64 {
	switch c := command.(type) {
	case fsm.AcquireOnce:
		return c.Session
	case fsm.Down:
		return c.Session // 0 unless it waits
	}
	return 0
}

// abandon ends a one-shot without key, in the background: nobody else knows its
// id. It comes behind the command itself on every way to the log, so that it
// finds what that has left. If it fails, the session's deadline ends it.
func (n *Node) abandon(call Call) {
	session := oneShot(call.Command)
	if session == 0 || call.Key != "" {
		return
	}
	n.calls.continues()
	go func() {
		defer n.calls.leave()
		end := n.requests.build(fsm.EndSession{Session: session}, fsm.Envelope{Owner: call.Owner})
		end.load.class = call.class() // so that it does not overtake the command
		err := n.carrier.carry(n.stopping, []*request{end})[0].err
		if err != nil && !errors.Is(err, context.Canceled) {
			n.log.Debug("an abandoned one-shot was left to its deadline", "session", session, "error", err)
		}
	}()
}
