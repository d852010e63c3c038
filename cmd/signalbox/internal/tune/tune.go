package tune

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// largeHeap is the number of live bytes from which a heap is large. A state with a million leases has more; a busy
	// node without such a state has less.
	largeHeap = 256 << 20
	// largeHeapPercent is how far a large heap may grow before a collection, in percent of its live bytes. Go's default
	// of 100 would double the memory of a large state.
	largeHeapPercent = 40
	usualHeapPercent = 100
	// smallHeap is the size up to which a heap may grow before a collection. A node with a small state has a few live
	// MB, and under load Go would collect them many times a second.
	smallHeap = 64 << 20
	// smallHeapPercent bounds the growth of a small heap, so that the next collection, which adjusts the percentage,
	// comes soon.
	smallHeapPercent = 1600

	// usualSlack and timerSlack are Linux's default and a node's value of timer slack: a thread may sleep that many ns
	// longer than it asks, so that the kernel can join wake-ups. While a process is slightly busy, Go's monitor thread
	// sleeps for 20 µs at a time. With the default it wakes up every 70 µs, with this slack every 220 µs. In exchange,
	// it notices up to 150 µs later that a processor waits for a disk.
	usualSlack = 50_000
	timerSlack = 200_000
	// slackVariable in the environment makes the process keep its slack. An operator sets it, or Slack for the second
	// execution.
	slackVariable = "SIGNALBOX_KEEP_TIMER_SLACK"
)

// Heap makes the runtime collect a large heap more often than by default, and a small heap less often. If GOGC is set,
// it has no effect.
func Heap() {
	if os.Getenv("GOGC") == "" {
		watchHeap(usualHeapPercent)
	}
}

// watchHeap sets the percentage after each collection: it registers a cleanup for a value that the next collection
// finds unreachable. (A smaller value could share its memory with other values.)
func watchHeap(percent int) {
	runtime.AddCleanup(new([64]byte), func(percent int) {
		found := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
		metrics.Read(found)
		next := heapPercent(found[0].Value.Uint64(), found[1].Value.Uint64()+found[2].Value.Uint64())
		if next != percent {
			debug.SetGCPercent(next)
		}
		watchHeap(next)
	}, percent)
}

// heapPercent returns how far a heap may grow before a collection, in percent of its live bytes and, as Go counts, of
// the stacks and globals that refer to it.
func heapPercent(live, roots uint64) int {
	if live > largeHeap {
		return largeHeapPercent
	}
	growth := 100 * (smallHeap - min(smallHeap, live)) / max(1, live+roots)
	return max(usualHeapPercent, int(min(growth, smallHeapPercent)))
}
