package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/lead"
	"github.com/signalbox/signalbox/fsm"
)

// TestManyExpireAtOnce: an entry removes a bounded number; ticks follow back to
// back until no session is due.
func TestManyExpireAtOnce(t *testing.T) {
	const sessions = 3000 // an entry removes 1,024
	inBubble(t, 1, func(t *testing.T, c *nodes) {
		leader := c.leader()
		list := make([]calls.Call, sessions)
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
