package main

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"

	"github.com/spf13/pflag"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/peer"
)

// parsePeers parses "n1=host:port,n2=host:port,…", which names all members of the cluster, this node included.
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
		if err := peer.CheckReachable(address); err != nil {
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

// maxNodeID bounds the length of a node's id, which is in every log line and status reply.
const maxNodeID = 64

// checkNodeID allows only characters that need no quoting in a list, a path or a log.
func checkNodeID(id string) error {
	if id == "" || len(id) > maxNodeID {
		return fmt.Errorf("node id %q does not have 1 to %d characters", id, maxNodeID)
	}
	if regexp.MustCompile(`[^A-Za-z0-9._-]`).MatchString(id) {
		return fmt.Errorf("node id %q has characters other than letters, digits, '-', '_' and '.'", id)
	}
	return nil
}

// addHosts adds the flags --ui and --allow-host, which dev and serve share.
func addHosts(flags *pflag.FlagSet, c *config) {
	flags.BoolVar(&c.console, "ui", c.console, "serve the console, a page for browsers at /ui/")
	flags.StringSliceVar(&c.hosts, "allow-host", nil,
		"names and addresses under which requests may call this node, in addition to loopback's and --http's; * for all")
}

// validateHTTP checks the address of the API, and refuses an unprotected API that other machines can reach.
func (c *config) validateHTTP() error {
	if err := checkBind(c.httpAddress); err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	if err := c.validateHosts(); err != nil {
		return err
	}
	open, err := c.unprotected()
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	if len(open) > 0 && !c.insecureHTTP {
		return fmt.Errorf("--http: %s is not on loopback, and whoever reaches the API can do everything, its members included: "+
			"bind it to loopback, or give %s, or --insecure-http if only those who may do that can reach it", c.httpAddress, strings.Join(open, " and "))
	}
	return nil
}

// unprotected returns the flags that are missing to protect an API that other machines can reach.
func (c *config) unprotected() (missing []string, err error) {
	local, err := c.httpOnLoopback()
	if err != nil || local {
		return nil, err
	}
	if c.apiCerts.Cert == "" {
		missing = append(missing, "--tls-cert")
	}
	if c.tokens == "" {
		missing = append(missing, "--tokens")
	}
	return missing, nil
}

func (c *config) validateHosts() error {
	for _, name := range c.hosts {
		_, notAddress := netip.ParseAddr(name)
		if name != "*" && notAddress != nil && (name == "" || strings.ContainsAny(name, " :/[]@?#*")) {
			return fmt.Errorf("--allow-host: %q is no name and no address: write it without scheme, brackets and port", name)
		}
	}
	return nil
}

func (c *config) httpOnLoopback() (bool, error) {
	host, _, err := net.SplitHostPort(c.httpAddress)
	if err != nil {
		return false, err
	}
	local, err := peer.OnlyLoopback(host)
	if err != nil && c.insecureHTTP { // listening on this address will fail with a better error
		return false, nil
	}
	return local, err
}

// allowedHosts returns the names under which the API may be called, or nil if all names are allowed. A node checks names
// in two cases: an operator has listed names, or the API is on loopback, where web pages in this machine's browsers can
// reach it.
func (c *config) allowedHosts() []string {
	local, err := c.httpOnLoopback()
	if len(c.hosts) == 0 && (err != nil || !local) {
		return nil
	}
	host, _, _ := net.SplitHostPort(c.httpAddress) // checked by validate
	if host == "" {
		host = "0.0.0.0"
	}
	return append([]string{host}, c.hosts...)
}
