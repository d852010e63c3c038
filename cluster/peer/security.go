package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
)

// Security says how a port protects its streams. The zero value means plain TCP.
type Security struct {
	// TLS has the settings for both ends of a connection, and verifies certificates; nil means plain TCP. The common
	// name of a certificate is the id of its node.
	TLS *tls.Config
	// PlainToo makes the port also accept plain streams, and dial nodes that don't speak TLS without TLS. It is for the
	// time in which the nodes of a running cluster get their certificates. Meanwhile, a host that can reach the port or
	// intercept its traffic can act as a node without a certificate.
	PlainToo bool
}

// tlsHandshake is the first byte of a TLS connection. A preamble begins with another byte.
const tlsHandshake = 0x16

var errPlain = errors.New("the stream is plain, and this node takes TLS only")

// handshakeError is the error of a connection on which TLS could not be set up.
type handshakeError struct{ cause error }

func (e *handshakeError) Error() string { return e.cause.Error() }
func (e *handshakeError) Unwrap() error { return e.cause }

// remoteAlert reports whether the other side has ended a connection by a TLS alert. In TLS 1.3 the alert may arrive
// only with the first read after the handshake.
func remoteAlert(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && failed.Op == "remote error"
}

// dropped reports whether the other side has closed the connection without an alert.
func (e *handshakeError) dropped() bool {
	for _, closed := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(e.cause, closed) {
			return true
		}
	}
	return false
}

// ended reports whether the connection ended or timed out during the handshake. Such an end does not show whether a
// certificate is valid.
func (e *handshakeError) ended() bool {
	var slow net.Error
	return e.dropped() || errors.Is(e.cause, net.ErrClosed) || errors.As(e.cause, &slow) && slow.Timeout()
}

// unspoken reports whether the other side does not speak TLS: it has sent bytes that are not TLS, or has closed the
// connection without an alert.
func (e *handshakeError) unspoken() bool {
	var header tls.RecordHeaderError
	return errors.As(e.cause, &header) || e.dropped()
}

type security struct {
	Security
	plain prometheus.Counter
}

func newSecurity(s Security) *security {
	return &security{s, prometheus.NewCounter(prometheus.CounterOpts{
		Name: "signalbox_peer_plain_streams_total",
		Help: "Streams of peers without TLS that this node has accepted or dialled although it has a certificate.",
	})}
}

// accepted wraps an accepted connection before its first byte is read. The first Read does the handshake, so the
// connection needs a deadline.
func (s *security) accepted(raw net.Conn) net.Conn {
	if s.TLS == nil {
		return raw
	}
	return &acceptedConn{Conn: raw, security: s}
}

// acceptedConn is an accepted connection of a port with a certificate. The first byte shows whether the connection uses
// TLS. Write must not be called before the first Read has returned.
type acceptedConn struct {
	net.Conn
	security *security
	begin    sync.Once
	stream   net.Conn // set by the first Read
	failed   error
}

func (c *acceptedConn) Read(b []byte) (int, error) {
	c.begin.Do(func() { c.stream, c.failed = c.open() })
	if c.failed != nil {
		return 0, c.failed
	}
	return c.stream.Read(b)
}

func (c *acceptedConn) Write(b []byte) (int, error) { return c.stream.Write(b) }

// open reads the first byte, and does the TLS handshake if that byte begins a handshake.
func (c *acceptedConn) open() (net.Conn, error) {
	var first [1]byte
	if _, err := io.ReadFull(c.Conn, first[:]); err != nil {
		return nil, err
	}
	raw := &begunConn{Conn: c.Conn, first: first[:]}
	if first[0] == tlsHandshake {
		secured := tls.Server(raw, c.security.TLS)
		if err := secured.Handshake(); err != nil {
			return nil, &handshakeError{err}
		}
		return secured, nil
	}
	if !c.security.PlainToo {
		return nil, &handshakeError{errPlain}
	}
	return raw, nil
}

// begunConn is a connection whose first bytes were already read. Read returns these bytes again.
type begunConn struct {
	net.Conn
	first []byte
}

func (c *begunConn) Read(b []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// dialled wraps a dialled connection before its first byte is written.
func (s *security) dialled(raw net.Conn, plain bool) net.Conn {
	if s.TLS == nil || plain {
		return raw
	}
	return tls.Client(raw, s.TLS)
}

// handshake does the TLS handshake of a dialled connection. The connection has a deadline.
func handshake(ctx context.Context, conn net.Conn) error {
	secured, ok := conn.(*tls.Conn)
	if !ok {
		return nil
	}
	if err := secured.HandshakeContext(ctx); err != nil {
		return &handshakeError{err}
	}
	return nil
}

// certified returns the node id in the other side's certificate, or false for a plain stream.
func certified(stream net.Conn) (name string, ok bool) {
	if accepted, ok := stream.(*acceptedConn); ok {
		stream = accepted.stream
	}
	secured, ok := stream.(*tls.Conn)
	if !ok {
		return "", false
	}
	return secured.ConnectionState().PeerCertificates[0].Subject.CommonName, true
}

// checkName returns a refusal unless the certificate of the stream belongs to the sender of the hello.
func checkName(stream net.Conn, remote *Hello) (reason Refusal, detail string) {
	if name, ok := certified(stream); ok && name != remote.Node {
		return RefusedName, fmt.Sprintf("the certificate is of node %q, and the stream says that it is from node %q", name, remote.Node)
	}
	return 0, ""
}

// checkCaller is checkName for a node that has dialled this node, and also refuses nodes that Identity does not admit.
// A dialled node needs no such check: its address came from the configuration or the list.
func checkCaller(as Identity, stream net.Conn, remote *Hello) (reason Refusal, detail string) {
	reason, detail = checkName(stream, remote)
	if _, ok := certified(stream); reason == 0 && ok && !as.Admits(remote.Node) {
		return RefusedStranger, fmt.Sprintf("node %q has a certificate, but is neither a member nor listed", remote.Node)
	}
	return reason, detail
}
