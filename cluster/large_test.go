package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
)

// TestEndsOfLargeSessions: sessions that hold much are ended by several entries,
// through the leader and a follower, after a restart too; small ones share one.
func TestEndsOfLargeSessions(t *testing.T) {
	const leases, sessions, most = 400, 12, 10
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		names := make([]calls.Call, leases)
		for i := range names {
			names[i].Command = fsm.CreateSemaphore{Name: fmt.Sprint("s", i), Permits: sessions}
		}
		all := func(n *testNode, list []calls.Call) (entries map[uint64]int) {
			t.Helper()
			replies, errs := n.DoMany(t.Context(), list)
			entries = map[uint64]int{}
			for i := range replies {
				if errs[i] != nil || replies[i].Code != fsm.OK {
					t.Fatalf("%T: %v, %v", list[i].Command, replies[i].Code, errs[i])
				}
				entries[replies[i].Index]++
			}
			return entries
		}
		all(c.leader(), names)
		var ended []fsm.EndSession
		end := func(n *testNode, holds int, between func()) map[uint64]int {
			t.Helper()
			var ends []calls.Call
			for range sessions {
				id := c.open(n, time.Hour)
				var take []calls.Call
				for i := range holds {
					take = append(take, calls.Call{Command: fsm.Acquire{Session: id, Name: fmt.Sprint("s", i), Count: 1, TTLMS: fsm.KeepTTL}})
				}
				all(n, take)
				ended = append(ended, fsm.EndSession{Session: id})
				ends = append(ends, calls.Call{Command: ended[len(ended)-1]})
			}
			between()
			return all(n, ends)
		}
		restart := func() {
			n := c.leader()
			c.kill(n)
			c.leader()
			c.revive(n)
			c.must(c.leader().raft().Snapshot().Error())
		}
		for name, n := range map[string]*testNode{"leader": c.leader(), "follower": c.follower()} {
			if got := end(n, 1, func() {}); len(got) != 1 {
				t.Errorf("%s: %d entries end %d small sessions", name, len(got), sessions)
			}
			for index, count := range end(n, leases, func() {}) {
				if count > most {
					t.Errorf("%s: entry %d ends %d large sessions", name, index, count)
				}
			}
		}
		for index, count := range end(c.follower(), leases, restart) {
			if count > most {
				t.Errorf("after a restart: entry %d ends %d large sessions", index, count)
			}
		}
		for _, n := range c.all {
			c.until("no session is known as large", func() bool {
				return !slices.ContainsFunc(ended, func(end fsm.EndSession) bool {
					return n.requests.Cost(end) > fsm.Cost(end, fsm.SessionSize{})
				})
			})
		}
	})
}

// TestEntriesAreCutByWeight: commands that list many semaphores share an entry with
// few others, through the leader and a follower.
func TestEntriesAreCutByWeight(t *testing.T) {
	const commands, most = 40, fsm.EntryWeight / fsm.MaxMembers
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		var wants []fsm.Want
		for i := range fsm.MaxMembers {
			wants = append(wants, fsm.Want{Semaphore: fmt.Sprint("s", i), Count: 1})
			c.semaphore(wants[i].Semaphore, 2*commands)
		}
		for _, n := range []*testNode{c.leader(), c.follower()} {
			var list []calls.Call
			for range commands {
				list = append(list, calls.Call{Command: fsm.AcquireMany{Session: c.open(n, time.Hour), Wants: wants, Mode: fsm.All}})
			}
			replies, errs := n.DoMany(t.Context(), list)
			entries := map[uint64]int{}
			for i := range replies {
				if errs[i] != nil || replies[i].Code != fsm.OK {
					t.Fatalf("%s: %v, %v", n.id, replies[i].Code, errs[i])
				}
				if entries[replies[i].Index]++; entries[replies[i].Index] > most {
					t.Fatalf("%s: an entry has more than %d requests for %d semaphores", n.id, most, fsm.MaxMembers)
				}
			}
		}
	})
}
