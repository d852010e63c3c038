package httpapi_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/test/apitest"
	"github.com/signalbox/signalbox/test/memnet"
)

// frames is a client of HTTP/2 that sends and takes only what a test says.
type frames struct {
	*testing.T
	*http2.Framer
	conn   net.Conn
	next   uint32 // stream
	bodies map[uint32]string
	status map[uint32]string
	reset  map[uint32]bool
	away   bool // the server has said that it takes no more requests
}

// speak begins a connection in which each stream has so much room for a reply.
func speak(t *testing.T, conn net.Conn, trust *tls.Config, window uint32) *frames {
	t.Helper()
	config := trust.Clone()
	config.NextProtos = []string{"h2"}
	secure := tls.Client(conn, config)
	t.Cleanup(func() { secure.Close() })
	f := &frames{T: t, Framer: http2.NewFramer(secure, secure), conn: secure, next: 1,
		bodies: map[uint32]string{}, status: map[uint32]string{}, reset: map[uint32]bool{}}
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err := secure.Write([]byte(http2.ClientPreface))
	must(t, err)
	must(t, f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
	return f
}

// begin sends the head of a request, and returns its stream.
func (f *frames) begin(method, path string, ends bool) uint32 {
	f.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range []hpack.HeaderField{{Name: ":method", Value: method}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "n1"}, {Name: ":path", Value: path}} {
		must(f.T, encoder.WriteField(field))
	}
	stream := f.next
	f.next += 2
	must(f.T, f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: ends}))
	return stream
}

// read takes frames until done, or the end of the connection, which it reports.
func (f *frames) read(done func() bool) (ended bool) {
	f.Helper()
	for !done() {
		frame, err := f.ReadFrame()
		if err != nil {
			return true
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			f.status[frame.StreamID] = frame.PseudoValue("status")
		case *http2.DataFrame:
			f.bodies[frame.StreamID] += string(frame.Data())
		case *http2.RSTStreamFrame:
			f.reset[frame.StreamID] = true
		case *http2.GoAwayFrame:
			f.away = true
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck() // the next read reports the end of the connection
			}
		}
	}
	return false
}

// TestRequestsAreBounded: one connection with HTTP/2 can't have more requests under way
// than there may be connections. Beyond that a request is refused unless it is a probe,
// and beyond twice the bound it gets no reply.
func TestRequestsAreBounded(t *testing.T) {
	const most, kept, asked = 5, 32, 50
	s := secure(t, func(cfg *apitest.Config) { cfg.HTTP.MaxConnections = most })
	s.Must(201, "PUT /v1/semaphores/db", `{"permits":0}`)
	conn, err := net.Dial("tcp", s.address)
	must(t, err)
	f := speak(t, conn, s.trust, 0)
	for range most + kept {
		f.begin("POST", "/v1/semaphores/db/down?wait=60s", true)
	}
	s.Node.AwaitWaits(most + kept)
	client, _ := s.client(true)
	if status, text := s.send(client, "GET /v1/semaphores/db", nil); status != 429 || !strings.Contains(text, `"rule":"connections"`) {
		t.Errorf("status %d: %s", status, text)
	}
	if status, text := s.send(client, "GET /livez", nil); status != 200 {
		t.Errorf("a probe: status %d: %s", status, text)
	}
	for range asked - most - kept { // refused, with replies that are not taken
		f.begin("GET", "/v1/semaphores/db", true)
	}
	if f.read(func() bool { return len(f.reset) >= asked-2*most-kept }) {
		t.Fatal("the connection was cut off")
	}
	s.Node.Advance(60_000)
	must(t, f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	if f.read(func() bool { return len(f.bodies) >= 2*most+kept }) {
		t.Fatal("the connection was cut off")
	}
	if status, _ := s.send(client, "GET /v1/semaphores/db", nil); status != 200 {
		t.Errorf("afterwards: status %d", status)
	}
}

// TestStreamsAreBounded: the server announces the bounds of a connection, and refuses a
// stream beyond them.
func TestStreamsAreBounded(t *testing.T) {
	s := secure(t)
	s.Must(201, "PUT /v1/semaphores/db", `{"permits":0}`)
	conn, err := net.Dial("tcp", s.address)
	must(t, err)
	f := speak(t, conn, s.trust, 1<<20)
	const streams = 100
	for range streams {
		f.begin("POST", "/v1/semaphores/db/down?wait=60s", true)
	}
	s.Node.AwaitWaits(streams)
	further := f.begin("GET", "/livez", true)
	if f.read(func() bool { return f.reset[further] }) {
		t.Error("the connection was cut off")
	}
	s.Node.Advance(60_000)
	if f.read(func() bool { return len(f.bodies) == streams }) {
		t.Error("the connection was cut off")
	}
}

// TestKeptConnectionOverHTTP2: a connection that is kept for probes takes one, and no
// other request, also over HTTP/2.
func TestKeptConnectionOverHTTP2(t *testing.T) {
	const most = 2
	s := secure(t, func(cfg *apitest.Config) { cfg.HTTP.MaxConnections = most })
	for range most {
		conn, err := net.Dial("tcp", s.address)
		must(t, err)
		defer conn.Close()
	}
	for path, want := range map[string]string{"/livez": "200", "/v1/semaphores": "429"} {
		conn, err := net.Dial("tcp", s.address)
		must(t, err)
		f := speak(t, conn, s.trust, 1<<20)
		stream := f.begin("GET", path, true)
		f.read(func() bool { return false }) // until the server ends it
		if f.status[stream] != want || !f.away {
			t.Errorf("%s: status %s, going away %v", path, f.status[stream], f.away)
		}
	}
}

// inMemory serves an API over HTTPS in a bubble of virtual time, and returns a function
// that connects to it.
func inMemory(t *testing.T, change ...func(*apitest.Config)) (a *apitest.API, trust *tls.Config, dial func() net.Conn) {
	t.Helper()
	served, trust := credentials(t)
	a = apitest.New(t, append(change, func(cfg *apitest.Config) { cfg.HTTP.TLS = served })...)
	server := httpapi.NewServer(a.Handler)
	network := memnet.New()
	listener, err := network.Host("n1").Listen("n1:8701")
	must(t, err)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		must(t, server.Shutdown(t.Context()))
		must(t, <-ended)
	})
	return a, trust, func() net.Conn {
		t.Helper()
		conn, err := network.Host("client").Dial(t.Context(), "n1:8701")
		must(t, err)
		return conn
	}
}

// TestSilenceOverTLSEnds: a client that falls silent at any point of a connection's
// beginning is cut off, as is an idle one.
func TestSilenceOverTLSEnds(t *testing.T) {
	for _, c := range []struct {
		name   string
		say    func(t *testing.T, conn net.Conn, trust *tls.Config) net.Conn
		within time.Duration
	}{
		{"before the handshake", func(_ *testing.T, conn net.Conn, _ *tls.Config) net.Conn { return conn }, 5 * time.Second},
		{"in the handshake", func(t *testing.T, conn net.Conn, _ *tls.Config) net.Conn {
			_, err := conn.Write([]byte{0x16, 3, 1, 2, 0, 1})
			must(t, err)
			return conn
		}, 5 * time.Second},
		{"before a request", func(t *testing.T, conn net.Conn, trust *tls.Config) net.Conn {
			secure := tls.Client(conn, trust)
			must(t, secure.Handshake())
			return secure
		}, 5 * time.Second},
		{"before the first frame", func(t *testing.T, conn net.Conn, trust *tls.Config) net.Conn {
			config := trust.Clone()
			config.NextProtos = []string{"h2"}
			secure := tls.Client(conn, config)
			must(t, secure.Handshake())
			return secure
		}, 10 * time.Second},
		{"in the head of a request over HTTP/2", func(t *testing.T, conn net.Conn, trust *tls.Config) net.Conn {
			f := speak(t, conn, trust, 1<<20)
			must(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}}))
			return f.conn
		}, httpapi.DefaultIdleTimeout + 2*time.Second},
		{"between requests over HTTP/2", func(t *testing.T, conn net.Conn, trust *tls.Config) net.Conn {
			f := speak(t, conn, trust, 1<<20)
			stream := f.begin("GET", "/livez", true)
			f.read(func() bool { return f.bodies[stream] != "" })
			return f.conn
		}, httpapi.DefaultIdleTimeout + 2*time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, trust, dial := inMemory(t)
				conn := c.say(t, dial(), trust)
				began := time.Now()
				for { // to the end
					if _, err := conn.Read(make([]byte, 4096)); err != nil {
						break
					}
				}
				if took := time.Since(began); took > c.within { // virtual
					t.Errorf("it was kept for %v", took)
				}
				synctest.Wait()
				if n := a.Gauge("signalbox_http_connections_open"); n != 0 {
					t.Errorf("%d connections are open", n)
				}
			})
		})
	}
}

// TestUnreadReplyOverHTTP2Ends: a client that takes nothing from a stream loses the
// stream, and one that takes nothing from its connection loses the connection, both
// within the time for a reply.
func TestUnreadReplyOverHTTP2Ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, trust, dial := inMemory(t)
		for i := range 100 {
			a.Must(201, fmt.Sprintf("PUT /v1/semaphores/s%d", i), `{"permits":1,"metadata":{"a":"`+strings.Repeat("x", 1000)+`"}}`)
		}
		stalled := speak(t, dial(), trust, 0)
		stream := stalled.begin("GET", "/v1/semaphores", true)
		began := time.Now()
		if stalled.read(func() bool { return stalled.reset[stream] }) || time.Since(began) > 21*time.Second {
			t.Errorf("the stream has ended after %v", time.Since(began))
		}
		other := stalled.begin("HEAD", "/livez", true)
		if stalled.read(func() bool { return stalled.status[other] == "200" }) {
			t.Error("the connection has ended with the stream")
		}
		must(t, stalled.conn.Close())

		deaf := speak(t, dial(), trust, 1<<30)
		for range 50 { // of 100 KB: more than the network holds
			deaf.begin("GET", "/v1/semaphores", true)
			must(t, deaf.WriteWindowUpdate(0, 1<<20))
		}
		synctest.Wait()
		if n := a.Gauge("signalbox_http_requests_open"); n < 2 { // with the asking request
			t.Errorf("only %d requests are open", n)
		}
		time.Sleep(41 * time.Second) // virtual
		synctest.Wait()
		if requests, n := a.Gauge("signalbox_http_requests_open"), a.Gauge("signalbox_http_connections_open"); requests != 1 || n != 0 {
			t.Errorf("%d requests and %d connections are open", requests, n)
		}
	})
}
