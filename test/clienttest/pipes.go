package clienttest

import (
	"context"
	"errors"
	"net"
	"sync"
)

var errCutOff = errors.New("the test has cut this client off")

// pipes is a network in memory with one listener, the API's.
type pipes struct {
	dialled chan net.Conn
	closed  chan struct{}
	close   sync.Once

	mu   sync.Mutex
	cut  bool
	open map[*pipe]struct{}
}

func newPipes() *pipes {
	return &pipes{dialled: make(chan net.Conn), closed: make(chan struct{}), open: map[*pipe]struct{}{}}
}

// pipe is a client's end of a connection.
type pipe struct {
	net.Conn
	network *pipes
}

// Close implements net.Conn.
func (p *pipe) Close() error {
	p.network.mu.Lock()
	delete(p.network.open, p)
	p.network.mu.Unlock()
	return p.Conn.Close()
}

// dial connects a client, unless it is cut off.
func (n *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	dialled := &pipe{near, n}
	n.mu.Lock()
	cut := n.cut
	if !cut {
		n.open[dialled] = struct{}{}
	}
	n.mu.Unlock()
	if cut {
		return nil, errCutOff
	}
	select {
	case n.dialled <- far:
		return dialled, nil
	case <-n.closed:
		return nil, errors.Join(net.ErrClosed, dialled.Close())
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), dialled.Close())
	}
}

// setCut breaks all connections, or lets clients connect again.
func (n *pipes) setCut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut = cut; !cut {
		return
	}
	for p := range n.open {
		_ = p.Conn.Close() // a pipe's end closes without an error
		delete(n.open, p)
	}
}

// Accept implements net.Listener.
func (n *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-n.dialled:
		return conn, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (n *pipes) Close() error {
	n.close.Do(func() { close(n.closed) })
	return nil
}

// Addr implements net.Listener.
func (n *pipes) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

// alone is the network between the nodes of a cluster that has one: no node connects.
type alone struct{}

// Listen implements peer.Network.
func (alone) Listen(string) (net.Listener, error) { return newPipes(), nil }

// Dial implements peer.Network.
func (alone) Dial(context.Context, string) (net.Conn, error) {
	return nil, errors.New("a cluster of one node has no peers")
}
