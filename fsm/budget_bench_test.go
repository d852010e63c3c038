//go:build unix

package fsm

import (
	"fmt"
	"runtime/debug"
	"syscall"
	"testing"
	"time"
)

// BenchmarkMillionLeases deletes a semaphore with a million leases, each in a session
// of its own, at level 0 as one entry and then in bounded ones. It reports the longest
// entry, all of them together, and how much the process's peak of memory grew.
//
//	go test ./fsm -run '^$' -bench MillionLeases/level=1 -benchtime 1x
func BenchmarkMillionLeases(b *testing.B) {
	const leases = 1_000_000
	for _, level := range []uint32{0, FeatureLevel} {
		b.Run(fmt.Sprint("level=", level), func(b *testing.B) {
			l := &loader{m: NewAtLevel(level), check: func(applied *Applied) { must(b, applied) }}
			l.add(CreateSemaphore{Name: nameOf(0), Permits: leases})
			for i := range uint64(leases) {
				l.add(AcquireOnce{Name: nameOf(0), Count: 1, TTLMS: MaxTTLMS, Session: i + 1})
			}
			l.flush()
			debug.FreeOSMemory()
			peak := func() float64 {
				var used syscall.Rusage
				if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
					b.Fatal(err)
				}
				return float64(used.Maxrss) / 1024
			}
			before := peak()
			var longest, all time.Duration
			entries := 0
			b.ResetTimer()
			l.add(DeleteSemaphore{Name: nameOf(0)})
			for more := true; more; entries++ {
				start := time.Now()
				applied := l.flush()
				more, all, longest = applied.MoreDue, all+time.Since(start), max(longest, time.Since(start))
			}
			if l.m.leases.live != 0 || l.m.sessions.live != 0 {
				b.Fatal("something is left")
			}
			b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
			b.ReportMetric(all.Seconds(), "all-s")
			b.ReportMetric(float64(entries), "entries")
			b.ReportMetric(before, "peak-before-MiB")
			b.ReportMetric(peak()-before, "peak-grew-MiB")
		})
	}
}
