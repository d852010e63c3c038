//go:build unix

package fsm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// go test ./fsm -run '^$' -bench . -benchtime 2s
//
// Everything goes through Apply with encoded entries, and pays for decoding,
// results, effects and the state hash.

// perSecond reports the operations per second of wall time and, comparable on a busy
// machine, per second of the process's processor time, including garbage collection.
func perSecond(b *testing.B, what string, did int, cpu time.Duration) {
	b.ReportMetric(float64(did)/b.Elapsed().Seconds(), what+"/s")
	b.ReportMetric(float64(did)/cpu.Seconds(), what+"/cpu-s")
}

// processor returns the processor time that the process has used.
func processor(b *testing.B) time.Duration {
	return used(b, syscall.RUSAGE_SELF)
}

func used(b *testing.B, who int) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(who, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// thread returns the processor time that the calling thread has used, on Linux: the garbage
// collector and other processes don't count. The caller has locked its goroutine to the thread.
func thread(b *testing.B) time.Duration {
	if runtime.GOOS != "linux" {
		return processor(b)
	}
	return used(b, 1) // RUSAGE_THREAD
}

// spread reports the median, the 99.9th in a hundred and the worst.
func spread(b *testing.B, what string, took []time.Duration) {
	slices.Sort(took)
	for _, at := range []struct {
		name string
		i    int
	}{{"median", len(took) / 2}, {"p99.9", len(took) * 999 / 1000}, {"worst", len(took) - 1}} {
		b.ReportMetric(float64(took[at.i].Nanoseconds())/1e6, at.name+"-"+what+"-ms")
	}
}

// loader fills a machine, with many commands in each entry.
type loader struct {
	m       *Machine
	index   uint64
	stampMS int64
	pending [][]byte
	check   func(*Applied) // checks each entry that flush applied; may be nil
	by      Envelope       // frames the commands of add
}

func (l *loader) add(c Command) {
	by := l.by
	by.Request = RequestID{1, 1}
	l.addBy(by, c)
}

func (l *loader) addBy(by Envelope, c Command) {
	l.pending = append(l.pending, by.Encode(c))
	if len(l.pending) == 256 {
		l.flush()
	}
}

func (l *loader) flush() *Applied {
	entry := EncodeEntry(l.stampMS, l.pending)
	l.pending = l.pending[:0]
	applied := l.apply(entry)
	if l.check != nil {
		l.check(applied)
	}
	return applied
}

func (l *loader) apply(entry []byte) *Applied {
	l.index++
	return l.m.Apply(l.index, entry)
}

// newLoader has n semaphores of 1,000 permits, and no limit in the way.
func newLoader(semaphores int) *loader {
	l := &loader{m: New()}
	limits := DefaultLimits()
	limits.Queue = 1 << 30
	limits.Sessions = 1 << 30
	l.add(StartTerm{Term: 1, Limits: limits})
	for i := range semaphores {
		l.add(CreateSemaphore{Name: nameOf(i), Permits: 1000})
	}
	l.flush()
	return l
}

func nameOf(i int) string { return fmt.Sprintf("semaphore-%07d", i) }

// must fails the benchmark if a command of an entry did not succeed, and was not refused
// with one of the codes.
func must(b *testing.B, applied *Applied, refusals ...Code) {
	for i := range applied.Commands {
		if code := applied.Commands[i].Result.Code; code != OK && code != Waiting && !slices.Contains(refusals, code) {
			b.Fatalf("%v: %v", applied.Commands[i].Op, code)
		}
	}
}

// entries cuts commands into entries of so many each.
func entries(commands []Command, each int) (made [][]byte) {
	for part := range slices.Chunk(commands, each) {
		var encoded [][]byte
		for _, c := range part {
			encoded = append(encoded, Envelope{Request: RequestID{1, 1}, Key: ""}.Encode(c))
		}
		made = append(made, EncodeEntry(0, encoded))
	}
	return made
}

// BenchmarkPairs: one operation is an acquire and a release, each in a session
// that lives, of a random semaphore among so many.
func BenchmarkPairs(b *testing.B) {
	const sessions, prepared = 1000, 1 << 16
	for _, semaphores := range []int{1, 1000, sized(100_000), sized(1_000_000)} {
		l := newLoader(semaphores)
		for i := range uint64(sessions) {
			l.add(OpenSession{Session: i + 1, TTLMS: MaxTTLMS})
		}
		l.flush()
		random := rand.New(rand.NewPCG(1, 2))
		for _, each := range []int{1, 256} {
			var acquires, releases []Command
			for i := range uint64(prepared) {
				name, sessionID := nameOf(random.IntN(semaphores)), i%sessions+1
				acquires = append(acquires, Acquire{Session: sessionID, Name: name, Count: 1, TTLMS: KeepTTL})
				releases = append(releases, Release{Session: sessionID, Name: name})
			}
			take, give := entries(acquires, each), entries(releases, each)
			b.Run(fmt.Sprintf("semaphores=%d/commands=%d", semaphores, each), func(b *testing.B) {
				b.ReportAllocs()
				before := processor(b)
				for i := 0; i < b.N; i += each {
					at := i / each % len(take)
					must(b, l.apply(take[at]))
					must(b, l.apply(give[at]))
				}
				perSecond(b, "pairs", b.N, processor(b)-before)
			})
		}
	}
}

// BenchmarkHandOver: one operation is an acquire that waits for a strict semaphore, and the release that
// grants it. Two sessions take turns at each of 1,000 semaphores.
func BenchmarkHandOver(b *testing.B) {
	const semaphores = 1000
	for _, each := range []int{1, 250} {
		l := newLoader(0)
		l.open(2)
		for i := range semaphores {
			l.add(CreateSemaphore{Name: nameOf(i), Permits: 1})
			l.add(Acquire{Session: 2, Name: nameOf(i), Count: 1, TTLMS: KeepTTL})
		}
		must(b, l.flush())
		var take, give [][]byte
		for sessionID := range uint64(2) {
			var acquires, releases []Command
			for i := range semaphores {
				acquires = append(acquires, Acquire{Session: 1 + sessionID, Name: nameOf(i), Count: 1, TTLMS: KeepTTL})
				releases = append(releases, Release{Session: 2 - sessionID, Name: nameOf(i)})
			}
			take, give = append(take, entries(acquires, each)...), append(give, entries(releases, each)...)
		}
		at := 0
		b.Run(fmt.Sprintf("commands=%d", each), func(b *testing.B) {
			b.ReportAllocs()
			before := processor(b)
			for i := 0; i < b.N; i += each {
				must(b, l.apply(take[at]))
				if done := l.apply(give[at]); len(done.Conclusions) != each {
					b.Fatalf("%d waits ended", len(done.Conclusions))
				}
				at = (at + 1) % len(take)
			}
			perSecond(b, "pairs", b.N, processor(b)-before)
		})
	}
}

// oneShots returns acquires in sessions of random ids, as nodes draw them. The first
// command makes room for them all.
func oneShots(count int) []Command {
	random := rand.New(rand.NewPCG(1, 2))
	made := []Command{Up{Name: nameOf(0), Count: int64(count)}}
	for range count {
		made = append(made, AcquireOnce{Name: nameOf(0), Count: 1, TTLMS: MaxTTLMS, Session: random.Uint64()>>11 | 1})
	}
	return made
}

// TestAcquiresAllocateLittle: most of a restart is the replay of acquires, and each
// allocation of one costs about 4 % of it.
func TestAcquiresAllocateLittle(t *testing.T) {
	const each, runs = 100, 20
	made := entries(oneShots(each*(runs+1)), each)
	l, next := newLoader(1), 0
	allocations := testing.AllocsPerRun(runs, func() {
		l.apply(made[next])
		next++
	})
	if per := allocations / each; per > 4.5 { // name, command, members, grants; and growth
		t.Errorf("an acquire makes %.1f allocations", per)
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

// million has 1,000,000 one-shot sessions with one lease each, on 100,000 semaphores.
func million() *loader {
	l := newLoader(sized(100_000))
	for i := range sized(1_000_000) {
		l.add(AcquireOnce{Name: nameOf(i % sized(100_000)), Count: 1, TTLMS: MaxTTLMS, Session: uint64(i) + 1})
	}
	l.flush()
	return l
}

// BenchmarkMillion has 1,000,000 leases. It reports the pause of a freeze, the cost of the
// 20,000 entries after it, many of them the first to change some page, beside 20,000
// without a freeze, and the time to write and to read a snapshot. The garbage collector and
// other processes determine the worst values: the median and the 99.9th percentile are more
// useful.
func BenchmarkMillion(b *testing.B) {
	l := million()
	random := rand.New(rand.NewPCG(3, 4))
	changes := func() (took []time.Duration) {
		for range sized(20_000) {
			renewed := Renew{Renewals: []Renewal{{random.Uint64N(uint64(sized(1_000_000))) + 1, KeepTTL}}}
			entry := entries([]Command{renewed, Up{Name: nameOf(random.IntN(sized(100_000))), Count: 1}}, 2)[0]
			start := time.Now()
			l.apply(entry)
			took = append(took, time.Since(start))
		}
		return took
	}
	b.Run("freeze", func(b *testing.B) {
		calm := changes()
		var pauses, after []time.Duration
		b.ResetTimer()
		for range b.N {
			start := time.Now()
			frozen := l.m.Freeze()
			pauses = append(pauses, time.Since(start))
			b.StopTimer()
			after = append(after, changes()...)
			if frozen.index >= l.m.Index() {
				b.Fatal("the copy went on with the machine")
			}
			b.StartTimer()
		}
		spread(b, "pause", pauses)
		spread(b, "apply-before", calm)
		spread(b, "apply-after", after)
	})
	var snapshot bytes.Buffer
	b.Run("write", func(b *testing.B) {
		for range b.N {
			snapshot.Reset()
			if err := l.m.Freeze().Write(&snapshot); err != nil {
				b.Fatal(err)
			}
		}
		b.SetBytes(int64(snapshot.Len()))
		b.ReportMetric(float64(snapshot.Len())/1e6, "snapshot-MB")
	})
	if snapshot.Len() == 0 {
		return // filtered out
	}
	b.Run("read", func(b *testing.B) {
		for range b.N {
			m, err := Restore(bytes.NewReader(snapshot.Bytes()))
			if err != nil || m.Hash() != l.m.Hash() {
				b.Fatal("restore failed", err)
			}
		}
		b.SetBytes(int64(snapshot.Len()))
	})
}

// BenchmarkMillionItems has 1,000,000 items of 36 bytes of name and 32 of value, a tenth of them
// held. It reports the memory that one takes, the pause of a freeze, the entries of one change
// each before and after it, and the time to write and to read a snapshot.
func BenchmarkMillionItems(b *testing.B) {
	items := sized(1_000_000)
	name := func(i int) string { return fmt.Sprintf("folder-%06d/item-of-a-name-%07d", i/10, i) }
	l := &loader{m: New(), check: func(applied *Applied) { must(b, applied) }}
	memory := func() float64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return float64(stats.HeapAlloc)
	}
	before := memory()
	for s := range items / 10_000 {
		l.add(OpenSession{Session: uint64(s) + 1, TTLMS: MaxTTLMS})
	}
	for i := range items {
		if i%10 == 0 {
			l.add(ItemAcquire{Name: name(i), Value: strings.Repeat("v", 32), Session: uint64(i/10)%uint64(items/10_000) + 1})
		} else {
			l.add(ItemPut{Name: name(i), Value: strings.Repeat("v", 32)})
		}
	}
	l.flush()
	each := (memory() - before) / float64(items)
	random := rand.New(rand.NewPCG(9, 10))
	changes := func(n int) (took []time.Duration) {
		for range n {
			entry := entries([]Command{ItemPut{Name: name(random.IntN(items)), Value: fmt.Sprint(random.Uint64())}}, 1)[0]
			start := time.Now()
			l.apply(entry)
			took = append(took, time.Since(start))
		}
		return took
	}
	b.Run("freeze", func(b *testing.B) {
		calm := changes(sized(20_000))
		var pauses, after []time.Duration
		for range b.N {
			start := time.Now()
			frozen := l.m.Freeze()
			pauses = append(pauses, time.Since(start))
			b.StopTimer()
			after = append(after, changes(sized(20_000))...)
			runtime.KeepAlive(frozen)
			b.StartTimer()
		}
		b.ReportMetric(each, "bytes/item")
		spread(b, "pause", pauses)
		spread(b, "apply-before", calm)
		spread(b, "apply-after", after)
	})
	b.Run("index-below", func(b *testing.B) {
		for range b.N {
			if l.m.ItemsIndex("folder-") == 0 {
				b.Fatal("no index")
			}
		}
	})
	var snapshot bytes.Buffer
	b.Run("write", func(b *testing.B) {
		for range b.N {
			snapshot.Reset()
			if err := l.m.Freeze().Write(&snapshot); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(snapshot.Len())/1e6, "snapshot-MB")
	})
	b.Run("read", func(b *testing.B) {
		for range b.N {
			if _, err := Restore(bytes.NewReader(snapshot.Bytes())); err != nil {
				b.Fatal(err)
			}
		}
	})
}
