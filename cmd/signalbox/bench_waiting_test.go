//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

// BenchmarkWaiting reports the live memory of each of many waiting requests on a single node, less what a handler of
// net/http holds after it has read the body of a request.
func BenchmarkWaiting(b *testing.B) {
	const requests = 4000
	c := defaultConfig()
	port := freePorts(b, 0, peerOffset)
	c.ephemeral, c.httpAddress, c.peerAddress = true, fmt.Sprintf("127.0.0.1:%d", port), fmt.Sprintf("127.0.0.1:%d", port+peerOffset)
	fatal := make(chan error, 1)
	n, err := startNode(b.Context(), c, hclog.NewNullLogger(), firstTo(fatal))
	must(b, err)
	b.Cleanup(n.stop)
	must(b, (&devFlags{nodes: 1, port: port}).ready(b.Context(), []*node{n}, fatal))
	w := dialWire(b, c.httpAddress)
	for _, r := range [][3]string{{"PUT", "/v1/semaphores/busy", `{"permits":1}`}, {"POST", "/v1/semaphores/busy/leases", `{"ttl":"1h"}`}} {
		if _, err := w.do(r[0], r[1], r[2]); err != nil {
			b.Fatal(err)
		}
	}
	must(b, w.conn.Close())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	arrived, free := make(chan struct{}, requests), make(chan struct{})
	bare := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		<-free
	})}
	go bare.Serve(listener)
	b.Cleanup(func() { close(free); bare.Close() })

	for b.Loop() {
		floor := memoryOf(b, listener.Addr().String(), requests, func() {
			for range requests {
				<-arrived
			}
		})
		held := memoryOf(b, c.httpAddress, requests, func() { waiting(b, n.cluster, requests) })
		b.ReportMetric(floor/requests/1024, "KiB-net/http")
		b.ReportMetric((held-floor)/requests/1024, "KiB-beyond")
	}
}

// waiting blocks until that many requests wait in the state.
func waiting(b *testing.B, n *cluster.Node, requests int) {
	b.Helper()
	for start := time.Now(); ; <-time.After(10 * time.Millisecond) {
		found := 0
		n.View(func(m *fsm.Machine) { _, _, _, found = m.Counts() })
		if found >= requests {
			return
		}
		if time.Since(start) > time.Minute {
			b.Fatalf("%d of %d requests wait", found, requests)
		}
	}
}

// memoryOf returns the live memory that requests take once they wait.
func memoryOf(b *testing.B, address string, requests int, wait func()) float64 {
	b.Helper()
	body := `{"ttl":"1h","wait":"10m"}`
	request := fmt.Appendf(nil, "POST /v1/semaphores/busy/leases HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", address, len(body), body)
	before := live()
	for range requests {
		conn, err := net.Dial("tcp", address)
		must(b, err)
		b.Cleanup(func() { conn.Close() })
		_, err = conn.Write(request)
		must(b, err)
	}
	wait()
	return live() - before
}
