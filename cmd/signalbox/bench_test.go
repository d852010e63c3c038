package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// batchSize is how many operations one request of /v1/batch carries.
const batchSize = 100

// BenchmarkWrites compares single writes on the leader with the bare loop,
// writes through a follower with those on the leader, and operations in
// batches with single requests. Each is a ratio within one run.
func BenchmarkWrites(b *testing.B) {
	bare := startBare(b)
	leader, follower := startTrio(b)
	for _, connections := range []int{64, 256} {
		b.Run(fmt.Sprintf("connections=%d", connections), func(b *testing.B) {
			prepare(b, leader, connections)
			for b.Loop() {
				rates := compare(b, connections,
					&loader{name: "bare loop, leader", addresses: []string{bare}, operations: 1, request: count},
					&loader{name: "signalbox, leader", addresses: []string{leader}, operations: 1, request: up},
					&loader{name: "signalbox, follower", addresses: []string{follower}, operations: 1, request: up},
					&loader{name: "signalbox, batches of 100", addresses: []string{leader}, operations: batchSize, request: batch},
				)
				b.ReportMetric(rates[1].wall/rates[0].wall, "leader/bare")
				b.ReportMetric(rates[2].wall/rates[1].wall, "follower/leader")
				b.ReportMetric(rates[3].wall/rates[1].wall, "batch/single")
				b.ReportMetric(rates[3].processor/rates[1].processor, "batch/single-cpu")
			}
		})
	}
}

// count is the bare loop's write: a command of about the size of an up.
func count(c, _ int) (method, path, body string) {
	return http.MethodPost, "/count", fmt.Sprintf("%040d", c)
}

func up(c, _ int) (method, path, body string) {
	return http.MethodPost, fmt.Sprintf("/v1/semaphores/own-%d/up", c), ""
}

func batch(c, _ int) (method, path, body string) {
	operation := fmt.Sprintf(`{"op":"up","semaphore":"own-%d"}`, c)
	return http.MethodPost, "/v1/batch", `{"operations":[` + strings.Repeat(operation+",", batchSize-1) + operation + `]}`
}

// prepare makes each connection's own semaphore.
func prepare(b *testing.B, address string, connections int) {
	b.Helper()
	for c := range connections {
		request, err := http.NewRequest(http.MethodPut, fmt.Sprintf("http://%s/v1/semaphores/own-%d", address, c), strings.NewReader(`{"permits":0}`))
		if err != nil {
			b.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			b.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode >= 300 {
			b.Fatalf("semaphore %d: %s", c, answer.Status)
		}
	}
}

// startTrio starts three nodes as dev does, and returns the HTTP addresses of
// the leader and of a follower.
func startTrio(b *testing.B) (leader, follower string) {
	b.Helper()
	ctx := context.Background()
	d := devFlags{nodes: 3, port: freePorts(b, 0, 1, 2, peerOffset, peerOffset+1, peerOffset+2), config: defaultConfig()}
	fatal := make(chan error, 1)
	nodes, err := d.start(ctx, b.TempDir(), hclog.NewNullLogger(), firstTo(fatal))
	b.Cleanup(func() { stopAll(nodes) })
	if err == nil {
		err = d.ready(ctx, nodes, fatal)
	}
	if err != nil {
		b.Fatal(err)
	}
	var led bytes.Buffer
	for i, n := range nodes {
		address := fmt.Sprintf("127.0.0.1:%d", d.port+i)
		if status := n.cluster.Status(); status.Leader == status.Node {
			leader = address
		} else {
			follower = address
		}
		fmt.Fprintf(&led, "%s ", address)
	}
	if leader == "" {
		b.Fatalf("no leader among %s", led.String())
	}
	return leader, follower
}
