package cluster

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sync/errgroup"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
	"github.com/signalbox/signalbox/store"
)

// BenchmarkRestart reports how long nodes take from the opening of their folders until all
// are ready: one with the most that a week of ticks leaves in the log, and with leases
// that are in a snapshot, or still in the log; in the last cases each lease is of another
// semaphore, on one node, and on three that start at once.
func BenchmarkRestart(b *testing.B) {
	for _, state := range []struct {
		name                 string
		nodes, leases, ticks int
		snapshot, own        bool
	}{
		{"week-of-ticks", 1, 0, 1 << 16, false, false},
		{"300000-leases-in-the-log", 1, sized(300_000), 0, false, false},
		{"1000000-leases-in-a-snapshot", 1, sized(1_000_000), 0, true, false},
		{"1000000-semaphores-in-a-snapshot", 1, sized(1_000_000), 0, true, true},
		{"three-nodes-1000000-semaphores-in-snapshots", 3, sized(1_000_000), 0, true, true},
	} {
		b.Run(state.name, func(b *testing.B) {
			r := newRestart(b, state.nodes)
			r.own = state.own
			r.fill(state.leases, state.ticks, state.snapshot)
			b.ResetTimer()
			for range b.N {
				r.open()
				b.StopTimer()
				r.close()
				b.StartTimer()
			}
		})
	}
}

// sized returns a size, or a tenth of it with -short: CI makes one pass of each benchmark,
// to see that it works.
func sized(n int) int {
	if testing.Short() {
		n /= 10
	}
	return n
}

// restart is a cluster on real folders.
type restart struct {
	b       *testing.B
	peers   []Peer
	folders []string
	own     bool // each lease has its semaphore
	stores  []*store.Store
	nodes   []*Node
}

func newRestart(b *testing.B, nodes int) *restart {
	r := &restart{b: b, stores: make([]*store.Store, nodes), nodes: make([]*Node, nodes)}
	for i := range nodes {
		r.peers = append(r.peers, Peer{ID: fmt.Sprintf("n%d", i+1), Address: benchAddress(b)})
		r.folders = append(r.folders, b.TempDir())
	}
	return r
}

// open starts the nodes and waits until all are ready.
func (r *restart) open() {
	r.b.Helper()
	var group errgroup.Group
	for i, p := range r.peers {
		group.Go(func() (err error) {
			if r.stores[i], err = store.Open(store.Options{Folder: r.folders[i], NodeID: p.ID, Journal: true}); err != nil {
				return err
			}
			c := Config{NodeID: p.ID, Bind: p.Address, Store: r.stores[i]}
			if len(r.peers) > 1 {
				c.Peers = r.peers
			}
			if r.nodes[i], err = Start(r.b.Context(), c); err != nil {
				return err
			}
			for !r.nodes[i].Ready() {
				if err := wake.Pause(r.b.Context(), time.Millisecond); err != nil {
					return err
				}
			}
			return nil
		})
	}
	must(r.b, group.Wait())
}

func (r *restart) close() {
	for i, n := range r.nodes {
		must(r.b, n.Close(r.b.Context()))
		must(r.b, r.stores[i].Close())
	}
}

// fill makes what the node starts with.
func (r *restart) fill(leases, ticks int, snapshot bool) {
	r.open()
	list := []calls.Call{{Command: fsm.CreateSemaphore{Name: "a", Permits: 1 << 40}}}
	for done := 0; done < leases || len(list) > 0; list = list[:0] {
		for len(list) < 4_000 && done < leases {
			name := "a"
			if r.own {
				name = fmt.Sprintf("semaphore-%d", done)
				list = append(list, calls.Call{Command: fsm.CreateSemaphore{Name: name, Permits: 1}})
			}
			list = append(list, calls.Call{Command: fsm.AcquireOnce{Session: r.nodes[0].DrawSession(), Name: name, Count: 1, TTLMS: fsm.MaxTTLMS}})
			done++
		}
		_, errs := r.nodes[0].DoMany(r.b.Context(), list)
		for _, err := range errs {
			must(r.b, err)
		}
	}
	if snapshot {
		for _, n := range r.nodes {
			if err := n.raft().Snapshot().Error(); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
				r.b.Fatal(err)
			}
		}
	}
	r.appendTicks(ticks)
	r.close()
}

// appendTicks logs ticks past Raft, since a week of them takes a week.
func (r *restart) appendTicks(ticks int) {
	logs, last := r.stores[0].Logs(), raft.Log{}
	index, err := logs.LastIndex()
	if err == nil {
		err = logs.GetLog(index, &last)
	}
	var batch []*raft.Log
	for i := 1; i <= ticks && err == nil; i++ {
		tick := &raft.Log{Index: index + uint64(i), Term: last.Term, Type: raft.LogCommand, AppendedAt: time.Now()}
		tick.Data = replica.EncodeTermEntry(last.Term, int64(i)*500, nil)
		if batch = append(batch, tick); len(batch) == 4096 || i == ticks {
			err = logs.StoreLogs(batch)
			batch = nil
		}
	}
	must(r.b, err)
}
