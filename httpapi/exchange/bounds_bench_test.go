package exchange_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	gauges "runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/apitest"
)

// heapPeak samples the bytes of live and dead objects until stop is called, which
// returns the most.
func heapPeak() (stop func() uint64) {
	end, peak := make(chan struct{}), make(chan uint64)
	go func() {
		sample := []gauges.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		highest := uint64(0)
		again := time.NewTicker(time.Millisecond)
		defer again.Stop()
		for {
			gauges.Read(sample)
			highest = max(highest, sample[0].Value.Uint64())
			select {
			case <-end:
				peak <- highest
				return
			case <-again.C:
			}
		}
	}()
	return func() uint64 {
		close(end)
		return <-peak
	}
}

// BenchmarkMemoryUnderAttack reports how far the heap of a node, its attackers
// included, grows within default limits: under 400 bodies of a batch that stall before
// their last byte, and then under 40 clients who ask for 1,000 waiters, each of which
// waits in 64 lines with the longest names, and take nothing of the reply.
func BenchmarkMemoryUnderAttack(b *testing.B) {
	t := &testing.T{}
	a := apitest.New(t)
	server := httpapi.NewServer(a.Handler)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	a.Crowd(1000)
	attack := func(name string, clients int, send func(conn net.Conn)) {
		runtime.GC()
		var before runtime.MemStats
		runtime.ReadMemStats(&before)
		peak := heapPeak()
		var conns []net.Conn
		var sent sync.WaitGroup
		for range clients {
			conn, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			conns = append(conns, conn)
			sent.Go(func() { send(conn) })
		}
		sent.Wait()
		b.ReportMetric(float64(peak()-before.HeapAlloc)/(1<<20), name+"-MiB")
		for _, conn := range conns {
			conn.Close()
		}
	}
	part := strings.Repeat(" ", 1<<20-1)
	for b.Loop() {
		attack("bodies", 400, func(conn net.Conn) {
			fmt.Fprintf(conn, "POST /v1/batch HTTP/1.1\r\nHost: n1\r\nContent-Length: %d\r\n\r\n", 1<<20)
			_, _ = io.WriteString(conn, part)
		})
		attack("replies", 40, func(conn net.Conn) {
			fmt.Fprintf(conn, "GET %s?waiters=1000 HTTP/1.1\r\nHost: n1\r\n\r\n", exchange.SemaphorePath(apitest.LongName(0)))
			_, _ = conn.Read(make([]byte, 100))
		})
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_ = server.Shutdown(gone)
}
