package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/cluster/forward"
	"github.com/signalbox/signalbox/cluster/lead"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
)

// listed opens a session on a node, with semaphores of no permits on its wait list.
func listed(c *nodes, n *testNode, names ...string) (session uint64) {
	c.t.Helper()
	session = c.open(n, 10*time.Hour)
	for _, name := range names {
		c.do(n, fsm.CreateSemaphore{Name: name}, fsm.OK)
		c.do(n, fsm.ListAdd{Session: session, Name: name, Count: 5}, fsm.OK)
	}
	return session
}

// delivery is a delivery that waits for an hour.
func delivery(session uint64) Call {
	return Call{Command: fsm.ListDeliver{Session: session}, Wait: time.Hour}
}

// drawn returns how many requests the node has numbered, with one that it numbers here.
func drawn(n *testNode) uint64 {
	return n.requests.Build(fsm.Up{}, fsm.Envelope{}, lead.ClassSingle, nil).ID.Sequence
}

// listening waits, in virtual time, until so many calls listen on a node, and
// no attempt is under way.
func listening(c *nodes, n *testNode, session uint64, count int) {
	c.t.Helper()
	c.until("a listener", func() bool { return n.replica.Listeners(session) == count })
	time.Sleep(100 * time.Millisecond) // virtual: the first ask is over
	synctest.Wait()
}

// delivered checks that a call returned this much of these semaphores, in this order.
func delivered(t *testing.T, got answer, want string) {
	t.Helper()
	text := ""
	for _, e := range got.Completed {
		text += fmt.Sprintf("%s %d %v;", e.Semaphore, e.Granted, e.Deleted)
	}
	if got.err != nil || got.Code != fsm.OK || text != want {
		t.Fatalf("%v %q, %v, want %q", got.Code, text, got.err, want)
	}
}

// TestDeliveryWakesOnEveryNode: whichever node grants, deletes or ends, a call on
// any node returns at once; and no command is logged while it waits.
func TestDeliveryWakesOnEveryNode(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		leader, follower := c.leader(), c.follower()
		for i, at := range [][2]*testNode{{leader, follower}, {follower, leader}, {c.others(leader)[1], follower}} {
			a, b := fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i)
			session := listed(c, at[1], a, b)
			waiting := background(t.Context(), at[0], delivery(session))
			listening(c, at[0], session, 1)
			before := drawn(at[0])
			time.Sleep(10 * time.Second) // virtual: it must not ask meanwhile
			if asked := drawn(at[0]) - before - 1; asked != 0 || len(waiting) != 0 {
				t.Fatalf("%d commands while nothing happened", asked)
			}
			began := time.Now()
			c.do(at[1], fsm.Up{Name: b, Count: 2}, fsm.OK)
			got := <-waiting
			delivered(t, got, b+" 2 false;")
			if took := time.Since(began); took > 50*time.Millisecond {
				t.Errorf("told after %v", took)
			}
			waiting = background(t.Context(), at[0], delivery(session))
			listening(c, at[0], session, 1)
			c.do(at[1], fsm.DeleteSemaphore{Name: a}, fsm.OK)
			delivered(t, <-waiting, a+" 0 true;")
			c.call(at[0], delivery(session), fsm.NothingReady) // an empty list has its reply at once
		}
	})
}

// TestDeliveryEndsWithItsSession: as every other wait of a session does.
func TestDeliveryEndsWithItsSession(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		for code, end := range map[fsm.Code]fsm.Command{
			fsm.UnknownSession: fsm.EndSession{},
			fsm.Revoked:        fsm.EndSession{Operator: true, Reason: "maintenance"},
			fsm.ExpiredSession: fsm.Renew{},
		} {
			n := c.follower()
			session := listed(c, n, code.String())
			waiting := background(t.Context(), n, delivery(session))
			listening(c, n, session, 1)
			switch command := end.(type) {
			case fsm.EndSession:
				command.Session = session
				c.do(c.leader(), command, fsm.OK)
			case fsm.Renew:
				command.Renewals = []fsm.Renewal{{Session: session, TTLMS: 1000}}
				c.do(c.leader(), command, fsm.OK)
			}
			got := <-waiting
			if got.err != nil || got.Code != code || code == fsm.Revoked && got.Reason != "maintenance" {
				t.Errorf("%v: %+v, %v", code, got.Result, got.err)
			}
		}
	})
}

// TestDeliveryWaitsNoLongerThanAsked: no entry is ready, the place is kept; and
// the wait for a list that another call empties ends at once.
func TestDeliveryWaitsNoLongerThanAsked(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		for i, n := range []*testNode{c.leader(), c.follower()} {
			name := fmt.Sprintf("a%d", i)
			session := listed(c, n, name)
			call := delivery(session)
			call.Wait = 2 * time.Second
			began := time.Now()
			if got := c.call(n, call, fsm.NothingReady); !got.Found || len(got.Completed) != 0 {
				t.Errorf("%+v", got.Result)
			}
			if took := time.Since(began); took < 2*time.Second || took > 2050*time.Millisecond {
				t.Errorf("it took %v", took)
			}
			c.until("the place", func() bool { return waiters(c, n, name) == 1 })
			waiting := background(t.Context(), n, delivery(session))
			listening(c, n, session, 1)
			c.do(c.leader(), fsm.ListRemove{Session: session, Name: name}, fsm.OK)
			if got := <-waiting; got.err != nil || got.Code != fsm.NothingReady || got.Found {
				t.Errorf("emptied: %+v, %v", got.Result, got.err)
			}
		}
	})
}

// TestDeliveryEndIsConfirmed: a node that is cut off must not say that no entry
// is ready.
func TestDeliveryEndIsConfirmed(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		n := c.follower()
		session := listed(c, n, "a")
		call := delivery(session)
		call.Wait = 3 * time.Second
		waiting := background(t.Context(), n, call)
		listening(c, n, session, 1)
		c.net.Isolate(n.id)
		c.do(c.leader(), fsm.Up{Name: "a", Count: 2}, fsm.OK)
		if got := <-waiting; !errors.Is(got.err, outcome.ErrNoLeader) {
			t.Fatalf("%+v, %v", got.Result, got.err)
		}
		c.net.Rejoin(n.id)
		delivered(t, <-background(t.Context(), n, call), "a 2 false;")
	})
}

// TestDeliveryOfOneKey: calls with one key on several nodes get the same
// delivery, those that wait, and one that comes later; an empty reply leaves the key
// free; without a key exactly one gets it.
func TestDeliveryOfOneKey(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		first, second := c.leader(), c.follower()
		session := listed(c, first, "a")
		call := delivery(session)
		call.Key = "client/0123456789abcdef"
		empty := call
		empty.Wait = time.Second
		c.call(first, empty, fsm.NothingReady)
		one, two := background(t.Context(), first, call), background(t.Context(), second, call)
		listening(c, first, session, 1)
		listening(c, second, session, 1)
		c.do(second, fsm.Up{Name: "a", Count: 2}, fsm.OK)
		a, b := <-one, <-two
		delivered(t, a, "a 2 false;")
		delivered(t, b, "a 2 false;")
		if a.Replayed == b.Replayed || a.Completed[0].Token != b.Completed[0].Token {
			t.Errorf("%+v and %+v", a.Result, b.Result)
		}
		c.do(first, fsm.ListAdd{Session: session, Name: "a", Count: 1}, fsm.OK)
		later := <-background(t.Context(), second, call)
		delivered(t, later, "a 2 false;")
		if !later.Replayed {
			t.Error("the repeat is not marked")
		}
		one, two = background(t.Context(), first, delivery(session)), background(t.Context(), second, delivery(session))
		listening(c, first, session, 1)
		listening(c, second, session, 1)
		c.do(second, fsm.Up{Name: "a", Count: 1}, fsm.OK)
		a, b = <-one, <-two
		if a.Code == fsm.NothingReady { // the list is empty then
			a, b = b, a
		}
		delivered(t, a, "a 1 false;")
		if b.err != nil || b.Code != fsm.NothingReady || b.Found {
			t.Errorf("the other: %+v, %v", b.Result, b.err)
		}
	})
}

// TestDeliveryHangUp: a caller that has hung up takes no entry off the list.
func TestDeliveryHangUp(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		for i, n := range []*testNode{c.leader(), c.follower()} {
			name := fmt.Sprintf("a%d", i)
			session := listed(c, n, name)
			ctx, hangUp := context.WithCancel(t.Context())
			waiting := background(ctx, n, delivery(session))
			listening(c, n, session, 1)
			hangUp()
			if got := <-waiting; !errors.Is(got.err, context.Canceled) {
				t.Fatal(got.err)
			}
			listening(c, n, session, 0)
			c.do(n, fsm.Up{Name: name, Count: 3}, fsm.OK)
			delivered(t, <-background(t.Context(), n, delivery(session)), name+" 3 false;")
		}
	})
}

// TestDeliveryDrain: the call returns that no entry is ready, and the place is
// kept for another node.
func TestDeliveryDrain(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		n := c.follower()
		session := listed(c, n, "a")
		waiting := background(t.Context(), n, delivery(session))
		listening(c, n, session, 1)
		n.Drain()
		if got := <-waiting; got.err != nil || got.Code != fsm.NothingReady || !got.Found {
			t.Fatalf("%+v, %v", got.Result, got.err)
		}
		next := background(t.Context(), c.leader(), delivery(session))
		listening(c, c.leader(), session, 1)
		c.do(c.leader(), fsm.Up{Name: "a", Count: 9}, fsm.OK)
		delivered(t, <-next, "a 5 false;")
	})
}

// TestDeliverySurvivesTheLeader: the leader is killed while calls on the others
// wait; the place and the earlier grants are still there.
func TestDeliverySurvivesTheLeader(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		old := c.leader()
		var waiting []<-chan answer
		for i, n := range c.others(old) {
			session := listed(c, n, fmt.Sprintf("a%d", i))
			waiting = append(waiting, background(t.Context(), n, delivery(session)))
			listening(c, n, session, 1)
		}
		undelivered := listed(c, old, "b")
		c.do(old, fsm.Up{Name: "b", Count: 2}, fsm.OK)
		c.kill(old)
		next := c.leader()
		for i := range waiting {
			c.do(next, fsm.Up{Name: fmt.Sprintf("a%d", i), Count: 2}, fsm.OK)
			delivered(t, <-waiting[i], fmt.Sprintf("a%d 2 false;", i))
		}
		delivered(t, <-background(t.Context(), next, delivery(undelivered)), "b 2 false;")
		c.revive(old)
	})
}

// TestDeliveryThroughASnapshot: the entries that a node missed come as a snapshot,
// which has no effects: the calls look the lists up.
func TestDeliveryThroughASnapshot(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		n := c.follower()
		goesOn, ready, ended := listed(c, n, "goes on"), listed(c, n, "ready"), listed(c, n, "ended")
		waiting := map[uint64]<-chan answer{}
		for _, session := range []uint64{goesOn, ready, ended} {
			waiting[session] = background(t.Context(), n, delivery(session))
			listening(c, n, session, 1)
		}
		leader := c.leader()
		c.net.Isolate(n.id)
		c.net.Reset(leader.id, n.id)
		c.do(leader, fsm.Up{Name: "ready", Count: 4}, fsm.OK)
		c.do(leader, fsm.EndSession{Session: ended, Operator: true, Reason: "maintenance"}, fsm.OK)
		for range 2200 { // more than the log keeps behind a snapshot
			c.do(leader, fsm.Up{Name: "ended", Count: 1}, fsm.OK)
		}
		c.must(leader.raft().Snapshot().Error())
		c.net.Rejoin(n.id)
		delivered(t, <-waiting[ready], "ready 4 false;")
		c.until("a snapshot is installed", func() bool { return n.requests.JumpedOver(1) })
		if got := <-waiting[ended]; got.err != nil || got.Code != fsm.Revoked {
			t.Errorf("ended: %+v, %v", got.Result, got.err)
		}
		before := drawn(n)
		time.Sleep(time.Second) // virtual: it must go on waiting, without asking
		if asked := drawn(n) - before - 1; asked != 0 || len(waiting[goesOn]) != 0 {
			t.Fatalf("goes on: %d replies, %d commands", len(waiting[goesOn]), asked)
		}
		c.do(c.leader(), fsm.Up{Name: "goes on", Count: 1}, fsm.OK)
		delivered(t, <-waiting[goesOn], "goes on 1 false;")
	})
}

// TestDeliveryMissesNothing: an entry of the list that becomes ready in the same
// entry of the log as the first attempt, right behind it, is delivered.
func TestDeliveryMissesNothing(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		old := c.leader()
		others := c.others(old)
		sessions := []uint64{listed(c, others[0], "a0"), listed(c, others[1], "a1")}
		c.kill(old)
		var waiting []<-chan answer
		for i, n := range others { // held together until one of the two leads
			waiting = append(waiting, background(t.Context(), n, delivery(sessions[i])))
			synctest.Wait()
			background(t.Context(), n, Call{Command: fsm.Up{Name: fmt.Sprintf("a%d", i), Count: 1}})
			synctest.Wait()
		}
		began := time.Now()
		for i := range waiting {
			delivered(t, <-waiting[i], fmt.Sprintf("a%d 1 false;", i))
		}
		if took := time.Since(began); took > forward.HoldTimeout {
			t.Errorf("told after %v", took)
		}
	})
}
