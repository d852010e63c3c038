package httpapi_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/test/apitest"
	"github.com/signalbox/signalbox/test/hostile"
	"github.com/signalbox/signalbox/test/memnet"
)

// rawRequest is bytes on a connection, and the first reply.
type rawRequest struct {
	name, request string
	status        int    // 0: the connection ends without a reply
	code          string // "" where net/http replies before any handler
}

const (
	rawHead = " HTTP/1.1\r\nHost: n1\r\n"
	rawNone = "GET /v1/semaphores/none" + rawHead
	rawPost = "POST /v1/semaphores" + rawHead
)

func rawRequests() []rawRequest {
	return append(append(rawHeads(), rawBodies()...), []rawRequest{
		{"no host", "GET /v1/semaphores HTTP/1.1\r\n\r\n", 400, ""},
		{"bad percent", "GET /v1/semaphores/%zz" + rawHead + "\r\n", 400, ""},
		{"cut percent", "GET /v1/semaphores/%" + rawHead + "\r\n", 400, ""},
		{"NUL in the path", "GET /v1/semaphores/%00" + rawHead + "\r\n", 400, "invalid-request"},
		{"bare NUL in the path", "GET /v1/semaphores/a\x00" + rawHead + "\r\n", 400, ""},
		{"header injection", "GET /v1/semaphores/a%0d%0aX-Evil:%201" + rawHead + "\r\n", 400, "invalid-request"},
		{"absolute form", "GET http://other.example/v1/semaphores/none HTTP/1.1\r\nHost: n1\r\n\r\n", 404, "unknown-semaphore"},
		{"absolute form with a user", "GET http://user:secret@n1/v1/semaphores/none HTTP/1.1\r\nHost: n1\r\n\r\n", 404, "unknown-semaphore"},
		{"absolute form of another scheme", "GET file:///etc/passwd" + rawHead + "\r\n", 404, "unknown-route"},
		{"authority form", "GET n1:80" + rawHead + "\r\n", 404, "unknown-route"},
		{"asterisk form", "OPTIONS *" + rawHead + "\r\n", 404, "unknown-route"},
		{"connect", "CONNECT n1:80 HTTP/1.1\r\nHost: n1:80\r\n\r\n", 404, "unknown-route"},
		{"HTTP/1.0", "GET /v1/semaphores/none HTTP/1.0\r\n\r\n", 404, "unknown-semaphore"},
		{"HTTP/0.9", "GET /v1/semaphores\r\n\r\n", 400, ""},
		{"HTTP/3.0", "GET /v1/semaphores HTTP/3.0\r\nHost: n1\r\n\r\n", 505, ""}, // HTTP demands this status
		{"HTTP/1.10", "GET /v1/semaphores HTTP/1.10\r\nHost: n1\r\n\r\n", 400, ""},
		{"HTTP/2 in the clear", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 404, "unknown-route"},
		{"method in lower case", "get /v1/semaphores" + rawHead + "\r\n", 405, "method-not-allowed"},
		{"method of 10 KB", strings.Repeat("A", 10<<10) + " /v1/semaphores" + rawHead + "\r\n", 405, "method-not-allowed"},
		{"method with a slash", "G/T /v1/semaphores" + rawHead + "\r\n", 400, ""},
		{"no method", " /v1/semaphores" + rawHead + "\r\n", 400, ""},
		{"two spaces", "GET  /v1/semaphores" + rawHead + "\r\n", 400, ""},
		{"fragment", "GET /v1/semaphores/none#x" + rawHead + "\r\n", 404, "unknown-semaphore"},
		{"raw UTF-8 in the path", "GET /v1/semaphores/\xc3\xa9" + rawHead + "\r\n", 404, "unknown-semaphore"},
		{"raw Latin-1 in the path", "GET /v1/semaphores/\xe9" + rawHead + "\r\n", 400, "invalid-request"},
		{"backslash", "GET /v1\\semaphores" + rawHead + "\r\n", 404, "unknown-route"},
		{"path of 10 KB", "GET /v1/semaphores/" + strings.Repeat("a", 10<<10) + rawHead + "\r\n", 400, "invalid-request"},
		{"query of 10 KB", "GET /v1/semaphores?" + strings.Repeat("a", 10<<10) + rawHead + "\r\n", 400, "invalid-request"},
		{"10,000 slashes", "GET " + strings.Repeat("/", 10_000) + rawHead + "\r\n", 404, "unknown-route"},
		{"binary", "\x00\x01\x02\x03\r\n\r\n", 400, ""},
		{"empty lines alone", "\r\n\r\n\r\n\r\n", 400, ""},
		{"line feeds alone", "GET /v1/semaphores/none HTTP/1.1\nHost: n1\n\n", 404, "unknown-semaphore"},
	}...)
}

// rawHeads are lines of a head that must not count, or end the request.
func rawHeads() (all []rawRequest) {
	for name, line := range map[string]string{
		"space before the colon": "X-A : 1", "header without a name": ": 1", "header without a colon": "X-A", "NUL in a header": "X-A: a\x00b", "bare CR in a header": "X-A: a\rb",
		"control in a header": "X-A: a\x01b", "name with a control": "X\x01A: 1", "name in UTF-8": "X-\xc3\xa9: 1", "name with brackets": "X(A): 1", "second host": "Host: n2",
		"length with a plus": "Content-Length: +5", "length in hex": "Content-Length: 0x5", "list of lengths": "Content-Length: 5, 6", "length of 2^64": "Content-Length: 18446744073709551616",
		"negative length": "Content-Length: -1", "empty length": "Content-Length: ", "length of letters": "Content-Length: five", "fraction of a length": "Content-Length: 1.5", "control in a transfer encoding": "Transfer-Encoding: \x0bchunked",
	} {
		all = append(all, rawRequest{name, rawNone + line + "\r\n\r\n", 400, ""})
	}
	for name, line := range map[string]string{
		"unknown transfer encoding": "gzip", "chunked twice": "chunked, chunked", "identity": "identity", "chunked and gzip": "chunked, gzip",
	} {
		all = append(all, rawRequest{name, rawPost + "Transfer-Encoding: " + line + "\r\n\r\n0\r\n\r\n", 501, ""}) // HTTP demands this status
	}
	for name, lines := range map[string]string{
		"1,000 headers": strings.Repeat("X-A: 1\r\n", 1000), "1,000 names of headers": strings.Repeat("X-A: 1\r\nX-B: 1\r\n", 500), "cookie of 10 KB": "Cookie: a=" + strings.Repeat("b", 10<<10) + "\r\n",
		"authorization of 10 KB": "Authorization: Bearer " + strings.Repeat("b", 10<<10) + "\r\n", "1,000 options of a connection": "Connection: close" + strings.Repeat(", x", 1000) + "\r\n",
		"upgrade to h2c":         "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
		"upgrade to a websocket": "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAA\r\n", "time-out of -1": "Keep-Alive: timeout=-1\r\n",
		"body with a GET": "Content-Length: 50\r\n", "1,000 addresses of X-Forwarded-For": "X-Forwarded-For: 127.0.0.1" + strings.Repeat(", ::1", 1000) + "\r\n", "folded header": "X-A: a\r\n b\r\n",
	} {
		all = append(all, rawRequest{name, rawNone + lines + "\r\n", 404, "unknown-semaphore"})
	}
	return append(all, rawRequest{"huge head", rawNone + "X: " + strings.Repeat("a", 64<<10) + "\r\n\r\n", 431, ""},
		rawRequest{"10,000 headers", rawNone + strings.Repeat("X-A: 1\r\n", 10_000) + "\r\n", 431, ""},
		rawRequest{"foreign origin behind a false host", "DELETE /v1/semaphores/db" + rawHead + "Origin: http://evil.example\r\nX-Forwarded-Host: evil.example\r\nForwarded: host=evil.example\r\n\r\n", 403, "forbidden"})
}

// rawBodies are bodies that end elsewhere than they say, and what smugglers send.
func rawBodies() []rawRequest {
	const inside = "DELETE /v1/semaphores/db" + rawHead + "\r\n"
	return []rawRequest{
		{"both lengths", rawPost + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "invalid-request"},
		{"both lengths and a request inside", rawPost + "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\nX", 400, "invalid-request"},
		{"a request as a body", rawPost + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(inside)) + inside, 400, "invalid-request"},
		{"a request in a chunk", rawPost + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n", len(inside)) + inside + "\r\n0\r\n\r\n", 400, "invalid-request"},
		{"two lengths", rawPost + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", 400, ""},
		{"announced too much", rawPost + "Content-Length: 99999999999\r\n\r\n{}", 413, "too-large"},
		{"announced too much, and waits to be asked", rawPost + "Content-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n", 413, "too-large"},
		{"an unknown expectation", rawPost + "Content-Length: 2\r\nExpect: 200-ok\r\n\r\n{}", 417, ""},
		{"body cut short", rawPost + "Content-Length: 50\r\n\r\n{\"name\":\"x\",", 408, "request-timeout"},
		{"body beyond its length", rawPost + "Content-Length: 2\r\n\r\n{}{\"name\":\"x\",\"permits\":1}", 400, "invalid-request"},
		{"chunked too much", rawPost + "Transfer-Encoding: chunked\r\n\r\n11000\r\n" + strings.Repeat(" ", 0x11000) + "\r\n0\r\n\r\n", 413, "too-large"},
		{"bad chunk", rawPost + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", 400, "invalid-request"},
		{"a chunk of 2^64", rawPost + "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n{}\r\n0\r\n\r\n", 400, "invalid-request"},
		{"a negative chunk", rawPost + "Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n", 400, "invalid-request"},
		{"a chunk beyond its length", rawPost + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}x\r\n0\r\n\r\n", 400, "invalid-request"},
		{"a chunk's extension of 20 KB", rawPost + "Transfer-Encoding: chunked\r\n\r\n2;" + strings.Repeat("x", 20<<10) + "\r\n{}\r\n0\r\n\r\n", 400, "invalid-request"},
		{"1,000 chunks of a byte", rawPost + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\n{\r\n", 1000) + "0\r\n\r\n", 400, "invalid-request"},
		{"1,000 trailers", rawPost + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" + strings.Repeat("X-A: 1\r\n", 1000) + "\r\n", 400, "invalid-request"},
		{"a length as a trailer", rawPost + "Trailer: Content-Length\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nContent-Length: 9\r\n\r\n", 400, ""},
		{"chunked with a space", rawPost + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400, ""},
		{"chunked over HTTP/1.0", "POST /v1/semaphores HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400, ""},
		{"gzip", rawPost + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b", 415, "unsupported-encoding"},
		{"HEAD with a body", "HEAD /v1/semaphores/none" + rawHead + "Content-Length: 2\r\n\r\n{}", 404, ""},
	}
}

// TestRawRequests sends each request over a new connection, plain and with TLS.
func TestRawRequests(t *testing.T) {
	list := hostile.Begin(t, "wire")
	short := func(cfg *apitest.Config) { cfg.Exchange.BodyTimeout = 100 * time.Millisecond }
	plain, _, address := apitest.Serve(t, short)
	secured := secure(t, short)
	for name, port := range map[string]struct {
		*apitest.API
		dial func() (net.Conn, error)
	}{
		"plain": {plain, func() (net.Conn, error) { return net.Dial("tcp", address) }},
		"https": {secured.API, func() (net.Conn, error) { return tls.Dial("tcp", secured.address, secured.trust) }},
	} {
		port.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
		before := port.Node.State(t)
		for _, c := range rawRequests() {
			list.Case(name+": "+c.name, func(t *testing.T) {
				conn, err := port.dial()
				must(t, err)
				status, body := firstReply(t, conn, c.request)
				if status != c.status || c.code != "" && !strings.Contains(body, fmt.Sprintf(`"code":%q`, c.code)) {
					t.Errorf("status %d, want %d %s: %s", status, c.status, c.code, body)
				}
				if after := port.Node.State(t); after != before {
					t.Errorf("the state changed:\n%s\n%s", before, after)
					before = after
				}
			})
		}
	}
}

// firstReply sends a request and returns the first reply, with 0 for the connection's end.
func firstReply(t *testing.T, conn net.Conn, request string) (status int, body string) {
	t.Helper()
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	_, _ = io.WriteString(conn, request) // it may be cut off while it writes
	method, _, _ := strings.Cut(request, " ")
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("neither a reply nor the end of the connection")
	}
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body) // a connection that is cut off may cost the rest
	return response.StatusCode, string(text)
}

// TestHostileHandshakes: a connection that does not begin with a handshake gets the reply of
// plain HTTP alone, and ends.
func TestHostileHandshakes(t *testing.T) {
	list := hostile.Begin(t, "handshakes")
	first, err := hostile.Handshakes()
	must(t, err)
	for name, bytes := range first {
		list.Case(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, _, dial := inMemory(t)
				before := a.Node.State(t)
				conn, began := dial(), time.Now()
				go func() { _, _ = io.WriteString(conn, bytes) }()
				reply, _ := io.ReadAll(conn)
				if took := time.Since(began); took > 6*time.Second || strings.HasPrefix(string(reply), "HTTP/1.1 2") || len(reply) > 4096 {
					t.Errorf("it ended after %v, with %q", took, reply)
				}
				conn.Close()
				synctest.Wait()
				if n := a.Gauge("signalbox_http_connections_open"); n != 0 || a.Node.State(t) != before {
					t.Errorf("%d connections are open; the state was %s, and is %s", n, before, a.Node.State(t))
				}
			})
		})
	}
}

// TestSlowHeads: a head that comes byte by byte, and never whole, ends within its 5 s.
func TestSlowHeads(t *testing.T) {
	list := hostile.Begin(t, "slow")
	for name, head := range map[string]string{
		"nothing": "", "a request line": "GET /v1/semaphores" + rawHead, "half a line": "GET /v1/sem", "headers without end": rawNone + strings.Repeat("X-A: 1\r\n", 200), "one header without end": rawNone + "X-A: " + strings.Repeat("a", 2000),
	} {
		list.Case(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := apitest.New(t)
				server, network := httpapi.NewServer(a.Handler), memnet.New()
				listener, err := network.Host("n1").Listen("n1:8701")
				must(t, err)
				go func() { _ = server.Serve(listener) }()
				defer func() { must(t, server.Shutdown(t.Context())) }()
				conn, err := network.Host("client").Dial(t.Context(), "n1:8701")
				must(t, err)
				began, sent := time.Now(), make(chan struct{})
				go func() {
					defer close(sent)
					for _, b := range []byte(head) {
						if _, err := conn.Write([]byte{b}); err != nil {
							return
						}
						time.Sleep(100 * time.Millisecond) // virtual
					}
				}()
				reply, _ := io.ReadAll(conn)
				if took := time.Since(began); took > 6*time.Second || strings.HasPrefix(string(reply), "HTTP/1.1 2") {
					t.Errorf("it ended after %v, with %q", took, reply)
				}
				conn.Close()
				<-sent
				synctest.Wait()
				if n := a.Gauge("signalbox_http_connections_open"); n != 0 {
					t.Errorf("%d connections are open", n)
				}
			})
		})
	}
}
