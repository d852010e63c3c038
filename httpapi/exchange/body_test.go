package exchange_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/test/apitest"
)

// A request that needs no body gets its reply even if its body never comes. The connection then ends: bytes that come
// later must not be read as a request.
func TestUnsentBodyHoldsNoReplyUp(t *testing.T) {
	a, _, address := apitest.Serve(t, withNodeRED, withThrottle)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	for line, status := range map[string]int{
		"GET /v1/cluster": 200, "GET /v1/semaphores/db": 200, "GET /livez": 200, "GET /readyz": 200, "GET /metrics": 200, "HEAD /v1/sessions": 200,
		"POST /nope": 404, "POST /livez": 405, "OPTIONS /v1/batch": 204, "OPTIONS *": 404, "PUT /v1/semaphores/%00": 400,
		"POST /v1/semaphores/db/up?x=1": 400, "GET /remainder": 400, "GET /semaphore/value/db": 200,
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel() // each waits for its connection's end
			began := time.Now()
			_, reader := apitest.Dial(t, address, apitest.Unsent(line))
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

// The reply does not wait for a body that is too large either.
func TestUnsentLargeBody(t *testing.T) {
	_, _, address := apitest.Serve(t)
	for _, size := range []int{64<<10 + 1, 200 << 10, 300 << 10} {
		began := time.Now()
		status, _, closed := apitest.Raw(t, address, fmt.Sprintf("POST /v1/semaphores HTTP/1.1\r\nHost: n1\r\nContent-Length: %d\r\n\r\n{", size))
		if took := time.Since(began); status != 413 || !closed || took > 500*time.Millisecond {
			t.Errorf("%d bytes: status %d, closed %v after %v", size, status, closed, took)
		}
	}
}

// A client sends a whole body, which no handler reads, before it reads. It gets the reply.
func TestUnwantedBodyIsTaken(t *testing.T) {
	_, _, address := apitest.Serve(t)
	request := "POST /nope HTTP/1.1\r\nHost: n1\r\nContent-Length: 200000\r\n\r\n" + strings.Repeat("x", 200_000)
	for range 20 {
		if status, _, closed := apitest.Raw(t, address, request); status != 404 || !closed {
			t.Fatalf("status %d, closed %v", status, closed)
		}
	}
}

// Bodies that hang don't delay the server's stop.
func TestShutdownWaitsForNoBody(t *testing.T) {
	a := apitest.New(t)
	server := httpapi.NewServer(a.Handler)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	_, unwanted := apitest.Dial(t, listener.Addr().String(), apitest.Unsent("GET /v1/cluster"))
	if response, err := http.ReadResponse(unwanted, nil); err != nil || response.StatusCode != 200 {
		t.Fatalf("%v %v", response, err)
	}
	_, wanted := apitest.Dial(t, listener.Addr().String(), apitest.Unsent("PUT /v1/semaphores/db"))
	for a.X.ArrivingBodies() == 0 {
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

// The limit of a head is as documented, to the byte.
func TestHeadOf16KiB(t *testing.T) {
	_, _, address := apitest.Serve(t)
	for size, status := range map[int]int{16 << 10: 404, 16<<10 + 1: 431} {
		head := "GET /v1/semaphores/none HTTP/1.1\r\nHost: n1\r\nX: "
		head += strings.Repeat("a", size-len(head)-4) + "\r\n\r\n"
		if got, _, _ := apitest.Raw(t, address, head); got != status {
			t.Errorf("a head of %d bytes: status %d, want %d", len(head), got, status)
		}
	}
}
