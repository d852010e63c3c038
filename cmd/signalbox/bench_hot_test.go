//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
)

// hot measures how fast one permit is passed on among 64 clients that wait for it. The figure is hand-overs a second ×
// (p50 of a commit + p50 of one HTTP round trip). It would be 1 if each hand-over, from the sending of a release to the
// reply to the next grant, took exactly one commit and one round trip.
func hot(b *testing.B, nodes []benchNode, sessions []string) (rows []row) {
	spread := []string{nodes[0].address, nodes[1].address, nodes[2].address}
	var floors []time.Duration
	kinds := []struct {
		name, limit string
		addresses   []string
		shares      []float64
		gaps        []time.Duration
		entries     []float64
	}{{name: "spread over the nodes", limit: "≥ 0.7", addresses: spread}, {name: "on the leader", limit: "≥ 0.8", addresses: spread[:1]}}
	for range rounds() {
		floor := commitP50(b, nodes[0].cluster) + roundTripP50(b, nodes[0].address)
		floors = append(floors, floor)
		for i := range kinds {
			before := nodes[0].cluster.Status().AppliedIndex
			h := runHot(b, kinds[i].addresses, sessions)
			kinds[i].entries = append(kinds[i].entries, float64(nodes[0].cluster.Status().AppliedIndex-before)/(h.rate*phase.Seconds()))
			kinds[i].shares = append(kinds[i].shares, h.rate*floor.Seconds())
			kinds[i].gaps = append(kinds[i].gaps, h.gap)
		}
	}
	for _, k := range kinds {
		b.Logf("one permit, clients %s: from the release sent to the next grant p50 %v; commit + round trip %v", k.name, middle(k.gaps), middle(floors))
		rows = append(rows, row{fmt.Sprintf("one permit, %d clients %s: hand-overs/s × (commit + round trip)", hotClients, k.name), middle(k.shares), 0, 0, k.limit},
			row{"the same: (commit + round trip) ÷ p50 from the release sent to the next grant", float64(middle(floors)) / float64(middle(k.gaps)), 0, 0, "–"},
			row{"the same: entries of the log for one hand-over", middle(k.entries), 0, 0, "–"})
	}
	return rows
}

// BenchmarkHot runs only hot, for a profile.
func BenchmarkHot(b *testing.B) {
	nodes := startNodes(b)
	sessions := prepareHot(b, nodes[0].address)
	for b.Loop() {
		for _, r := range hot(b, nodes, sessions) {
			b.ReportMetric(r.bare, strings.ReplaceAll(r.figure, " ", "-"))
		}
	}
}

// middle returns the median, and 0 if all is empty.
func middle[T interface{ ~int64 | ~float64 }](all []T) T {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// commitP50 is how long an up takes within the leader's process.
func commitP50(b *testing.B, n *cluster.Node) time.Duration {
	b.Helper()
	return p50(b, phase/4, func() error {
		reply, err := n.Do(b.Context(), calls.Call{Command: fsm.Up{Name: "other", Count: 1}})
		if err == nil && reply.Code != fsm.OK {
			err = fmt.Errorf("code %v", reply.Code)
		}
		return err
	})
}

// roundTripP50 is how long a GET takes that reads no state.
func roundTripP50(b *testing.B, address string) time.Duration {
	b.Helper()
	w := dialWire(b, address)
	defer w.conn.Close()
	return p50(b, phase/4, func() error {
		_, err := w.do(http.MethodGet, "/livez", "")
		return err
	})
}

const hotClients = 64

// prepareHot makes the semaphore and a session for each client.
func prepareHot(b *testing.B, address string) (sessions []string) {
	b.Helper()
	w := dialWire(b, address)
	defer w.conn.Close()
	for name, permits := range map[string]int{"hot": 1, "other": 0} {
		if _, err := w.do("PUT", "/v1/semaphores/"+name, fmt.Sprintf(`{"permits":%d}`, permits)); err != nil {
			b.Fatal(err)
		}
	}
	sessions = make([]string, hotClients)
	for c := range sessions {
		text, err := w.do("POST", "/v1/sessions", `{"ttl":"1h"}`)
		must(b, err)
		var opened struct{ Session string }
		must(b, json.Unmarshal([]byte(text), &opened))
		sessions[c] = opened.Session
	}
	return sessions
}

type hotRun struct {
	rate float64       // hand-overs a second
	gap  time.Duration // p50, from the release sent to the next grant's reply
}

// runHot has clients wait for the permit and release it, for one phase.
func runHot(b *testing.B, addresses, sessions []string) hotRun {
	b.Helper()
	var released, grants atomic.Int64
	var lock sync.Mutex
	var gaps []time.Duration
	var group sync.WaitGroup
	start := time.Now()
	end := start.Add(phase)
	for c := range sessions {
		w := dialWire(b, addresses[c%len(addresses)])
		lease := "/v1/sessions/" + sessions[c] + "/leases/hot"
		group.Go(func() {
			defer w.conn.Close()
			for time.Now().Before(end) {
				if _, err := w.do("PUT", lease+"?wait=60s", ""); err != nil {
					b.Error(err)
					return
				}
				now := time.Since(start)
				if sent := released.Load(); sent > 0 && time.Now().Before(end) {
					grants.Add(1)
					lock.Lock()
					gaps = append(gaps, now-time.Duration(sent))
					lock.Unlock()
				}
				released.Store(int64(time.Since(start)))
				if _, err := w.do("DELETE", lease, ""); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	return hotRun{float64(grants.Load()) / phase.Seconds(), middle(gaps)}
}

// wire is one keep-alive connection.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	host string
}

func dialWire(b *testing.B, address string) *wire {
	b.Helper()
	conn, err := net.Dial("tcp", address)
	must(b, err)
	return &wire{conn: conn, in: bufio.NewReader(conn), host: address}
}

// do sends a request and returns the body of its reply.
func (w *wire) do(method, path, body string) (string, error) {
	if _, err := fmt.Fprintf(w.conn, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", method, path, w.host, len(body), body); err != nil {
		return "", err
	}
	reply, err := http.ReadResponse(w.in, nil)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(reply.Body)
	if err == nil && reply.StatusCode != 200 && reply.StatusCode != 201 && reply.StatusCode != 204 {
		err = fmt.Errorf("%s %s: %s %s", method, path, reply.Status, strings.TrimSpace(string(text)))
	}
	return string(text), err
}
