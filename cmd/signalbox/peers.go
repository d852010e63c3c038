package main

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/signalbox/signalbox/cluster"
)

// parsePeers reads "n1=host:port,n2=host:port,…": every member of the cluster, this
// node included, as all nodes must be told alike.
func parsePeers(text string) ([]cluster.Peer, error) {
	var peers []cluster.Peer
	if text == "" {
		return nil, nil
	}
	byID, byAddress := map[string]bool{}, map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		id, address, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return nil, fmt.Errorf("--peers: %q is not id=host:port", part)
		}
		if err := checkNodeID(id); err != nil {
			return nil, fmt.Errorf("--peers: %w", err)
		}
		if err := checkAddress(address); err != nil {
			return nil, fmt.Errorf("--peers: %s: %w", id, err)
		}
		if byID[id] {
			return nil, fmt.Errorf("--peers: %s is listed twice", id)
		}
		if byAddress[address] {
			return nil, fmt.Errorf("--peers: two nodes have the address %s", address)
		}
		byID[id], byAddress[address] = true, true
		peers = append(peers, cluster.Peer{ID: id, Address: address})
	}
	return peers, nil
}

// maxNodeID bounds a node's id, which goes into every log and status reply.
const maxNodeID = 64

// checkNodeID allows what needs no quoting in a list, a path or a log.
func checkNodeID(id string) error {
	if id == "" || len(id) > maxNodeID {
		return fmt.Errorf("node id %q does not have 1 to %d characters", id, maxNodeID)
	}
	for _, r := range id {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !letter && !strings.ContainsRune("-_.", r) {
			return fmt.Errorf("node id %q has characters other than letters, digits, '-', '_' and '.'", id)
		}
	}
	return nil
}

// checkAddress wants a host and a port that a peer could dial.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return fmt.Errorf("%q is not host:port", address)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q has no port between 1 and 65535", address)
	}
	return nil
}
