package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// maxConns bounds the accepted connections. A peer has about ten; the rest is room for reconnects. The limit also
	// bounds the cost of a flood of connections.
	maxConns = 256
	// maxKindConns bounds the accepted connections of each kind except Raft's, to leave room for Raft. A peer has one
	// or two of a kind.
	maxKindConns = 64
	// maxUnknownConns bounds the accepted connections that have not sent their preamble. When it is exceeded, the port
	// closes the oldest such connection of the host that has most of them. To lock a peer out, strangers would have to
	// open 128 connections from many hosts within the time of a handshake.
	maxUnknownConns = 128
	// preambleTimeout bounds the TLS handshake and the preamble of a new connection.
	preambleTimeout  = 5 * time.Second
	portCloseTimeout = 5 * time.Second
)

var (
	errPortClosed  = errors.New("the peer port is closed")
	errPortFull    = errors.New("the peer port has too many connections")
	errHandlersRun = errors.New("handlers of the peer port still run")
)

// Identity decides with which nodes this node exchanges streams, and what its own hellos say. Its methods are called
// from many goroutines, and must not block.
type Identity interface {
	// Hello returns what this node sends at the beginning of a stream to node target ("" if the id is not known).
	Hello(kind StreamKind, target string) Hello
	// Known returns the id of the member at an address, or "". The address may have a mark, see MarkAddress.
	Known(address string) (node string)
	// Receive judges the hello of a node that has dialled this node from an address. detail explains a refusal; the
	// port logs it and sends it to the other node.
	Receive(remote *Hello, from string) (reason Refusal, detail string)
	// Accept judges the hello of a node that this node has dialled at an address. The dialler expected node target with
	// folder mark ("" and zero if not known).
	Accept(kind StreamKind, target string, mark ID, remote *Hello, address string) (reason Refusal, detail string)
	// Admits reports whether this node accepts a certificate with that node id: the id of a member, or of a listed peer
	// that may become a member.
	Admits(node string) bool
	// Called records the result of a dial.
	Called(address string, reason Refusal, remote *Hello)
}

// Config says how to open a [Port]. All fields but Security are needed.
type Config struct {
	Network   Network
	Bind      string // host:port to listen on; see [CheckAddress]
	Advertise string // name:port that peers dial; they resolve the name at each dial
	Identity  Identity
	Times     wake.Stretch // stretches the silence after which a process counts as dead
	Security  Security
	Logger    hclog.Logger
}

// Port is the single port between peers: it accepts connections and dials other ports. All methods are safe for
// concurrent use.
type Port struct {
	config    Config
	security  *security
	refusals  *refusals
	opened    time.Time
	log       hclog.Logger
	listener  net.Listener
	closing   context.Context // ends when the port closes
	end       context.CancelCauseFunc
	running   sync.WaitGroup // the accept loop and the handlers
	closeOnce sync.Once
	closeErr  error

	mu        sync.Mutex
	handlers  map[StreamKind]func(net.Conn)
	conns     map[*portConn]struct{} // the open connections; nil after Close
	processes map[string]*process    // the processes with an open stream, by node id
	accepted  int                    // the number of accepted connections in conns
	kinds     map[StreamKind]int     // the number of accepted connections of each kind; kind 0: the preamble was not read yet
	arrivals  uint64                 // connections accepted so far
	full      bool                   // a refusal for lack of room was logged since the port last had room
}

// OpenPort binds the address and starts to accept connections. It refuses a kind of stream until Handle sets its
// handler.
func OpenPort(config Config) (*Port, error) {
	listener, err := config.Network.Listen(config.Bind)
	if err != nil {
		return nil, fmt.Errorf("open the peer port: %w", err)
	}
	log := config.Logger.Named("peerport")
	closing, end := context.WithCancelCause(context.Background())
	p := &Port{
		config: config, security: newSecurity(config.Security), refusals: newRefusals(log), opened: time.Now(),
		log: log, listener: listener, closing: closing, end: end,
		handlers:  map[StreamKind]func(net.Conn){},
		conns:     map[*portConn]struct{}{},
		processes: map[string]*process{},
		kinds:     map[StreamKind]int{},
	}
	p.running.Add(1)
	go p.accept()
	return p, nil
}

// Handle sets the handler for later streams of a kind; nil refuses them. The handler runs in a new goroutine, owns the
// connection and must close it. Close of the port closes the connection even while its handler runs.
func (p *Port) Handle(kind StreamKind, handler func(net.Conn)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if handler == nil {
		delete(p.handlers, kind)
		return
	}
	p.handlers[kind] = handler
}

// Metrics returns the counts of streams that this node has refused, by reason, and of plain streams that it has used
// although it has a certificate.
func (p *Port) Metrics() prometheus.Collector { return collectors{p.refusals.count, p.security.plain} }

// collectors combines several collectors.
type collectors []prometheus.Collector

// Describe implements [prometheus.Collector].
func (all collectors) Describe(to chan<- *prometheus.Desc) {
	for _, c := range all {
		c.Describe(to)
	}
}

// Collect implements [prometheus.Collector].
func (all collectors) Collect(to chan<- prometheus.Metric) {
	for _, c := range all {
		c.Collect(to)
	}
}

// Addr returns the address that the port is bound to.
func (p *Port) Addr() net.Addr { return p.listener.Addr() }

// Close stops listening, closes all connections, and waits up to 5 s until the handlers have returned. Later calls
// return the same error.
func (p *Port) Close() error {
	p.closeOnce.Do(func() {
		p.end(errPortClosed)
		p.closeErr = p.listener.Close()
		for _, conn := range p.takeConns() {
			_ = conn.Close()
		}
		if !wake.Within(portCloseTimeout, p.running.Wait) {
			p.closeErr = errors.Join(p.closeErr, errHandlersRun)
		}
	})
	return p.closeErr
}

func (p *Port) accept() {
	defer p.running.Done()
	var pause time.Duration
	for {
		raw, err := p.listener.Accept()
		if err == nil {
			pause = 0
			p.admit(raw)
			continue
		}
		// Most likely the process has no file descriptor left. That may pass.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		if wake.Pause(p.closing, pause) != nil {
			return
		}
		p.log.Warn("cannot accept a connection", "error", err)
	}
}

// admit serves a new connection if the port has room for it.
func (p *Port) admit(raw net.Conn) {
	conn := &portConn{Conn: p.security.accepted(raw), raw: raw, port: p, accepted: true}
	if err := p.track(conn); err != nil {
		_ = raw.Close()
		return
	}
	go p.route(conn)
}

// portConn is a connection that the port counts, and closes when the port closes.
type portConn struct {
	net.Conn          // the TLS connection, if TLS is used
	raw      net.Conn // Close closes it without TLS, whose closing alert could block
	port     *Port
	accepted bool
	arrival  uint64     // its number among the accepted connections; guarded by port.mu
	ended    bool       // closed by endOldestUnknown; guarded by port.mu
	kind     StreamKind // 0 until the preamble was read; guarded by port.mu
	process  *process   // the process at the other end; nil until the preamble was read; guarded by port.mu
	peer     Hello      // the other side's hello; set before the handler starts

	readAt atomic.Int64 // the port's age at the last read that returned bytes
}

// Read returns io.EOF after this side has closed the connection; any other error would make Raft log an error for each
// idle connection at every shutdown. Read also returns io.EOF if the other side has closed a TLS connection without
// TLS's closing alert, as ports do. A cut message is noticed all the same, since each message has its length.
func (c *portConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.readAt.Store(int64(c.port.age()))
	}
	var failed *handshakeError
	switch {
	case err == nil, errors.As(err, &failed):
	case errors.Is(err, net.ErrClosed), c.Conn != c.raw && errors.Is(err, io.ErrUnexpectedEOF):
		err = io.EOF
	}
	return n, err
}

// Close closes the connection at once, and may be called again.
func (c *portConn) Close() error {
	c.port.forget(c)
	return c.raw.Close()
}

// track adds a connection to the port; if it was accepted, its handler counts as running. It fails if the port is
// closed or full.
func (p *Port) track(conn *portConn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		return errPortClosed
	}
	if conn.accepted {
		if p.accepted >= maxConns {
			if !p.full { // a flood of connections is logged once
				p.log.Warn("connections are refused", "error", errPortFull, "limit", maxConns)
			}
			p.full = true
			p.refusals.count.WithLabelValues(RefusedCrowded.String()).Inc()
			return errPortFull
		}
		p.full = false
		p.accepted++
		p.kinds[0]++
		p.arrivals++
		conn.arrival = p.arrivals
		p.endOldestUnknown()
		p.running.Add(1)
	}
	p.conns[conn] = struct{}{}
	return nil
}

// endOldestUnknown enforces maxUnknownConns: it closes the oldest connection without a preamble of the host that has
// most of them. The goroutine of that connection then calls forget. The caller holds the lock, and has counted the new
// connection but not added it to conns.
func (p *Port) endOldestUnknown() {
	if p.kinds[0] <= maxUnknownConns {
		return
	}
	crowds := map[string]int{}
	oldest := map[string]*portConn{}
	worst := ""
	for conn := range p.conns {
		if !conn.accepted || conn.kind != 0 || conn.ended {
			continue
		}
		host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
		crowds[host]++
		if first := oldest[host]; first == nil || conn.arrival < first.arrival {
			oldest[host] = conn
		}
		if crowds[host] > crowds[worst] {
			worst = host
		}
	}
	if conn := oldest[worst]; conn != nil {
		conn.ended = true
		_ = conn.raw.Close()
	}
}

// crowdedOut reports whether endOldestUnknown has closed the connection.
func (p *Port) crowdedOut(conn *portConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return conn.ended
}

// EndStrangers closes the accepted TLS streams of nodes that Identity no longer admits, for example of a removed
// member.
func (p *Port) EndStrangers() {
	p.mu.Lock()
	var streams []*portConn
	for conn := range p.conns {
		if conn.accepted && conn.kind != 0 {
			streams = append(streams, conn)
		}
	}
	p.mu.Unlock()
	for _, conn := range streams {
		if name, ok := certified(conn.Conn); ok && !p.config.Identity.Admits(name) {
			p.refusals.note(RefusedStranger, fmt.Sprintf("node %q is a member no longer", name), conn, conn.kind)
			_ = conn.Close()
		}
	}
}

// forget removes a closed connection from the port.
func (p *Port) forget(conn *portConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, open := p.conns[conn]; !open {
		return
	}
	delete(p.conns, conn)
	p.unregister(conn)
	if conn.accepted {
		p.accepted--
		p.kinds[conn.kind]--
	}
}

// isOpen reports whether the port still has the connection.
func (p *Port) isOpen(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	tracked, ok := conn.(*portConn)
	_, open := p.conns[tracked]
	return ok && open
}

// handlerFor returns the handler of a kind, or nil if the kind has no handler or too many connections. While it holds
// the lock, it also marks the connection with the kind, so that closeKind finds the connection after Handle has removed
// the handler.
func (p *Port) handlerFor(conn *portConn, kind StreamKind) func(net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, open := p.conns[conn]; !open { // the port has closed the connection
		return nil
	}
	p.kinds[conn.kind]--
	conn.kind = kind
	p.kinds[kind]++
	if kind != StreamRaft && p.kinds[kind] > maxKindConns {
		p.log.Debug("a stream is refused: there are too many of its kind", "kind", byte(kind), "from", conn.RemoteAddr(), "limit", maxKindConns)
		return nil
	}
	return p.handlers[kind]
}

// closeKind closes all connections of a kind.
func (p *Port) closeKind(kind StreamKind) {
	p.mu.Lock()
	var found []*portConn
	for conn := range p.conns {
		if conn.kind == kind {
			found = append(found, conn)
		}
	}
	p.mu.Unlock()
	for _, conn := range found {
		_ = conn.Close()
	}
}

// age returns how long the port has been open, by the monotonic clock.
func (p *Port) age() time.Duration { return time.Since(p.opened) }

// takeConns makes the port refuse new connections, and returns the open connections.
func (p *Port) takeConns() []net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	open := make([]net.Conn, 0, len(p.conns))
	for conn := range p.conns {
		open = append(open, conn.raw)
	}
	p.conns = nil
	return open
}

// watchedConn calls ended when a read fails for the first time.
type watchedConn struct {
	net.Conn
	ended func(Hello)
	once  sync.Once
}

// Read implements [net.Conn].
func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.once.Do(func() { c.ended(HelloOf(c.Conn)) })
	}
	return n, err
}
