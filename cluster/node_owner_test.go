package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
)

// TestQueued: a call notes the moment at which it begins to listen, for a lease and for an
// entry of a wait list alike, and no other call does. A grant that follows from a hang-up
// has the trace context of the call that was given up.
func TestQueued(t *testing.T) {
	formedBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.semaphore("db", 2)
		for i, n := range []*testNode{c.leader(), c.follower()} {
			queued := make(chan uint64, 9)
			note := func(index uint64) { queued <- index }
			session := uint64(10 + i)
			c.call(n, calls.Call{Command: fsm.OpenSession{Session: session, TTLMS: 600_000}, Queued: note}, fsm.OK)
			c.call(n, calls.Call{Command: fsm.Acquire{Session: session, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}, Wait: time.Minute, Queued: note}, fsm.OK)
			once := func(count int64) fsm.Command {
				return fsm.AcquireOnce{Name: "db", Count: count, TTLMS: 600_000, WaitMS: 60_000, Session: n.DrawSession()}
			}
			ctx, hangUp := context.WithCancel(t.Context())
			first := background(ctx, n, calls.Call{Command: once(2), Wait: time.Minute, Trace: "of the first", Queued: note})
			at := <-queued
			second := background(t.Context(), n, calls.Call{Command: once(1), Wait: time.Minute, Trace: "of the second", Queued: note})
			if next := <-queued; at == 0 || next <= at {
				t.Errorf("%s: queued at %d and %d", n.id, at, next)
			}
			hangUp()
			if got := <-first; !errors.Is(got.err, context.Canceled) {
				t.Errorf("%s: the first call: %+v", n.id, got)
			}
			freed := (<-second).Reply
			if freed.Code != fsm.OK || freed.Trace != "of the first" {
				t.Errorf("%s: %v with the trace %q", n.id, freed.Code, freed.Trace)
			}
			c.call(n, calls.Call{Command: fsm.ListAdd{Session: session, Name: "db", Count: 1}}, fsm.OK)
			listens := background(t.Context(), n, calls.Call{Command: fsm.ListDeliver{Session: session}, Wait: time.Minute, Queued: note})
			<-queued
			c.call(n, calls.Call{Command: fsm.EndSession{Session: freed.Session}}, fsm.OK)
			if got := (<-listens).Reply; got.Code != fsm.OK || len(got.Completed) != 1 {
				t.Errorf("%s: the list delivers %+v", n.id, got)
			}
			c.call(n, calls.Call{Command: fsm.EndSession{Session: session}}, fsm.OK)
			c.call(n, calls.Call{Command: fsm.Up{Name: "db", Count: 1}}, fsm.OK) // the list has taken one
			if len(queued) > 0 {
				t.Errorf("%s: %d calls more have listened", n.id, len(queued))
			}
		}
	})
}
