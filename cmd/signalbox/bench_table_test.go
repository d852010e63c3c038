//go:build linux

package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
)

// row is one figure of the table. It is a ratio within the run, for each driver, with the limit that it must keep.
// processor is the ratio by processor time with the bare driver, which other programs on the machine change less. 0
// stands for a missing figure.
type row struct {
	figure                   string
	bare, library, processor float64
	limit                    string
}

func (r row) String() string {
	cell := func(figure float64) string {
		if figure == 0 {
			return "–"
		}
		return fmt.Sprintf("%.2f", figure)
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s |", r.figure, cell(r.bare), cell(r.library), cell(r.processor), r.limit)
}

// BenchmarkTable prints the figures of docs/performance.md as one table.
func BenchmarkTable(b *testing.B) {
	nodes := startNodes(b)
	quiet := row{"idle: processor time of the three nodes, % of one core", idle(b), 0, 0, "≤ 2"}
	bare := startBare(b)
	prepare(b, "http://"+nodes[0].address, 256, &http.Client{})
	sessions := prepareHot(b, nodes[0].address)
	for b.Loop() {
		rows := append([]row{quiet}, lonely(b, nodes)...)
		rows = append(rows, hot(b, nodes, sessions)...)
		rows = append(rows, writes(b, bare, nodes)...)
		rows = append(rows, journal(b, nodes)...)
		rows = append(rows, watched(b)...)
		fmt.Printf("\n| figure | bare driver | net/http's client | bare driver, by processor time | limit |\n| --- | --- | --- | --- | --- |\n")
		for _, r := range rows {
			fmt.Println(r)
		}
		fmt.Println()
	}
}

// idle returns the processor time of this process without a client, in % of one core.
func idle(b *testing.B) float64 {
	<-time.After(4 * phase) // the last commands are in raft.db
	before, start := processor(b), time.Now()
	<-time.After(20 * phase)
	return 100 * (processor(b) - before).Seconds() / time.Since(start).Seconds()
}

// BenchmarkIdle reports how much processor time three nodes need without a client, and with many sessions.
func BenchmarkIdle(b *testing.B) {
	sessions := 300_000
	if testing.Short() {
		sessions /= 10
	}
	nodes := startNodes(b)
	empty := idle(b)
	var group errgroup.Group
	group.SetLimit(256)
	for i := range sessions {
		group.Go(func() error {
			reply, err := nodes[0].cluster.Do(b.Context(), calls.Call{Command: fsm.OpenSession{Session: uint64(i) + 1, TTLMS: fsm.MaxTTLMS}})
			if err == nil && reply.Code != fsm.OK {
				err = fmt.Errorf("code %v", reply.Code)
			}
			return err
		})
	}
	must(b, group.Wait())
	for b.Loop() {
		b.ReportMetric(empty, "%-of-a-core")
		b.ReportMetric(idle(b), fmt.Sprintf("%%-with-%d-sessions", sessions))
	}
}

// lonely compares one client's writes with the parts of which a write consists. The four loads take turns.
func lonely(b *testing.B, nodes []benchNode) []row {
	var raw, trip, commit, through []time.Duration
	for range rounds() {
		raw = append(raw, syncP50(b))
		trip = append(trip, roundTripP50(b, nodes[1].address))
		commit = append(commit, commitP50(b, nodes[0].cluster))
		w := dialWire(b, nodes[1].address)
		through = append(through, p50(b, phase/2, func() error {
			_, err := w.do(http.MethodPost, "/v1/semaphores/other/up", "")
			return err
		}))
		must(b, w.conn.Close())
	}
	disk, trips := middle(raw), middle(trip)
	b.Logf("p50: fdatasync of 4 KiB %v, GET /livez %v, commit on the leader %v, write through a follower %v", disk, trips, middle(commit), middle(through))
	return []row{
		{"1 client through a follower: p50 of a write ÷ raw fdatasync", float64(middle(through)) / float64(disk), 0, 0, "≤ 6"},
		{"1 client on the leader: p50 of a commit ÷ raw fdatasync", float64(middle(commit)) / float64(disk), 0, 0, "–"},
	}
}

// journal compares nodes with a journal and nodes without one.
func journal(b *testing.B, with []benchNode) (rows []row) {
	without := startNodes(b, func(c *config) { c.journal = false })
	prepare(b, "http://"+without[0].address, 256, &http.Client{})
	for _, load := range []struct {
		connections int
		name, limit string
	}{{1, "1 connection", "≥ 1.8"}, {64, "64 connections", "–"}, {256, "256 connections", "–"}} {
		var rates [2][]rate
		for i, library := range []bool{false, true} {
			rates[i] = compare(b, load.connections,
				&loader{name: "with the journal", addresses: []string{with[0].address}, operations: 1, request: up, library: library},
				&loader{name: "without it", addresses: []string{without[0].address}, operations: 1, request: up, library: library})
		}
		prepared, through := rates[0], rates[1]
		rows = append(rows, row{load.name + ": with the journal ÷ without",
			prepared[0].wall / prepared[1].wall, through[0].wall / through[1].wall, prepared[0].processor / prepared[1].processor, load.limit})
	}
	return rows
}

// p50 repeats work for some time, and returns the median time of one repetition.
func p50(b *testing.B, during time.Duration, do func() error) time.Duration {
	b.Helper()
	var took []time.Duration
	for start := time.Now(); time.Since(start) < during; {
		began := time.Now()
		must(b, do())
		took = append(took, time.Since(began))
	}
	return middle(took)
}

// syncP50 is the least time that the storage needs: one overwritten block of 4 KiB and its fdatasync.
func syncP50(b *testing.B) time.Duration {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
	must(b, err)
	defer f.Close()
	block := make([]byte, 4096)
	for range 256 {
		_, err := f.Write(block)
		must(b, err)
	}
	must(b, f.Sync())
	at := int64(0)
	return p50(b, phase/4, func() error {
		at = (at + 1) % 256
		if _, err := f.WriteAt(block, at*4096); err != nil {
			return err
		}
		return syscall.Fdatasync(int(f.Fd()))
	})
}

// batchSize is how many operations one request of /v1/batch carries.
const batchSize = 1000

// writes compares writes of many connections with two figures: the bare loop, and L, the rate that HTTP alone and
// replication alone allow together.
func writes(b *testing.B, bare string, nodes []benchNode) (rows []row) {
	leader, follower := []string{nodes[0].address}, []string{nodes[1].address}
	for _, connections := range []int{64, 256} {
		var turns []turn
		for _, library := range []bool{false, true} {
			for _, l := range []loader{
				{name: "bare loop", addresses: []string{bare}, operations: 1, request: count},
				{name: "leader", addresses: leader, operations: 1, request: up},
				{name: "follower", addresses: follower, operations: 1, request: up},
				{name: "GET", addresses: leader, operations: 1, request: alive},
				{name: "batches", addresses: leader, operations: batchSize, request: batch},
			} {
				l.library = library
				turns = append(turns, turn{fmt.Sprintf("%d connections, %s, library %t", connections, l.name, library), func(b *testing.B) rate { return l.run(b, connections) }})
			}
		}
		turns = append(turns, turn{"replication in the process", func(b *testing.B) rate { return inProcess(b, nodes[0].cluster, connections) }})
		r := inTurns(b, turns)
		prepared, through := r[:5], r[5:10]
		wall, used := func(r rate) float64 { return r.wall }, func(r rate) float64 { return r.processor }
		both := func(what string, figure func(r []rate, by func(rate) float64) float64, limit string) {
			rows = append(rows, row{fmt.Sprintf("%d connections: %s", connections, what), figure(prepared, wall), figure(through, wall), figure(prepared, used), limit})
		}
		ratio := func(over, under int) func([]rate, func(rate) float64) float64 {
			return func(r []rate, by func(rate) float64) float64 { return by(r[over]) / by(r[under]) }
		}
		both("leader ÷ bare loop", ratio(1, 0), "≥ 1.2")
		both("follower ÷ leader", ratio(2, 1), "≥ 0.9")
		both("leader ÷ L", func(drive []rate, by func(rate) float64) float64 {
			return by(drive[1]) * (1/by(drive[3]) + 1/by(r[10]))
		}, "≥ 0.8")
		both(fmt.Sprintf("batch of %d, operations ÷ single", batchSize), ratio(4, 1), "≥ 15")
	}
	return rows
}

// inProcess makes writes on a node without HTTP.
func inProcess(b *testing.B, n *cluster.Node, callers int) rate {
	b.Helper()
	return drive(b, callers, func(c int) (int, error) {
		reply, err := n.Do(b.Context(), calls.Call{Command: fsm.Up{Name: fmt.Sprint("own-", c), Count: 1}})
		if err == nil && reply.Code != fsm.OK {
			err = fmt.Errorf("code %v", reply.Code)
		}
		return 1, err
	})
}

// count is the bare loop's write: a command of about the size of an up.
func count(c int) (method, path, body string) {
	return http.MethodPost, "/count", fmt.Sprintf("%040d", c)
}

func up(c int) (method, path, body string) {
	return http.MethodPost, fmt.Sprintf("/v1/semaphores/own-%d/up", c), ""
}

// alive is the request that costs a node least.
func alive(int) (method, path, body string) { return http.MethodGet, "/livez", "" }

func batch(c int) (method, path, body string) {
	operation := fmt.Sprintf(`{"op":"up","semaphore":"own-%d"}`, c)
	return http.MethodPost, "/v1/batch", `{"operations":[` + strings.Repeat(operation+",", batchSize-1) + operation + `]}`
}
