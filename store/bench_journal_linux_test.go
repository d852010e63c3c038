package store

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/test/storetest"
)

// rawSync returns a function that writes over one page of a file and syncs it: what the disk
// takes at least.
func rawSync(b *testing.B) func() {
	file, err := os.Create(filepath.Join(b.TempDir(), "raw"))
	storetest.Must(b, err)
	b.Cleanup(func() { _ = file.Close() })
	page := make([]byte, 4096)
	if _, err := file.Write(make([]byte, 1<<20)); err != nil {
		b.Fatal(err)
	}
	storetest.Must(b, file.Sync())
	at := int64(0)
	return func() {
		page[0]++
		at = (at + 4096) % (1 << 20)
		if _, err := file.WriteAt(page, at); err != nil {
			b.Fatal(err)
		}
		storetest.Must(b, syscall.Fdatasync(int(file.Fd())))
	}
}

// BenchmarkJournal stores batches in turn with and without a journal, beside a raw write
// with fdatasync, in one run: the ratios count, of the medians and of p99.9, drains included.
func BenchmarkJournal(b *testing.B) {
	for _, shape := range []struct{ n, size int }{{1, 120}, {16, 120}, {64, 120}, {256, 120}, {1, 256 << 10}} {
		b.Run(fmt.Sprintf("%dx%dB", shape.n, shape.size), func(b *testing.B) {
			raw := rawSync(b)
			forms := [2]raft.LogStore{}
			for with := range forms {
				forms[with] = openStore(b, b.TempDir(), func(o *Options) { o.Journal, o.JournalHalf = with == 1, 0 }).Logs()
			}
			var took [3][]time.Duration
			for i := range b.N {
				first := uint64(1 + i*shape.n)
				for which := range took {
					batch := batchOf(first, shape.n, shape.size)
					begun := time.Now()
					if which == 2 {
						raw()
					} else if err := forms[which].StoreLogs(batch); err != nil {
						b.Fatal(err)
					}
					took[which] = append(took[which], time.Since(begun))
				}
				if i%256 == 255 && first > 2048 { // as compaction does
					for _, log := range forms {
						storetest.Must(b, log.DeleteRange(1, first-2048))
					}
				}
			}
			at := func(which int, part float64) float64 {
				slices.Sort(took[which])
				return float64(took[which][int(part*float64(len(took[which])-1))].Microseconds())
			}
			b.ReportMetric(at(2, .5), "raw-µs")
			b.ReportMetric(at(0, .5), "bolt-µs")
			b.ReportMetric(at(1, .5), "journal-µs")
			b.ReportMetric(at(1, .5)/at(2, .5), "journal/raw")
			b.ReportMetric(at(1, .999)/1000, "journal-p99.9-ms")
			b.ReportMetric(at(2, .999)/1000, "raw-p99.9-ms")
			b.ReportMetric(at(1, .999)/at(2, .999), "p99.9-journal/raw")
			b.ReportMetric(0, "ns/op")
		})
	}
}
