//go:build linux

package main

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
)

// BenchmarkRenewals keeps 40,000 sessions alive in several ways, alone and beside batches of other commands that fill
// their part of the queue. For each way it reports how many sessions can be kept alive with a ttl of 30 s and a renewal
// every 10 s, in real time and for one core. It also reports how many renewals are refused (0).
func BenchmarkRenewals(b *testing.B) {
	const ttl = 30
	sessions := 40_000
	if testing.Short() {
		sessions /= 10
	}
	nodes := startNodes(b)
	prepare(b, "http://"+nodes[0].address, 64, &http.Client{})
	var group errgroup.Group
	group.SetLimit(256)
	for i := range sessions {
		group.Go(func() error {
			_, err := nodes[0].cluster.Do(b.Context(), calls.Call{Command: fsm.OpenSession{Session: uint64(i) + 1, TTLMS: 3_600_000}})
			return err
		})
	}
	must(b, group.Wait())
	var refused atomic.Int64
	var turns []turn
	for _, way := range []struct {
		connections, together int
		beside                int // connections with batches of other commands
	}{{256, 1, 0}, {256, 100, 0}, {16, 1000, 0}, {256, 1, 64}, {256, 100, 64}} {
		turns = append(turns, turn{fmt.Sprintf("%d-at-a-time-%d-beside", way.together, way.beside), func(b *testing.B) rate {
			return renew(b, nodes, way.connections, way.together, sessions, way.beside, &refused)
		}})
	}
	for b.Loop() {
		for i, r := range inTurns(b, turns) {
			b.ReportMetric(r.wall*ttl/3, "sessions-"+turns[i].name)
			b.ReportMetric(r.processor*ttl/3, "sessions/core-"+turns[i].name)
		}
		b.ReportMetric(float64(refused.Load()), "refused")
	}
}

// BenchmarkLiveLeases keeps 200,000 leases alive. From the first renewal on their sessions have a ttl of 10 s, and are
// renewed every third of it, in batches of 100. It reports the time from when a renewal was due to its reply, and how
// many renewals were refused.
func BenchmarkLiveLeases(b *testing.B) {
	const together, connections, every = 100, 64, 10 * time.Second / 3
	leases := 200_000
	if testing.Short() {
		leases /= 10
	}
	nodes := startNodes(b)
	put := fsm.CreateSemaphore{Name: "live", Permits: int64(leases)}
	_, err := nodes[0].cluster.Do(b.Context(), calls.Call{Command: put})
	must(b, err)
	var group errgroup.Group
	group.SetLimit(256)
	for i := range leases {
		group.Go(func() error {
			_, err := nodes[0].cluster.Do(b.Context(), calls.Call{Command: fsm.AcquireOnce{Session: uint64(i) + 1, Name: put.Name, Count: 1, TTLMS: 3_600_000}})
			return err
		})
	}
	must(b, group.Wait())
	var mu sync.Mutex
	var took []time.Duration
	refused := 0
	batches := leases / together
	for b.Loop() {
		took, refused = nil, 0
		start := time.Now()
		for c := range connections {
			group.Go(func() error {
				w := dialWire(b, nodes[c%len(nodes)].address)
				defer w.conn.Close()
				for at := c; at < rounds()*batches; at += connections { // the batches in turn, evenly spread over the time
					due := start.Add(every * time.Duration(at) / time.Duration(batches))
					<-time.After(time.Until(due))
					var list strings.Builder
					for i := range together {
						fmt.Fprintf(&list, `,{"op":"renew","session":"%d","ttl":"10s"}`, at%batches*together+i+1)
					}
					reply, err := w.do(http.MethodPost, "/v1/batch", `{"operations":[`+list.String()[1:]+`]}`)
					if err != nil {
						return err
					}
					mu.Lock()
					took, refused = append(took, time.Since(due)), refused+together-strings.Count(reply, `"status":200`)
					mu.Unlock()
				}
				return nil
			})
		}
		must(b, group.Wait())
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1e3, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1e3, "p99-ms")
	b.ReportMetric(float64(refused), "refused")
}

// renew renews sessions for a phase, a number of them in each request, on connections to all nodes.
func renew(b *testing.B, nodes []benchNode, connections, together, sessions, beside int, refused *atomic.Int64) rate {
	b.Helper()
	wires, conns := make([]*wire, connections), make([]net.Conn, beside)
	for c := range wires {
		wires[c] = dialWire(b, nodes[c%len(nodes)].address)
		defer wires[c].conn.Close()
	}
	others := &loader{addresses: []string{nodes[0].address}, request: batch}
	for c := range conns {
		conns[c] = others.dial(b, c)
		defer conns[c].Close()
	}
	var ignored atomic.Int64
	var group sync.WaitGroup
	end := time.Now().Add(phase)
	for c, conn := range conns {
		group.Go(func() { _ = others.connection(c, conn, end, &ignored) })
	}
	defer group.Wait()
	rounds := make([]int, connections)
	return drive(b, connections, func(c int) (int, error) {
		next := c + rounds[c]*connections
		rounds[c]++
		if together == 1 {
			_, err := wires[c].do(http.MethodPut, fmt.Sprint("/v1/sessions/", next%sessions+1), "")
			return 1, err
		}
		var list strings.Builder
		for i := range together {
			fmt.Fprintf(&list, `,{"op":"renew","session":"%d"}`, (next*together+i)%sessions+1)
		}
		reply, err := wires[c].do(http.MethodPost, "/v1/batch", `{"operations":[`+list.String()[1:]+`]}`)
		done := strings.Count(reply, `"status":200`)
		if err == nil {
			refused.Add(int64(together - done))
		}
		return done, err
	})
}
