package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster/lead"
	"github.com/signalbox/signalbox/fsm"
)

// TestTicksWhileSessionsExist: every 500 ms while a session lives and no command
// is logged, and never without sessions.
func TestTicksWhileSessionsExist(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *nodes) {
		leader := c.leader()
		logged := func(during time.Duration) uint64 {
			before := leader.raft().LastIndex()
			time.Sleep(during) // virtual: how long is counted
			return leader.raft().LastIndex() - before
		}
		if n := logged(10 * time.Minute); n != 0 {
			t.Errorf("%d entries without a session", n)
		}
		session := c.open(leader, time.Hour)
		if n := logged(time.Minute); n < 119 || n > 121 {
			t.Errorf("%d entries in a minute with a session, want 120", n)
		}
		c.do(leader, fsm.EndSession{Session: session}, fsm.OK)
		if n := logged(10 * time.Minute); n != 0 {
			t.Errorf("%d entries after the last session ended", n)
		}
		c.open(leader, time.Hour)
		c.semaphore("busy", 1)
		before := leader.raft().LastIndex()
		for range 100 {
			time.Sleep(100 * time.Millisecond) // virtual: the pace of the writes
			c.do(leader, fsm.Up{Name: "busy", Count: 1}, fsm.OK)
		}
		if n := leader.raft().LastIndex() - before; n != 100 {
			t.Errorf("%d entries for 100 writes: something else was logged besides", n)
		}
	})
}

// TestExpiryIsPrompt: on an idle cluster a session is gone, and its permits are
// granted on, within 20 ms of its deadline, and never before.
func TestExpiryIsPrompt(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("db", 1)
		n := c.follower()
		for _, ttl := range []time.Duration{7 * time.Millisecond, 333 * time.Millisecond, 1234 * time.Millisecond, 5 * time.Second} {
			waiter := c.open(n, time.Hour)
			sent := time.Now()
			holder := c.open(n, ttl)
			answered := time.Now()
			c.do(n, fsm.Acquire{Session: holder, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}, fsm.OK)
			got, err := n.Do(t.Context(), Call{
				Command: fsm.Acquire{Session: waiter, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}, Wait: time.Hour,
			})
			if err != nil || got.Code != fsm.OK {
				t.Fatalf("ttl %v: %v, %v", ttl, got.Code, err)
			}
			// Cluster time counts whole milliseconds: see lead.clock.
			if since := time.Since(sent); since <= ttl-time.Millisecond {
				t.Errorf("ttl %v: ended early, after %v", ttl, since)
			}
			if since := time.Since(answered); since > ttl+20*time.Millisecond {
				t.Errorf("ttl %v: ended late, after %v", ttl, since)
			}
			c.do(n, fsm.EndSession{Session: waiter}, fsm.OK)
		}
	})
}

// TestManyExpireAtOnce: an entry removes a bounded number; ticks follow back to
// back until no session is due.
func TestManyExpireAtOnce(t *testing.T) {
	const sessions = 3000 // an entry removes 1,024
	inBubble(t, 1, func(t *testing.T, c *nodes) {
		leader := c.leader()
		list := make([]Call, sessions)
		for i := range list {
			list[i].Command = fsm.OpenSession{Session: leader.DrawSession(), TTLMS: 10_000}
		}
		_, errs := leader.DoMany(t.Context(), list)
		for _, err := range errs {
			c.must(err)
		}
		opened := time.Now()
		before := leader.raft().LastIndex()
		count := func() (living int) {
			leader.View(func(m *fsm.Machine) { _, living, _, _ = m.Counts() })
			return living
		}
		if count() != sessions {
			t.Fatalf("%d sessions", count())
		}
		c.until("all are gone", func() bool { return count() == 0 })
		if took := time.Since(opened); took > 10*time.Second+20*time.Millisecond {
			t.Errorf("the last was gone after %v", took)
		}
		if ticks := leader.raft().LastIndex() - before; ticks > 20+3+1 {
			t.Errorf("%d entries for 20 ticks and three expiries", ticks)
		}
	})
}

// TestTickerGoesOnWithWhatIsLeftOver: work that the delete of a large semaphore
// leaves over is done at once, though no command is logged.
func TestTickerGoesOnWithWhatIsLeftOver(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		leader := c.leader()
		var wants []fsm.Want
		for i := range fsm.MaxMembers {
			name := fmt.Sprint("semaphore ", i)
			c.semaphore(name, 1)
			c.do(leader, fsm.Down{Name: name, Count: 1}, fsm.OK)
			wants = append(wants, fsm.Want{Semaphore: name, Count: 1})
		}
		for range 100 { // 6,400 members
			session := c.open(leader, time.Hour)
			c.do(leader, fsm.AcquireMany{Session: session, Wants: wants, Mode: fsm.All}, fsm.Waiting)
		}
		before, start := leader.raft().LastIndex(), time.Now()
		c.do(leader, fsm.DeleteSemaphore{Name: wants[0].Semaphore}, fsm.OK)
		for waiting := 1; waiting > 0 && time.Since(start) < lead.TickEvery; {
			time.Sleep(time.Millisecond) // virtual
			leader.View(func(m *fsm.Machine) { _, _, _, waiting = m.Counts() })
		}
		if took, entries := time.Since(start), leader.raft().LastIndex()-before; took > lead.TickEvery/5 || entries < 3 {
			t.Errorf("the waits ended after %v, in %d entries", took, entries)
		}
	})
}
