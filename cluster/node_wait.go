package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/signalbox/signalbox/fsm"
)

const (
	// oneShotPatience is how much longer than its wait a one-shot's caller listens
	// for the machine to end it: cluster time stands still while there is no
	// leader, for as long as commands are held.
	oneShotPatience = holdTimeout
	// waitingPatience bounds how long a reply may take to find out since when its
	// request waits.
	waitingPatience = time.Second
)

// wait listens for the end of a wait, and answers as Do says.
func (n *Node) wait(ctx context.Context, call Call, l *listener, queued Reply) (Reply, error) {
	if l == nil {
		n.tellWaiting(ctx, &queued)
		return queued, nil
	}
	defer n.waits.stop(l)
	if n.waits.jumpedOver(queued.Index) {
		n.machine.view(func(m *fsm.Machine) { n.waits.recheck(l, m, m.Index()) })
	}
	ownPlace := queued.OneShot && !queued.Joined // the machine ends it
	limit := call.Wait
	if ownPlace {
		limit += n.times().patience(oneShotPatience)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case end := <-l.concluded:
		return n.conclusionReply(ctx, call, queued, end)
	case <-timer.C:
		if ownPlace { // no leader to end it
			n.abandon(call)
			return Reply{}, ErrOutcomeUnknown
		}
		return n.stillWaiting(ctx, call, l, queued)
	case <-ctx.Done():
		return n.hangUp(ctx, call, queued)
	case <-n.calls.draining:
		return n.drainWait(ctx, call, l, queued)
	}
}

// conclusionReply answers the end of a wait.
func (n *Node) conclusionReply(ctx context.Context, call Call, queued Reply, end conclusion) (Reply, error) {
	if end.lost {
		return Reply{}, ErrOutcomeUnknown
	}
	if ctx.Err() != nil && queued.OneShot && end.result.Code == fsm.OK {
		return n.hangUp(ctx, call, queued)
	}
	reply := Reply{Result: end.result, Index: end.index, NowMS: end.nowMS}
	reply.WaitedMS = max(0, end.nowMS-queued.NowMS)
	return reply, nil
}

// hangUp is the end of a caller that is gone: nobody else knows a one-shot that
// has no key.
func (n *Node) hangUp(ctx context.Context, call Call, queued Reply) (Reply, error) {
	if queued.OneShot {
		n.abandon(call)
	}
	return Reply{}, context.Cause(ctx)
}

// stillWaiting answers Waiting once a read index has confirmed it: else a grant
// that another node has told to the world already could be denied here. What it
// can't confirm comes with an error.
func (n *Node) stillWaiting(ctx context.Context, call Call, l *listener, queued Reply) (Reply, error) {
	at, err := n.Read(ctx, Consistency{})
	select {
	case end := <-l.concluded: // the machine is up to date now, and tells first
		return n.conclusionReply(ctx, call, queued, end)
	default:
	}
	if err != nil {
		return queued, err
	}
	var result fsm.Result
	var known bool
	var since int64
	n.machine.view(func(m *fsm.Machine) {
		result, known = m.Outcome(queued.Session, queued.Place, l.wants)
		since = enqueuedMS(m, &queued.Result, at.NowMS)
	})
	if !known {
		return Reply{}, ErrOutcomeUnknown
	}
	result.Joined = queued.Joined
	reply := Reply{Result: result, Index: at.Index, NowMS: at.NowMS}
	if result.Code == fsm.Waiting {
		reply.WaitingMS = max(0, at.NowMS-since)
	} else {
		reply.WaitedMS = max(0, at.NowMS-queued.NowMS)
	}
	return reply, nil
}

// drainWait ends a wait because this node is about to stop: an ordinary session
// keeps its place and is told so, a one-shot with a key keeps it for the repeat
// on another node, and one without, whose client must ask again, is withdrawn.
func (n *Node) drainWait(ctx context.Context, call Call, l *listener, queued Reply) (Reply, error) {
	if queued.OneShot {
		n.abandon(call)
		return Reply{}, ErrDraining
	}
	reply, err := n.stillWaiting(ctx, call, l, queued)
	if errors.Is(err, ErrNoLeader) {
		err = ErrDraining
	}
	return reply, err
}

// tellWaiting tells Waiting replies for how long their requests have been queued: 0
// when they are new, end at this moment, or are not known here within a second.
func (n *Node) tellWaiting(ctx context.Context, replies ...*Reply) {
	if len(replies) == 0 {
		return
	}
	last := uint64(0)
	for _, reply := range replies {
		last = max(last, reply.Index)
	}
	ctx, cancel := context.WithTimeout(ctx, waitingPatience)
	defer cancel()
	_ = n.machine.progress.await(ctx, last) // in vain: what has come by now is told
	n.machine.view(func(m *fsm.Machine) {
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
	})
}

// enqueuedMS answers when a waiting request was queued, in cluster time; gone
// when it does not wait.
func enqueuedMS(m *fsm.Machine, waiting *fsm.Result, gone int64) int64 {
	session, _ := m.Session(waiting.Session)
	for i := range session.Waiting {
		if session.Waiting[i].Place == waiting.Place {
			return session.Waiting[i].EnqueuedMS
		}
	}
	return gone
}
