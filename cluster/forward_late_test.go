package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/signalbox/signalbox/fsm"
)

// TestLateReleaseTakesNothing: a client gives a release up on a follower whose link to
// the leader is cut, releases and acquires anew on another node, and keeps what it has
// when the link brings the first release.
func TestLateReleaseTakesNothing(t *testing.T) {
	for _, cut := range []time.Duration{300 * time.Millisecond, time.Second, 3300 * time.Millisecond} {
		t.Run(cut.String(), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, c *nodes) {
				c.semaphore("a", 1)
				leader, n := c.leader(), c.follower()
				session := c.open(n, time.Minute)
				acquire := fsm.Acquire{Session: session, Name: "a", Count: 1, TTLMS: fsm.KeepTTL}
				release := fsm.Release{Session: session, Name: "a"}
				c.do(n, acquire, fsm.OK)
				began := time.Now()
				c.net.Cut(n.id, leader.id)
				gone, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				if _, err := n.Do(gone, Call{Command: release}); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("through a cut: %v", err)
				}
				c.do(leader, release, fsm.OK)
				c.do(leader, acquire, fsm.OK)
				time.Sleep(cut - time.Since(began)) // virtual: the cut
				c.net.Heal(n.id, leader.id)
				time.Sleep(10 * time.Second) // virtual: whatever may still come
				if view, _ := c.read(n, "a"); view.Available != 0 {
					t.Error("the late release took the new lease")
				}
			})
		})
	}
}

// TestLateCommandOfAPatientClientIsSentAgain: a cut costs a client that still waits
// only time, and its command is applied once.
func TestLateCommandOfAPatientClientIsSentAgain(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		leader, n := c.leader(), c.follower()
		c.do(n, fsm.Up{Name: "a", Count: 1}, fsm.OK)
		c.net.Cut(n.id, leader.id)
		waiting := background(t.Context(), n, Call{Command: fsm.Up{Name: "a", Count: 1}})
		time.Sleep(time.Second) // virtual: the cut
		c.net.Heal(n.id, leader.id)
		healed := time.Now()
		if got := <-waiting; got.err != nil || got.Value != 2 || got.at.Sub(healed) > 50*time.Millisecond {
			t.Errorf("%v after the cut: value %d, %v", got.at.Sub(healed), got.Value, got.err)
		}
	})
}

// TestSlowLinkCarriesCommands: on a link with a long delay commands go through at the
// first attempt, and on one that has become slow after few.
func TestSlowLinkCarriesCommands(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		leader, n := c.leader(), c.follower()
		c.do(n, fsm.Up{Name: "a", Count: 1}, fsm.OK)
		delay := func(d time.Duration) {
			c.net.Delay(n.id, leader.id, d)
			c.net.Delay(leader.id, n.id, d)
		}
		delay(300 * time.Millisecond)
		for attempt, limit := range []time.Duration{3 * time.Second, 3 * time.Second} {
			began := time.Now()
			c.do(n, fsm.Up{Name: "a", Count: 1}, fsm.OK)
			if took := time.Since(began); took > limit {
				t.Errorf("command %d took %v", attempt, took)
			}
		}
		c.net.Reset(n.id, leader.id)
		c.read(n, "a") // on a new stream, which knows its delay
		began := time.Now()
		c.do(n, fsm.Up{Name: "a", Count: 1}, fsm.OK)
		if took := time.Since(began); took > 700*time.Millisecond {
			t.Errorf("a command took %v on a stream of 600 ms", took)
		}
	}, func(c *Config) { c.RaftMultiplier = 5 })
}

// TestResetStreamLosesNothing: the stream to the leader breaks while a command is in
// it, or its reply. The same leader goes on, and the command is done once.
func TestResetStreamLosesNothing(t *testing.T) {
	for _, lost := range []string{"command", "reply"} {
		t.Run(lost, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, c *nodes) {
				c.semaphore("a", 0)
				leader, n := c.leader(), c.follower()
				c.do(n, fsm.Up{Name: "a", Count: 1}, fsm.OK)
				term := leader.raft().CurrentTerm()
				from, to := n.id, leader.id
				if lost == "reply" {
					from, to = to, from
				}
				c.net.Cut(from, to)
				waiting := background(t.Context(), n, Call{Command: fsm.Up{Name: "a", Count: 1}})
				time.Sleep(100 * time.Millisecond) // virtual: it is under way
				c.net.Reset(n.id, leader.id)
				c.net.Heal(from, to)
				broken := time.Now()
				if got := <-waiting; got.err != nil || got.Value != 2 || got.at.Sub(broken) > 500*time.Millisecond {
					t.Errorf("%v after the reset: value %d, %v", got.at.Sub(broken), got.Value, got.err)
				}
				if view, _ := c.read(n, "a"); view.Available != 2 {
					t.Errorf("applied %d times", view.Available-1)
				}
				if now := leader.raft().CurrentTerm(); now != term {
					t.Errorf("term %d has become %d: the test shows nothing", term, now)
				}
			})
		})
	}
}

// TestManyResetsLoseNothing: under load, with a reset every now and then, each call is
// done once.
func TestManyResetsLoseNothing(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		leader, n := c.leader(), c.follower()
		c.net.Delay(n.id, leader.id, 3*time.Millisecond)
		c.net.Delay(leader.id, n.id, 2*time.Millisecond)
		const callers, each = 20, 100
		failures := make(chan error, callers)
		for range callers {
			go func() {
				for range each {
					if _, err := n.Do(t.Context(), Call{Command: fsm.Up{Name: "a", Count: 1}}); err != nil {
						failures <- err
						return
					}
				}
				failures <- nil
			}()
		}
		resets := 0
		for done := 0; done < callers; {
			select {
			case err := <-failures:
				if err != nil {
					t.Error(err)
				}
				done++
			case <-time.After(time.Duration(37+13*(resets%7)) * time.Millisecond):
				c.net.Reset(n.id, leader.id)
				resets++
			}
		}
		if resets < 10 {
			t.Errorf("%d resets", resets)
		}
		if view, _ := c.read(n, "a"); view.Available != callers*each {
			t.Errorf("%d applied of %d, with %d resets", view.Available, callers*each, resets)
		}
	})
}
