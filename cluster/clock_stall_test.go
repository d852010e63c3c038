package cluster

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/fsm"
)

// TestClockStandsWhileTheLogDoes: an entry that is under way counts for
// maxEntryTime, and the rest of its time never happened.
func TestClockStandsWhileTheLogDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock(0)
		expect := func(step string, want int64) {
			t.Helper()
			now := c.now()
			if stamp := c.stamp(); now != want || stamp != want {
				t.Fatalf("%s: it reads %d and stamps %d, want %d", step, now, stamp, want)
			}
		}
		time.Sleep(20 * time.Second) // virtual: without entries all time counts
		c.leaves()
		expect("an entry leaves", 20_000)
		time.Sleep(700 * time.Millisecond) // virtual: the first entry's way
		c.leaves()
		expect("a second one leaves", 20_700)
		time.Sleep(10 * time.Second) // virtual: neither comes back
		expect("the log stands still", 21_000)
		if left := c.until(21_400); left != 400*time.Millisecond {
			t.Fatalf("400 ms ahead is %v away", left)
		}
		c.returns()
		expect("the first one is back", 21_000)
		time.Sleep(900 * time.Millisecond) // virtual: the second one's way from here
		expect("time goes on", 21_900)
		time.Sleep(time.Second) // virtual: and again it does not come back
		expect("the log stands still again", 22_000)
		c.returns()
		time.Sleep(5 * time.Second) // virtual: without entries
		expect("all are back", 27_000)
	})
}

// slowEntry makes each node take so long to apply an entry that changes the
// semaphore "slow".
func slowEntry(takes time.Duration) func(*Config) {
	return func(c *Config) {
		c.applying = func(entry *fsm.Applied) {
			for _, e := range entry.Effects {
				if e.Kind == fsm.EffectChanged && e.Semaphore == "slow" {
					time.Sleep(takes) // virtual: what applying takes
				}
			}
		}
	}
}

// renewer holds a session and renews it as a client does: it asks again when a
// call has failed, and waits for each.
func renewer(t *testing.T, n *testNode, session uint64, every time.Duration, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(every):
		}
		reply, err := n.Do(t.Context(), Call{Command: fsm.Renew{Renewals: []fsm.Renewal{{Session: session, TTLMS: fsm.KeepTTL}}}})
		if err == nil && reply.Each[0].Code != fsm.OK {
			t.Errorf("a session renewed every %v is gone: %v", every, reply.Each[0].Code)
			return
		}
	}
}

// TestRenewalsOutliveALongApply: while an entry applies for 12 s on every node,
// sessions of 10 s and less are renewed in time, on every node; none ends. One
// that is not renewed ends, late by no more than the 12 s, and never early.
func TestRenewalsOutliveALongApply(t *testing.T) {
	const takes = 12 * time.Second
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("slow", 0)
		leader := c.leader()
		stop := make(chan struct{})
		var clients sync.WaitGroup
		for i := range 30 {
			n, ttl := c.all[i%3], []time.Duration{10 * time.Second, 3 * time.Second}[i%2]
			session := c.open(n, ttl)
			clients.Go(func() { renewer(t, n, session, ttl/5, stop) })
		}
		left := c.open(leader, 10*time.Second)
		opened := time.Now()
		time.Sleep(3 * time.Second) // virtual: all have renewed
		slow := background(t.Context(), leader, Call{Command: fsm.Up{Name: "slow", Count: 1}})
		<-slow
		ended := func() (is bool) {
			leader.View(func(m *fsm.Machine) { _, lives := m.Session(left); is = !lives })
			return is
		}
		c.until("the end of the session that was left", ended)
		if lived := time.Since(opened); lived < 10*time.Second || lived > 10*time.Second+takes {
			t.Errorf("a session of 10 s ended after %v", lived)
		}
		if c.leader() != leader {
			t.Error("another node leads: the test shows nothing")
		}
		time.Sleep(10 * time.Second) // virtual: whatever was late has shown by now
		close(stop)
		clients.Wait()
	}, slowEntry(takes))
}
