package tune

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// TestLargeHeapsGrowByLess: a heap is collected more often while it is large, and less often
// once it is small.
func TestLargeHeapsGrowByLess(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(usualHeapPercent)
	defer debug.SetGCPercent(before)
	percent := func() int {
		now := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(now)
		return int(now[0].Value.Uint64())
	}
	until := func(what string, enough func(percent int) bool) {
		t.Helper()
		for late := time.After(time.Minute); !enough(percent()); runtime.GC() { // which leads to one look
			select {
			case <-late:
				t.Fatalf("%s heap grows by %d %%", what, percent())
			default:
			}
		}
	}
	live := make([]byte, 512<<20)
	Heap()
	until("a large", func(percent int) bool { return percent == largeHeapPercent })
	runtime.KeepAlive(live)
	until("a small", func(percent int) bool { return percent > usualHeapPercent })
}

func TestHeapPercent(t *testing.T) {
	for live, want := range map[uint64]int{
		0:             smallHeapPercent,
		1 << 20:       smallHeapPercent,
		4 << 20:       1500,
		16 << 20:      300,
		32 << 20:      usualHeapPercent,
		64 << 20:      usualHeapPercent,
		largeHeap:     usualHeapPercent,
		largeHeap + 1: largeHeapPercent,
		8 << 30:       largeHeapPercent,
	} {
		if got := heapPercent(live); got != want {
			t.Errorf("a heap of %d bytes grows by %d %%, want %d", live, got, want)
		}
	}
}

// TestHeapIsTheOperators: GOGC in the environment decides.
func TestHeapIsTheOperators(t *testing.T) {
	t.Setenv("GOGC", "100")
	before := debug.SetGCPercent(usualHeapPercent)
	defer debug.SetGCPercent(before)
	Heap()
	for range 5 {
		runtime.GC()
	}
	if now := debug.SetGCPercent(usualHeapPercent); now != usualHeapPercent {
		t.Errorf("the heap grows by %d %% though GOGC is set", now)
	}
}
