package peer

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

var errRaftClosed = errors.New("raft's share of the peer port is closed")

// RaftLayer is Raft's transport over a [Port]. It implements [raft.StreamLayer]. All methods are safe for concurrent
// use.
type RaftLayer struct {
	port    *Port
	ended   func(Hello) // called when an accepted stream has ended
	conns   chan net.Conn
	once    sync.Once
	closing context.Context // ends when the layer or the port closes
	end     context.CancelCauseFunc

	mu        sync.Mutex
	processes map[string]Hello // by node id: the last process that opened a stream
}

var _ raft.StreamLayer = (*RaftLayer)(nil)

// OpenRaft makes the port accept Raft's streams. Before that the port refuses them, because a voter that has lost its
// folder must not vote before the cluster has admitted it again. Only one layer may be open at a time.
//
// ended is called whenever an accepted stream of another process has ended. It must not block. When a member restarts,
// ended is called for its former process before Raft reads from the new process. At that time Raft still names the
// former process as the leader, if it led. After that, ended is not called for the former process again.
func (p *Port) OpenRaft(ended func(from Hello)) (*RaftLayer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.handlers[StreamRaft] != nil {
		return nil, errors.New("raft's share of the peer port is already open")
	}
	l := &RaftLayer{port: p, ended: ended, conns: make(chan net.Conn), processes: map[string]Hello{}}
	l.closing, l.end = context.WithCancelCause(p.closing)
	p.handlers[StreamRaft] = l.serve
	return l, nil
}

// serve passes a stream to Accept.
func (l *RaftLayer) serve(conn net.Conn) {
	l.begin(conn)
	select {
	case l.conns <- &watchedConn{Conn: conn, ended: l.finish}:
	case <-l.closing.Done():
		_ = conn.Close()
	}
}

// begin records the process of a new stream. If the member had another process before, begin calls ended for it. It
// ignores a stream that is closed already, for example because a later process of the member has registered.
func (l *RaftLayer) begin(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	process := HelloOf(conn)
	if !l.port.isOpen(conn) {
		return
	}
	if former, ok := l.processes[process.Node]; ok && !former.SameProcess(&process) {
		l.ended(former)
	}
	l.processes[process.Node] = process
}

// finish calls ended for the process of a stream, unless a later process of the member has opened a stream.
func (l *RaftLayer) finish(process Hello) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last := l.processes[process.Node]; last.SameProcess(&process) {
		l.ended(process)
	}
}

// Accept implements [net.Listener].
func (l *RaftLayer) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closing.Done():
		return nil, context.Cause(l.closing)
	}
}

// Dial implements [raft.StreamLayer]. It resolves the name at each call. Close interrupts it, so that a host that does
// not reply does not delay Raft's shutdown. A dial to this node's own address connects to its Raft within the process.
func (l *RaftLayer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(l.closing, timeout)
	defer cancel()
	if PlainAddress(address) == l.Addr().String() {
		return l.dialSelf(ctx)
	}
	conn, err := l.port.Dial(ctx, StreamRaft, string(address))
	if l.closing.Err() == nil {
		return conn, err
	}
	if err == nil { // Close may have missed this new connection
		_ = conn.Close()
	}
	return nil, context.Cause(l.closing)
}

func (l *RaftLayer) dialSelf(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		context.AfterFunc(l.closing, func() { _, _ = near.Close(), far.Close() }) // neither can fail
		return near, nil
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), near.Close(), far.Close())
	}
}

// Close makes the port refuse Raft's streams again, and closes the open streams, so that pending calls fail at once.
// The port stays open.
func (l *RaftLayer) Close() error {
	l.once.Do(func() {
		l.port.Handle(StreamRaft, nil)
		l.end(errRaftClosed)
		l.port.closeKind(StreamRaft)
	})
	return nil
}

// Addr returns the advertised name:port, which Raft sends to peers as this node's address. The stream layer of
// hashicorp/raft would require an IP instead of the name.
func (l *RaftLayer) Addr() net.Addr { return peerName(l.port.config.Advertise) }

type peerName string

func (peerName) Network() string  { return "tcp" }
func (n peerName) String() string { return string(n) }
