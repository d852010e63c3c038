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
	// oneShotPatience is how much longer than its wait a one-shot's caller listens
	// for the machine to end it: cluster time stands still while there is no
	// leader, for as long as commands are held.
	oneShotPatience = forward.HoldTimeout
	// waitingPatience bounds how long a reply may take for the moment since when its
	// request waits.
	waitingPatience = time.Second
)

// waiting is a call whose request was queued.
type waiting struct {
	node     *Node
	call     Call
	listener *requests.Listener
	queued   Reply // from when the request was queued
}

// listen returns the reply at the end of the wait: see Do.
func (w waiting) listen(ctx context.Context) (Reply, error) {
	defer w.node.requests.Stop(w.listener)
	w.node.requests.Recheck(w.listener, w.queued.Index)
	ownPlace := w.queued.OneShot && !w.queued.Joined // the machine ends it
	limit := w.call.Wait
	if ownPlace {
		limit += w.node.times.Patience(oneShotPatience)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case end := <-w.listener.Concluded:
		return w.concluded(ctx, end)
	case <-timer.C:
		if ownPlace { // no leader to end it
			w.node.abandon(w.call)
			return Reply{}, outcome.ErrOutcomeUnknown
		}
		return w.stillWaiting(ctx)
	case <-ctx.Done():
		return w.hangUp(ctx)
	case <-w.node.calls.draining.Done():
		return w.drained(ctx)
	}
}

// concluded returns the reply of a wait that the machine has ended.
func (w waiting) concluded(ctx context.Context, end requests.Conclusion) (Reply, error) {
	if end.Lost {
		return Reply{}, outcome.ErrOutcomeUnknown
	}
	if ctx.Err() != nil && w.queued.OneShot && end.Result.Code == fsm.OK {
		return w.hangUp(ctx)
	}
	end.Result.TookOver = w.queued.TookOver
	return Reply{Result: end.Result, Index: end.Index, NowMS: end.NowMS, WaitedMS: max(0, end.NowMS-w.queued.NowMS)}, nil
}

// hangUp is for a caller that is gone: no other one knows a one-shot without key.
func (w waiting) hangUp(ctx context.Context) (Reply, error) {
	if w.queued.OneShot {
		w.node.abandon(w.call)
	}
	return Reply{}, context.Cause(ctx)
}

// stillWaiting returns Waiting once a read index has confirmed it: otherwise this node
// could deny a grant that another one has reported already. Without the confirmation
// it returns the reply from when the request was queued, and an error.
func (w waiting) stillWaiting(ctx context.Context) (Reply, error) {
	at, err := w.node.Read(ctx, Consistency{})
	select {
	case end := <-w.listener.Concluded: // the machine is up to date now
		return w.concluded(ctx, end)
	default:
	}
	if err != nil {
		return w.queued, err
	}
	reply := Reply{Index: at.Index, NowMS: at.NowMS}
	var known bool
	w.node.View(func(m *fsm.Machine) {
		reply.Result, known = m.Outcome(w.queued.Session, w.queued.Place, w.listener.Wants)
		setWaiting(m, &reply)
	})
	if !known {
		return Reply{}, outcome.ErrOutcomeUnknown
	}
	reply.Joined, reply.TookOver = w.queued.Joined, w.queued.TookOver
	if reply.Code != fsm.Waiting {
		reply.WaitedMS = max(0, at.NowMS-w.queued.NowMS)
	}
	return reply, nil
}

// drained ends a wait because this node is about to stop. An ordinary session keeps
// its place, and its caller learns that; a one-shot with a key keeps its place for the
// repeat on another node; one without a key is withdrawn, and its client must ask
// again.
func (w waiting) drained(ctx context.Context) (Reply, error) {
	if w.queued.OneShot {
		w.node.abandon(w.call)
		return Reply{}, outcome.ErrDraining
	}
	reply, err := w.stillWaiting(ctx)
	if errors.Is(err, outcome.ErrNoLeader) {
		err = outcome.ErrDraining
	}
	return reply, err
}

// fillWaiting sets in Waiting replies for how long their requests have been queued: 0
// when they are new, end at this moment, or are not known here within a second.
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
	_ = state.Await(ctx, last) // in vain: use the state as it is
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

// listWait is a call that waits for an entry of a list. While the list has entries and
// none is ready, it proposes the delivery again at each piece of news. Only the command
// that finds an entry ready delivers it, so that each is delivered once, however many
// nodes and calls listen.
//
// The machine records a key with a delivery or a refusal, and never with an empty
// result: so each of these commands may have the call's key. A repeat gets the recorded
// delivery; a repeat that comes before there is one waits like the first, and both get
// the same.
type listWait struct {
	node    *Node
	call    Call   // of one attempt: it does not wait
	session uint64 // of the list
}

// listen returns the reply of the delivery, after so long at the latest: see Do.
func (w listWait) listen(ctx context.Context, wait time.Duration) (Reply, error) {
	news, stop := w.node.replica.Listen(w.session) // first: news from now on are not missed
	defer stop()
	reply, err := w.attempt(ctx)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for err == nil && reply.Code == fsm.NothingReady && reply.Found {
		select {
		case <-news:
			if ctx.Err() == nil && w.promising() { // else the delivery would be lost
				reply, err = w.attempt(ctx)
			}
		case <-timer.C:
			return w.last(ctx, reply)
		case <-w.node.calls.draining.Done():
			return w.last(ctx, reply)
		case <-ctx.Done(): // the list has kept its entries
			return Reply{}, context.Cause(ctx)
		}
	}
	return reply, err
}

// attempt proposes the delivery once.
func (w listWait) attempt(ctx context.Context) (Reply, error) {
	return w.node.propose(ctx, w.call, w.node.build(w.call))
}

// last ends a wait. A read index confirms that no entry is ready, as it confirms the end
// of every other wait; an entry that has just become ready is delivered.
func (w listWait) last(ctx context.Context, nothing Reply) (Reply, error) {
	at, err := w.node.Read(ctx, Consistency{})
	switch {
	case errors.Is(err, outcome.ErrNoLeader) && w.node.calls.draining.Err() != nil:
		return Reply{}, outcome.ErrDraining
	case err != nil:
		return Reply{}, err
	case w.promising():
		return w.attempt(ctx)
	}
	nothing.Index, nothing.NowMS = at.Index, at.NowMS
	return nothing, nil
}

// promising reports whether an attempt would not have to wait, as far as this node's own
// state shows: an entry is ready, none is left, or the session has ended.
func (w listWait) promising() (yes bool) {
	w.node.View(func(m *fsm.Machine) {
		list := m.WaitList(w.session)
		yes = len(list) == 0
		for i := range list {
			yes = yes || list[i].Granted > 0 || list[i].Deleted
		}
	})
	return yes
}
