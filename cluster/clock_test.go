package cluster

import (
	"sync"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
)

// slowEntry makes each node take so long to apply an entry that changes the
// semaphore "slow".
func slowEntry(takes time.Duration) func(*Config) {
	return func(c *Config) {
		c.firstSink = applying(func(entry *fsm.Applied) {
			for _, e := range entry.Effects {
				if e.Kind == fsm.EffectChanged && e.Semaphore == "slow" {
					time.Sleep(takes) // virtual: the time that applying takes
				}
			}
		})
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
		reply, err := n.Do(t.Context(), calls.Call{Command: fsm.Renew{Renewals: []fsm.Renewal{{Session: session, TTLMS: fsm.KeepTTL}}}})
		if err == nil && reply.Each[0].Code != fsm.OK {
			t.Errorf("a session renewed every %v is gone: %v", every, reply.Each[0].Code)
			return
		}
	}
}

// TestRenewalsOutliveALongApply: while an entry applies for 12 s on every node,
// sessions of 10 s and less are renewed in time, on every node; not one ends. One
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
		slow := background(t.Context(), leader, calls.Call{Command: fsm.Up{Name: "slow", Count: 1}})
		<-slow
		ended := func() (over bool) {
			leader.View(func(m *fsm.Machine) { _, ok := m.Session(left); over = !ok })
			return over
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

// TestClockOfANode: cluster time passes by the clock of the leader. With one that runs
// twice as fast a session of 10 s lives for 5 s.
func TestClockOfANode(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *nodes) {
		leader := c.leader()
		opened := time.Now()
		session := c.open(leader, 10*time.Second)
		c.until("the session is over", func() bool {
			ok := false
			leader.View(func(m *fsm.Machine) { _, ok = m.Session(session) })
			return !ok
		})
		if lived := time.Since(opened); lived < 5*time.Second || lived > 5100*time.Millisecond {
			t.Errorf("it lived for %v", lived)
		}
	}, func(config *Config) {
		began := time.Now()
		config.Clock = func() time.Time { return began.Add(2 * time.Since(began)) }
	})
}

// TestSnapshotEntries: Raft takes a snapshot after so many entries, and keeps few of them.
func TestSnapshotEntries(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *nodes) {
		leader := c.leader()
		c.semaphore("db", 1)
		for range 40 {
			c.do(leader, fsm.Up{Name: "db", Count: 1}, fsm.OK)
		}
		time.Sleep(time.Minute) // virtual: until Raft has looked
		kept, err := leader.store.Snapshots().List()
		c.must(err)
		first, err := leader.store.Logs().FirstIndex()
		c.must(err)
		last, err := leader.store.Logs().LastIndex()
		c.must(err)
		if len(kept) != 1 || kept[0].Index < 40 || last-first+1 > 10 {
			t.Errorf("%d snapshots, and entries %d to %d", len(kept), first, last)
		}
	}, func(config *Config) { config.SnapshotEntries, config.TrailingEntries = 30, 5 })
}
