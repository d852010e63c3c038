package apitest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/signalbox/signalbox/httpapi"
)

// Serve serves a testAPI on loopback.
func Serve(t *testing.T, change ...func(*Config)) (a *API, server *httpapi.Server, address string) {
	t.Helper()
	a = New(t, change...)
	server = httpapi.NewServer(a.Handler)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return a, server, listener.Addr().String()
}

// Raw sends bytes and returns the reply.
func Raw(t *testing.T, address, request string) (status int, body string, closed bool) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%.80q: %v", request, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text), response.Close
}

// Unsent is a head that announces a body, which never comes.
func Unsent(line string) string {
	return line + " HTTP/1.1\r\nHost: n1\r\nContent-Length: 5\r\n\r\n"
}

// Dial opens a connection that fails the test rather than hang.
func Dial(t *testing.T, address, request string) (net.Conn, *bufio.Reader) {
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

// InMemory carries requests to a handler that is asked for each time; nil: the
// connection is refused.
type InMemory func() http.Handler

// RoundTrip implements http.RoundTripper.
func (pick InMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	handler := pick()
	if handler == nil {
		return nil, errors.New("connection refused")
	}
	inner := httptest.NewRequestWithContext(r.Context(), r.Method, r.URL.RequestURI(), r.Body)
	inner.Header = r.Header
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, inner)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}
