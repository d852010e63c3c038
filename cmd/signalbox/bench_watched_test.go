//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// watchersHere makes this program the watchers of BenchmarkWatched. Its value is "kind address". The watchers are a
// separate process, so that their garbage and goroutines don't count for the nodes.
const watchersHere = "SIGNALBOX_WATCHERS"

// watchedPaths are what a thousand clients watch: all events, a semaphore, an item, and a key of Consul's.
var watchedPaths = map[string]string{
	"streams": "/v1/events",
	"reads":   "/v1/semaphores/own-0?wait=50s&index=",
	"items":   "/v1/items/watched?wait=50s&index=",
	"consul":  "/v1/kv/watched?wait=50s&index=",
}

// BenchmarkWatched prints only the rows of watched.
func BenchmarkWatched(b *testing.B) {
	if kind, address, here := strings.Cut(os.Getenv(watchersHere), " "); here {
		watchAll(b, kind, address)
		return
	}
	for b.Loop() {
		for _, r := range watched(b) {
			fmt.Println(r)
		}
	}
}

// watched compares writes through a leader on 64 connections, alone and beside a thousand clients. The clients follow
// all events, or wait for a change of an item that changes all the time. It returns the ratio, and the p99 of another
// client's reads. It also logs elections, and the replies or events of the watchers per second.
func watched(b *testing.B) (rows []row) {
	nodes := startNodes(b, func(c *config) { c.dialects = []string{"consul"} })
	leader := nodes[0].address
	prepare(b, "http://"+leader, 64, &http.Client{})
	item := dialWire(b, leader)
	changes := 0
	put := func() {
		changes++
		if _, err := item.do(http.MethodPut, "/v1/items/watched", fmt.Sprintf(`{"value":"%d"}`, changes)); err != nil {
			b.Error(err)
		}
	}
	put()
	for _, kind := range []string{"streams", "reads", "items", "consul"} {
		var ratios, bares, p99s, got []float64
		before := nodes[0].cluster.Status().Term
		for range rounds() {
			bare, alone := watchedLoad(b, leader, put)
			stop := startWatchers(b, kind, leader)
			with, p99 := watchedLoad(b, leader, put)
			ratios, bares = append(ratios, with/bare), append(bares, 1e3*alone.Seconds())
			p99s, got = append(p99s, 1e3*p99.Seconds()), append(got, stop())
		}
		b.Logf("1,000 %s: ratios %.2f, p99 %.1f ms, without watchers %.1f ms, got %.0f a second, %d elections",
			kind, ratios, p99s, bares, got, nodes[0].cluster.Status().Term-before)
		rows = append(rows, row{fmt.Sprintf("64 connections beside 1,000 %s ÷ without", kind), middle(ratios), 0, 0, "≥ 0.5"},
			row{fmt.Sprintf("1,000 %s: p99 of another client's read, ms", kind), middle(p99s), 0, 0, "≤ 50"})
	}
	return rows
}

// watchedLoad returns the writes a second of 64 connections, and the p99 of another client's reads beside them.
func watchedLoad(b *testing.B, leader string, put func()) (rate float64, p99 time.Duration) {
	b.Helper()
	l := &loader{name: "writes", addresses: []string{leader}, operations: 1, request: up}
	var done atomic.Bool
	var beside sync.WaitGroup
	beside.Go(func() {
		for !done.Load() {
			put()
			<-time.After(5 * time.Millisecond)
		}
	})
	var reads []time.Duration
	other := dialWire(b, leader)
	defer other.conn.Close()
	beside.Go(func() {
		for !done.Load() {
			began := time.Now()
			if _, err := other.do(http.MethodGet, "/v1/semaphores/own-1", ""); err != nil {
				b.Error(err)
			}
			reads = append(reads, time.Since(began))
			<-time.After(5 * time.Millisecond)
		}
	})
	const phases = 4
	for range phases {
		rate += l.run(b, 64).wall / phases
	}
	done.Store(true)
	beside.Wait()
	slices.Sort(reads)
	return rate, reads[len(reads)*99/100]
}

// startWatchers starts the process of a thousand watchers, and returns when all of them watch. stop ends them, and
// returns how many replies or blocks of 64 KiB of events they got per second.
func startWatchers(b *testing.B, kind, address string) (stop func() float64) {
	b.Helper()
	command := exec.Command(os.Args[0], "-test.run=^$", "-test.bench=^BenchmarkWatched$", "-test.benchtime=1x")
	command.Env = append(os.Environ(), watchersHere+"="+kind+" "+address)
	in, err := command.StdinPipe()
	must(b, err)
	out, err := command.StdoutPipe()
	must(b, err)
	must(b, command.Start())
	lines := bufio.NewScanner(out)
	await := func(word string) (number float64) {
		for lines.Scan() {
			if _, rest, ok := strings.Cut(lines.Text(), word); ok {
				_, _ = fmt.Sscan(rest, &number)
				return number
			}
		}
		b.Fatalf("the watchers ended before %q", word)
		return 0
	}
	await("watching")
	return func() float64 {
		must(b, in.Close())
		got := await("watchers got ")
		must(b, command.Wait())
		return got
	}
}

// watchAll is a thousand watchers, until stdin ends.
func watchAll(b *testing.B, kind, address string) {
	const watchers = 1000
	var got atomic.Int64
	var opened sync.WaitGroup
	opened.Add(watchers)
	for range watchers {
		w := dialWire(b, address)
		go func() {
			if kind != "streams" {
				w.watch(watchedPaths[kind], &got, opened.Done)
				return
			}
			fmt.Fprintf(w.conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", watchedPaths[kind], address)
			data := make([]byte, 64<<10)
			n, _ := w.conn.Read(data)
			opened.Done()
			for err := error(nil); err == nil; n, err = w.conn.Read(data) {
				got.Add(int64(n))
			}
		}()
	}
	opened.Wait()
	fmt.Println("watching")
	began, before := time.Now(), got.Load()
	_, _ = io.Copy(io.Discard, os.Stdin)
	number := float64(got.Load() - before)
	if kind == "streams" {
		number /= 64 << 10
	}
	fmt.Printf("watchers got %.0f\n", number/time.Since(began).Seconds())
}

// indexInBody finds the index after which to wait, if no header has it.
var indexInBody = regexp.MustCompile(`"(?:modified_index|index)":(\d+)`)

// watch waits for a change again and again.
func (w *wire) watch(path string, got *atomic.Int64, opened func()) {
	index := "0"
	for first := true; ; first = false {
		if fmt.Fprintf(w.conn, "GET %s%s HTTP/1.1\r\nHost: %s\r\n\r\n", path, index, w.host); !first {
			got.Add(1)
		}
		reply, err := http.ReadResponse(w.in, nil)
		if err != nil {
			return
		}
		text, _ := io.ReadAll(reply.Body)
		if index = reply.Header.Get("X-Consul-Index"); index == "" {
			if found := indexInBody.FindSubmatch(text); found != nil {
				index = string(found[1])
			}
		}
		if first {
			opened()
		}
	}
}
