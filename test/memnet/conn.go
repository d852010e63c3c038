package memnet

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// wire is one connection: two streams, one each way.
type wire struct {
	network *Network
	link    link     // from the dialling host to the listening one
	ends    [2]*conn // the dialling end, the listening end
	open    atomic.Int32
}

// newWire makes a connection along a link. The caller holds the network's mu.
func newWire(n *Network, there link, dialler, listener addr) *wire {
	w := &wire{network: n, link: there}
	w.open.Store(2)
	out := newStream(n.links[there])
	back := newStream(n.links[link{there.to, there.from}])
	w.ends[0] = &conn{wire: w, in: back, out: out, local: dialler, remote: listener}
	w.ends[1] = &conn{wire: w, in: out, out: back, local: listener, remote: dialler}
	return w
}

// follow makes the stream that runs along l behave as c says.
func (w *wire) follow(l link, c condition) {
	if l == w.link {
		w.ends[0].out.behave(c)
	}
	if l == (link{w.link.to, w.link.from}) {
		w.ends[1].out.behave(c)
	}
}

// reset fails both ends at once.
func (w *wire) reset() {
	w.ends[0].out.reset()
	w.ends[1].out.reset()
}

// conn is one end of a wire.
type conn struct {
	wire          *wire
	in, out       *stream
	local, remote addr
	once          sync.Once
}

// afterHandshake returns the connection once a round trip has passed.
func (c *conn) afterHandshake(ctx context.Context, roundTrip time.Duration) (net.Conn, error) {
	if roundTrip == 0 {
		return c, nil
	}
	timer := time.NewTimer(roundTrip)
	defer timer.Stop()
	select {
	case <-timer.C:
		return c, nil
	case <-ctx.Done():
		_ = c.Close() // never fails
		return nil, fmt.Errorf("dial %s: %w", c.remote, ctx.Err())
	}
}

// Ended reports whether the other end was closed or reset, and no byte is left to read.
func (c *conn) Ended() bool { return c.in.ended() }

func (c *conn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c *conn) Write(b []byte) (int, error) { return c.out.write(b) }

// Close ends both directions. The other end reads the bytes sent before, then io.EOF;
// both travel along the link, so a cut holds them back.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.out.closeWriter()
		c.in.closeReader()
		if c.wire.open.Add(-1) == 0 {
			c.wire.network.forget(c.wire)
		}
	})
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readBy, t)
	c.out.setDeadline(&c.out.writeBy, t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readBy, t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(&c.out.writeBy, t)
	return nil
}
