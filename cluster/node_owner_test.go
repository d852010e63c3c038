package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/signalbox/signalbox/fsm"
)

// TestCallsCarryOwnerAndTrace: the identity and the trace context of a call reach the
// machine from any node, alone and in a list, and so do those of what it leaves behind.
func TestCallsCarryOwnerAndTrace(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		c.semaphore("db", 1)
		for i, n := range []*testNode{c.leader(), c.follower()} {
			session := uint64(10 + i)
			do := func(owner string, command fsm.Command) fsm.Result {
				got, err := n.Do(t.Context(), Call{Command: command, Owner: owner, Trace: "trace of " + owner})
				if err != nil {
					t.Fatal(err)
				}
				return got.Result
			}
			do("ci", fsm.OpenSession{Session: session, TTLMS: 600_000})
			for owner, want := range map[string]fsm.Code{"ci": fsm.OK, "ops": fsm.UnknownSession, "": fsm.OK} {
				if got := do(owner, fsm.Renew{Renewals: []fsm.Renewal{{Session: session, TTLMS: fsm.KeepTTL}}}); got.Each[0].Code != want {
					t.Errorf("%s: a renewal by %q: %v, want %v", n.id, owner, got.Each[0].Code, want)
				}
			}
			lists, errs := n.DoMany(t.Context(), []Call{{Command: fsm.Release{Session: session, Name: "db"}, Owner: "ops"}, {Command: fsm.Release{Session: session, Name: "db"}, Owner: "ci"}})
			if errs[0] != nil || errs[1] != nil || lists[0].Code != fsm.UnknownSession || lists[1].Code != fsm.OK {
				t.Errorf("%s: a list: %v %v, %v", n.id, lists[0].Code, lists[1].Code, errs)
			}
			if got := do("ci", fsm.Acquire{Session: session, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}); got.Code != fsm.OK {
				t.Fatalf("%s: %v", n.id, got.Code)
			}
			waiting := background(t.Context(), n, Call{Command: fsm.AcquireOnce{Name: "db", Count: 1, TTLMS: 600_000, WaitMS: 60_000, Session: n.DrawSession()},
				Wait: time.Minute, Owner: "ci", Trace: "trace of the wait"})
			c.until("it waits", func() bool { return metricsOf(t, n)["waits_open"] == 1 })
			do("ci", fsm.Release{Session: session, Name: "db"})
			granted := (<-waiting).Reply
			if granted.Code != fsm.OK || granted.Trace != "trace of ci" {
				t.Errorf("%s: after the wait %v with trace %q", n.id, granted.Code, granted.Trace)
			}
			do("", fsm.EndSession{Session: granted.Session})
		}
	})
}

// TestQueued: a call notes the moment at which it begins to listen, for a lease and for an
// entry of a wait list alike, and no other call does. A grant that follows from a hang-up
// has the trace context of the call that was given up.
func TestQueued(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		c.semaphore("db", 2)
		for i, n := range []*testNode{c.leader(), c.follower()} {
			queued := make(chan uint64, 9)
			note := func(index uint64) { queued <- index }
			session := uint64(10 + i)
			c.call(n, Call{Command: fsm.OpenSession{Session: session, TTLMS: 600_000}, Queued: note}, fsm.OK)
			c.call(n, Call{Command: fsm.Acquire{Session: session, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}, Wait: time.Minute, Queued: note}, fsm.OK)
			once := func(count int64) fsm.Command {
				return fsm.AcquireOnce{Name: "db", Count: count, TTLMS: 600_000, WaitMS: 60_000, Session: n.DrawSession()}
			}
			ctx, hangUp := context.WithCancel(t.Context())
			first := background(ctx, n, Call{Command: once(2), Wait: time.Minute, Trace: "of the first", Queued: note})
			at := <-queued
			second := background(t.Context(), n, Call{Command: once(1), Wait: time.Minute, Trace: "of the second", Queued: note})
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
			c.call(n, Call{Command: fsm.ListAdd{Session: session, Name: "db", Count: 1}}, fsm.OK)
			listens := background(t.Context(), n, Call{Command: fsm.ListDeliver{Session: session}, Wait: time.Minute, Queued: note})
			<-queued
			c.call(n, Call{Command: fsm.EndSession{Session: freed.Session}}, fsm.OK)
			if got := (<-listens).Reply; got.Code != fsm.OK || len(got.Completed) != 1 {
				t.Errorf("%s: the list delivers %+v", n.id, got)
			}
			c.call(n, Call{Command: fsm.EndSession{Session: session}}, fsm.OK)
			c.call(n, Call{Command: fsm.Up{Name: "db", Count: 1}}, fsm.OK) // the list has taken one
			if len(queued) > 0 {
				t.Errorf("%s: %d calls more have listened", n.id, len(queued))
			}
		}
	})
}

// TestLimitsOfOwners: each of two identities gets as much as its limits allow, at any node,
// alone and in a list, and what one has does not count for the other. The grant of a
// request that waited stays within the limit.
func TestLimitsOfOwners(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		c.semaphore("db", 3)
		c.semaphore("one", 1)
		leader, follower := c.leader(), c.follower()
		may := fsm.OwnerLimits{Sessions: 3, Leases: 2, Waiting: 1}
		once := func(name string) fsm.Command {
			return fsm.AcquireOnce{Name: name, Count: 1, TTLMS: 600_000, WaitMS: 600_000, Session: leader.DrawSession()}
		}
		open := func() fsm.Command { return fsm.OpenSession{Session: leader.DrawSession(), TTLMS: 600_000} }
		down := fsm.Down{Name: "db", Count: 9, WaitMS: 600_000, Session: leader.DrawSession()}
		expect := func(n *testNode, owner string, command fsm.Command, code fsm.Code, rule fsm.Rule) Reply {
			t.Helper()
			got := c.call(n, Call{Command: command, Owner: owner, Limits: may}, code)
			if got.Rule != rule {
				t.Errorf("%s: %s: %T is refused by %v", n.id, owner, command, got.Rule)
			}
			return got
		}
		held := expect(leader, "ci", once("one"), fsm.OK, fsm.RuleNone)
		expect(follower, "ci", once("one"), fsm.Waiting, fsm.RuleNone)
		expect(leader, "ci", once("db"), fsm.LimitReached, fsm.RuleOwnerLeases)
		expect(follower, "ci", down, fsm.LimitReached, fsm.RuleOwnerWaiting)
		expect(follower, "ci", open(), fsm.OK, fsm.RuleNone)
		expect(leader, "ci", open(), fsm.LimitReached, fsm.RuleOwnerSessions)

		expect(follower, "ops", once("db"), fsm.OK, fsm.RuleNone)
		expect(leader, "ops", once("db"), fsm.OK, fsm.RuleNone)
		expect(follower, "ops", once("db"), fsm.LimitReached, fsm.RuleOwnerLeases)
		for _, n := range []*testNode{leader, follower} {
			list, errs := n.DoMany(t.Context(), []Call{{Command: open(), Owner: "ops", Limits: may}, {Command: open(), Owner: "ops", Limits: may}})
			if errs[0] != nil || errs[1] != nil || list[0].Code != fsm.OK || list[1].Rule != fsm.RuleOwnerSessions {
				t.Errorf("%s: a list: %v, %v (%v), %v", n.id, list[0].Code, list[1].Code, list[1].Rule, errs)
			}
			expect(n, "ops", fsm.EndSession{Session: list[0].Session}, fsm.OK, fsm.RuleNone)
		}

		expect(follower, "ci", fsm.EndSession{Session: held.Session}, fsm.OK, fsm.RuleNone)
		if one, _ := c.read(follower, "one"); one.Held != 1 || one.Waiters != 0 {
			t.Errorf("after the release: %+v", one)
		}
		expect(leader, "ci", once("db"), fsm.OK, fsm.RuleNone)
		expect(follower, "ci", once("db"), fsm.LimitReached, fsm.RuleOwnerSessions)
	})
}
