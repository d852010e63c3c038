package peer

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/internal/wake"
)

// tcpDialTimeout bounds a dial with its look-up of the name. The look-up of a stopped container's name can take long to
// fail.
const tcpDialTimeout = 2 * time.Second

// tcpKeepAlive finds a vanished peer within 20 s, so that its connections don't count against the port's limit for
// long.
var tcpKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3}

// Network is how peers reach each other. Both methods are safe for concurrent use.
type Network interface {
	// Listen binds host:port.
	Listen(address string) (net.Listener, error)
	// Dial connects to host:port. It blocks until connected, refused, or ctx
	// ends, and for a bounded time if ctx has no deadline. The connection may be an [Ender].
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// Ender is a connection that shows its end without a read. An idle connection that was dialled has no reader, so its
// owner does not notice that the process at the other end has ended.
type Ender interface {
	// Ended reports whether the other side has closed or reset the connection, and no byte is left to read. It does not block.
	Ended() bool
}

// TCPNetwork is the network of the operating system. It resolves names at each dial,
// since a container that comes back under its name may have another IP, and gives up
// after 2 s.
type TCPNetwork struct {
	Stretch wake.Stretch // multiplies the 2 s
}

// Listen implements [Network].
func (TCPNetwork) Listen(address string) (net.Listener, error) {
	config := net.ListenConfig{KeepAliveConfig: tcpKeepAlive}
	return config.Listen(context.Background(), "tcp", address)
}

// Dial implements [Network].
func (n TCPNetwork) Dial(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: n.Stretch.Of(tcpDialTimeout), KeepAliveConfig: tcpKeepAlive}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return tcpConn{conn.(*net.TCPConn)}, nil
}

// tcpConn is a dialled connection.
type tcpConn struct{ *net.TCPConn }

var _ Ender = tcpConn{}

// CheckReachable returns why no other node can reach one at host:port, or nil. It resolves no
// name: it may have an address only later.
func CheckReachable(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not host:port", address)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
		return fmt.Errorf("%q has no port between 1 and 65535", address)
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil && !validHost(host):
		return fmt.Errorf("%q names no host", address)
	case err != nil:
		return nil
	case ip.Unmap().IsUnspecified(), ip.Unmap().IsMulticast(), ip.Unmap() == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("%q is not the address of one host", address)
	}
	return nil
}

var hostLabels = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*$`).MatchString

// validHost reports whether a text can be the name of a host. It allows underscores. The last part of a name must not
// be a number, so that 10.0.0.256 is not a name.
func validHost(name string) bool {
	name = strings.TrimSuffix(name, ".")
	last := name[strings.LastIndexByte(name, '.')+1:]
	return len(name) <= 253 && hostLabels(name) && strings.Trim(last, "0123456789") != ""
}

// resolveTimeout bounds the look-up of the name in a bind address.
const resolveTimeout = 2 * time.Second

// ErrNotLoopback refuses an address at which strangers can reach the port.
var ErrNotLoopback = errors.New("is not on loopback, and anyone who reaches the peer port can change the state: " +
	"bind it to loopback, unless only peers can reach it")

// CheckAddress returns why a peer port must not be bound to host:port, or nil. Without TLS anyone who reaches the port
// can write to the log, so all addresses of the host must be loopback addresses, unless the network is trusted. It
// blocks for up to 2 s while it looks a name up.
func CheckAddress(address string, trusted bool) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("peer address %q is not host:port: %w", address, err)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("peer address %q has no port between 0 and 65535", address)
	}
	if trusted {
		return nil
	}
	loopback, err := OnlyLoopback(host)
	if err != nil {
		return fmt.Errorf("peer address %q: %w", address, err)
	}
	if !loopback {
		return fmt.Errorf("peer address %q %w", address, ErrNotLoopback)
	}
	return nil
}

// OnlyLoopback reports whether every address of the host is a loopback address. An empty host means all interfaces, so
// the result is false. It blocks for up to resolveTimeout while it looks a name up.
func OnlyLoopback(host string) (bool, error) {
	if host == "" {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupIPAddr(ctx, host) // an IP needs no look-up
	if err != nil {
		return false, err
	}
	for _, a := range addresses {
		if !a.IP.IsLoopback() {
			return false, nil
		}
	}
	return len(addresses) > 0, nil
}

// folderMark separates the address and the folder of a member in Raft's configuration. No address contains it.
const folderMark = "#"

// MarkAddress returns the address of a member as Raft's configuration has it: with the id of the folder that was
// admitted under its node id. So the admission is replicated, and takes effect on a node exactly when the configuration
// is in its log. Raft keeps its connections by this text, so no vote and no acknowledgement comes over a connection to
// another folder.
func MarkAddress(address string, folder ID) raft.ServerAddress {
	return raft.ServerAddress(PlainAddress(raft.ServerAddress(address)) + folderMark + folder.String())
}

// SplitAddress returns the address to dial, and the folder that was admitted. The folder is zero unless a leader has
// readmitted the member, or a recovery has begun the cluster with it: other members keep the folder with which they
// came in.
func SplitAddress(marked raft.ServerAddress) (address string, folder ID) {
	address, mark, ok := strings.Cut(string(marked), folderMark)
	if decoded, err := hex.DecodeString(mark); ok && err == nil && len(decoded) == len(folder) {
		folder = ID(decoded)
	}
	return address, folder
}

// PlainAddress returns the address to dial.
func PlainAddress(marked raft.ServerAddress) string {
	address, _ := SplitAddress(marked)
	return address
}

// MoveAddress returns address with the mark of the address before, if it had one.
func MoveAddress(before raft.ServerAddress, address string) raft.ServerAddress {
	if _, folder := SplitAddress(before); folder != (ID{}) {
		return MarkAddress(address, folder)
	}
	return raft.ServerAddress(address)
}
