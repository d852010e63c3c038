package cluster

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
)

// TestReadsAreLinearizableOnEveryNode: a write that was acknowledged through one node is
// seen by the next read on every other.
func TestReadsAreLinearizableOnEveryNode(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		c.follower()
		for i := range 60 {
			got := c.do(c.all[i%3], fsm.Up{Name: "a", Count: 1}, fsm.OK)
			for _, n := range c.all {
				view, at := c.read(n, "a")
				if view.Available != int64(i+1) || at.Index < got.Index || at.Stale {
					t.Fatalf("%s reads %d after %d writes, at index %d of %d", n.id, view.Available, i+1, at.Index, got.Index)
				}
			}
		}
	})
}

// TestIsolatedLeaderServesNoStaleRead: from the moment when another may have been
// elected it completes no read, though it believes to lead for a while.
func TestIsolatedLeaderServesNoStaleRead(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		for range 3 {
			old := c.leader()
			before, _ := c.read(old, "a")
			c.net.Isolate(old.id)
			if old.established() == nil {
				t.Fatal("it knows already: the test shows nothing")
			}
			type answer struct {
				value int64
				err   error
				began time.Time
			}
			answers := make(chan answer, 1000)
			ctx, stop := context.WithCancel(t.Context())
			for reader := range 40 {
				go func() {
					time.Sleep(time.Duration(reader) * 50 * time.Millisecond) // virtual: at all phases
					began := time.Now()
					_, err := old.Read(ctx, Consistency{})
					var value int64
					old.View(func(m *fsm.Machine) {
						view, _ := m.Semaphore("a")
						value = view.Available
					})
					answers <- answer{value, err, began}
				}()
			}
			next := c.leader(old)
			c.do(next, fsm.Up{Name: "a", Count: 1}, fsm.OK)
			written := time.Now()
			time.Sleep(3 * time.Second) // virtual: reads on the old leader go on
			stop()
			for range 40 {
				got := <-answers
				if got.err == nil && got.began.After(written) && got.value == before.Available {
					t.Fatalf("the old leader showed %d, although %d was written before", got.value, got.value+1)
				}
				if got.err == nil {
					t.Errorf("a leader cut off answered a read begun %v before the write", written.Sub(got.began))
				}
			}
			c.net.Rejoin(old.id)
			if after, _ := c.read(old, "a"); after.Available != before.Available+1 {
				t.Fatalf("after it came back it reads %d", after.Available)
			}
		}
	})
}

// TestReadWithoutALeader: it gives up after 5 s, or with its caller.
func TestReadWithoutALeader(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		n := c.follower()
		for _, other := range c.others(n) {
			c.kill(other)
		}
		began := time.Now()
		if _, err := n.Read(t.Context(), Consistency{}); !errors.Is(err, outcome.ErrNoLeader) || time.Since(began) != readTimeout {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, io.EOF)
		defer cancel()
		if _, err := n.Read(ctx, Consistency{}); !errors.Is(err, io.EOF) {
			t.Errorf("its caller went: %v", err)
		}
	})
}

// TestReadShowsNothingThatIsDue: what a linearizable read shows is exact: no
// session whose deadline the reading of cluster time has passed, even when no
// ticker has removed it yet.
func TestReadShowsNothingThatIsDue(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		n, leader := c.follower(), c.leader()
		term := leader.established()
		sessions := make([]uint64, 2000) // more than an entry removes
		list := make([]Call, len(sessions))
		for i := range list {
			list[i].Command = fsm.OpenSession{Session: n.DrawSession(), TTLMS: 3000}
		}
		replies, errs := n.DoMany(t.Context(), list)
		for i := range replies {
			c.must(errs[i])
			sessions[i] = replies[i].Session
		}
		due := replies[len(replies)-1].DeadlineMS
		// With a round trip of 60 ms the read below is confirmed just after the
		// deadline, and the ticker's own entry long after that.
		for _, from := range c.all {
			for _, to := range c.others(from) {
				c.net.Delay(from.id, to.id, 30*time.Millisecond)
			}
		}
		time.Sleep(time.Duration(due-term.NowMS())*time.Millisecond - 59*time.Millisecond) // virtual: until then
		at, err := leader.Read(t.Context(), Consistency{})
		c.must(err)
		if at.NowMS < due {
			t.Fatalf("cluster time is %d, due were they at %d", at.NowMS, due)
		}
		leader.View(func(m *fsm.Machine) {
			for _, id := range sessions {
				if view, shown := m.Session(id); shown {
					t.Fatalf("at %d a session is shown that ended at %d", at.NowMS, view.DeadlineMS)
				}
			}
		})
	})
}

// TestReadOfAConfiguration: the last entry may be one that the machine never gets.
func TestReadOfAConfiguration(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 4)
		leader := c.leader()
		c.must(leader.raft().AddNonvoter("n4", "n4:8711", 0, time.Second).Error())
		for _, n := range c.all {
			began := time.Now()
			if view, _ := c.read(n, "a"); view.Available != 4 || time.Since(began) > 20*time.Millisecond {
				t.Errorf("%s: read %d after %v", n.id, view.Available, time.Since(began))
			}
		}
		c.must(leader.raft().Snapshot().Error())
		c.must(leader.raft().RemoveServer("n4", 0, time.Second).Error())
	})
}

func TestReadOfOwnWrites(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		n := c.follower()
		for i := range 20 {
			got := c.do(c.leader(), fsm.Up{Name: "a", Count: 1}, fsm.OK)
			at, err := n.Read(t.Context(), Consistency{MinIndex: got.Index})
			c.must(err)
			if value, _ := machineValue(n.replica, "a"); value < int64(i+1) || at.Index < got.Index {
				t.Fatalf("read %d after %d writes, at index %d of %d", value, i+1, at.Index, got.Index)
			}
		}
		for _, never := range []Consistency{{MinIndex: 1 << 40}, {MinIndex: 1 << 40, Stale: true}, {MinIndex: 1 << 40, Linearizable: true}} {
			began := time.Now()
			if _, err := n.Read(t.Context(), never); !errors.Is(err, outcome.ErrBehind) || errors.Is(err, outcome.ErrNoLeader) || time.Since(began) != readTimeout {
				t.Errorf("an index that never comes, %+v, after %v: %v", never, time.Since(began), err)
			}
		}
	})
}

// TestReadOnALaggingNode: an index is waited for whatever else a read asks for, and
// a linearizable one asks the leader nevertheless.
func TestReadOnALaggingNode(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		n := c.follower()
		c.read(n, "a")
		c.net.Isolate(n.id)
		written := c.do(c.leader(n), fsm.Up{Name: "a", Count: 1}, fsm.OK).Index
		time.Sleep(time.Second) // virtual: it does not come
		if at, err := n.Read(t.Context(), Consistency{Stale: true}); err != nil || at.Index >= written {
			t.Fatalf("%+v, %v: it does not lag, the test shows nothing", at, err)
		}
		type answer struct {
			asked Consistency
			at    Reading
			value int64
			err   error
		}
		answers := make(chan answer, 4)
		for _, asked := range []Consistency{{Stale: true, MinIndex: written}, {MinIndex: written}, {MinIndex: written, Linearizable: true}, {}} {
			go func() {
				at, err := n.Read(t.Context(), asked)
				value, _ := machineValue(n.replica, "a")
				answers <- answer{asked, at, value, err}
			}()
		}
		time.Sleep(2 * time.Second) // virtual
		select {
		case got := <-answers:
			t.Fatalf("answered before it is there: %+v", got)
		default:
		}
		c.net.Rejoin(n.id)
		for range 4 {
			got := <-answers
			if got.err != nil || got.value != 1 || got.at.Index < written || got.at.Stale == got.asked.asksLeader() {
				t.Errorf("%+v", got)
			}
		}
		c.net.Isolate(n.id) // what it has now is enough, but for who asks for more
		if _, err := n.Read(t.Context(), Consistency{MinIndex: written}); err != nil {
			t.Error(err)
		}
		began := time.Now()
		if _, err := n.Read(t.Context(), Consistency{MinIndex: written, Linearizable: true}); !errors.Is(err, outcome.ErrNoLeader) || time.Since(began) != readTimeout {
			t.Errorf("without a majority, after %v: %v", time.Since(began), err)
		}
	})
}

// TestStaleReads: at once, with how old they may be.
func TestStaleReads(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 1)
		c.open(c.leader(), time.Hour)
		n := c.follower()
		c.read(n, "a")
		at, err := n.Read(t.Context(), Consistency{Stale: true})
		c.must(err)
		if !at.Stale || at.LastContact < 0 || at.LastContact > time.Second {
			t.Errorf("with a leader: %+v", at)
		}
		c.net.Isolate(n.id)
		before := at
		time.Sleep(10 * time.Second) // virtual: cut off
		began := time.Now()
		at, err = n.Read(t.Context(), Consistency{Stale: true})
		c.must(err)
		if time.Since(began) != 0 {
			t.Errorf("it took %v", time.Since(began))
		}
		if at.LastContact < 10*time.Second || at.LastContact > 11*time.Second || at.Index < before.Index {
			t.Errorf("cut off: %+v, before that: %+v", at, before)
		}
		if passed := at.NowMS - before.NowMS; passed < 9900 || passed > 10_600 {
			t.Errorf("its cluster time went on by %d ms", passed)
		}
		c.net.Rejoin(n.id)
		leader, err := c.leader().Read(t.Context(), Consistency{Stale: true})
		c.must(err)
		if leader.LastContact != 0 {
			t.Errorf("the leader last heard from itself %v ago", leader.LastContact)
		}
	})
}

// TestChangedWakesReaders: a blocking query sees each change once it is applied.
func TestChangedWakesReaders(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		n := c.follower()
		c.read(n, "a")
		for i := range 20 {
			changed, stop := n.Changed("a")
			if value, _ := machineValue(n.replica, "a"); value != int64(i) {
				t.Fatalf("value %d, want %d", value, i)
			}
			synctest.Wait()
			select {
			case <-changed:
				t.Fatal("woken for nothing")
			default:
			}
			c.do(c.leader(), fsm.Up{Name: "a", Count: 1}, fsm.OK)
			<-changed
			stop()
		}
	})
}
