package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/signalbox/signalbox/fsm"
)

// deliver is do for a delivery that waits: while the list has entries and none is
// ready, it listens, and asks the log again whenever there are news. An entry is
// delivered by the command that finds it ready and by no other, so that however
// many nodes and calls listen, it is told once.
//
// The machine records a key with the delivery that happened, or with a refusal, and
// never with an empty answer: so each of these asks may carry the call's key. A
// repeat gets that delivery; one that comes before there is any waits like the
// first, and both get the same.
func (n *Node) deliver(ctx context.Context, call Call, session uint64) (Reply, error) {
	news, stop := n.lists.listen(session) // before asking: nothing ready later is missed
	defer stop()
	wait := call.Wait
	call.Wait = 0
	reply, err := n.propose(ctx, call, n.build(call))
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for err == nil && reply.Code == fsm.NothingReady && reply.Found {
		select {
		case <-news:
			if ctx.Err() == nil && n.worthAsking(session) { // nobody would hear of it else
				reply, err = n.propose(ctx, call, n.build(call))
			}
		case <-timer.C:
			return n.lastDelivery(ctx, call, session, reply)
		case <-n.calls.draining:
			return n.lastDelivery(ctx, call, session, reply)
		case <-ctx.Done(): // nothing was taken off the list for it
			return Reply{}, context.Cause(ctx)
		}
	}
	return reply, err
}

// lastDelivery ends a wait. That nothing is ready is confirmed by a read index, as
// is the end of every other wait; what has just become ready is delivered.
func (n *Node) lastDelivery(ctx context.Context, call Call, session uint64, nothing Reply) (Reply, error) {
	at, err := n.Read(ctx, Consistency{})
	switch {
	case errors.Is(err, ErrNoLeader) && n.life.draining.Load():
		return Reply{}, ErrDraining
	case err != nil:
		return Reply{}, err
	case n.worthAsking(session):
		return n.propose(ctx, call, n.build(call))
	}
	nothing.Index, nothing.NowMS = at.Index, at.NowMS
	return nothing, nil
}

// worthAsking reports whether a delivery would be answered at once, as far as this
// node's own state has come: an entry is ready, none is left, or the session ended.
func (n *Node) worthAsking(session uint64) (worth bool) {
	n.machine.view(func(m *fsm.Machine) {
		list := m.WaitList(session)
		worth = len(list) == 0
		for i := range list {
			worth = worth || list[i].Granted > 0 || list[i].Deleted
		}
	})
	return worth
}
