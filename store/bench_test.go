package store

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/signalbox/signalbox/store/damage"
	"github.com/signalbox/signalbox/test/storetest"
)

// batchOf makes n entries of size bytes, from index first on.
func batchOf(first uint64, n, size int) []*raft.Log {
	var made []*raft.Log
	for i := range n {
		made = append(made, &raft.Log{Index: first + uint64(i), Term: 1, Data: make([]byte, size), AppendedAt: time.Now()})
	}
	return made
}

// bareLog is raft-boltdb with the same options, without layers around it.
func bareLog(b *testing.B) raft.LogStore {
	bolt, err := raftboltdb.New(raftboltdb.Options{Path: b.TempDir() + "/bare.db", BoltOptions: damage.BoltOptions()})
	storetest.Must(b, err)
	b.Cleanup(func() { _ = bolt.Close() })
	return bolt
}

// BenchmarkStoreLogs stores batches in turn in our log and in a bare raft-boltdb,
// on the same disk and in the same run: the ratio is what counts.
func BenchmarkStoreLogs(b *testing.B) {
	for _, shape := range []struct{ n, size int }{{1, 100}, {1, 256 << 10}, {16, 16 << 10}, {64, 100}} {
		b.Run(fmt.Sprintf("%dx%dB", shape.n, shape.size), func(b *testing.B) {
			bare, ours := bareLog(b), openStore(b, b.TempDir()).Logs()
			var bareTook, oursTook time.Duration
			for i := range b.N {
				first := uint64(1 + i*shape.n)
				store := func(logs raft.LogStore) time.Duration {
					batch := batchOf(first, shape.n, shape.size)
					begun := time.Now()
					storetest.Must(b, logs.StoreLogs(batch))
					took := time.Since(begun)
					if i%256 == 255 { // as compaction does, so that the files stay small
						storetest.Must(b, logs.DeleteRange(1, first-1))
					}
					return took
				}
				if i%2 == 0 {
					bareTook += store(bare)
					oursTook += store(ours)
				} else {
					oursTook += store(ours)
					bareTook += store(bare)
				}
			}
			report(b, "bare", bareTook, oursTook)
		})
	}
}

// report reports both times for each operation, and theirs over ours: above 1 we
// are the faster one.
func report(b *testing.B, theirs string, theirTook, ourTook time.Duration) {
	b.ReportMetric(float64(theirTook.Nanoseconds())/float64(b.N), theirs+"-ns/op")
	b.ReportMetric(float64(ourTook.Nanoseconds())/float64(b.N), "ours-ns/op")
	b.ReportMetric(float64(theirTook)/float64(ourTook), "ratio")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkGetLog reads entries that are in the file, and not in a cache.
func BenchmarkGetLog(b *testing.B) {
	for _, size := range []int{100, 64 << 10} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			bare, store := bareLog(b), openStore(b, b.TempDir())
			const n, cached = 512, 128
			for _, logs := range []raft.LogStore{bare, store.Logs()} {
				storetest.Must(b, logs.StoreLogs(batchOf(1, n, size)))
			}
			var bareTook, oursTook time.Duration
			for i := range b.N {
				for which, logs := range []raft.LogStore{bare, store.Logs()} {
					var got raft.Log
					begun := time.Now()
					storetest.Must(b, logs.GetLog(uint64(1+i%(n-cached)), &got))
					if took := time.Since(begun); which == 0 {
						bareTook += took
					} else {
						oursTook += took
					}
				}
			}
			report(b, "bare", bareTook, oursTook)
		})
	}
}

// BenchmarkSnapshot writes and opens a snapshot of 64 MiB in our store and in the
// library's file store.
func BenchmarkSnapshot(b *testing.B) {
	content := storetest.Bytes(1, 64<<20)
	files, err := raft.NewFileSnapshotStoreWithLogger(b.TempDir(), 2, hclog.NewNullLogger())
	storetest.Must(b, err)
	ours := openStore(b, b.TempDir()).Snapshots()
	write := func(snapshots raft.SnapshotStore, i int) (time.Duration, string) {
		begun := time.Now()
		id := storetest.TakeSnapshot(b, snapshots, uint64(i), 1, content)
		return time.Since(begun), id
	}
	read := func(snapshots raft.SnapshotStore, id string) time.Duration {
		begun := time.Now()
		_, reader, err := snapshots.Open(id)
		storetest.Must(b, err)
		if _, err := io.Copy(io.Discard, reader); err != nil {
			b.Fatal(err)
		}
		_ = reader.Close()
		return time.Since(begun)
	}
	var times [2][2]time.Duration
	for i := range b.N {
		for which, snapshots := range []raft.SnapshotStore{files, ours} {
			wrote, id := write(snapshots, i+1)
			times[which][0] += wrote
			times[which][1] += read(snapshots, id)
		}
	}
	for what, name := range []string{"write", "read"} {
		b.ReportMetric(float64(times[0][what].Milliseconds())/float64(b.N), "file-"+name+"-ms/op")
		b.ReportMetric(float64(times[1][what].Milliseconds())/float64(b.N), "bolt-"+name+"-ms/op")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkAppendBesideSnapshots measures the log's latency while snapshots of
// 64 MiB are written without pause: what the file of their own is for.
func BenchmarkAppendBesideSnapshots(b *testing.B) {
	for _, busy := range []bool{false, true} {
		b.Run(fmt.Sprintf("busy=%t", busy), func(b *testing.B) {
			s := openStore(b, b.TempDir())
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				content := storetest.Bytes(1, 64<<20)
				for index := uint64(1); busy; index++ {
					select {
					case <-stop:
						return
					default:
						storetest.TakeSnapshot(b, s.Snapshots(), index, 1, content)
					}
				}
			}()
			var took []time.Duration
			for i := range b.N {
				begun := time.Now()
				storetest.Must(b, s.Logs().StoreLogs(batchOf(uint64(i+1), 1, 1000)))
				took = append(took, time.Since(begun))
			}
			close(stop)
			<-stopped
			slices.Sort(took)
			for name, at := range map[string]float64{"p50": .5, "p99": .99} {
				b.ReportMetric(float64(took[int(at*float64(len(took)-1))].Microseconds())/1000, name+"-ms")
			}
		})
	}
}

// BenchmarkOpen opens a folder with a log of 64 MiB and two snapshots as large:
// all of it is read and checked.
func BenchmarkOpen(b *testing.B) {
	folder := b.TempDir()
	s := openStore(b, folder)
	for i := range 64 {
		storetest.Must(b, s.Logs().StoreLogs(batchOf(uint64(1+16*i), 16, 64<<10)))
	}
	for index := uint64(1); index <= 2; index++ {
		storetest.TakeSnapshot(b, s.Snapshots(), index, 1, storetest.Bytes(index, 64<<20))
	}
	closeStore(b, s)
	for b.Loop() {
		closeStore(b, openStore(b, folder))
	}
}
