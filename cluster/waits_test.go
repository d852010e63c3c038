package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
)

// TestWaitsSurviveTheLeader: callers on all nodes wait for one semaphore; the
// leader dies; each of the others' gets its grant, in order, with rising tokens.
func TestWaitsSurviveTheLeader(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		holder := taken(c, "db")
		old := c.leader()
		var sessions []uint64
		var waiting []<-chan answer
		for i := range 12 {
			n := c.all[i%3]
			session := c.open(n, time.Hour)
			sessions = append(sessions, session)
			waiting = append(waiting, background(t.Context(), n, Call{Command: acquire(session, "db"), Wait: time.Hour}))
			c.until("one more waiter", func() bool { return waiters(c, n, "db") == int64(i+1) })
		}
		c.kill(old)
		next := c.leader()
		c.do(next, fsm.EndSession{Session: holder}, fsm.OK)
		last := uint64(0)
		for i, session := range sessions {
			if c.all[i%3] != old {
				got := <-waiting[i]
				if got.err != nil || got.Code != fsm.OK || got.Grants[0].Token <= last {
					t.Fatalf("waiter %d: %+v, %v, after token %d", i, got.Result, got.err, last)
				}
				last = got.Grants[0].Token
			}
			for j := i + 1; j < len(waiting); j++ {
				if len(waiting[j]) > 0 && c.all[j%3] != old {
					t.Fatalf("waiter %d was served before waiter %d", j, i)
				}
			}
			c.do(next, fsm.EndSession{Session: session}, fsm.OK)
		}
		c.revive(old)
		if view, _ := c.read(old, "db"); view.Available != 1 || view.Waiters != 0 {
			t.Errorf("at the end: %+v", view)
		}
	})
}

// TestSnapshotDuringAWait: a node is cut off while its callers wait, and what it
// missed comes as a snapshot. One that still waits goes on; one that was granted
// gets its grant; one whose session was ended learns why; the outcome of the others
// is unknown.
func TestSnapshotDuringAWait(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		n := c.follower()
		wait := func(name string, command fsm.Command) <-chan answer {
			answers := background(t.Context(), n, Call{Command: command, Wait: time.Hour})
			c.until("a waiter", func() bool { return waiters(c, n, name) == 1 }) // so it knows its place
			return answers
		}
		open := func() uint64 { return c.open(n, 10*time.Hour) }
		goesOn, granted, ended := taken(c, "goes on"), taken(c, "granted"), taken(c, "ended")
		c.semaphore("down", 0)
		endedSession := open()
		waiting := map[string]<-chan answer{
			"goes on": wait("goes on", acquire(open(), "goes on")),
			"granted": wait("granted", acquire(open(), "granted")),
			"ended":   wait("ended", acquire(endedSession, "ended")),
			"down":    wait("down", fsm.Down{Name: "down", Count: 1, WaitMS: 3_600_000, Session: n.DrawSession()}),
		}
		_ = ended // its holder stays
		leader := c.leader()
		c.net.Isolate(n.id)
		c.net.Reset(leader.id, n.id) // else the leader's word would come when it heals
		c.do(leader, fsm.EndSession{Session: granted}, fsm.OK)
		c.do(leader, fsm.EndSession{Session: endedSession, Operator: true, Reason: "maintenance"}, fsm.OK)
		c.do(leader, fsm.Up{Name: "down", Count: 1}, fsm.OK)
		for range 2200 { // more than the log keeps behind a snapshot
			c.do(leader, fsm.Up{Name: "down", Count: 1}, fsm.OK)
		}
		c.must(leader.raft().Snapshot().Error())
		for name, answers := range waiting {
			if len(answers) != 0 {
				t.Fatalf("%s: answered during the partition", name)
			}
		}
		c.net.Rejoin(n.id)
		if got := <-waiting["granted"]; got.err != nil || got.Code != fsm.OK || len(got.Grants) != 1 {
			t.Errorf("granted: %+v, %v", got.Result, got.err)
		}
		c.until("a snapshot is installed", func() bool { return n.requests.JumpedOver(1) })
		if got := <-waiting["ended"]; got.err != nil || got.Code != fsm.Revoked || got.Reason != "maintenance" {
			t.Errorf("ended: %+v, %v", got.Result, got.err)
		}
		if got := <-waiting["down"]; !errors.Is(got.err, outcome.ErrOutcomeUnknown) {
			t.Errorf("down: %+v, %v", got.Result, got.err)
		}
		time.Sleep(time.Second) // virtual: it must go on waiting
		if len(waiting["goes on"]) != 0 {
			t.Fatalf("goes on: %+v", <-waiting["goes on"])
		}
		c.do(c.leader(), fsm.EndSession{Session: goesOn}, fsm.OK)
		if got := <-waiting["goes on"]; got.err != nil || got.Code != fsm.OK {
			t.Errorf("goes on: %+v, %v", got.Result, got.err)
		}
	})
}

// TestSnapshotHidesARequest: a node's command is lost from sight, and then a
// snapshot comes instead of the entries that would show its result.
func TestSnapshotHidesARequest(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		leader, n := c.leader(), c.follower()
		c.net.Cut(leader.id, n.id)
		waiting := background(t.Context(), n, Call{Command: fsm.Up{Name: "a", Count: 1}})
		c.until("the leader's applying it", func() bool {
			value, _ := machineValue(leader.replica, "a")
			return value == 1
		})
		c.net.Isolate(n.id)
		c.net.Reset(leader.id, n.id)
		leader = c.leader(n)
		for range 2200 {
			c.do(leader, fsm.Up{Name: "a", Count: 1}, fsm.OK)
		}
		c.must(leader.raft().Snapshot().Error())
		time.Sleep(2500 * time.Millisecond) // virtual: appends from before the snapshot have given up
		began := time.Now()
		c.net.Rejoin(n.id)
		got := <-waiting
		c.until("a snapshot is installed", func() bool { return n.requests.JumpedOver(1) })
		if !errors.Is(got.err, outcome.ErrOutcomeUnknown) || time.Since(began) > outcomeTimeout {
			t.Fatalf("after %v: %+v, %v", time.Since(began), got.Result, got.err)
		}
	})
}
