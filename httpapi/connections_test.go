package httpapi_test

import (
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/test/apitest"
)

// Clients who use up the connections lock no probe out, and get no more than there
// are.
func TestConnectionsAreBounded(t *testing.T) {
	const most, keptConnections = 5, 32
	a, _, address := apitest.Serve(t, func(cfg *apitest.Config) { cfg.HTTP.MaxConnections = most })
	var idle []net.Conn
	defer func() {
		for _, conn := range idle {
			conn.Close()
		}
	}()
	dialIdle := func() net.Conn {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, conn)
		return conn
	}
	open := func(n int) {
		t.Helper()
		for began := time.Now(); a.Gauge("signalbox_http_connections_open") != n; runtime.Gosched() {
			if time.Since(began) > 20*time.Second {
				t.Fatalf("%d connections are open, not %d", a.Gauge("signalbox_http_connections_open"), n)
			}
		}
	}
	for range most {
		dialIdle()
	}
	open(most)
	status, body, closed := apitest.Raw(t, address, "GET /v1/semaphores HTTP/1.1\r\nHost: n1\r\n\r\n")
	if status != 429 || !closed || !strings.Contains(body, `"rule":"connections"`) {
		t.Errorf("status %d, closed %v: %s", status, closed, body)
	}
	for _, path := range []string{"/livez", "/readyz", "/health", "/version", "/metrics"} {
		if status, body, closed := apitest.Raw(t, address, "GET "+path+" HTTP/1.1\r\nHost: n1\r\n\r\n"); status != 200 && path != "/health" || !closed {
			t.Errorf("%s: status %d, closed %v: %s", path, status, closed, body)
		}
	}
	began := time.Now()
	silent := dialIdle() // a probe's place, without a request
	if _, err := silent.Read(make([]byte, 1)); err == nil || time.Since(began) > 4*time.Second {
		t.Errorf("it was kept open for %v", time.Since(began))
	}
	open(most)
	for range 2 * keptConnections {
		dialIdle()
	}
	for began := time.Now(); a.Gauge("signalbox_http_connections_refused_total") < keptConnections; runtime.Gosched() {
		if time.Since(began) > 20*time.Second {
			t.Fatal("no connection beyond those kept was refused")
		}
	}
	if n := a.Gauge("signalbox_http_connections_open"); n > most+keptConnections {
		t.Errorf("%d connections are open", n)
	}
	for _, conn := range idle {
		conn.Close()
	}
	open(0)
	if status, _, closed := apitest.Raw(t, address, "GET /v1/semaphores HTTP/1.1\r\nHost: n1\r\n\r\n"); status != 200 || closed {
		t.Errorf("afterwards: status %d, closed %v", status, closed)
	}
}
