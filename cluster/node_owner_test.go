package cluster

import (
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
