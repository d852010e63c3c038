package lead

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestClockStampsStepByStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock(1000, time.Now)
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
			time.Sleep(step.sleep) // virtual
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
		c := newClock(0, time.Now)
		for _, ms := range []int64{1, 999, 29_999} {
			time.Sleep(300 * time.Microsecond) // virtual: never on the millisecond
			time.Sleep(c.until(ms))            // virtual
			if now := c.now(); now != ms {
				t.Fatalf("it reads %d when it should read %d", now, ms)
			}
		}
		if past := c.until(5); past != 0 {
			t.Fatalf("a moment that has passed is %v away", past)
		}
	})
}

// TestClockStandsWhileTheLogDoes: an entry that is under way counts for
// maxEntryTime, and the rest of its time never happened.
func TestClockStandsWhileTheLogDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock(0, time.Now)
		expect := func(step string, want int64) {
			t.Helper()
			now := c.now()
			if stamp := c.stamp(); now != want || stamp != want {
				t.Fatalf("%s: it reads %d and stamps %d, want %d", step, now, stamp, want)
			}
		}
		time.Sleep(20 * time.Second) // virtual: without entries all time counts
		c.entryProposed()
		expect("an entry leaves", 20_000)
		time.Sleep(700 * time.Millisecond) // virtual: the first entry's way
		c.entryProposed()
		expect("a second one leaves", 20_700)
		time.Sleep(10 * time.Second) // virtual: neither comes back
		expect("the log stands still", 21_000)
		if left := c.until(21_400); left != 400*time.Millisecond {
			t.Fatalf("400 ms ahead is %v away", left)
		}
		c.entryFinished()
		expect("the first one is back", 21_000)
		time.Sleep(900 * time.Millisecond) // virtual: the second one's way from here
		expect("time goes on", 21_900)
		time.Sleep(time.Second) // virtual: and again it does not come back
		expect("the log stands still again", 22_000)
		c.entryFinished()
		time.Sleep(5 * time.Second) // virtual: without entries
		expect("all are back", 27_000)
	})
}

// TestClockStandsWhileRaftTakesNoEntry: an entry is on its way from the moment at which it is given to Raft, whose
// main loop may hang.
func TestClockStandsWhileRaftTakesNoEntry(t *testing.T) {
	proposerRun(t, 10, func(t *testing.T, p *proposer, r *fakeRaft) {
		r.taken = func() { time.Sleep(10 * time.Second) } // virtual
		go func() { _, _ = p.ProposeTick(t.Context()) }()
		time.Sleep(9 * time.Second) // virtual
		if now := p.clock.now(); now != 5000+maxEntryTime.Milliseconds() {
			t.Errorf("it reads %d", now)
		}
		time.Sleep(time.Second) // virtual
		synctest.Wait()
		r.logged()[0].answer(nil)
	})
}

func TestClockHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock(1000, time.Now)
		for i, step := range []struct {
			hold       bool
			now, until int64
		}{{true, 2000, 500}, {true, 2000, 500}, {false, 2000, 500}, {false, 3000, 0}, {true, 4000, 0}} {
			time.Sleep(time.Second) // virtual
			c.hold(step.hold)
			if got := c.now(); got != step.now {
				t.Errorf("step %d: it reads %d, want %d", i, got, step.now)
			}
			if got := c.until(2500).Milliseconds(); got != step.until {
				t.Errorf("step %d: %d ms until 2500, want %d", i, got, step.until)
			}
		}
		if got := c.stamp(); got != 4000 {
			t.Errorf("it stamps %d", got)
		}
		c.hold(false)
		for range 10 { // letting an idle clock go on must not count as a stamp
			time.Sleep(10 * time.Second) // virtual
			c.hold(false)
		}
		if got := c.stamp(); got != 34_000 {
			t.Errorf("after 100 s without a stamp it stamps %d", got)
		}
		c.entryProposed()
		c.hold(true)
		time.Sleep(10 * time.Second) // virtual: an entry is on its way meanwhile
		c.hold(false)
		if got := c.now(); got != 34_000 {
			t.Errorf("released with an entry on its way, it reads %d", got)
		}
	})
}

// TestPulseHoldsAfterASuspension: commands wait a moment after the process stood
// still, from the first look on, and never else.
func TestPulseHoldsAfterASuspension(t *testing.T) {
	p := NewPulse()
	if p.resumeDelay(time.Hour) != 0 {
		t.Error("held before the first beat")
	}
	at := time.Second
	for range 5 {
		p.beat(at)
		at += beatEvery
		if p.resumeDelay(at) != 0 {
			t.Error("held while the pulse beats")
		}
	}
	at += time.Second // suspended
	if p.resumeDelay(at) == 0 {
		t.Error("not held before the beat notices")
	}
	p.beat(at)
	if got := p.resumeDelay(at + hangUpGrace/2); got != hangUpGrace/2 {
		t.Errorf("held for %v", got)
	}
	if got := p.resumeDelay(at + hangUpGrace); got != 0 {
		t.Errorf("held for %v more", got)
	}
}
