package cluster

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

var errRaftClosed = errors.New("raft's share of the peer port is closed")

// RaftLayer is Raft's share of a [PeerPort]. It implements [raft.StreamLayer].
// All methods are safe for concurrent use.
type RaftLayer struct {
	port   *PeerPort
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

var _ raft.StreamLayer = (*RaftLayer)(nil)

// OpenRaft makes the port accept Raft's streams, which it refuses until then: a
// voter that lost its folder has forgotten its votes and must not cast another
// before the cluster has admitted it anew. One layer may be open at a time.
func (p *PeerPort) OpenRaft() (*RaftLayer, error) {
	l := &RaftLayer{port: p, conns: make(chan net.Conn), closed: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.handlers[StreamRaft] != nil {
		return nil, errors.New("raft's share of the peer port is already open")
	}
	p.handlers[StreamRaft] = l.serve
	return l, nil
}

// serve hands a stream over to Accept.
func (l *RaftLayer) serve(conn net.Conn) {
	select {
	case l.conns <- conn:
	case <-l.closed:
		_ = conn.Close()
	case <-l.port.closed:
		_ = conn.Close()
	}
}

// Accept implements [net.Listener].
func (l *RaftLayer) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, errRaftClosed
	case <-l.port.closed:
		return nil, errPeerPortClosed
	}
}

// Dial implements [raft.StreamLayer]. The name is resolved anew each time.
func (l *RaftLayer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	go func() { // a dial to a host that swallows everything must not hold up the end of Raft
		select {
		case <-l.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	conn, err := l.port.Dial(ctx, StreamRaft, string(address))
	select {
	case <-l.closed:
		if err == nil { // Close may have missed it
			_ = conn.Close()
		}
		return nil, errRaftClosed
	default:
		return conn, err
	}
}

// Close refuses Raft's streams again and closes those there are, accepted and
// dialled, so that calls under way fail at once. The port stays open.
func (l *RaftLayer) Close() error {
	l.once.Do(func() {
		l.port.Handle(StreamRaft, nil)
		close(l.closed)
		l.port.closeKind(StreamRaft)
	})
	return nil
}

// Addr is the advertised name:port, which Raft sends to its peers as this node's
// address. The library's own layer wants an IP there.
func (l *RaftLayer) Addr() net.Addr { return peerName(l.port.advertise) }

// peerName is a name:port that only a dial resolves.
type peerName string

func (peerName) Network() string  { return "tcp" }
func (n peerName) String() string { return string(n) }
