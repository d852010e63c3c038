package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
)

// renewing renews a session every two seconds, through whichever nodes are named, and
// returns how often it was refused, and why last.
func (c *lifeNodes) renewing(session uint64, during time.Duration, on ...*testNode) (refused int, last error) {
	c.t.Helper()
	for began := time.Now(); time.Since(began) < during; {
		for _, n := range on {
			time.Sleep(2 * time.Second) // virtual: the pace of a client
			reply, err := n.Do(c.t.Context(), Call{Command: fsm.Renew{Renewals: []fsm.Renewal{{Session: session, TTLMS: fsm.KeepTTL}}}})
			if err != nil {
				refused, last = refused+1, err
			} else if reply.Each[0].Code != fsm.OK {
				c.t.Fatalf("the session is lost: %v", reply.Each[0].Code)
			}
		}
	}
	return refused, last
}

// fullDisks sets the mark that all disks have reached, and waits until it is seen.
func (c *lifeNodes) fullDisks(disks map[string]*watchdogDisk, low, spent bool) {
	for _, d := range disks {
		d.full.Store(low)
		d.spent.Store(spent)
	}
	c.until("the mark is noticed", func() bool {
		for _, n := range c.all {
			if now := n.running.Load().space(); now.Low != (low || spent) || now.Spent != spent {
				return false
			}
		}
		return c.leader().established().TimeHeld() == spent
	})
}

// TestLeasesOutliveANearlyFullDisk: below the first mark, what grows the state is
// refused; what keeps or ends a lease is taken from every node, with a key too, and
// a lease whose client stays away ends in time.
func TestLeasesOutliveANearlyFullDisk(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		disks := watchdogDisks(c)
		c.begin(c.all...)
		c.ready(c.all...)
		c.semaphore("db", 10)
		node := c.leader()
		held := func(ttl time.Duration) uint64 {
			session := c.open(node, ttl)
			c.do(node, fsm.Acquire{Session: session, Name: "db", Count: 2, TTLMS: fsm.KeepTTL}, fsm.OK)
			return session
		}
		kept, left, given, ended := held(10*time.Second), held(10*time.Second), held(time.Hour), held(time.Hour)
		c.fullDisks(disks, true, false)
		if refused, err := c.renewing(kept, time.Minute, c.all...); refused > 0 {
			t.Errorf("%d renewals were refused: %v", refused, err)
		}
		for _, n := range c.all {
			if !n.Ready() {
				t.Errorf("%s is not ready, so that no renewal would come to it", n.id)
			}
			for _, grows := range []fsm.Command{
				fsm.Acquire{Session: kept, Name: "other", Count: 1, TTLMS: fsm.KeepTTL}, fsm.CreateSemaphore{Name: "more"},
				fsm.OpenSession{Session: n.DrawSession(), TTLMS: 1000}, fsm.Up{Name: "db", Count: 1},
			} {
				if _, err := n.Do(t.Context(), Call{Command: grows}); !errors.Is(err, outcome.ErrStorageFull) {
					t.Errorf("%s: %T: %v", n.id, grows, err)
				}
			}
		}
		c.do(c.leader(), fsm.Renew{Renewals: []fsm.Renewal{{Session: left, TTLMS: fsm.KeepTTL}}}, fsm.OK)
		c.leader().View(func(m *fsm.Machine) {
			if _, sessions, _, _ := m.Counts(); sessions != 3 {
				t.Errorf("%d sessions, want 3: the one that was left must have ended", sessions)
			}
		})
		follower := c.follower()
		c.do(follower, fsm.ResizeLease{Session: given, Name: "db", Count: 1}, fsm.OK)
		c.call(follower, Call{Command: fsm.Release{Session: given, Name: "db"}, Key: "a key"}, fsm.OK)
		c.call(c.leader(), Call{Command: fsm.EndSession{Session: ended}, Key: "another"}, fsm.OK)
		if view, _ := c.read(follower, "db"); view.Held != 2 {
			t.Errorf("%d permits are held, want those of the one that renews: 2", view.Held)
		}
		list := []Call{{Command: fsm.Up{Name: "db", Count: 1}}, {Command: fsm.Renew{Renewals: []fsm.Renewal{{Session: kept, TTLMS: fsm.KeepTTL}}}}}
		if _, errs := follower.DoMany(t.Context(), list); !errors.Is(errs[0], outcome.ErrStorageFull) || errs[1] != nil {
			t.Errorf("a list with one of each: %v", errs)
		}
	})
}

// TestTimeStandsStillOnAFullDisk: at the second mark the leader logs no entry, no lease
// ends however long that lasts, and each has its remaining time when there is room.
func TestTimeStandsStillOnAFullDisk(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		disks := watchdogDisks(c)
		c.begin(c.all...)
		c.ready(c.all...)
		c.semaphore("db", 1)
		session := c.open(c.leader(), 10*time.Second)
		c.do(c.leader(), fsm.Acquire{Session: session, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}, fsm.OK)
		c.fullDisks(disks, true, true)
		for _, n := range c.all {
			if n.Ready() {
				t.Errorf("%s is ready though it takes nothing", n.id)
			}
		}
		stands := c.standsFor(t, session, outcome.ErrStorageFull, func() { c.fullDisks(disks, true, false) })
		c.do(c.leader(), fsm.Renew{Renewals: []fsm.Renewal{{Session: session, TTLMS: fsm.KeepTTL}}}, fsm.OK)
		began := time.Now()
		c.until("the lease ends by itself", func() bool { view, _ := c.read(c.all[0], "db"); return view.Held == 0 })
		if took := time.Since(began); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("after %v of standstill a renewed lease of 10 s lasted %v", stands, took)
		}
	})
}

// standsFor proves that time stands still for five minutes and goes on with end.
func (c *lifeNodes) standsFor(t *testing.T, session uint64, why error, end func()) time.Duration {
	t.Helper()
	leader := c.leader()
	before, at := leader.raft().LastIndex(), leader.established().NowMS()
	began := time.Now()
	if refused, err := c.renewing(session, 5*time.Minute, c.all...); refused < 140 || !errors.Is(err, why) {
		t.Errorf("%d renewals refused, the last with %v", refused, err)
	}
	if _, err := leader.Read(t.Context(), Consistency{}); err != nil {
		t.Errorf("a read: %v", err)
	}
	if leader = c.leader(); leader.raft().LastIndex() != before || leader.established().NowMS() != at {
		t.Errorf("from index %d at %d ms to %d at %d ms", before, at, leader.raft().LastIndex(), leader.established().NowMS())
	}
	end()
	if now := c.leader().established().NowMS(); now > at+2000 {
		t.Errorf("time made up for %d ms", now-at)
	}
	return time.Since(began)
}

// TestTimeStandsStillInASplit: while the members' states differ and no state is a
// majority's, no lease ends.
func TestTimeStandsStillInASplit(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		hashes := newFlips(c)
		c.begin(c.all...)
		c.ready(c.all...)
		c.semaphore("db", 1)
		session := c.open(c.leader(), 10*time.Second)
		c.do(c.leader(), fsm.Acquire{Session: session, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}, fsm.OK)
		for i, n := range c.all {
			hashes.set(n, byte(i+1))
		}
		c.until("time stands still", func() bool { return c.leader().established().TimeHeld() })
		c.standsFor(t, session, outcome.ErrSplitState, func() {})
		if view, _ := c.read(c.all[0], "db"); view.Held != 1 {
			t.Errorf("%d permits are held", view.Held)
		}
	})
}

// TestTimeStandsStillWithoutAMajorityThatHasRoom: the leader has room, but too few of
// the members that must store its entries.
func TestTimeStandsStillWithoutAMajorityThatHasRoom(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		disks := watchdogDisks(c)
		c.begin(c.all...)
		c.ready(c.all...)
		c.semaphore("db", 1)
		leader := c.leader()
		others := c.others(leader)
		disks[others[0].id].spent.Store(true)
		time.Sleep(10 * time.Second) // virtual: one of three does not matter
		if leader.established().TimeHeld() {
			t.Error("time stands still though two of three have room")
		}
		disks[others[1].id].spent.Store(true)
		c.until("time stands still", leader.established().TimeHeld)
		if _, err := leader.Do(t.Context(), Call{Command: fsm.Renew{Renewals: []fsm.Renewal{{Session: 1}}}}); !errors.Is(err, outcome.ErrStorageFull) {
			t.Errorf("a write: %v", err)
		}
		disks[others[1].id].spent.Store(false)
		c.until("it goes on", func() bool { return !leader.established().TimeHeld() })
	})
}

// TestTimeStandsStillOnALoneFullDisk: a leader that has no other member to ask looks
// at its own disk.
func TestTimeStandsStillOnALoneFullDisk(t *testing.T) {
	lifeBubble(t, 1, func(t *testing.T, c *lifeNodes) {
		disks := watchdogDisks(c)
		c.begin(c.all...)
		c.ready(c.all...)
		c.fullDisks(disks, true, true)
		if _, err := c.all[0].Do(t.Context(), Call{Command: fsm.Renew{Renewals: []fsm.Renewal{{Session: 1}}}}); !errors.Is(err, outcome.ErrStorageFull) {
			t.Errorf("a write: %v", err)
		}
		c.fullDisks(disks, true, false)
	})
}

// TestSpentLeaderGivesWayToALowOne: a leader that still takes renewals is better than
// one that takes no command.
func TestSpentLeaderGivesWayToALowOne(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		disks := watchdogDisks(c)
		c.begin(c.all...)
		c.ready(c.all...)
		c.fullDisks(disks, true, false)
		time.Sleep(5 * time.Second) // virtual: a transfer begun before all were low may end
		first := c.leader()
		time.Sleep(time.Minute) // virtual
		if first.established() == nil {
			t.Error("leadership goes round among nodes that have equally little room")
		}
		disks[first.id].spent.Store(true)
		c.leader(first)
	})
}
