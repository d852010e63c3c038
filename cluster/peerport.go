package cluster

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// StreamKind is what a connection between peers is for: its preamble names it. A
// number is never reused; other values are refused.
type StreamKind byte

// The kinds of streams.
const (
	StreamRaft    StreamKind = 1 // Raft's own messages
	StreamForward StreamKind = 2 // commands and reads on their way to the leader
	StreamProbe   StreamKind = 3 // what a node with an empty folder asks before it joins
)

const (
	// maxPeerConns bounds the accepted connections. A peer has about ten; the
	// rest is room for reconnects, and a stranger's flood costs no more.
	maxPeerConns = 256
	// maxKindConns bounds the accepted connections of each kind but Raft's, so that
	// streams that stay open without a word leave places to Raft. A peer has one or
	// two of a kind.
	maxKindConns = 64
	// preambleTimeout is how long a new connection may take for its preamble.
	preambleTimeout = 5 * time.Second
	// portCloseTimeout is how long Close waits for handlers.
	portCloseTimeout = 5 * time.Second
)

var (
	errPeerPortClosed = errors.New("the peer port is closed")
	errPeerPortFull   = errors.New("the peer port has too many connections")
	errHandlersRun    = errors.New("handlers of the peer port still run")
)

// PeerPortConfig says how to open a [PeerPort]. All fields are needed.
type PeerPortConfig struct {
	Network   Network
	Bind      string // host:port to listen on; see [CheckPeerAddress]
	Advertise string // name:port that peers dial, resolved by them at each dial
	Identity  *identity
	Logger    hclog.Logger
}

// PeerPort is the one port between peers, and the place where connections to
// other peers' ports start. All methods are safe for concurrent use.
type PeerPort struct {
	network   Network
	advertise string
	identity  *identity
	refusals  *refusals
	opened    time.Time
	log       hclog.Logger
	listener  net.Listener
	closed    chan struct{}
	running   sync.WaitGroup // the accept loop and the handlers
	closeOnce sync.Once
	closeErr  error

	mu       sync.Mutex
	handlers map[StreamKind]func(net.Conn)
	conns    map[*peerConn]struct{} // open ones; nil once closed
	seats    map[string]*seat       // by node id; those with an open stream
	accepted int                    // how many of conns were accepted
	kinds    map[StreamKind]int     // how many of those are of a kind
	full     bool                   // a connection was refused since there was room
}

// OpenPeerPort binds the address and starts to accept. Every stream is refused
// until its kind has a handler.
func OpenPeerPort(config PeerPortConfig) (*PeerPort, error) {
	listener, err := config.Network.Listen(config.Bind)
	if err != nil {
		return nil, fmt.Errorf("open the peer port: %w", err)
	}
	log := config.Logger.Named("peerport")
	p := &PeerPort{
		network:   config.Network,
		advertise: config.Advertise,
		identity:  config.Identity,
		refusals:  newRefusals(log),
		opened:    time.Now(),
		log:       log,
		listener:  listener,
		closed:    make(chan struct{}),
		handlers:  map[StreamKind]func(net.Conn){},
		conns:     map[*peerConn]struct{}{},
		seats:     map[string]*seat{},
		kinds:     map[StreamKind]int{},
	}
	p.running.Add(1)
	go p.accept()
	return p, nil
}

// secure wraps every connection before its first byte: dialled is the address of
// one that was dialled, empty for one that was accepted. It must not block, so a
// handshake belongs to the first read or write, which have deadlines. This is the
// place for mutual TLS; without it only [CheckPeerAddress] keeps strangers out.
func (p *PeerPort) secure(conn net.Conn, dialled string) net.Conn {
	return conn
}

// Handle gives streams of a kind that arrive from now on to a handler, which
// runs in a goroutine of its own, owns the connection and must close it; nil
// refuses them. The port closes the connection under a handler when it closes
// itself.
func (p *PeerPort) Handle(kind StreamKind, handler func(net.Conn)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if handler == nil {
		delete(p.handlers, kind)
		return
	}
	p.handlers[kind] = handler
}

// Addr is the address that the port is bound to.
func (p *PeerPort) Addr() net.Addr { return p.listener.Addr() }

// Close stops listening, closes all connections, accepted and dialled, and waits
// until the handlers have returned, at most 5 s. Later calls return the same.
func (p *PeerPort) Close() error {
	p.closeOnce.Do(func() {
		close(p.closed)
		p.closeErr = p.listener.Close()
		for _, conn := range p.shut() {
			_ = conn.Close() // only ends it
		}
		if !p.await(portCloseTimeout) {
			p.closeErr = errors.Join(p.closeErr, errHandlersRun)
		}
	})
	return p.closeErr
}

// await waits until nothing of the port runs, or the time has passed.
func (p *PeerPort) await(limit time.Duration) bool {
	ended := make(chan struct{})
	go func() {
		p.running.Wait()
		close(ended)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
		return false
	}
}

// accept takes connections until the port closes.
func (p *PeerPort) accept() {
	defer p.running.Done()
	var pause time.Duration
	for {
		raw, err := p.listener.Accept()
		if err == nil {
			pause = 0
			p.admit(raw)
			continue
		}
		// Out of file descriptors, most likely: it may pass.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		timer := time.NewTimer(pause)
		select {
		case <-p.closed:
			timer.Stop()
			return
		case <-timer.C:
			p.log.Warn("cannot accept a connection", "error", err)
		}
	}
}

// admit starts to serve a connection if there is room for it.
func (p *PeerPort) admit(raw net.Conn) {
	conn := &peerConn{Conn: p.secure(raw, ""), port: p, accepted: true}
	if err := p.track(conn); err != nil {
		_ = raw.Close()
		return
	}
	go p.route(conn)
}
