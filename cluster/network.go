package cluster

import (
	"context"
	"net"
	"time"
)

// tcpDialTimeout bounds a dial, the resolving of the name included: the name of
// a stopped container can take long to fail.
const tcpDialTimeout = 2 * time.Second

// tcpKeepAlive finds a peer that vanished without a word within 20 s, so that its
// connections don't count against the port's limit for long.
var tcpKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3}

// Network is how peers reach each other. Both calls are safe for concurrent use.
type Network interface {
	// Listen binds host:port.
	Listen(address string) (net.Listener, error)
	// Dial connects to host:port. It blocks until connected, refused, or ctx
	// ends, and for a bounded time if ctx has no deadline.
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// TCPNetwork is the real one. It resolves names at each dial, since a container
// that comes back under its name may have another IP, and gives up after 2 s.
type TCPNetwork struct {
	Multiplier int // of that time; 0: 1
}

// Listen implements [Network].
func (TCPNetwork) Listen(address string) (net.Listener, error) {
	config := net.ListenConfig{KeepAliveConfig: tcpKeepAlive}
	return config.Listen(context.Background(), "tcp", address)
}

// Dial implements [Network].
func (n TCPNetwork) Dial(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: stretch(n.Multiplier).of(tcpDialTimeout), KeepAliveConfig: tcpKeepAlive}
	return dialer.DialContext(ctx, "tcp", address)
}
