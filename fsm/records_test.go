package fsm

import (
	"fmt"
	"runtime"
	"testing"
)

// inUse returns the bytes of the heap that are in use.
func inUse() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// TestMemoryIsGivenBack: leases that expire, the waiters that got them after, and their keys leave
// one page of each table and no room in an index, once their memory is over.
func TestMemoryIsGivenBack(t *testing.T) {
	const leases = 20_000
	l := newLoader(0)
	before := inUse()
	l.behind(leases)
	l.flush()
	full := inUse() - before
	for l.stampMS = 2_000_000; l.m.keys.live+l.m.marks.length+l.m.ended.live > 0 || l.m.MoreDue(); l.stampMS += 1000 {
		l.apply(EncodeEntry(l.stampMS, nil))
	}
	for i := range leases {
		l.add(DeleteSemaphore{Name: fmt.Sprint("behind-", i)})
	}
	l.flush()
	left := inUse() - before
	pages := kept(&l.m.semaphores) + kept(&l.m.sessions) + kept(&l.m.leases) + kept(&l.m.requests) + kept(&l.m.keys) + kept(&l.m.ended)
	t.Logf("%d KiB in use by %d leases and as many waiters, %d KiB after them, %d pages", full>>10, leases, left>>10, pages)
	if pages > 6 || left > full/20 {
		t.Errorf("%d of %d KiB are in use after all of it, %d pages", left>>10, full>>10, pages)
	}
	runtime.KeepAlive(l)
}

// kept counts the pages of a table that are in memory.
func kept[T any](t *table[T]) (pages int) {
	for _, p := range t.pages {
		if p != nil {
			pages++
		}
	}
	return pages
}
