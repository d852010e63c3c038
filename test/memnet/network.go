package memnet

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// dialTimeout bounds a dial whose context has no deadline.
const dialTimeout = 2 * time.Second

// backlog is how many connections wait to be accepted; the next dial gets no answer.
const backlog = 128

// Network joins hosts. The zero value is not usable; call New.
type Network struct {
	mu        sync.Mutex
	hosts     map[string]*Host
	listeners map[string]*listener // by address, exactly as listened on
	links     map[link]condition   // absent: whole and without delay
	wires     map[*wire]struct{}   // connections with an end still open
	changed   chan struct{}        // closed and replaced when a link changes
	lastPort  int
}

// link is one direction between two hosts.
type link struct{ from, to string }

// condition is how a link behaves.
type condition struct {
	cut   bool
	delay time.Duration
	line  *line // nil: as fast as it is written, and whole
}

// New returns a network without hosts and without faults.
func New() *Network {
	return &Network{
		hosts:     map[string]*Host{},
		listeners: map[string]*listener{},
		links:     map[link]condition{},
		wires:     map[*wire]struct{}{},
		changed:   make(chan struct{}),
		lastPort:  49151, // the first port given out is the first dynamic one
	}
}

// Host returns the host of that name, made at the first call. Faults name hosts,
// not addresses.
func (n *Network) Host(name string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	h, ok := n.hosts[name]
	if !ok {
		h = &Host{network: n, name: name}
		n.hosts[name] = h
	}
	return h
}

// port returns a port that is free. The caller holds mu.
func (n *Network) port() string {
	n.lastPort++
	return strconv.Itoa(n.lastPort)
}

// Host is one machine's view of the network.
type Host struct {
	network *Network
	name    string
}

// Listen takes the address, which no other listener of the whole network may
// have. Port 0 becomes a free one.
func (h *Host) Listen(address string) (net.Listener, error) {
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if port == "0" {
		address = net.JoinHostPort(name, n.port())
	}
	if n.listeners[address] != nil {
		return nil, fmt.Errorf("listen %s: %w", address, syscall.EADDRINUSE)
	}
	l := &listener{host: h, address: addr(address), queue: make(chan *conn, backlog), closed: make(chan struct{})}
	n.listeners[address] = l
	return l, nil
}

// Dial connects to the listener at exactly that address. It is refused at once
// if there is none, and waits until ctx ends, at most 2 s, while a cut in either
// direction or a full backlog would swallow the handshake.
func (h *Host) Dial(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	for {
		near, roundTrip, changed, err := h.connect(address)
		if err != nil {
			return nil, fmt.Errorf("dial %s: %w", address, err)
		}
		if near != nil {
			return near.afterHandshake(ctx, roundTrip)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("dial %s: %w", address, ctx.Err())
		}
	}
}

// connect joins this host to the listener, or returns a channel that closes when
// it is worth another try.
func (h *Host) connect(address string) (*conn, time.Duration, <-chan struct{}, error) {
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.listeners[address]
	if l == nil {
		return nil, 0, nil, syscall.ECONNREFUSED
	}
	there, back := link{h.name, l.host.name}, link{l.host.name, h.name}
	if n.links[there].cut || n.links[back].cut {
		return nil, 0, n.changed, nil
	}
	w := newWire(n, there, addr(net.JoinHostPort(h.name, n.port())), addr(address))
	select {
	case l.queue <- w.ends[1]:
	default:
		return nil, 0, n.changed, nil
	}
	n.wires[w] = struct{}{}
	return w.ends[0], n.links[there].delay + n.links[back].delay, nil, nil
}

// forget drops a connection both of whose ends are closed.
func (n *Network) forget(w *wire) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.wires, w)
}

// listener accepts connections to one address.
type listener struct {
	host    *Host
	address addr
	queue   chan *conn
	once    sync.Once
	closed  chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed: // first: a closed listener accepts no connection that still waits
		return nil, fmt.Errorf("accept %s: %w", l.address, net.ErrClosed)
	default:
	}
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.closed:
		return nil, fmt.Errorf("accept %s: %w", l.address, net.ErrClosed)
	}
}

func (l *listener) Addr() net.Addr { return l.address }

// Close frees the address and resets the connections that were not accepted.
func (l *listener) Close() error {
	l.once.Do(func() {
		n := l.host.network
		n.mu.Lock()
		delete(n.listeners, string(l.address))
		n.mu.Unlock()
		close(l.closed)
		for {
			select {
			case c := <-l.queue:
				c.wire.reset()
			default:
				return
			}
		}
	})
	return nil
}

// addr is host:port, never resolved.
type addr string

func (addr) Network() string  { return "memnet" }
func (a addr) String() string { return string(a) }
