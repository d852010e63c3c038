//go:build linux

package main

import (
	"fmt"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkOverload finds how many connections get the most writes through a leader, and then makes 2 and 8 times as
// many. It reports the throughput in relation to the best (≥ 0.9); the p99 of concurrent renewals (≤ 1 s); the writes of
// the slowest connection in relation to the mean (no connection is starved); and the live memory of the process for each
// connection.
func BenchmarkOverload(b *testing.B) {
	nodes := startNodes(b)
	leader := nodes[0].address
	const most = 2048
	prepare(b, "http://"+leader, most, &http.Client{})
	sessions := prepareHot(b, leader)
	for b.Loop() {
		var best float64
		at := 0
		for _, connections := range []int{64, 128, 256, 512} {
			l := &loader{name: "best", addresses: []string{leader}, operations: 1, request: up}
			var all []float64
			for range rounds() {
				all = append(all, l.run(b, connections).wall)
			}
			if median := middle(all); median > best {
				best, at = median, connections
			}
		}
		for _, times := range []int{2, 8} {
			connections := min(times*at, most)
			var shares, slowest, p99, memory []float64
			for range rounds() {
				o := overload(b, leader, connections, sessions)
				shares, slowest = append(shares, o.rate/best), append(slowest, o.slowest)
				p99, memory = append(p99, o.renewals.Seconds()), append(memory, o.memory/float64(connections))
			}
			name := fmt.Sprintf("-at-%dx", times)
			b.ReportMetric(middle(shares), "throughput/best"+name)
			b.ReportMetric(middle(slowest), "slowest/mean"+name)
			b.ReportMetric(middle(p99), "renewal-p99-s"+name)
			b.ReportMetric(middle(memory)/1024, "KiB/connection"+name)
		}
		b.Logf("best: %.0f writes/s with %d connections", best, at)
	}
}

type overloaded struct {
	rate     float64       // writes a second
	slowest  float64       // connection's writes, in relation to the mean
	renewals time.Duration // p99
	memory   float64       // live bytes more than before
}

// overload writes on many connections for one phase, and renews sessions at the same time.
func overload(b *testing.B, leader string, connections int, sessions []string) overloaded {
	b.Helper()
	l := &loader{name: "overload", addresses: []string{leader}, operations: 1, request: up}
	counts := make([]atomic.Int64, connections)
	var group sync.WaitGroup
	var lock sync.Mutex
	var renewals []time.Duration
	conns := make([]net.Conn, connections)
	for c := range conns {
		conns[c] = l.dial(b, c)
		defer conns[c].Close()
	}
	before, end := live(), time.Now().Add(2*phase)
	for c, conn := range conns {
		group.Go(func() {
			if err := l.connection(c, conn, end, &counts[c]); err != nil {
				b.Error(err)
			}
		})
	}
	for _, session := range sessions[:8] {
		w := dialWire(b, leader)
		defer w.conn.Close()
		group.Go(func() {
			for ok := true; ok; ok = time.Now().Before(end) { // at least one
				began := time.Now()
				if _, err := w.do(http.MethodPut, "/v1/sessions/"+session, ""); err != nil {
					b.Error(err)
				}
				lock.Lock()
				renewals = append(renewals, time.Since(began))
				lock.Unlock()
				<-time.After(10 * time.Millisecond)
			}
		})
	}
	<-time.After(phase)
	during := live()
	group.Wait()
	sum, least := int64(0), counts[0].Load()
	for i := range counts {
		n := counts[i].Load()
		sum, least = sum+n, min(least, n)
	}
	slices.Sort(renewals)
	return overloaded{
		rate:     float64(sum) / (2 * phase).Seconds(),
		slowest:  float64(least) * float64(connections) / float64(sum),
		renewals: renewals[len(renewals)*99/100],
		memory:   max(0, during-before),
	}
}

// live returns the bytes of the heap that are in use, after a collection.
func live() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}
