package hostile

import (
	"embed"
	"flag"
	"path"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
)

const (
	// mostOfOne is how many bytes one case may allocate, with what its client does.
	mostOfOne = 24 << 20
	// mostLeft is by how many bytes the heap may be larger after a list.
	mostLeft = 8 << 20
)

//go:embed testdata/*.txt
var files embed.FS

// Lists returns the names of the cases on each list, by the list's name.
func Lists() (map[string][]string, error) {
	names, err := files.ReadDir("testdata")
	if err != nil {
		return nil, err
	}
	lists := map[string][]string{}
	for _, file := range names {
		text, err := files.ReadFile(path.Join("testdata", file.Name()))
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(file.Name(), ".txt")
		lists[name] = []string{}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSuffix(line, "\n"); line != "" && !strings.HasPrefix(line, "#") {
				lists[name] = append(lists[name], line)
			}
		}
	}
	return lists, nil
}

// List is the cases of one test. Its methods are for the goroutine of the test.
type List struct {
	t      *testing.T
	listed []string
	ran    []string
}

// Begin begins the list of that name. At the end of the test it compares the list with the
// cases that ran, and the heap with the first heap. Not inside a bubble of synctest,
// where a cleanup can't wait for what the bubble leaves behind.
func Begin(t *testing.T, name string) *List {
	t.Helper()
	lists, err := Lists()
	if err != nil {
		t.Fatal(err)
	}
	l := &List{t: t, listed: lists[name]}
	before := heap()
	t.Cleanup(func() {
		if strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
			return // a part of the cases was asked for
		}
		if now := heap(); now > before+mostLeft {
			t.Errorf("the heap has %d bytes after the list, and had %d", now, before)
		}
		t.Logf("%d hostile inputs", len(l.ran))
		for _, c := range l.ran {
			if !slices.Contains(l.listed, c) {
				t.Errorf("not in test/hostile/testdata/%s.txt:\n%s", name, c)
			}
		}
		for _, c := range l.listed {
			if !slices.Contains(l.ran, c) {
				t.Errorf("listed in test/hostile/testdata/%s.txt, and did not run:\n%s", name, c)
			}
		}
	})
	return l
}

// Case runs one case as a subtest. Its name is that on the list.
func (l *List) Case(name string, test func(t *testing.T)) {
	l.t.Helper()
	l.t.Run(name, func(t *testing.T) {
		if slices.Contains(l.ran, name) {
			t.Errorf("two cases are named %q", name)
		}
		l.ran = append(l.ran, name)
		before := allocated()
		test(t)
		if cost := allocated() - before; cost > mostOfOne {
			t.Errorf("it took %d bytes, more than %d", cost, mostOfOne)
		}
	})
}

// allocated returns how many bytes this process has allocated so far.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// heap returns the bytes of reachable objects.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // the first one leaves what has finalizers, and the pools
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return now.HeapAlloc
}
