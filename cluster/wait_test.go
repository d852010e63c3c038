package cluster

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
)

// acquire is a session's acquire of one permit that keeps the session's ttl.
func acquire(session uint64, name string) fsm.Acquire {
	return fsm.Acquire{Session: session, Name: name, Count: 1, TTLMS: fsm.KeepTTL}
}

// once is a one-shot acquire.
func once(n *testNode, name string, ttl, wait time.Duration) Call {
	return Call{
		Command: fsm.AcquireOnce{Name: name, Count: 1, TTLMS: ttl.Milliseconds(), WaitMS: wait.Milliseconds(), Session: n.DrawSession()},
		Wait:    wait,
	}
}

// taken makes a semaphore of one permit that a session holds, and returns it.
func taken(c *nodes, name string) (holder uint64) {
	c.t.Helper()
	c.semaphore(name, 1)
	holder = c.open(c.leader(), time.Hour)
	c.do(c.leader(), acquire(holder, name), fsm.OK)
	return holder
}

// waiters returns how many wait, as every node will show from now on.
func waiters(c *nodes, n *testNode, name string) int64 {
	c.t.Helper()
	view, _ := c.read(n, name)
	return view.Waiters
}

// TestEndOfAnOrdinaryWait: the request keeps its place, says since when it waits,
// and asking again joins it.
func TestEndOfAnOrdinaryWait(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		holder := taken(c, "db")
		n := c.follower()
		session := c.open(n, time.Hour)
		first := c.call(n, Call{Command: acquire(session, "db"), Wait: 2 * time.Second}, fsm.Waiting)
		if first.WaitingMS < 2000 || first.WaitingMS > 2020 || first.Position != 1 {
			t.Errorf("waiting for %d ms at position %d", first.WaitingMS, first.Position)
		}
		time.Sleep(time.Second) // virtual: between its calls
		again := c.call(n, Call{Command: acquire(session, "db")}, fsm.Waiting)
		if again.Place != first.Place || again.WaitingMS < 3000 || again.WaitingMS > 3020 {
			t.Errorf("place %d, then %d, waiting for %d ms", first.Place, again.Place, again.WaitingMS)
		}
		waiting := background(t.Context(), c.leader(), Call{Command: acquire(session, "db"), Wait: time.Hour})
		time.Sleep(time.Second) // virtual: this call's own wait
		c.do(n, fsm.EndSession{Session: holder}, fsm.OK)
		got := <-waiting
		if got.err != nil || got.Code != fsm.OK || got.Place != first.Place {
			t.Fatalf("%+v, %v", got.Result, got.err)
		}
		if got.WaitedMS < 995 || got.WaitedMS > 1020 { // from when it was logged, up to 2 ms after the call
			t.Errorf("this call waited %d ms, not 1 s", got.WaitedMS)
		}
		held := c.call(n, Call{Command: acquire(session, "db"), Wait: time.Second}, fsm.OK)
		if held.WaitedMS != 0 || held.Grants[0].Token != got.Grants[0].Token {
			t.Errorf("what is held already: waited %d ms, token %d after %d", held.WaitedMS, held.Grants[0].Token, got.Grants[0].Token)
		}
	})
}

// TestEndOfAWaitIsConfirmed: a node that is cut off must not say that a request
// still waits: it may have been granted.
func TestEndOfAWaitIsConfirmed(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		holder := taken(c, "db")
		n := c.follower()
		session := c.open(n, time.Hour)
		waiting := background(t.Context(), n, Call{Command: acquire(session, "db"), Wait: 3 * time.Second})
		c.until("a waiter", func() bool { return waiters(c, n, "db") == 1 }) // so it knows its place
		c.net.Isolate(n.id)
		c.do(c.leader(), fsm.EndSession{Session: holder}, fsm.OK)
		if got := <-waiting; !errors.Is(got.err, outcome.ErrNoLeader) || got.Code != fsm.Waiting || got.Place == 0 {
			t.Fatalf("%+v, %v", got.Result, got.err)
		}
		c.net.Rejoin(n.id)
		c.call(n, Call{Command: acquire(session, "db")}, fsm.OK)
	})
}

// TestEndOfAOneShotWait: the machine ends it at its deadline, and leaves no session.
func TestEndOfAOneShotWait(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		taken(c, "db")
		for _, n := range []*testNode{c.leader(), c.follower()} {
			began := time.Now()
			c.call(n, once(n, "db", time.Minute, 1500*time.Millisecond), fsm.Unavailable)
			if took := time.Since(began); took < 1500*time.Millisecond-time.Millisecond || took > 1520*time.Millisecond {
				t.Errorf("it took %v", took)
			}
			down := Call{Command: fsm.Down{Name: "db", Count: 1, WaitMS: 700, Session: n.DrawSession()}, Wait: 700 * time.Millisecond}
			c.call(n, down, fsm.Unavailable)
			if w := waiters(c, n, "db"); w != 0 {
				t.Errorf("%d wait on", w)
			}
		}
	})
}

// TestHangUp: a one-shot without a key whose client is gone is ended, whether it
// waits or was just granted; an ordinary session, a keyed one and one with a derived id keep their
// place.
func TestHangUp(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		holder := taken(c, "db")
		n := c.follower()
		session := c.open(n, time.Hour)
		keyed := once(n, "db", time.Hour, time.Hour)
		keyed.Key = "client/0123456789abcdef"
		derived := Call{Command: fsm.AcquireOnce{Name: "db", Count: 1, TTLMS: 1000, WaitMS: 3_600_000, Session: fsm.DerivedSessions}, Wait: time.Hour}
		for _, test := range []struct {
			name string
			call Call
			left int64
		}{
			{"one-shot", once(n, "db", time.Hour, time.Hour), 0},
			{"down", Call{Command: fsm.Down{Name: "db", Count: 1, WaitMS: 3_600_000, Session: n.DrawSession()}, Wait: time.Hour}, 0},
			{"ordinary", Call{Command: acquire(session, "db"), Wait: time.Hour}, 1},
			{"keyed", keyed, 2},
			{"derived", derived, 3},
		} {
			before := waiters(c, n, "db")
			ctx, hangUp := context.WithCancel(t.Context())
			waiting := background(ctx, n, test.call)
			c.until("a waiter", func() bool { return waiters(c, n, "db") == before+1 })
			hangUp()
			if got := <-waiting; !errors.Is(got.err, context.Canceled) {
				t.Fatalf("%s: %v", test.name, got.err)
			}
			time.Sleep(100 * time.Millisecond) // virtual: for what is done in the background
			if w := waiters(c, n, "db"); w != test.left {
				t.Errorf("%s: %d wait on, want %d", test.name, w, test.left)
			}
		}
		// Granted in the very moment of the hang-up: the permit comes back.
		c.do(n, fsm.EndSession{Session: session}, fsm.OK)
		c.do(n, fsm.EndSession{Session: keyed.Command.(fsm.AcquireOnce).Session}, fsm.OK)
		c.do(n, fsm.EndSession{Session: fsm.DerivedSessions}, fsm.OK)
		ctx, hangUp := context.WithCancel(t.Context())
		waiting := background(ctx, n, once(n, "db", time.Hour, time.Hour))
		c.until("a waiter", func() bool { return waiters(c, n, "db") == 1 })
		c.net.Delay(c.leader().id, n.id, 50*time.Millisecond)
		released := background(t.Context(), c.leader(), Call{Command: fsm.EndSession{Session: holder}})
		<-released
		hangUp() // the grant is under way to this node
		if got := <-waiting; !errors.Is(got.err, context.Canceled) {
			t.Fatal(got.err)
		}
		c.net.Delay(c.leader().id, n.id, 0)
		time.Sleep(time.Second) // virtual: for what is done in the background
		if view, _ := c.read(n, "db"); view.Available != 1 {
			t.Errorf("available %d: the permit is lost for a ttl", view.Available)
		}
	})
}

// TestHangUpBeforeTheAnswer: a one-shot whose client is gone before its own entry
// is applied leaves no session.
func TestHangUpBeforeTheAnswer(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("db", 1)
		n := c.follower()
		c.net.Delay(c.leader().id, n.id, 50*time.Millisecond)
		ctx, hangUp := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer hangUp()
		if _, err := n.Do(ctx, once(n, "db", time.Hour, 0)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		c.net.Delay(c.leader().id, n.id, 0)
		time.Sleep(time.Second) // virtual: for what is done in the background
		if view, _ := c.read(n, "db"); view.Available != 1 {
			t.Errorf("available %d", view.Available)
		}
	})
}

// TestJoinedCalls: the repeat of a keyed one-shot, on another node, joins its
// place, listens for its own wait alone, and later calls get the outcome.
func TestJoinedCalls(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		holder := taken(c, "db")
		first, second := c.follower(), c.leader()
		call := once(first, "db", time.Hour, time.Hour)
		call.Key = "client/0123456789abcdef"
		waiting := background(t.Context(), first, call)
		c.until("a waiter", func() bool { return waiters(c, first, "db") == 1 })
		repeat := once(second, "db", time.Hour, time.Hour)
		repeat.Key, repeat.Wait = call.Key, 2*time.Second
		began := time.Now()
		joined := c.call(second, repeat, fsm.Waiting)
		if !joined.Joined || time.Since(began) < 2*time.Second || time.Since(began) > 2020*time.Millisecond {
			t.Errorf("joined %v, after %v", joined.Joined, time.Since(began))
		}
		repeat.Wait = time.Hour
		both := background(t.Context(), second, repeat)
		time.Sleep(time.Second) // virtual: until it waits, too
		c.do(first, fsm.EndSession{Session: holder}, fsm.OK)
		a, b := <-waiting, <-both
		if a.err != nil || b.err != nil || a.Code != fsm.OK || b.Code != fsm.OK || a.Grants[0].Token != b.Grants[0].Token {
			t.Fatalf("%+v, %v; %+v, %v", a.Result, a.err, b.Result, b.err)
		}
		after := c.call(second, repeat, fsm.OK)
		if !after.Replayed || after.Grants[0].Token != a.Grants[0].Token || after.WaitedMS != 0 {
			t.Errorf("%+v, waited %d ms", after.Result, after.WaitedMS)
		}
	})
}

// TestDrainEndsWaits: each kind of call in its own way; the rest of the cluster
// sees the places that are kept.
func TestDrainEndsWaits(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		taken(c, "db")
		n := c.follower()
		session := c.open(n, time.Hour)
		keyed := once(n, "db", time.Hour, time.Hour)
		keyed.Key = "client/0123456789abcdef"
		ordinary := background(t.Context(), n, Call{Command: acquire(session, "db"), Wait: time.Hour})
		kept := background(t.Context(), n, keyed)
		gone := background(t.Context(), n, once(n, "db", time.Hour, time.Hour))
		c.until("three waiters", func() bool { return waiters(c, n, "db") == 3 })
		n.Drain()
		if got := <-ordinary; got.err != nil || got.Code != fsm.Waiting {
			t.Errorf("an ordinary session: %+v, %v", got.Result, got.err)
		}
		if got := <-kept; !errors.Is(got.err, outcome.ErrDraining) {
			t.Errorf("a keyed one-shot: %+v, %v", got.Result, got.err)
		}
		if got := <-gone; !errors.Is(got.err, outcome.ErrDraining) {
			t.Errorf("a one-shot: %+v, %v", got.Result, got.err)
		}
		if _, err := n.Do(t.Context(), Call{Command: fsm.Up{Name: "db", Count: 1}}); !errors.Is(err, outcome.ErrDraining) {
			t.Errorf("a new call: %v", err)
		}
		_, errs := n.DoMany(t.Context(), make([]Call, 2))
		if !errors.Is(errs[0], outcome.ErrDraining) || !errors.Is(errs[1], outcome.ErrNotTried) {
			t.Errorf("a new list: %v", errs)
		}
		if w := waiters(c, c.leader(), "db"); w != 2 {
			t.Errorf("%d wait on, want those of the session and the key", w)
		}
	})
}

// TestListOnANodeThatTrails: a list of calls that wait asks its own machine once for
// all of them. The reply lacks what the machine does not know within a second.
func TestListOnANodeThatTrails(t *testing.T) {
	var held atomic.Pointer[string] // the node that gets heartbeats, but no entries
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		taken(c, "a")
		n := c.follower()
		joined := c.open(n, time.Hour)
		list := []Call{{Command: acquire(joined, "a")}}
		c.call(n, list[0], fsm.Waiting)
		for range 20 {
			list = append(list, Call{Command: acquire(c.open(n, time.Hour), "a")})
		}
		time.Sleep(time.Second) // virtual: how long the first has waited
		for _, trails := range []bool{false, true} {
			if trails {
				held.Store(&n.id)
				list = append(list, Call{Command: acquire(c.open(n, time.Hour), "a")})
			}
			began := time.Now()
			replies, errs := n.DoMany(t.Context(), list)
			took := time.Since(began)
			for i := range replies {
				if c.must(errs[i]); replies[i].Code != fsm.Waiting {
					t.Fatalf("%d: %v", i, replies[i].Code)
				}
			}
			if took > waitingPatience+100*time.Millisecond || trails != (took >= waitingPatience) {
				t.Errorf("trails %v: %d calls were answered after %v", trails, len(list), took)
			}
			if got := replies[0].WaitingMS; got < 1000 || got > 1100 {
				t.Errorf("trails %v: the first has waited for %d ms", trails, got)
			}
			if got := replies[len(replies)-1].WaitingMS; got > 10 {
				t.Errorf("trails %v: the last has waited for %d ms", trails, got)
			}
		}
		held.Store(nil)
	}, func(config *Config) {
		config.fault = func(peer raft.ServerID, request any) error {
			node := held.Load()
			if a, is := request.(*raft.AppendEntriesRequest); is && node != nil && string(peer) == *node && len(a.Entries) > 0 {
				return errors.New("held up")
			}
			return nil
		}
	})
}
