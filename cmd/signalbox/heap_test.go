package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// TestLargeHeapsGrowByLess: a heap is collected more often while it is large, and again
// as usual once it is small.
func TestLargeHeapsGrowByLess(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(usualHeapPercent)
	defer debug.SetGCPercent(before)
	percent := func() int {
		now := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(now)
		return int(now[0].Value.Uint64())
	}
	until := func(want int) {
		t.Helper()
		for late := time.After(time.Minute); percent() != want; runtime.GC() { // which leads to one look
			select {
			case <-late:
				t.Fatalf("the heap grows by %d %%, want %d", percent(), want)
			default:
			}
		}
	}
	live := make([]byte, 512<<20)
	boundHeap(largeHeap)
	until(largeHeapPercent)
	runtime.KeepAlive(live)
	until(usualHeapPercent)
}
