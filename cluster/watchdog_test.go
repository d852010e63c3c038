package cluster

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/raftlib"
	"github.com/signalbox/signalbox/fsm"
)

// TestFrozenTargetEndsNoProcess: the target of a hand-over freezes, at whichever moment of it. The leader refuses
// writes until Raft's message to the target has failed, and goes on: that is not raft#696.
func TestFrozenTargetEndsNoProcess(t *testing.T) {
	refused := time.Duration(0)
	for moment := time.Duration(0); moment < 240*time.Millisecond; moment += 8 * time.Millisecond {
		formedBubble(t, 3, func(t *testing.T, c *lifeNodes) {
			c.semaphore("db", 0)
			leader := c.leader()
			target := c.others(leader)[0]
			c.net.Delay(leader.id, target.id, 40*time.Millisecond) // the moments are within the hand-over
			go func() { _ = leader.TransferLeadership(t.Context(), target.id) }()
			time.Sleep(moment) // virtual
			c.net.Isolate(target.id)
			began := time.Now()
			for time.Since(began) < 2*raftlib.TransferTimeout(1) {
				wrote := time.Now()
				c.do(c.leader(target), fsm.Up{Name: "db", Count: 1}, fsm.OK)
				refused = max(refused, time.Since(wrote))
				time.Sleep(50 * time.Millisecond) // virtual
			}
			for _, n := range c.all {
				if err := c.fatal(n.id); err != nil {
					t.Errorf("frozen after %v: %s: %v", moment, n.id, err)
				}
			}
		})
	}
	if refused <= 3*raftlib.Tick || refused > raftlib.TransferTimeout(1) {
		t.Errorf("writes waited for up to %v, at most %v by Raft's time-outs", refused, raftlib.TransferTimeout(1))
	}
}

// TestTransferThatHangsIsSeen: while Raft refuses everything because of a transfer,
// and no longer.
func TestTransferThatHangsIsSeen(t *testing.T) {
	formedBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.semaphore("db", 1)
		leader := c.leader()
		target := c.others(leader)[0]
		if (watchedLeader{leader.running.Load()}).Transferring(t.Context()) {
			t.Error("a transfer is seen where there is none")
		}
		c.net.Partition(leader.id, target.id)
		transfer := leader.raft().LeadershipTransferToServer(raft.ServerID(target.id), raft.ServerAddress(target.id+":8711"))
		time.Sleep(50 * time.Millisecond) // virtual
		call := background(t.Context(), leader, calls.Call{Command: fsm.Up{Name: "db", Count: 1}})
		c.until("it is seen", func() bool { return watchedLeader{leader.running.Load()}.Transferring(t.Context()) })
		c.net.Rejoin(target.id)
		if got := <-call; got.err != nil {
			t.Errorf("the command, in the end: %v", got.err)
		}
		_ = transfer.Error() // it came to an end, one way or the other
		c.until("it is over", func() bool { return !watchedLeader{c.leader().running.Load()}.Transferring(t.Context()) })
	})
}

// TestKeysGauges: how full the table of keys is, and how full it may be, on every node.
func TestKeysGauges(t *testing.T) {
	formedBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.semaphore("db", 1)
		once := func(key string, command fsm.Command) {
			if got, err := c.leader().Do(t.Context(), calls.Call{Command: command, Key: key}); err != nil || got.Code != fsm.OK {
				t.Fatalf("%s: %v, %v", key, got.Code, err)
			}
		}
		once("a", fsm.AcquireOnce{Name: "db", Count: 1, TTLMS: 60_000, Session: 7})
		once("b", fsm.Up{Name: "db", Count: 1})
		once("", fsm.EndSession{Session: 7})
		for _, n := range c.all {
			c.until("it has applied that", func() bool { return metricsOf(t, n)["idempotency_keys{of=marks}"] == 1 })
			got := metricsOf(t, n)
			if got["idempotency_keys{of=keys}"] != 1 || got["idempotency_keys{of=bytes}"] < 128 || got["idempotency_keys_limit{of=keys}"] != 1_000_000 ||
				got["idempotency_keys_limit{of=bytes}"] != 256<<20 || got["idempotency_keys_limit{of=marks}"] != 6_000_000 {
				t.Errorf("%s: %v", n.id, got)
			}
		}
	})
}
