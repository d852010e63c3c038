package main

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

// BenchmarkRenewals keeps 40,000 sessions alive in several ways, alone and beside batches of other
// commands that fill their part of the queue. It reports how many sessions with a ttl of 30 s, renewed
// every 10 s, each way carries, by the clock and for one core; and how many renewals are refused (0).
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
			_, err := nodes[0].cluster.Do(b.Context(), cluster.Call{Command: fsm.OpenSession{Session: uint64(i) + 1, TTLMS: 3_600_000}})
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

// renew renews sessions for a phase, so many in one request, on connections to all nodes.
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
