package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/fsm"
)

func TestClockStampsStepByStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock(1000)
		for _, step := range []struct {
			sleep      time.Duration
			now, stamp int64
		}{
			{0, 1000, 1000},
			{250 * time.Millisecond, 1250, 1250},
			{400 * time.Microsecond, 1250, 1250}, // parts of a millisecond add up
			{400 * time.Microsecond, 1250, 1250},
			{400 * time.Microsecond, 1251, 1251},
			{30 * time.Second, 31251, 31251},
			{time.Hour, 61251, 61251}, // no further than 30 s at once …
			{0, 61251, 61251},         // … and the rest is not made up
			{time.Second, 62251, 62251},
		} {
			time.Sleep(step.sleep) // virtual: what passes
			if now := c.now(); now != step.now {
				t.Fatalf("after %v it reads %d, want %d", step.sleep, now, step.now)
			}
			if stamp := c.stamp(); stamp != step.stamp {
				t.Fatalf("after %v it stamps %d, want %d", step.sleep, stamp, step.stamp)
			}
		}
	})
}

func TestClockUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock(0)
		for _, ms := range []int64{1, 999, 29_999} {
			time.Sleep(300 * time.Microsecond) // virtual: never on the millisecond
			time.Sleep(c.until(ms))            // virtual: what it says
			if now := c.now(); now != ms {
				t.Fatalf("it reads %d when it should read %d", now, ms)
			}
		}
		if past := c.until(5); past != 0 {
			t.Fatalf("a moment that has passed is %v away", past)
		}
	})
}

// TestIdleHour: what an idle cluster sleeps does not count for a session that is
// opened after it.
func TestIdleHour(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *nodes) {
		c.semaphore("db", 1)
		leader := c.leader()
		before := leader.raft.LastIndex()
		time.Sleep(time.Hour) // virtual: the idle hour
		if after := leader.raft.LastIndex(); after != before {
			t.Fatalf("%d entries were logged in an hour without sessions", after-before)
		}
		session := c.open(leader, 30*time.Second)
		for range 200 {
			time.Sleep(5 * time.Millisecond) // virtual: 200 entries in a second
			c.do(leader, fsm.Up{Name: "db", Count: 1}, fsm.OK)
		}
		reply := c.do(leader, fsm.Renew{Renewals: []fsm.Renewal{{Session: session, TTLMS: fsm.KeepTTL}}}, fsm.OK)
		if reply.Each[0].Code != fsm.OK {
			t.Fatalf("the session of 30 s is gone after one: %v", reply.Each[0].Code)
		}
	})
}

// TestTimeStandsStillWithoutALeader: whoever holds a lease still has the time that
// it had left, and no less than that on its own clock.
func TestTimeStandsStillWithoutALeader(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		old := c.leader()
		session := c.open(old, 10*time.Second)
		opened := time.Now()
		time.Sleep(3 * time.Second) // virtual: well below its ttl
		rest := c.others(old)
		c.kill(old)
		c.kill(rest[0])
		time.Sleep(8 * time.Second) // virtual: the outage
		c.revive(rest[0])
		next := c.leader()
		resumed := time.Now()
		lives := func() bool {
			at, err := next.Read(t.Context(), Consistency{})
			c.must(err)
			lives := false
			next.View(func(m *fsm.Machine) {
				view, ok := m.Session(session)
				if lives = ok; ok && view.DeadlineMS <= at.NowMS {
					t.Errorf("a session is shown %d ms after its deadline", at.NowMS-view.DeadlineMS)
				}
			})
			return lives
		}
		c.until("the end of the session", func() bool { return !lives() })
		ended := time.Now()
		if after := ended.Sub(opened); after < 10*time.Second {
			t.Errorf("it ended early, after %v", after)
		}
		// 7 s were left, and up to a tick was handed out again.
		if after := ended.Sub(resumed); after > 7*time.Second+2*tickEvery {
			t.Errorf("it lived %v after the outage", after)
		}
	})
}
