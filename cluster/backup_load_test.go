package cluster

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/backup"
	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
)

// stateAt replays a node's log up to an index, and returns the bytes of the state there.
func (c *nodes) stateAt(n *testNode, index uint64) []byte {
	c.t.Helper()
	r := replica.New(replica.Config{})
	feed := r.FSM(replica.FSMConfig{Fatal: func(err error) { c.t.Error(err) }, SnapshotDue: func() {}})
	for at := uint64(1); at <= index; at++ {
		var entry raft.Log
		c.must(n.store.Logs().GetLog(at, &entry))
		if entry.Type == raft.LogCommand {
			if err, _ := feed.Apply(&entry).(error); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	var state bytes.Buffer
	c.must(r.Freeze().Write(&state))
	return state.Bytes()
}

// TestBackupUnderLoad: a backup that any node makes and writes while all nodes change the state is
// the state at its index, to the byte, as the log alone gives it. It breaks no invariant, has all
// that was acknowledged before it began, and is restored into another cluster under its own load.
func TestBackupUnderLoad(t *testing.T) {
	load := func(c *nodes) (acknowledged *atomic.Int64, stop func()) {
		ctx, cancel := context.WithCancel(c.t.Context())
		var writers sync.WaitGroup
		acknowledged = new(atomic.Int64)
		for i, n := range c.all {
			for j := range 4 {
				random := rand.New(rand.NewPCG(uint64(i), uint64(j)))
				writers.Go(func() {
					for ctx.Err() == nil {
						once := fsm.AcquireOnce{Session: n.DrawSession(), Name: "db", Count: 1 + random.Int64N(3), TTLMS: 200 + random.Int64N(5000), WaitMS: random.Int64N(500)}
						_, _ = n.Do(ctx, calls.Call{Command: once, Wait: time.Duration(once.WaitMS) * time.Millisecond}) // refused, or the restore ends it
						if got, err := n.Do(ctx, calls.Call{Command: fsm.Up{Name: "count", Count: 1}}); err == nil && got.Code == fsm.OK {
							acknowledged.Add(1)
						}
					}
				})
			}
		}
		return acknowledged, func() { cancel(); writers.Wait() }
	}
	var file []byte
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("db", 12)
		c.semaphore("count", 0)
		acknowledged, stop := load(c)
		defer stop()
		waited := false
		for round := range 9 {
			n := c.all[round%3]
			time.Sleep(150 * time.Millisecond) // virtual
			before := acknowledged.Load()
			b, err := n.Backup(t.Context())
			c.must(err)
			c.until("the state has gone on", func() bool { return n.replica.Index() > b.Header.Index+20 })
			var out bytes.Buffer
			c.must(b.Write(&out))
			file = out.Bytes()
			h, m, err := backup.Read(bytes.NewReader(file))
			c.must(err)
			var state bytes.Buffer
			c.must(m.Freeze().Write(&state))
			if want := c.stateAt(n, h.Index); !bytes.Equal(state.Bytes(), want) {
				t.Errorf("backup %d of %s is not the state at index %d", round, n.id, h.Index)
			}
			if count, _ := m.Semaphore("count"); count.Available < before {
				t.Errorf("backup %d has %d of %d acknowledged", round, count.Available, before)
			}
			_, sessions, leases, waiting := m.Counts()
			waited = waited || waiting > 0 && leases > 0 && sessions > 0
		}
		if !waited {
			t.Error("no backup has leases beside waiting requests: it proves little")
		}
	})
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("db", 3)
		c.semaphore("count", 0)
		_, stop := load(c)
		time.Sleep(100 * time.Millisecond) // virtual
		h, m, err := backup.Read(bytes.NewReader(file))
		c.must(err)
		done, err := c.leader().Restore(t.Context(), bytes.NewReader(file), backup.Order{From: (*fsm.ClusterID)(&h.Cluster)})
		stop()
		c.must(err)
		want, _ := m.Semaphore("count")
		got, at := c.read(c.leader(), "count")
		if db, _ := c.read(c.leader(), "db"); got.Available < want.Available || db.Permits != 12 || at.Index <= done.Index {
			t.Errorf("restored at %d: %d of %d, %d permits", done.Index, got.Available, want.Available, db.Permits)
		}
		c.agree()
	})
}
