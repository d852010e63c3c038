package tune

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// largeHeap is how many bytes of live memory make a heap large. A state of a million
	// leases has more, a busy node without them has less.
	largeHeap = 256 << 20
	// largeHeapPercent is by how much a large heap may grow before it is collected, of what
	// is live. Go's own value, 100, would double what a large state takes.
	largeHeapPercent = 40
	usualHeapPercent = 100
	// smallHeap is how many bytes a heap with few live ones may have before it is collected. A node
	// without much state has a few MB live, and would be collected many times a second under load.
	smallHeap = 64 << 20
	// smallHeapPercent bounds the growth, so that a collection, and with it the next look, is never
	// far away.
	smallHeapPercent = 1600

	// usualSlack and timerSlack are how many nanoseconds longer than it asks a thread may sleep, so that the
	// kernel can join wake-ups: what Linux gives each process, and what a node needs. Go's
	// monitor thread sleeps for 20 µs at a time while a process is busy now and then, as a node is:
	// it wakes up every 70 µs, and with this slack every 220 µs. It then finds a
	// processor that waits for a disk that much later.
	usualSlack = 50_000
	timerSlack = 200_000
	// slackVariable in the environment has the process keep the slack that it has: set by an operator, or by
	// the process itself for its second life.
	slackVariable = "SIGNALBOX_KEEP_TIMER_SLACK"
)

// Heap has a large heap collected more often than Go would, and a small one less often. GOGC in the
// environment decides instead, if it is set.
func Heap() {
	if os.Getenv("GOGC") == "" {
		watchHeap(usualHeapPercent)
	}
}

// watchHeap looks at the live memory after each collection: at a value that each one finds
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

// heapPercent is by how much a heap may grow before it is collected: of its live bytes, and
// of the stacks and globals that refer to it, as Go counts.
func heapPercent(live, roots uint64) int {
	if live > largeHeap {
		return largeHeapPercent
	}
	growth := 100 * (smallHeap - min(smallHeap, live)) / max(1, live+roots)
	return max(usualHeapPercent, int(min(growth, smallHeapPercent)))
}
