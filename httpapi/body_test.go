package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// unsent is a head that announces a body, which never comes.
func unsent(line string) string {
	return line + " HTTP/1.1\r\nHost: n1\r\nContent-Length: 5\r\n\r\n"
}

// dial opens a connection that fails the test rather than hang.
func dial(t *testing.T, address, request string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

// A request whose answer needs no body gets it though the body never comes, and
// the connection ends: what may come later is no request.
func TestUnsentBodyHoldsNoReplyUp(t *testing.T) {
	a, _, address := serve(t, func(cfg *Config) { cfg.NodeRED = &NodeRED{}; cfg.Throttle = &Throttle{} })
	a.must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	for line, status := range map[string]int{
		"GET /v1/cluster": 200, "GET /v1/semaphores/db": 200, "GET /livez": 200, "GET /readyz": 200, "GET /metrics": 200, "HEAD /v1/sessions": 200,
		"POST /nope": 404, "POST /livez": 405, "OPTIONS /v1/batch": 204, "OPTIONS *": 404, "PUT /v1/semaphores/%00": 400,
		"POST /v1/semaphores/db/up?x=1": 400, "GET /remainder": 400, "GET /semaphore/value/db": 200,
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel() // each waits for its connection's end
			began := time.Now()
			_, reader := dial(t, address, unsent(line))
			response, err := http.ReadResponse(reader, &http.Request{Method: strings.Fields(line)[0]})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != status || !response.Close {
				t.Errorf("status %d, want %d; closed %v (%v)", response.StatusCode, status, response.Close, err)
			}
			if took := time.Since(began); took > 500*time.Millisecond {
				t.Errorf("it took %v", took)
			}
			if _, err := reader.ReadByte(); err != io.EOF {
				t.Errorf("the connection lives on: %v", err)
			}
		})
	}
}

// A body too large, too, is not waited for.
func TestUnsentLargeBody(t *testing.T) {
	_, _, address := serve(t)
	for _, size := range []int{64<<10 + 1, 200 << 10, 300 << 10} {
		began := time.Now()
		status, _, closed := raw(t, address, fmt.Sprintf("POST /v1/semaphores HTTP/1.1\r\nHost: n1\r\nContent-Length: %d\r\n\r\n{", size))
		if took := time.Since(began); status != 413 || !closed || took > 500*time.Millisecond {
			t.Errorf("%d bytes: status %d, closed %v after %v", size, status, closed, took)
		}
	}
}

// Who sends a body that nobody wants, and only then reads, gets the reply.
func TestUnwantedBodyIsTaken(t *testing.T) {
	_, _, address := serve(t)
	request := "POST /nope HTTP/1.1\r\nHost: n1\r\nContent-Length: 200000\r\n\r\n" + strings.Repeat("x", 200_000)
	for range 20 {
		if status, _, closed := raw(t, address, request); status != 404 || !closed {
			t.Fatalf("status %d, closed %v", status, closed)
		}
	}
}

// Bodies that hang hold nobody up who wants the server to stop.
func TestShutdownWaitsForNoBody(t *testing.T) {
	a := newTestAPI(t)
	server := NewServer(a.handler)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	_, unwanted := dial(t, listener.Addr().String(), unsent("GET /v1/cluster"))
	if response, err := http.ReadResponse(unwanted, nil); err != nil || response.StatusCode != 200 {
		t.Fatalf("%v %v", response, err)
	}
	_, wanted := dial(t, listener.Addr().String(), unsent("PUT /v1/semaphores/db"))
	for receiving := 0; receiving == 0; {
		a.handler.bodies.mu.Lock()
		receiving = len(a.handler.bodies.open)
		a.handler.bodies.mu.Unlock()
		runtime.Gosched()
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if took := time.Since(began); took > 1900*time.Millisecond {
		t.Errorf("Shutdown took %v", took)
	}
	response, err := http.ReadResponse(wanted, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(response.Body); response.StatusCode != 503 || !strings.Contains(string(body), `"draining"`) {
		t.Errorf("status %d: %s (%v)", response.StatusCode, body, err)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// The limit of a head is the one that is documented, to the byte.
func TestHeadOf16KiB(t *testing.T) {
	_, _, address := serve(t)
	for size, status := range map[int]int{16 << 10: 404, 16<<10 + 1: 431} {
		head := "GET /v1/semaphores/none HTTP/1.1\r\nHost: n1\r\nX: "
		head += strings.Repeat("a", size-len(head)-4) + "\r\n\r\n"
		if got, _, _ := raw(t, address, head); got != status {
			t.Errorf("a head of %d bytes: status %d, want %d", len(head), got, status)
		}
	}
}
