package calls

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
	// oneShotGrace is how long the caller of a one-shot listens beyond its wait until the machine ends the wait.
	// While there is no leader, cluster time stands still, for up to forward.HoldTimeout.
	oneShotGrace = forward.HoldTimeout
	// placeTimeout bounds how long a reply waits for this node to know when its request
	// was queued.
	placeTimeout = time.Second
)

// listen blocks until the wait ends, and sets the reply accordingly: see Do.
func (a *pendingCall) listen(ctx context.Context, l *requests.Listener) error {
	defer a.executor.config.Requests.Stop(l)
	a.executor.config.Requests.Recheck(l, a.Index)
	ownPlace := a.OneShot && !a.Joined // the machine ends the wait
	limit := a.call.Wait
	if ownPlace {
		limit += a.executor.config.Times.Patience(oneShotGrace)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case end := <-l.Concluded:
		return a.setConclusion(ctx, end)
	case <-timer.C:
		if ownPlace { // there is no leader to end the wait
			a.executor.abandon(&a.call)
			return a.fail(outcome.ErrOutcomeUnknown)
		}
		return a.stillWaiting(ctx, l)
	case <-ctx.Done():
		return a.endForHangUp(ctx)
	case <-a.executor.active.draining.Done():
		return a.endForDrain(ctx, l)
	}
}

// setConclusion sets the reply after the machine has ended the wait.
func (a *pendingCall) setConclusion(ctx context.Context, end *requests.Conclusion) error {
	if end.Lost {
		return a.fail(outcome.ErrOutcomeUnknown)
	}
	if ctx.Err() != nil && a.OneShot && end.Result.Code == fsm.OK {
		return a.endForHangUp(ctx)
	}
	tookOver := a.TookOver
	a.Reply = Reply{Result: end.Result, Index: end.Index, NowMS: end.NowMS, WaitedMS: max(0, end.NowMS-a.NowMS)}
	a.TookOver = tookOver
	return nil
}

// endForHangUp ends a one-shot without a key whose caller is gone, because no other caller knows its id.
func (a *pendingCall) endForHangUp(ctx context.Context) error {
	if a.OneShot {
		a.executor.abandon(&a.call)
	}
	return a.fail(context.Cause(ctx))
}

// stillWaiting sets the reply when call.Wait is over. A read index confirms that the request still waits, because a
// client may know of a grant through another node. If the read fails, the reply stays as it was when the request was
// queued, with the error.
func (a *pendingCall) stillWaiting(ctx context.Context, l *requests.Listener) error {
	at, err := a.executor.Read(ctx, Consistency{})
	select {
	case end := <-l.Concluded: // the machine is up to date now
		return a.setConclusion(ctx, end)
	default:
	}
	if err != nil {
		return err
	}
	reply := Reply{Index: at.Index, NowMS: at.NowMS}
	var known bool
	a.executor.config.Replica.View(func(m *fsm.Machine) {
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

// endForDrain ends a wait because this node is about to stop. A request of an ordinary session keeps its place, and its
// caller gets Waiting. A one-shot with a key keeps its place for a repeat on another node. A one-shot without a key is
// withdrawn, and its client must ask again.
func (a *pendingCall) endForDrain(ctx context.Context, l *requests.Listener) error {
	if a.OneShot {
		a.executor.abandon(&a.call)
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
	ctx, cancel := context.WithTimeout(ctx, placeTimeout)
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
func (a *pendingCall) awaitEntry(ctx context.Context, session uint64) error {
	timer := time.NewTimer(a.call.Wait)
	defer timer.Stop()
	a.call.Wait = 0                                         // for one attempt
	news, stop := a.executor.config.Replica.Listen(session) // before the first attempt, so that no change is missed
	defer stop()
	err := a.proposeDelivery(ctx)
	if err == nil && a.Code == fsm.NothingReady && a.Found {
		a.reportQueued()
	}
	for err == nil && a.Code == fsm.NothingReady && a.Found {
		select {
		case <-news:
			if ctx.Err() == nil && a.wouldReturn(session) { // otherwise the delivery would be lost
				err = a.proposeDelivery(ctx)
			}
		case <-timer.C:
			return a.finalAttempt(ctx, session)
		case <-a.executor.active.draining.Done():
			return a.finalAttempt(ctx, session)
		case <-ctx.Done(): // the list has kept its entries
			return a.fail(context.Cause(ctx))
		}
	}
	return err
}

// proposeDelivery proposes the delivery once.
func (a *pendingCall) proposeDelivery(ctx context.Context) error {
	return a.executor.submit(ctx, &a.call, a.executor.build(&a.call), &a.Reply)
}

// finalAttempt ends a wait for an entry. A read index confirms that no entry is ready. If an entry has just become
// ready, finalAttempt delivers it.
func (a *pendingCall) finalAttempt(ctx context.Context, session uint64) error {
	at, err := a.executor.Read(ctx, Consistency{})
	switch {
	case errors.Is(err, outcome.ErrNoLeader) && a.executor.active.draining.Err() != nil:
		return a.fail(outcome.ErrDraining)
	case err != nil:
		return a.fail(err)
	case a.wouldReturn(session):
		return a.proposeDelivery(ctx)
	}
	a.Index, a.NowMS = at.Index, at.NowMS
	return nil
}

// wouldReturn reports whether a delivery would return at once, as far as this node's own state shows: an entry is ready,
// the list is empty, or the session has ended.
func (a *pendingCall) wouldReturn(session uint64) (ok bool) {
	a.executor.config.Replica.View(func(m *fsm.Machine) {
		list := m.WaitList(session)
		ok = len(list) == 0
		for i := range list {
			ok = ok || list[i].Granted > 0 || list[i].Wanted == 0 // it has ended
		}
	})
	return ok
}
