package httpapi_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/internal/certs"
	"github.com/signalbox/signalbox/test/apitest"
)

// credentials issues a node's certificate, and returns the settings of a server with it
// and of a client that trusts it.
func credentials(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	dir := t.TempDir()
	ca, err := certs.MakeAuthority(dir, false)
	must(t, err)
	files, err := certs.MakeNode(dir, "n1", nil, false)
	must(t, err)
	source, err := certs.Open(certs.Config{Pair: files, CA: ca.Cert, Server: true})
	must(t, err)
	bundle, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	return source.ServerTLS(), &tls.Config{RootCAs: roots, ServerName: "n1"}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// secured is an API over HTTPS.
type secured struct {
	*apitest.API
	server  *httpapi.Server
	address string
	trust   *tls.Config // of its clients
}

func secure(t *testing.T, change ...func(*apitest.Config)) *secured {
	t.Helper()
	served, trust := credentials(t)
	s := &secured{trust: trust}
	s.API, s.server, s.address = apitest.Serve(t, append(change, func(cfg *apitest.Config) { cfg.HTTP.TLS = served })...)
	return s
}

// client returns a client of HTTP/1.1 or HTTP/2, with its own connections, and how
// many it has opened.
func (s *secured) client(two bool) (*http.Client, *atomic.Int64) {
	dialled := &atomic.Int64{}
	transport := &http.Transport{TLSClientConfig: s.trust.Clone(), ForceAttemptHTTP2: two,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			dialled.Add(1)
			return new(net.Dialer).DialContext(ctx, network, address)
		}}
	s.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}, dialled
}

// send sends "METHOD /path" and returns the status and the body.
func (s *secured) send(client *http.Client, line string, body io.Reader) (int, string) {
	s.Helper()
	method, path, _ := strings.Cut(line, " ")
	request, err := http.NewRequest(method, "https://"+s.address+path, body)
	must(s.T, err)
	response, err := client.Do(request)
	if err != nil {
		s.Errorf("%s: %v", line, err)
		return 0, ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.Errorf("%s: %v", line, err)
	}
	return response.StatusCode, string(text)
}

// TestHTTPS: each version of HTTP serves requests of all kinds on one connection, which
// no reply closes.
func TestHTTPS(t *testing.T) {
	for _, two := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 is %v", two), func(t *testing.T) {
			s := secure(t)
			client, dialled := s.client(two)
			for _, c := range []struct {
				line, body string
				status     int
			}{
				{"PUT /v1/semaphores/db", `{"permits":1}`, 201},
				{"GET /v1/semaphores/db", "", 200},
				{"HEAD /v1/semaphores/db", "", 200},
				{"POST /v1/semaphores/db/leases", "", 201},
				{"POST /v1/semaphores/db/leases", "", 409},
				{"GET /v1/semaphores/none", "", 404},
				{"GET /v1/semaphores/a%2Fb", "", 404},
				{"POST /livez", "", 405},
				{"OPTIONS /livez", "", 204},
				{"GET /nowhere", "", 404},
				{"GET /metrics", "", 200},
			} {
				if status, text := s.send(client, c.line, strings.NewReader(c.body)); status != c.status {
					t.Errorf("%s: status %d, not %d: %s", c.line, status, c.status, text)
				}
			}
			if n := dialled.Load(); n != 1 {
				t.Errorf("%d connections for one client", n)
			}
			response, err := client.Get("https://" + s.address + "/version")
			must(t, err)
			must(t, response.Body.Close())
			if (response.ProtoMajor == 2) != two {
				t.Errorf("the protocol is %s", response.Proto)
			}
		})
	}
}

// TestForeignOriginOfHTTPS: a page without TLS is of another origin than a node with it.
func TestForeignOriginOfHTTPS(t *testing.T) {
	s := secure(t)
	for origin, want := range map[string]int{"https://n1": 201, "http://n1": 403, "https://n2": 403, "null": 403} {
		if reply := doHost(s.API, "POST /v1/sessions", `{"ttl":"30s"}`, "n1", "Origin: "+origin); reply.Status != want {
			t.Errorf("%s: status %d, not %d", origin, reply.Status, want)
		}
	}
}

// TestUnsentBodyOverHTTP2: a body that does not arrive ends its own request, at its own
// deadline, and the other requests on the connection go on.
func TestUnsentBodyOverHTTP2(t *testing.T) {
	s := secure(t, func(cfg *apitest.Config) { cfg.Exchange.BodyTimeout = 50 * time.Millisecond })
	client, dialled := s.client(true)
	s.Must(201, "PUT /v1/semaphores/db", `{"permits":0}`)
	waited := make(chan int, 1)
	go func() {
		status, _ := s.send(client, "POST /v1/semaphores/db/down?wait=20s", strings.NewReader("{}"))
		waited <- status
	}()
	s.Node.AwaitWaits(1)
	for line, want := range map[string]int{"POST /v1/semaphores": 408, "PUT /livez": 405, "POST /nowhere": 404} {
		never, end := io.Pipe()
		status, text := s.send(client, line, never)
		if status != want {
			t.Errorf("%s: status %d, not %d: %s", line, status, want, text)
		}
		end.Close()
	}
	s.Must(200, "POST /v1/semaphores/db/up", "")
	if status := <-waited; status != 200 {
		t.Errorf("the other request on the connection: status %d", status)
	}
	if n := dialled.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestBodiesOverHTTP2: a body has the same bounds as over HTTP/1.1.
func TestBodiesOverHTTP2(t *testing.T) {
	s := secure(t)
	client, _ := s.client(true)
	large := func() io.Reader { return bytes.NewReader(bytes.Repeat([]byte{' '}, 65<<10)) }
	if status, text := s.send(client, "POST /v1/semaphores", large()); status != 413 {
		t.Errorf("announced: status %d: %s", status, text)
	}
	if status, text := s.send(client, "POST /v1/semaphores", io.MultiReader(large())); status != 413 {
		t.Errorf("not announced: status %d: %s", status, text)
	}
	operations := strings.Repeat(`{"op":"up","semaphore":"none"},`, 999) + `{"op":"up","semaphore":"none"}`
	if status, text := s.send(client, "POST /v1/batch", strings.NewReader(`{"operations":[`+operations+`]}`)); status != 200 {
		t.Errorf("a batch: status %d: %.200s", status, text)
	}
}

// TestShutdownOfHTTPS: blocking queries get their replies, and connections that are idle,
// or have not even shaken hands, don't hold the server up.
func TestShutdownOfHTTPS(t *testing.T) {
	for _, two := range []bool{false, true} {
		served, trust := credentials(t)
		a := apitest.New(t, func(cfg *apitest.Config) { cfg.HTTP.TLS = served })
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		s := &secured{API: a, server: httpapi.NewServer(a.Handler), address: listener.Addr().String(), trust: trust}
		ended := make(chan error, 1)
		go func() { ended <- s.server.Serve(listener) }()
		s.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
		fresh, err := net.Dial("tcp", s.address)
		must(t, err)
		defer fresh.Close()
		shaken, err := tls.Dial("tcp", s.address, trust)
		must(t, err)
		defer shaken.Close()
		idle, _ := s.client(two)
		s.send(idle, "GET /livez", nil)
		watched := make(chan int, 1)
		go func() {
			client, _ := s.client(two)
			status, _ := s.send(client, "GET /v1/semaphores/db?index=1&wait=60s", nil)
			watched <- status
		}()
		s.Node.AwaitWatcher("db")
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := s.server.Shutdown(ctx); err != nil {
			t.Errorf("HTTP/2 is %v: Shutdown: %v", two, err)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("HTTP/2 is %v: Shutdown took %v", two, took)
		}
		if status := <-watched; status != 200 {
			t.Errorf("HTTP/2 is %v: the blocking query: status %d", two, status)
		}
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
}

// failedHandshakes waits until the server has counted so many.
func (s *secured) failedHandshakes(want int) {
	s.Helper()
	for began := time.Now(); s.Gauge("signalbox_http_handshakes_failed_total") != want; runtime.Gosched() {
		if time.Since(began) > 20*time.Second {
			s.Fatalf("%d handshakes have failed, not %d", s.Gauge("signalbox_http_handshakes_failed_total"), want)
		}
	}
}

// TestFailedHandshakes: callers who don't speak TLS, or not so that it is accepted, get
// no reply but for plain HTTP; each is counted, and the log is not flooded.
func TestFailedHandshakes(t *testing.T) {
	var text bytes.Buffer
	s := secure(t, func(cfg *apitest.Config) {
		cfg.Exchange.Logger = hclog.New(&hclog.LoggerOptions{Output: &text, Level: hclog.Info})
	})
	status, body, closed := apitest.Raw(t, s.address, "POST /v1/sessions HTTP/1.1\r\nHost: n1\r\nContent-Length: 2\r\n\r\n{}")
	if status != 400 || !closed || !strings.Contains(body, "HTTPS") {
		t.Errorf("plain HTTP: status %d, closed %v: %s", status, closed, body)
	}
	for _, garbage := range []string{"\x00", "\x16\x03\x01\xff\xff" + strings.Repeat("a", 1<<16), "SSH-2.0-OpenSSH_9\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"} {
		conn, err := net.Dial("tcp", s.address)
		must(t, err)
		_, _ = io.WriteString(conn, garbage) // it may be cut off while it writes
		conn.Close()
	}
	old := s.trust.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS11, tls.VersionTLS11
	other := s.trust.Clone()
	other.RootCAs = x509.NewCertPool()
	for _, config := range []*tls.Config{old, other} {
		if conn, err := tls.Dial("tcp", s.address, config); err == nil {
			conn.Close()
			t.Errorf("a handshake that must fail succeeded")
		}
	}
	s.failedHandshakes(7)
	const more = 200
	for range more {
		conn, err := net.Dial("tcp", s.address)
		must(t, err)
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n")
		conn.Close()
	}
	s.failedHandshakes(7 + more)
	if lines := strings.Count(text.String(), "handshake with a client failed"); lines < 1 || lines > 10 {
		t.Errorf("%d lines:\n%.2000s", lines, text.String())
	}
	client, _ := s.client(true)
	if status, _ := s.send(client, "GET /livez", nil); status != 200 {
		t.Errorf("afterwards: status %d", status)
	}
}
