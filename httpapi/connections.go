package httpapi

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	// keptConnections are open beyond Config.MaxConnections, for probes only, so that probes still succeed on a node
	// whose clients use up the other connections.
	keptConnections = 32
	// keptHead is how long a client may take to send the head of a request on a connection for probes.
	keptHead = time.Second
)

// connections bounds the open connections of a Server. It is safe for concurrent use.
type connections struct {
	limit    int64
	open     atomic.Int64
	requests atomic.Int64 // under way; over HTTP/1.1 at most as many as open
	refused  atomic.Int64 // refused requests beyond the bound or on connections for probes, and refused connections
	failed   atomic.Int64 // connections that ended before their TLS handshake was complete
}

// bounded is a listener that counts its connections.
type bounded struct {
	net.Listener
	connections *connections
}

// Accept returns the next connection within the bound, and closes connections beyond it.
func (l bounded) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		open := l.connections.open.Add(1)
		counted := &countedConn{Conn: conn, connections: l.connections}
		switch {
		case open <= l.connections.limit:
			return counted, nil
		case open <= l.connections.limit+keptConnections:
			return keptConn{counted}, nil
		}
		l.connections.open.Add(-1)
		l.connections.refused.Add(1)
		conn.Close()
	}
}

type countedConn struct {
	net.Conn
	connections *connections
	closed      sync.Once
}

func (c *countedConn) Close() error {
	c.closed.Do(func() { c.connections.open.Add(-1) })
	return c.Conn.Close()
}

// CloseWrite half-closes the connection. net/http calls it before it closes a connection on which more data may
// arrive, because a TCP reset could discard the last reply.
func (c *countedConn) CloseWrite() error {
	if half, can := c.Conn.(interface{ CloseWrite() error }); can {
		return half.CloseWrite()
	}
	return nil
}

// keptConn is a connection for probes only.
type keptConn struct{ *countedConn }

func (c keptConn) SetReadDeadline(t time.Time) error {
	if soon := time.Now().Add(keptHead); t.IsZero() || t.After(soon) {
		t = soon
	}
	return c.Conn.SetReadDeadline(t)
}

func (l *connections) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "signalbox_http_connections_open",
			Help: "Connections that clients have open.",
		}, func() float64 { return float64(l.open.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "signalbox_http_connections_refused_total",
			Help: "Connections and requests that were refused since too many are open.",
		}, func() float64 { return float64(l.refused.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "signalbox_http_handshakes_failed_total",
			Help: "Connections that ended without a handshake of TLS, those without a byte included.",
		}, func() float64 { return float64(l.failed.Load()) }),
	}
}

// keptKey marks the context of a request on a connection for probes.
type keptKey struct{}

func markKept(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if _, kept := conn.(keptConn); kept {
		return context.WithValue(ctx, keptKey{}, true)
	}
	return ctx
}

// complainEvery is the shortest time between two warnings of failed handshakes.
const complainEvery = 5 * time.Second

// complaints is the error log of net/http. It logs most lines at debug, because they are about a client's mistake. A
// failed handshake is a warning, because this node's certificates may be the reason.
type complaints struct {
	log hclog.Logger

	mu       sync.Mutex
	last     time.Time // when a warning was logged
	unlogged int       // failed handshakes since then
}

func (c *complaints) Write(line []byte) (int, error) {
	text := strings.TrimSpace(strings.TrimPrefix(string(line), "http: "))
	handshake, ok := strings.CutPrefix(text, "TLS handshake error from ")
	if !ok || strings.HasSuffix(text, ": EOF") { // closed without a byte: a balancer checks the port
		c.log.Debug("net/http", "reports", text)
		return len(line), nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.last) < complainEvery {
		c.unlogged++
		return len(line), nil
	}
	c.log.Warn("a TLS handshake with a client failed", "client", handshake, "unlogged", c.unlogged)
	c.last, c.unlogged = time.Now(), 0
	return len(line), nil
}
