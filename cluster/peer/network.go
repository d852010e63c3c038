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

// tcpDialTimeout bounds the look-up of a name and the dial. To look up a stopped container's name can take long.
const tcpDialTimeout = 2 * time.Second

// tcpKeepAlive detects a vanished peer within 20 s, so that the port soon has room for other connections.
var tcpKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3}

// Network is how peers reach each other. All methods are safe for concurrent use.
type Network interface {
	// Listen binds host:port.
	Listen(address string) (net.Listener, error)
	// Dial connects to host:port. It blocks until it is connected or refused, until ctx ends, or for a bounded time if
	// ctx has no deadline. The connection may be an [Ender].
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// Ender is a connection that can report its end without a read. A node does not read from an idle connection that it
// has dialled, and so would not notice that the other process has ended.
type Ender interface {
	// Ended reports whether the other side has closed or reset the connection, and all bytes were read. It does not
	// block.
	Ended() bool
}

// TCPNetwork is the network of the operating system. It resolves a name at each dial, since a container may come back
// with another IP. A dial takes at most 2 s.
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

type tcpConn struct{ *net.TCPConn }

var _ Ender = tcpConn{}

// CheckReachable returns why other nodes cannot reach a node at host:port, or nil. It resolves no name, since the name
// may get its address later.
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

// validHost reports whether a text can be the name of a host. Underscores are allowed. The last part of a name must not
// be a number, so that 10.0.0.256 is not a name.
func validHost(name string) bool {
	name = strings.TrimSuffix(name, ".")
	last := name[strings.LastIndexByte(name, '.')+1:]
	return len(name) <= 253 && hostLabels(name) && strings.Trim(last, "0123456789") != ""
}

const resolveTimeout = 2 * time.Second

// ErrNotLoopback refuses to bind the port to an address that other hosts can reach.
var ErrNotLoopback = errors.New("is not on loopback, and anyone who reaches the peer port can change the state: " +
	"bind it to loopback, unless only peers can reach it")

// CheckAddress returns why a peer port must not be bound to host:port, or nil. Without TLS, anyone who reaches the port
// can write to the log. So the host must have loopback addresses only, unless the network is trusted. It blocks for up
// to 2 s to look up a name.
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

// OnlyLoopback reports whether the host has loopback addresses only. It returns false for an empty host, which means
// all interfaces. It blocks for up to 2 s to look up a name.
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

// folderMark separates a member's address from the id of its folder in Raft's configuration. No address contains it.
const folderMark = "#"

// MarkAddress returns a member's address as it stands in Raft's configuration: with the id of the folder with which the
// member was admitted. So each node learns of the admission when the configuration enters its log. Raft finds its
// pooled connections by this text, and so never counts a vote or an acknowledgement that comes from another folder.
func MarkAddress(address string, folder ID) raft.ServerAddress {
	return raft.ServerAddress(PlainAddress(raft.ServerAddress(address)) + folderMark + folder.String())
}

// SplitAddress returns the address to dial, and the id of the folder with which the member was admitted. The id is zero
// unless a leader has readmitted the member or a recovery has begun the cluster with it.
func SplitAddress(marked raft.ServerAddress) (address string, folder ID) {
	address, mark, ok := strings.Cut(string(marked), folderMark)
	if decoded, err := hex.DecodeString(mark); ok && err == nil && len(decoded) == len(folder) {
		folder = ID(decoded)
	}
	return address, folder
}

// PlainAddress returns the address to dial, without the folder.
func PlainAddress(marked raft.ServerAddress) string {
	address, _ := SplitAddress(marked)
	return address
}

// MoveAddress returns address, marked with the folder in before if before has a folder.
func MoveAddress(before raft.ServerAddress, address string) raft.ServerAddress {
	if _, folder := SplitAddress(before); folder != (ID{}) {
		return MarkAddress(address, folder)
	}
	return raft.ServerAddress(address)
}
