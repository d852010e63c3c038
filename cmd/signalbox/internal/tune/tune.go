package tune

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// largeHeap is how many live bytes make a heap large. A state of a million leases has more, a busy node without
	// them has less.
	largeHeap = 256 << 20
	// largeHeapPercent is how much a large heap may grow before it is collected, in percent of its live bytes. Go's
	// own value, 100, would double the memory of a large state.
	largeHeapPercent = 40
	usualHeapPercent = 100
	// smallHeap is how many bytes a heap with few live bytes may have before it is collected. A node without much
	// state has a few MB live, and would be collected many times a second under load.
	smallHeap = 64 << 20
	// smallHeapPercent bounds the growth of a small heap, so that the next collection, and with it the next choice,
	// is never far away.
	smallHeapPercent = 1600

	// usualSlack and timerSlack are how many nanoseconds longer than it asks a thread may sleep, so that the kernel
	// can join wake-ups: Linux's default, and a node's value. Go's monitor thread sleeps for 20 µs at a time while a
	// process is busy now and then, as a node is. It wakes up every 70 µs by default, and every 220 µs with this
	// slack: it then notices a processor that waits for a disk that much later.
	usualSlack = 50_000
	timerSlack = 200_000
	// slackVariable in the environment makes the process keep its slack. An operator sets it, or the process
	// itself for its second life.
	slackVariable = "SIGNALBOX_KEEP_TIMER_SLACK"
)

// Heap makes the runtime collect a large heap more often than Go's default, and a small heap less often, unless
// GOGC is set in the environment.
func Heap() {
	if os.Getenv("GOGC") == "" {
		watchHeap(usualHeapPercent)
	}
}

// watchHeap chooses the percentage again after each collection: the cleanup of a value that each collection finds
// unreachable. (Smaller values may share their memory with others.)
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

// heapPercent is how much a heap may grow before it is collected, in percent of its live bytes and of the stacks and
// globals that refer to it, as Go counts.
func heapPercent(live, roots uint64) int {
	if live > largeHeap {
		return largeHeapPercent
	}
	growth := 100 * (smallHeap - min(smallHeap, live)) / max(1, live+roots)
	return max(usualHeapPercent, int(min(growth, smallHeapPercent)))
}
