package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
)

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
					_, err := old.Read(ctx, calls.Consistency{})
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
