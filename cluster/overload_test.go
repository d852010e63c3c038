package cluster

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
)

// TestOverloadKeepsLeases: while the log takes no entry and more waits on each node
// than it has room for, lists fill half of the places, single requests leave room
// for renewals and releases, and these are carried out before them.
func TestOverloadKeepsLeases(t *testing.T) {
	const places = 160
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("slow", 0)
		c.semaphore("jobs", 0)
		c.semaphore("db", 10)
		leader, follower := c.leader(), c.follower()
		for _, n := range []*testNode{leader, follower} {
			session := c.open(n, 30*time.Second)
			c.do(n, fsm.Acquire{Session: session, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}, fsm.OK)
			slow := background(t.Context(), leader, calls.Call{Command: fsm.Up{Name: "slow", Count: 1}})
			time.Sleep(10 * time.Millisecond) // virtual: it applies by now
			for range 4 {                     // fills the entries behind it
				background(t.Context(), leader, calls.Call{Command: fsm.Up{Name: "slow", Count: 1}})
				time.Sleep(time.Millisecond) // virtual: one entry each
			}
			lists := make(chan []error, 1)
			go func() {
				_, errs := n.DoMany(t.Context(), ups(places))
				lists <- errs
			}()
			synctest.Wait()
			var singles []<-chan answer
			for range places {
				singles = append(singles, background(t.Context(), n, calls.Call{Command: fsm.SetValue{Name: "jobs", Value: 1000}}))
			}
			synctest.Wait()
			batch := make(chan []error, 1)
			go func() {
				renewal := calls.Call{Command: fsm.Renew{Renewals: []fsm.Renewal{{Session: session, TTLMS: fsm.KeepTTL}}}}
				_, errs := n.DoMany(t.Context(), slices.Repeat([]calls.Call{renewal}, 2048))
				batch <- errs
			}()
			renewed := background(t.Context(), n, calls.Call{Command: fsm.Renew{Renewals: []fsm.Renewal{{Session: session, TTLMS: fsm.KeepTTL}}}})
			released := background(t.Context(), n, calls.Call{Command: fsm.Release{Session: session, Name: "db"}})
			if got := <-renewed; got.err != nil || got.Each[0].Code != fsm.OK {
				t.Errorf("%s: a renewal: %v", n.id, got.err)
			}
			if got := <-released; got.err != nil || got.Code != fsm.OK {
				t.Errorf("%s: a release: %v", n.id, got.err)
			}
			if err := errors.Join(<-batch...); err != nil {
				t.Errorf("%s: renewals in a list: %v", n.id, err)
			}
			taken, overloaded := 0, 0
			for i, err := range <-lists {
				switch {
				case err == nil && taken == i:
					taken++
				case err == outcome.ErrOverloaded && taken == i:
					overloaded++
				case err != outcome.ErrNotTried:
					t.Fatalf("%s: %d of the list: %v", n.id, i, err)
				}
			}
			if taken == 0 || taken > places/2 || overloaded != 1 {
				t.Errorf("%s: %d of %d listed commands were taken", n.id, taken, places)
			}
			taken = 0
			for _, single := range singles {
				switch got := <-single; got.err {
				case nil:
					taken++
				case outcome.ErrOverloaded:
				default:
					t.Fatalf("%s: a single request: %v", n.id, got.err)
				}
			}
			if taken == 0 || taken > places-places/8-places/2+1 {
				t.Errorf("%s: %d of %d single requests were taken", n.id, taken, places)
			}
			<-slow
		}
	}, slowEntry(time.Second), func(c *Config) { c.QueueSize = places })
}

// ups is a list of so many ups.
func ups(count int) (list []calls.Call) {
	for range count {
		list = append(list, calls.Call{Command: fsm.Up{Name: "jobs", Count: 1}})
	}
	return list
}
