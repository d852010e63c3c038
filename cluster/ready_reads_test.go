package cluster

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/fsm"
)

// TestNotReadyWhileReadsFail: a node that was ready, knows its leader and hears from
// it, and trails all the same, is not ready until it has caught up again.
func TestNotReadyWhileReadsFail(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		var withheld atomic.Value // whose entries
		withheld.Store("")
		c.setups = append(c.setups, func(config *Config) {
			config.fault = func(peer raft.ServerID, request any) error {
				append, is := request.(*raft.AppendEntriesRequest)
				if is && string(peer) == withheld.Load() && len(append.Entries) > 0 {
					return errors.New("withheld")
				}
				return nil
			}
		})
		c.begin(c.all...)
		c.ready(c.all...)
		c.semaphore("db", 1)
		leader := c.leader()
		behind := c.others(leader)[0]
		withheld.Store(behind.id)
		c.do(leader, fsm.Up{Name: "db", Count: 1}, fsm.OK)
		began := time.Now()
		c.until("it is not ready", func() bool { return !behind.Ready() })
		if took := time.Since(began); took < readyPatience-readyProof || took > readyPatience+2*readyTimeout {
			t.Errorf("not ready after %v", took)
		}
		if check := c.check(behind, "caught-up"); check.OK || !strings.Contains(check.Detail, "reads have failed") || !c.check(behind, "leader").OK {
			t.Errorf("it says %+v, with the leader %+v", check, c.check(behind, "leader"))
		}
		for _, n := range c.others(behind) {
			if !n.Ready() {
				t.Errorf("%s is not ready", n.id)
			}
		}
		time.Sleep(time.Minute) // virtual
		if behind.Ready() {
			t.Error("ready though it trails by a minute")
		}
		withheld.Store("")
		c.ready(behind)
		if view, ok := stale(behind, "db"); !ok || view.Available != 2 {
			t.Errorf("ready, and it shows %+v", view)
		}
	})
}

// TestShortTroubleLeavesReadiness: reads that fail for less than a client waits for
// one.
func TestShortTroubleLeavesReadiness(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		n := c.follower()
		c.net.Partition(n.id, c.leader().id)
		time.Sleep(400 * time.Millisecond) // virtual: less than it takes to miss the leader
		c.net.Rejoin(n.id)
		for range 100 {
			time.Sleep(100 * time.Millisecond) // virtual
			if !n.Ready() {
				t.Fatalf("not ready: %+v", n.Checks())
			}
		}
	})
}

// TestMovedNodeSaysSo: a node that is started with another address than the cluster
// has for it names both, until a member is given the new one.
func TestMovedNodeSaysSo(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		moved := c.others(c.leader())[0]
		for _, n := range c.all {
			if check := c.check(n, "address"); !check.OK || check.Moved != nil {
				t.Errorf("%s: %+v", n.id, check)
			}
		}
		c.kill(moved)
		next := Peer{ID: moved.id, Address: moved.id + ":9999"}
		c.setups = append(c.setups, func(config *Config) {
			if config.NodeID == moved.id {
				config.Bind = next.Address
				config.Peers = slices.Clone(config.Peers)
				for i := range config.Peers {
					if config.Peers[i].ID == moved.id {
						config.Peers[i] = next
					}
				}
			}
		})
		c.begin(moved)
		c.until("it says so", func() bool { return !c.check(moved, "address").OK })
		check := c.check(moved, "address")
		if check.Moved == nil || *check.Moved != next || !strings.Contains(check.Detail, ":8711") || !strings.Contains(check.Detail, ":9999") {
			t.Errorf("%+v", check)
		}
		if moved.Ready() {
			t.Error("ready though no leader reaches it")
		}
		if told := c.logs[moved.id].Lines("address has changed"); len(told) != 1 {
			t.Errorf("its log says so %d times", len(told))
		}
		c.until("the process before is given up", func() bool { return c.leader().AddMember(t.Context(), next.ID, next.Address) == nil })
		c.ready(moved)
		if check := c.check(moved, "address"); !check.OK || check.Moved != nil {
			t.Errorf("after that: %+v", check)
		}
	})
}

// TestIdleNodesShareMoments: heartbeats leave to all followers at the same moment, and all nodes look at the same moment
// whether they are caught up, so that an idle cluster wakes up a few times a second.
func TestIdleNodesShareMoments(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		var mu sync.Mutex
		moments := map[time.Time]bool{} // at which messages of the leader left
		c.setups = append(c.setups, func(config *Config) {
			config.fault = func(raft.ServerID, any) error {
				mu.Lock()
				defer mu.Unlock()
				moments[time.Now().Truncate(20*time.Millisecond)] = true
				return nil
			}
		})
		c.begin(c.all...)
		c.ready(c.all...)
		for _, n := range c.others(c.leader()) { // their reads began at other moments
			_, err := c.closeTook(n)
			c.must(err)
			time.Sleep(330 * time.Millisecond) // virtual
			c.begin(n)
			c.ready(n)
		}
		time.Sleep(5 * time.Second) // virtual
		mu.Lock()
		clear(moments)
		mu.Unlock()
		const seconds = 10
		looks := map[*testNode]*catchUp{}
		for range seconds * 100 {
			time.Sleep(10 * time.Millisecond) // virtual
			for _, n := range c.all {
				last, found := looks[n], n.running.Load().caughtUp.Load()
				if looks[n] = found; last != nil && last != found && time.Since(time.Now().Truncate(time.Second)) > 10*time.Millisecond {
					t.Errorf("%s found at %v that it is caught up", n.id, time.Now())
				}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if len(moments) > 10*seconds {
			t.Errorf("in %d s messages left at %d moments", seconds, len(moments))
		}
	})
}
