package peer

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/internal/wake"
)

// Dial opens a stream of that kind to the member at an address, and fails if another node replies. If the address
// belongs to no member, Dial accepts any node. The address may have a mark, see MarkAddress. Dial blocks until both
// sides have exchanged their preambles or ctx ends, and returns a connection without a deadline. RefusedFor tells
// refusals from other errors.
func (p *Port) Dial(ctx context.Context, kind StreamKind, address string) (net.Conn, error) {
	return p.DialNode(ctx, kind, address, p.config.Identity.Known(address))
}

// DialNode is Dial to node target, even if the address belongs to another member in the configuration. With target ""
// it accepts any node.
func (p *Port) DialNode(ctx context.Context, kind StreamKind, marked, target string) (net.Conn, error) {
	conn, err := p.dial(ctx, kind, marked, target, false)
	var failed *handshakeError
	if errors.As(err, &failed) && p.security.PlainToo && failed.unspoken() && ctx.Err() == nil {
		if conn, err = p.dial(ctx, kind, marked, target, true); err == nil {
			p.security.plain.Inc()
		}
	}
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// dial opens a stream. If plain is set, it does not use TLS.
func (p *Port) dial(ctx context.Context, kind StreamKind, marked, target string, plain bool) (*portConn, error) {
	address, mark := SplitAddress(raft.ServerAddress(marked))
	raw, err := p.config.Network.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	conn := &portConn{Conn: p.security.dialled(raw, plain), raw: raw, port: p, kind: kind}
	if err := p.track(conn); err != nil {
		_ = raw.Close()
		return nil, err
	}
	remote, err := p.greet(ctx, conn, kind, target)
	if err == nil {
		err = p.judgeDialled(conn, target, mark, &remote, address)
	}
	if err == nil {
		conn.peer = remote
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// greet sends this node's hello on a dialled stream and reads the other node's hello.
func (p *Port) greet(ctx context.Context, conn *portConn, kind StreamKind, target string) (Hello, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(preambleTimeout)
	}
	_ = conn.SetDeadline(deadline) // on failure, the next write fails too
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	remote, err := p.exchange(ctx, conn, p.config.Identity.Hello(kind, target))
	if !stop() { // the function of AfterFunc runs, and may set the deadline later
		err = errors.Join(ctx.Err(), err)
	}
	p.noteHandshake(conn, err)
	return remote, err
}

// exchange does the TLS handshake, writes a hello and reads the other node's hello.
func (p *Port) exchange(ctx context.Context, conn *portConn, local Hello) (Hello, error) {
	if err := handshake(ctx, conn.Conn); err != nil {
		return Hello{}, err
	}
	if _, err := conn.Write(local.Encode()); err != nil {
		return Hello{}, err
	}
	return ReadHello(conn)
}

// noteHandshake logs why the handshake of a dialled connection failed. It counts a refusal if this node has refused the
// other node's certificate.
func (p *Port) noteHandshake(conn *portConn, err error) {
	var failed *handshakeError
	switch {
	case remoteAlert(err):
		p.refusals.noteRemote(RefusedTLS, err.Error(), conn)
	case errors.As(err, &failed) && !failed.ended() && !(p.security.PlainToo && failed.unspoken()):
		p.refusals.note(RefusedTLS, err.Error(), conn, conn.kind)
	}
}

// judgeDialled returns nil if the stream may be used, and a *refusedError if this node or the other node refuses it.
func (p *Port) judgeDialled(conn *portConn, target string, mark ID, remote *Hello, address string) error {
	refused := refusedError{reason: remote.Refusal, detail: remote.Detail, remote: true}
	if refused.reason != RefusedVersion { // a refusal for RefusedVersion does not name its sender
		if reason, detail := checkName(conn.Conn, remote); reason != 0 {
			p.refusals.note(reason, detail, conn, conn.kind)
			return &refusedError{reason: reason, detail: detail} // don't call Identity.Called: the hello may be forged
		}
	}
	switch refused.reason {
	case 0:
		refused.remote = false
		if refused.reason, refused.detail = p.config.Identity.Accept(conn.kind, target, mark, remote, address); refused.reason == 0 {
			refused.reason, refused.detail = p.register(conn, *remote)
		}
		if refused.reason != 0 {
			p.refusals.note(refused.reason, refused.detail, conn, conn.kind)
		}
	case RefusedKind: // usual while the other node starts
	case RefusedVersion:
		refused.detail = "no common version of the preamble with the node at " + address
		fallthrough
	default:
		p.refusals.noteRemote(refused.reason, refused.detail, conn)
	}
	p.config.Identity.Called(address, refused.reason, remote)
	if refused.reason == 0 {
		return nil
	}
	return &refused
}

// route reads the preamble of an accepted stream, replies with this node's preamble, and calls the handler.
func (p *Port) route(conn *portConn) {
	defer p.running.Done()
	_ = conn.SetDeadline(time.Now().Add(preambleTimeout)) // on failure, the next read fails too
	remote, err := ReadHello(conn)
	if err != nil {
		p.noteUnread(conn, err)
		_ = conn.Close()
		return
	}
	handler, reason, detail := p.judgeAccepted(conn, &remote)
	reply := p.config.Identity.Hello(remote.Kind, remote.Node)
	reply.Refusal, reply.Detail = reason, detail
	_, err = conn.Write(reply.Encode())
	if reason != 0 {
		p.refusals.note(reason, detail, conn, remote.Kind)
	} else if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if reason != 0 || err != nil {
		_ = conn.Close()
		return
	}
	handler(conn)
}

// noteUnread counts an accepted connection without a valid preamble. A connection that ended without a byte does not
// count: port checks, for example of a load balancer, open such connections.
func (p *Port) noteUnread(conn *portConn, err error) {
	var failed *handshakeError
	switch {
	case p.closing.Err() != nil: // this node has closed the connection
	case p.crowdedOut(conn):
		p.refusals.note(RefusedCrowded, "too many connections are silent", conn, 0)
	case errors.As(err, &failed):
		p.refusals.note(RefusedTLS, err.Error(), conn, 0)
	case errors.Is(err, io.EOF) && !errors.Is(err, errPreamble):
		p.log.Debug("a connection ended before its preamble", "from", conn.RemoteAddr())
	default:
		p.refusals.note(RefusedMalformed, err.Error(), conn, 0)
	}
}

// judgeAccepted returns the handler of an accepted stream, or the reason to refuse it.
func (p *Port) judgeAccepted(conn *portConn, remote *Hello) (handler func(net.Conn), reason Refusal, detail string) {
	from := conn.RemoteAddr().String()
	if remote.Refusal == RefusedVersion {
		return nil, RefusedVersion, "no common version of the preamble"
	}
	if reason, detail = checkCaller(p.config.Identity, conn.Conn, remote); reason != 0 {
		return nil, reason, detail
	}
	if reason, detail = p.config.Identity.Receive(remote, from); reason == 0 {
		reason, detail = p.register(conn, *remote)
	}
	if reason != 0 {
		return nil, reason, detail
	}
	conn.peer = *remote
	if handler = p.handlerFor(conn, remote.Kind); handler == nil {
		return nil, RefusedKind, "streams of that kind are not taken now"
	}
	if _, ok := certified(conn.Conn); !ok && p.security.TLS != nil {
		p.security.plain.Inc()
	}
	return handler, 0, ""
}

// HelloOf returns the hello from the other end of a stream, or a zero Hello for any other connection.
func HelloOf(conn net.Conn) Hello {
	if c, ok := conn.(*portConn); ok {
		return c.peer
	}
	return Hello{}
}

// RefusedFor reports whether err is a refusal of a stream for that reason, by this node or the other node.
func RefusedFor(err error, reason Refusal) bool {
	var refused *refusedError
	return errors.As(err, &refused) && refused.reason == reason
}

type refusedError struct {
	reason Refusal
	detail string
	remote bool // the other node refused
}

func (e *refusedError) Error() string {
	if e.remote {
		return "refused by the peer: " + e.detail
	}
	return e.detail
}

// refusalLogEvery is how often refusals with the same reason and side are logged, since a stranger may retry for ever.
const refusalLogEvery = 5 * time.Second

// refusals counts the streams that this node has refused, and logs refusals by both sides. Safe for concurrent use.
type refusals struct {
	log   hclog.Logger
	count *prometheus.CounterVec // by reason
	lines *wake.Pace[refusalLine]
}

// refusalLine groups refusals: of each group, one line is logged per refusalLogEvery.
type refusalLine struct {
	reason Refusal
	remote bool // the other node refused
}

func newRefusals(log hclog.Logger) *refusals {
	r := &refusals{
		log: log, lines: wake.NewPace[refusalLine](refusalLogEvery),
		count: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "signalbox_peer_streams_refused_total",
			Help: "Streams between this node and others that were refused by this node, by reason.",
		}, []string{"reason"}),
	}
	for reason := range refusalNames { // start at 0, so that the first refusal shows as a rise
		r.count.WithLabelValues(reason.String())
	}
	return r
}

// note counts and logs a refusal by this node.
func (r *refusals) note(reason Refusal, detail string, conn net.Conn, kind StreamKind) {
	r.count.WithLabelValues(reason.String()).Inc()
	if reason == RefusedKind { // usual while a node starts
		r.log.Debug("a stream was refused", "from", conn.RemoteAddr(), "kind", byte(kind))
		return
	}
	if unlogged, ok := r.lines.Pass(refusalLine{reason: reason}); ok {
		r.log.Warn("a stream of a peer is refused", "reason", reason, "detail", detail,
			"local", conn.LocalAddr(), "remote", conn.RemoteAddr(), "kind", byte(kind), "more", unlogged)
	}
}

// noteRemote logs a refusal by the other node, which counts it.
func (r *refusals) noteRemote(reason Refusal, detail string, conn net.Conn) {
	if unlogged, ok := r.lines.Pass(refusalLine{reason, true}); ok {
		r.log.Warn("a peer refuses this node's stream", "reason", reason, "detail", detail,
			"local", conn.LocalAddr(), "remote", conn.RemoteAddr(), "more", unlogged)
	}
}
