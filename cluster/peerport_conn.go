package cluster

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
)

// peerConn is a connection that its port knows of, so that it can be counted and
// closed from outside.
type peerConn struct {
	net.Conn
	port     *PeerPort
	accepted bool
	kind     StreamKind // 0 until the preamble was read; guarded by port.mu
	seat     *seat      // that the peer has; nil before its preamble; guarded by port.mu
	peer     hello      // the other side's; set before the connection is handed on

	heard atomic.Int64 // the port's age when something was read last
}

// Read says io.EOF where this side itself has closed the connection, as a reader
// does that stops in order: Raft would log each of its idle connections as an
// error at every shutdown.
func (c *peerConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard.Store(int64(c.port.age()))
	}
	if errors.Is(err, net.ErrClosed) {
		err = io.EOF
	}
	return n, err
}

// Close may be called often, from both sides of the port.
func (c *peerConn) Close() error {
	c.port.forget(c)
	return c.Conn.Close()
}

// track counts a connection as open and, if it was accepted, its handler as
// running. It fails when the port is closed or full.
func (p *PeerPort) track(conn *peerConn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		return errPeerPortClosed
	}
	if conn.accepted {
		if p.accepted >= maxPeerConns {
			if !p.full { // once, not for each of a flood
				p.log.Warn("connections are refused", "error", errPeerPortFull, "limit", maxPeerConns)
			}
			p.full = true
			return errPeerPortFull
		}
		p.full = false
		p.accepted++
		p.kinds[0]++
		p.running.Add(1)
	}
	p.conns[conn] = struct{}{}
	return nil
}

// forget drops a connection that is closed.
func (p *PeerPort) forget(conn *peerConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, open := p.conns[conn]; !open {
		return
	}
	delete(p.conns, conn)
	p.leave(conn)
	if conn.accepted {
		p.accepted--
		p.kinds[conn.kind]--
	}
}

// claim finds the handler of a kind and marks the connection as of that kind, in
// one step: closeKind, called after the handler was taken away, misses none. It
// returns nil, too, for one connection too many of a kind.
func (p *PeerPort) claim(conn *peerConn, kind StreamKind) func(net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, open := p.conns[conn]; !open { // closed by the port meanwhile
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

// closeKind closes the connections of a kind, accepted and dialled.
func (p *PeerPort) closeKind(kind StreamKind) {
	p.mu.Lock()
	var found []*peerConn
	for conn := range p.conns {
		if conn.kind == kind {
			found = append(found, conn)
		}
	}
	p.mu.Unlock()
	for _, conn := range found {
		_ = conn.Close() // only ends it
	}
}

// shut lets no further connection in and returns the open ones.
func (p *PeerPort) shut() []net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	open := make([]net.Conn, 0, len(p.conns))
	for conn := range p.conns {
		open = append(open, conn.Conn)
	}
	p.conns = nil
	return open
}
