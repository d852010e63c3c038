package cluster

import (
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
)

// TestDrawnIDsAreDrawnAgain: an id that is taken costs another draw, not an error. A derived id is
// not drawn.
func TestDrawnIDsAreDrawnAgain(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *nodes) {
		c.semaphore("db", 5)
		n := c.leader()
		taken := c.open(n, time.Hour)
		for _, command := range []fsm.Command{
			fsm.OpenSession{Session: taken, TTLMS: 1000},
			fsm.AcquireOnce{Name: "db", Count: 1, TTLMS: 1000, Session: taken},
		} {
			if got := c.do(n, command, fsm.OK); got.Session == taken || got.Session == 0 || got.Session >= 1<<53 {
				t.Errorf("%T: session %d", command, got.Session)
			}
			replies, errs := n.DoMany(t.Context(), []calls.Call{{Command: command}})
			if errs[0] != nil || replies[0].Code != fsm.OK || replies[0].Session == taken {
				t.Errorf("%T in a list: %+v, %v", command, replies[0].Result, errs[0])
			}
		}
		derived := fsm.AcquireOnce{Name: "db", Count: 1, TTLMS: 60_000, Session: fsm.DerivedSessions}
		c.do(n, derived, fsm.OK)
		c.do(n, derived, fsm.SessionIDTaken)
		c.do(n, fsm.RestoreSession{Session: taken, TTLMS: 1000, Leases: []fsm.Want{{Semaphore: "db", Count: 1}}}, fsm.SessionExists)
	})
}

// TestCellsAreChecked: a node takes no cell that an id has no room for.
func TestCellsAreChecked(t *testing.T) {
	for _, cell := range []int{-1, calls.MaxCell + 1} {
		if _, err := withDefaults(Config{NodeID: "n1", Cell: cell}); err == nil {
			t.Errorf("cell %d is taken", cell)
		}
	}
}

// TestListsKeepTheirOrder: one round trip, each with its own result; a refusal by
// the machine is a result, and the calls behind it go on.
func TestListsKeepTheirOrder(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		for _, n := range []*testNode{c.follower(), c.leader()} {
			c.semaphore(n.id, 0)
			var list []calls.Call
			for i := range 3000 {
				command := fsm.Command(fsm.Up{Name: n.id, Count: 1})
				if i == 1500 {
					command = fsm.Up{Name: "unknown", Count: 1}
				}
				list = append(list, calls.Call{Command: command, Wait: time.Minute})
			}
			before := n.raft().LastIndex()
			replies, errs := n.DoMany(t.Context(), list)
			if list[0].Wait != time.Minute {
				t.Errorf("the caller's list was changed to %+v", list[0])
			}
			value := int64(0)
			for i, reply := range replies {
				c.must(errs[i])
				if i == 1500 {
					if reply.Code != fsm.UnknownSemaphore {
						t.Errorf("%d: %v", i, reply.Code)
					}
					continue
				}
				if value++; reply.Value != value {
					t.Fatalf("%s: the command at %d made %d of %d", n.id, i, reply.Value, value)
				}
			}
			if entries := replies[2999].Index - before; entries > 6 {
				t.Errorf("%d entries for 3,000 commands at once", entries)
			}
		}
	})
}

// TestListsBeyondTheQueue: the first that found no room says so, the rest were not
// tried, and neither were they applied.
func TestListsBeyondTheQueue(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		n := c.follower()
		list := make([]calls.Call, 150)
		for i := range list {
			list[i].Command = fsm.Up{Name: "a", Count: 1}
		}
		_, errs := n.DoMany(t.Context(), list)
		for i, err := range errs {
			want := error(nil)
			if i == 50 { // lists have half of the queue
				want = outcome.ErrOverloaded
			} else if i > 50 {
				want = outcome.ErrNotTried
			}
			if err != want {
				t.Fatalf("%d: %v", i, err)
			}
		}
		if view, _ := c.read(n, "a"); view.Available != 50 {
			t.Errorf("%d were applied", view.Available)
		}
	}, func(c *Config) { c.QueueSize = 100 })
}
