package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/signalbox/signalbox/cluster/forward"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/cluster/requests"
	"github.com/signalbox/signalbox/fsm"
)

const (
	// oneShotPatience is how long the caller of a one-shot listens beyond its wait until the machine ends the wait.
	// While there is no leader, cluster time stands still, for up to forward.HoldTimeout.
	oneShotPatience = forward.HoldTimeout
	// waitingPatience bounds how long a reply waits for this node to know when its request
	// was queued.
	waitingPatience = time.Second
)

// listen blocks until the wait ends, and sets the reply accordingly: see Do.
func (a *asked) listen(ctx context.Context, l *requests.Listener) error {
	defer a.node.requests.Stop(l)
	a.node.requests.Recheck(l, a.Index)
	ownPlace := a.OneShot && !a.Joined // the machine ends the wait
	limit := a.call.Wait
	if ownPlace {
		limit += a.node.times.Patience(oneShotPatience)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case end := <-l.Concluded:
		return a.concluded(ctx, end)
	case <-timer.C:
		if ownPlace { // there is no leader to end the wait
			a.node.abandon(&a.call)
			return a.fail(outcome.ErrOutcomeUnknown)
		}
		return a.stillWaiting(ctx, l)
	case <-ctx.Done():
		return a.hangUp(ctx)
	case <-a.node.calls.draining.Done():
		return a.drained(ctx, l)
	}
}

// concluded sets the reply after the machine has ended the wait.
func (a *asked) concluded(ctx context.Context, end *requests.Conclusion) error {
	if end.Lost {
		return a.fail(outcome.ErrOutcomeUnknown)
	}
	if ctx.Err() != nil && a.OneShot && end.Result.Code == fsm.OK {
		return a.hangUp(ctx)
	}
	tookOver := a.TookOver
	a.Reply = Reply{Result: end.Result, Index: end.Index, NowMS: end.NowMS, WaitedMS: max(0, end.NowMS-a.NowMS)}
	a.TookOver = tookOver
	return nil
}

// hangUp ends a one-shot without a key whose caller is gone, because no other caller knows its id.
func (a *asked) hangUp(ctx context.Context) error {
	if a.OneShot {
		a.node.abandon(&a.call)
	}
	return a.fail(context.Cause(ctx))
}

// stillWaiting sets the reply to Waiting after a read index has confirmed that the request waits, because another node
// may already have reported a grant. If the read fails, the reply stays as it was when the request was queued, with the
// error.
func (a *asked) stillWaiting(ctx context.Context, l *requests.Listener) error {
	at, err := a.node.Read(ctx, Consistency{})
	select {
	case end := <-l.Concluded: // the machine is up to date now
		return a.concluded(ctx, end)
	default:
	}
	if err != nil {
		return err
	}
	reply := Reply{Index: at.Index, NowMS: at.NowMS}
	var known bool
	a.node.View(func(m *fsm.Machine) {
		reply.Result, known = m.Outcome(a.Session, a.Place, l.Wants)
		setWaiting(m, &reply)
	})
	if !known {
		return a.fail(outcome.ErrOutcomeUnknown)
	}
	reply.Joined, reply.TookOver = a.Joined, a.TookOver
	if reply.Code != fsm.Waiting {
		reply.WaitedMS = max(0, at.NowMS-a.NowMS)
	}
	a.Reply = reply
	return nil
}

// drained ends a wait because this node is about to stop. A request of an ordinary session keeps its place, and its
// caller gets Waiting. A one-shot with a key keeps its place for a repeat on another node. A one-shot without a key is
// withdrawn, and its client must ask again.
func (a *asked) drained(ctx context.Context, l *requests.Listener) error {
	if a.OneShot {
		a.node.abandon(&a.call)
		return a.fail(outcome.ErrDraining)
	}
	err := a.stillWaiting(ctx, l)
	if errors.Is(err, outcome.ErrNoLeader) {
		err = outcome.ErrDraining
	}
	return err
}

// fillWaiting sets in Waiting replies how long their requests have been queued. The time is 0 if a request is new, has
// just ended, or is not known here within a second.
func fillWaiting(ctx context.Context, state *replica.Replica, replies ...*Reply) {
	if len(replies) == 0 {
		return
	}
	last := uint64(0)
	for _, reply := range replies {
		last = max(last, reply.Index)
	}
	ctx, cancel := context.WithTimeout(ctx, waitingPatience)
	defer cancel()
	_ = state.Await(ctx, last) // if it fails, use the state as it is
	state.View(func(m *fsm.Machine) { setWaiting(m, replies...) })
}

// setWaiting sets WaitingMS in the replies whose requests wait.
func setWaiting(m *fsm.Machine, replies ...*Reply) {
	looked, since := map[uint64]bool{}, map[uint64]int64{} // by session; by place
	for _, reply := range replies {
		if !looked[reply.Session] {
			looked[reply.Session] = true
			session, _ := m.Session(reply.Session)
			for i := range session.Waiting {
				since[session.Waiting[i].Place] = session.Waiting[i].EnqueuedMS
			}
		}
		if at, waits := since[reply.Place]; waits {
			reply.WaitingMS = max(0, reply.NowMS-at)
		}
	}
}

// awaitEntry delivers an entry of the session's list, and waits for one. While the list has entries and no entry is
// ready, it proposes the delivery again whenever the list changes. Only the command that finds an entry ready delivers
// it, so that each entry is delivered once, no matter how many nodes and calls listen.
//
// The machine records a key with a delivery or a refusal, and never with an empty result. So each of these commands may
// have the call's key. A repeat after the delivery gets the recorded delivery. A repeat before the delivery waits like
// the first call, and both get the same delivery.
func (a *asked) awaitEntry(ctx context.Context, session uint64) error {
	timer := time.NewTimer(a.call.Wait)
	defer timer.Stop()
	a.call.Wait = 0                              // for one attempt
	news, stop := a.node.replica.Listen(session) // before the first attempt, so that no change is missed
	defer stop()
	err := a.attempt(ctx)
	if err == nil && a.Code == fsm.NothingReady && a.Found {
		a.queued()
	}
	for err == nil && a.Code == fsm.NothingReady && a.Found {
		select {
		case <-news:
			if ctx.Err() == nil && a.promising(session) { // otherwise the delivery would be lost
				err = a.attempt(ctx)
			}
		case <-timer.C:
			return a.last(ctx, session)
		case <-a.node.calls.draining.Done():
			return a.last(ctx, session)
		case <-ctx.Done(): // the list has kept its entries
			return a.fail(context.Cause(ctx))
		}
	}
	return err
}

// attempt proposes the delivery once.
func (a *asked) attempt(ctx context.Context) error {
	return a.node.propose(ctx, &a.call, a.node.build(&a.call), &a.Reply)
}

// last ends a wait for an entry. A read index confirms that no entry is ready. If an entry has just become ready, last
// delivers it.
func (a *asked) last(ctx context.Context, session uint64) error {
	at, err := a.node.Read(ctx, Consistency{})
	switch {
	case errors.Is(err, outcome.ErrNoLeader) && a.node.calls.draining.Err() != nil:
		return a.fail(outcome.ErrDraining)
	case err != nil:
		return a.fail(err)
	case a.promising(session):
		return a.attempt(ctx)
	}
	a.Index, a.NowMS = at.Index, at.NowMS
	return nil
}

// promising reports whether an attempt would return at once, as far as this node's own state shows: an entry is ready,
// the list is empty, or the session has ended.
func (a *asked) promising(session uint64) (yes bool) {
	a.node.View(func(m *fsm.Machine) {
		list := m.WaitList(session)
		yes = len(list) == 0
		for i := range list {
			yes = yes || list[i].Granted > 0 || list[i].Wanted == 0 // it has ended
		}
	})
	return yes
}
