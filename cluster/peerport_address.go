package cluster

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"
)

// resolveTimeout bounds the look-up of a bind address's name.
const resolveTimeout = 2 * time.Second

// CheckPeerAddress tells why a peer port must not be bound to host:port. Without
// TLS whoever reaches the port can write to the log, so all addresses of the host
// must be loopback ones, unless insecure says that the network is trusted. It
// blocks for at most 2 s while it resolves a name.
func CheckPeerAddress(address string, insecure bool) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("peer address %q is not host:port: %w", address, err)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("peer address %q has no port between 0 and 65535", address)
	}
	if insecure {
		return nil
	}
	loopback, err := OnlyLoopback(host)
	if err != nil {
		return fmt.Errorf("peer address %q: %w", address, err)
	}
	if !loopback {
		return fmt.Errorf("peer address %q is not on loopback, and anyone who reaches the peer port can change the state: "+
			"bind it to loopback, or give --insecure-peers if only peers can reach it", address)
	}
	return nil
}

// OnlyLoopback reports whether every address of the host is a loopback one. An
// empty host means all interfaces, so it is not. It resolves a name, which blocks
// for resolveTimeout at most.
func OnlyLoopback(host string) (bool, error) {
	if host == "" {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupIPAddr(ctx, host) // an IP is its own answer
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
