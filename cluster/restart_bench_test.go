package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
	"github.com/signalbox/signalbox/store"
)

// BenchmarkRestart reports how long a single node takes from the opening of its
// folder until it is ready: with the most that a week of ticks leaves in the log,
// and with leases that are in a snapshot, or still in the log; in the last case each is of a
// semaphore of its own.
func BenchmarkRestart(b *testing.B) {
	for _, state := range []struct {
		name          string
		leases, ticks int
		snapshot, own bool
	}{
		{"week-of-ticks", 0, 1 << 16, false, false},
		{"300000-leases-in-the-log", sized(300_000), 0, false, false},
		{"1000000-leases-in-a-snapshot", sized(1_000_000), 0, true, false},
		{"200000-semaphores-in-a-snapshot", sized(200_000), 0, true, true},
	} {
		b.Run(state.name, func(b *testing.B) {
			r := &restart{b: b, folder: b.TempDir(), address: benchAddress(b), own: state.own}
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

// restart is a node on a real folder.
type restart struct {
	b       *testing.B
	folder  string
	address string
	own     bool // each lease has a semaphore of its own
	store   *store.Store
	node    *Node
}

// open starts the node and waits until it is ready.
func (r *restart) open() {
	r.b.Helper()
	var err error
	r.store, err = store.Open(store.Options{Folder: r.folder, NodeID: "n1"})
	if err == nil {
		r.node, err = Start(r.b.Context(), Config{NodeID: "n1", Bind: r.address, Store: r.store})
	}
	if err != nil {
		r.b.Fatal(err)
	}
	for !r.node.Ready() {
		if wake.Pause(r.b.Context(), time.Millisecond) != nil {
			r.b.Fatal("the benchmark ended first")
		}
	}
}

func (r *restart) close() {
	if err := r.node.Close(r.b.Context()); err != nil {
		r.b.Fatal(err)
	}
	if err := r.store.Close(); err != nil {
		r.b.Fatal(err)
	}
}

// fill makes what the node starts with.
func (r *restart) fill(leases, ticks int, snapshot bool) {
	r.open()
	list := []Call{{Command: fsm.CreateSemaphore{Name: "a", Permits: 1 << 40}}}
	for done := 0; done < leases || len(list) > 0; list = list[:0] {
		for len(list) < 4_000 && done < leases {
			name := "a"
			if r.own {
				name = fmt.Sprintf("semaphore-%d", done)
				list = append(list, Call{Command: fsm.CreateSemaphore{Name: name, Permits: 1}})
			}
			list = append(list, Call{Command: fsm.AcquireOnce{Session: r.node.DrawSession(), Name: name, Count: 1, TTLMS: fsm.MaxTTLMS}})
			done++
		}
		_, errs := r.node.DoMany(r.b.Context(), list)
		for _, err := range errs {
			if err != nil {
				r.b.Fatal(err)
			}
		}
	}
	if snapshot {
		if err := r.node.raft().Snapshot().Error(); err != nil {
			r.b.Fatal(err)
		}
	}
	r.appendTicks(ticks)
	r.close()
}

// appendTicks logs ticks past Raft, since a week of them takes a week.
func (r *restart) appendTicks(ticks int) {
	logs, last := r.store.Logs(), raft.Log{}
	index, err := logs.LastIndex()
	if err == nil {
		err = logs.GetLog(index, &last)
	}
	var batch []*raft.Log
	for i := 1; i <= ticks && err == nil; i++ {
		tick := &raft.Log{Index: index + uint64(i), Term: last.Term, Type: raft.LogCommand, AppendedAt: time.Now()}
		tick.Data = replica.EncodeEntry(last.Term, int64(i)*500, nil)
		if batch = append(batch, tick); len(batch) == 4096 || i == ticks {
			err = logs.StoreLogs(batch)
			batch = nil
		}
	}
	if err != nil {
		r.b.Fatal(err)
	}
}
