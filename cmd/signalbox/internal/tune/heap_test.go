package tune

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// asChild is a variable. With it the test binary is a process that tunes itself and prints its settings.
const asChild = "SIGNALBOX_TEST_TUNE"

// children are the kinds of processes that asChild starts.
var children = map[string]func(){"heap": heapChild}

func TestMain(m *testing.M) {
	if run := children[os.Getenv(asChild)]; run != nil {
		run()
		return
	}
	os.Exit(m.Run())
}

// child runs a process of a kind with variables, and returns the words that it prints.
func child(t *testing.T, kind string, variables ...string) []string {
	t.Helper()
	command := exec.Command(os.Args[0], "an argument", "-another")
	command.Env = append(append(os.Environ(), asChild+"="+kind), variables...)
	printed, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(printed))
}

// TestLargeHeapsGrowByLess: a large heap is collected more often, and less often once it is small again.
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
	for _, c := range []struct {
		live, roots uint64
		want        int
	}{
		{0, 0, smallHeapPercent},
		{1 << 20, 0, smallHeapPercent},
		{4 << 20, 0, 1500},
		{16 << 20, 0, 300},
		{4 << 20, 16 << 20, 300}, // to 64 MiB, as Go counts
		{4 << 20, 60 << 20, usualHeapPercent},
		{32 << 20, 0, usualHeapPercent},
		{64 << 20, 1 << 20, usualHeapPercent},
		{largeHeap, 0, usualHeapPercent},
		{largeHeap + 1, 0, largeHeapPercent},
		{8 << 30, 1 << 30, largeHeapPercent},
	} {
		if got := heapPercent(c.live, c.roots); got != c.want {
			t.Errorf("a heap of %d bytes with %d bytes of roots grows by %d %%, want %d", c.live, c.roots, got, c.want)
		}
	}
}

// TestHeapGoal: a heap with stacks grows to 64 MiB, and not beyond.
func TestHeapGoal(t *testing.T) {
	for name, goroutines := range map[string]int{"no stacks": 0, "stacks of 16 MB": 2000} {
		goal, err := strconv.Atoi(child(t, "heap", "GOGC=", "GOROUTINES="+strconv.Itoa(goroutines))[1])
		if err != nil || goal > smallHeap+8<<20 || goal < smallHeap/2 {
			t.Errorf("%s: the heap grows to %d bytes, %v", name, goal, err)
		}
	}
}

// TestHeapIsTheOperators: GOGC in the environment takes precedence.
func TestHeapIsTheOperators(t *testing.T) {
	if got := child(t, "heap", "GOGC=100")[0]; got != "100" {
		t.Errorf("the heap grows by %s %% though GOGC is set", got)
	}
	if got := child(t, "heap", "GOGC=")[0]; got == "100" {
		t.Error("the heap grows by 100 % though GOGC is empty")
	}
}

// heapChild prints the percentage by which its heap grows, and the size to which it grows, after some collections.
func heapChild() {
	parked, err := strconv.Atoi(cmp.Or(os.Getenv("GOROUTINES"), "0"))
	if err != nil {
		panic(err)
	}
	Heap()
	done := make(chan struct{})
	var deep sync.WaitGroup
	deep.Add(parked)
	for range parked {
		go func() { deepStack(8, &deep, done) }()
	}
	deep.Wait()
	for range 10 { // a cleanup that runs after the look's: both were found by one collection
		looked := make(chan struct{})
		runtime.AddCleanup(new([64]byte), func(int) { close(looked) }, 0)
		for found := false; !found; runtime.GC() {
			select {
			case <-looked:
				found = true
			default:
			}
		}
	}
	now := []metrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/heap/goal:bytes"}}
	metrics.Read(now)
	fmt.Println(now[0].Value.Uint64(), now[1].Value.Uint64())
	close(done)
}

// deepStack parks a goroutine with a stack of a KiB for each level.
func deepStack(levels int, deep *sync.WaitGroup, done chan struct{}) byte {
	var frame [1024]byte
	if levels == 0 {
		deep.Done()
		<-done
		return frame[0]
	}
	frame[levels] = deepStack(levels-1, deep, done)
	return frame[levels]
}
