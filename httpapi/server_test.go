package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/test/apitest"
)

func TestBrokenBodyClosesTheConnection(t *testing.T) {
	_, _, address := apitest.Serve(t, func(cfg *apitest.Config) { cfg.Exchange.BodyTimeout = 50 * time.Millisecond })
	status, body, closed := apitest.Raw(t, address, "POST /v1/semaphores HTTP/1.1\r\nHost: n1\r\nContent-Length: 50\r\n\r\n{")
	if status != 408 || !closed || !strings.Contains(body, `"code":"request-timeout"`) || !strings.Contains(body, "within 50ms") {
		t.Errorf("status %d, closed %v: %s", status, closed, body)
	}
}

// awaitedText is a log that closes seen when a text was written to it.
type awaitedText struct {
	text string
	seen chan struct{}
	once sync.Once
}

func (l *awaitedText) Write(line []byte) (int, error) {
	if strings.Contains(string(line), l.text) {
		l.once.Do(func() { close(l.seen) })
	}
	return len(line), nil
}

// Who asks and does not read is cut off.
func TestUnreadReplyEnds(t *testing.T) {
	log := &awaitedText{text: "reply not delivered", seen: make(chan struct{})}
	a, _, address := apitest.Serve(t, func(cfg *apitest.Config) {
		cfg.Exchange.BodyTimeout = 200 * time.Millisecond
		cfg.Exchange.Logger = hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Debug})
	})
	for i := range 500 {
		a.Must(201, fmt.Sprintf("PUT /v1/semaphores/s%d", i), `{"permits":1,"metadata":{"a":"`+strings.Repeat("x", 1000)+`"}}`)
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	const replies = 40 // of 600 KB: more than the buffers between the two hold
	if _, err := io.WriteString(conn, strings.Repeat("GET /v1/semaphores?limit=500 HTTP/1.1\r\nHost: n1\r\n\r\n", replies)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-log.seen:
	case <-time.After(20 * time.Second):
		t.Error("a client that does not read holds its request for ever")
	}
}

// The deadline of one reply must not cut a later one on the same connection.
func TestKeptConnectionOutlivesItsDeadlines(t *testing.T) {
	_, _, address := apitest.Serve(t, func(cfg *apitest.Config) { cfg.Exchange.BodyTimeout = 50 * time.Millisecond })
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	for i, c := range []struct {
		request string
		status  int
	}{
		{"PUT /v1/semaphores/db HTTP/1.1\r\nHost: n1\r\nContent-Length: 13\r\n\r\n{\"permits\":1}", 201},
		{"DELETE /v1/semaphores/db HTTP/1.1\r\nHost: n1\r\n\r\n", 204},
		{"GET /metrics HTTP/1.1\r\nHost: n1\r\n\r\n", 200},
		{"PUT /v1/semaphores/db HTTP/1.1\r\nHost: n1\r\nExpect: 100-continue\r\nContent-Length: 13\r\n\r\n{\"permits\":1}", 100},
	} {
		if i > 0 {
			<-time.After(100 * time.Millisecond) // twice the deadline: what is tested is that it does nothing
		}
		if _, err := io.WriteString(conn, c.request); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != c.status {
			t.Fatalf("request %d: status %d, want %d (%v)", i, response.StatusCode, c.status, err)
		}
	}
}

// The deadline of a body must not cut a wait that follows it.
func TestWaitOutlivesTheBodysDeadline(t *testing.T) {
	a, _, address := apitest.Serve(t, func(cfg *apitest.Config) { cfg.Exchange.BodyTimeout = 50 * time.Millisecond })
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	got := make(chan int, 1)
	go func() {
		response, err := http.Get("http://" + address + "/v1/semaphores/db?index=1&wait=150ms")
		if err != nil {
			t.Error(err)
			got <- 0
			return
		}
		response.Body.Close()
		got <- response.StatusCode
	}()
	if status := <-got; status != 200 {
		t.Errorf("status %d", status)
	}
	a.Must(201, "POST /v1/semaphores/db/leases", "")
	go func() {
		response, err := http.Post("http://"+address+"/v1/semaphores/db/leases", "application/json", strings.NewReader(`{"wait":"10s"}`))
		if err != nil {
			t.Error(err)
			got <- 0
			return
		}
		response.Body.Close()
		got <- response.StatusCode
	}()
	a.Node.AwaitWaits(1)
	<-time.After(100 * time.Millisecond) // twice the body's deadline: what is tested is that it does nothing
	a.Must(200, "POST /v1/semaphores/db/up", "")
	if status := <-got; status != 201 {
		t.Errorf("status %d", status)
	}
}

func TestHangUpReachesTheNode(t *testing.T) {
	a, _, address := apitest.Serve(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	a.Must(201, "POST /v1/semaphores/db/leases", "")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "POST /v1/semaphores/db/leases?wait=60s HTTP/1.1\r\nHost: n1\r\nContent-Length: 2\r\n\r\n{}")
	a.Node.AwaitWaits(1)
	conn.Close()
	a.Node.AwaitWaits(0)
}

func TestShutdown(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	server := httpapi.NewServer(a.Handler)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fresh, err := net.Dial("tcp", listener.Addr().String()) // a browser's spare connection
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	answered := make(chan int, 1)
	go func() {
		response, err := http.Get("http://" + listener.Addr().String() + "/v1/semaphores/db?index=1&wait=60s")
		if err != nil {
			answered <- 0
			return
		}
		response.Body.Close()
		answered <- response.StatusCode
	}()
	a.Node.AwaitWatcher("db")
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("Shutdown took %v", took)
	}
	if status := <-answered; status != 200 {
		t.Errorf("the blocking query was answered %d", status)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestShutdownIsBounded(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	a.Must(201, "POST /v1/semaphores/db/leases", "")
	server := httpapi.NewServer(a.Handler)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	cut := make(chan error, 1)
	go func() {
		_, err := http.Post("http://"+listener.Addr().String()+"/v1/semaphores/db/leases?wait=60s", "", nil)
		cut <- err
	}()
	a.Node.AwaitWaits(1)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v", err)
	}
	if err := <-cut; err == nil {
		t.Error("a wait outlives the end of Shutdown")
	}
	a.Node.AwaitWaits(0)
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// TestIdleConnectionEnds: a connection without a request ends after the configured time, by default one that is
// longer than balancers keep theirs.
func TestIdleConnectionEnds(t *testing.T) {
	_, _, address := apitest.Serve(t, func(cfg *apitest.Config) { cfg.HTTP.IdleTimeout = 50 * time.Millisecond })
	conn, err := net.Dial("tcp", address)
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	fmt.Fprintf(conn, "GET /livez HTTP/1.1\r\nHost: n1\r\n\r\n")
	if reply, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(reply), "HTTP/1.1 200") || httpapi.DefaultIdleTimeout < 90*time.Second {
		t.Errorf("%q, %v; %v", reply, err, httpapi.DefaultIdleTimeout)
	}
}
