package main

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"

	"github.com/signalbox/signalbox/cluster"
)

// addHosts adds the flag that dev and serve share.
func addHosts(flags *pflag.FlagSet, c *config) {
	flags.StringSliceVar(&c.hosts, "allow-host", nil,
		"names and addresses, beside those of loopback and of --http, under which requests may call this node; * for all")
}

// validateHTTP checks where the API is served, and to whom.
func (c *config) validateHTTP() error {
	if err := checkBind(c.httpAddress); err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	if err := c.validateHosts(); err != nil {
		return err
	}
	local, err := c.httpOnLoopback()
	switch {
	case err != nil:
		return fmt.Errorf("--http: %w", err)
	case !local && !c.insecureHTTP:
		return fmt.Errorf("--http: %s is not on loopback, and whoever reaches the API can do everything, its members included: "+
			"bind it to loopback, or give --insecure-http if only those who may do that can reach it", c.httpAddress)
	}
	return nil
}

// validateHosts refuses what no request could ever name.
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
	local, err := cluster.OnlyLoopback(host)
	if err != nil && c.insecureHTTP { // what listens there will say what is wrong
		return false, nil
	}
	return local, err
}

// allowedHosts are the names under which the API may be called: checked where the
// API is on loopback, which pages in this machine's browsers can reach, and wherever
// an operator has listed names. nil: all.
func (c *config) allowedHosts() []string {
	local, err := c.httpOnLoopback()
	if len(c.hosts) == 0 && (err != nil || !local) {
		return nil
	}
	host, _, _ := net.SplitHostPort(c.httpAddress) // validated
	if host == "" {
		host = "0.0.0.0"
	}
	return append([]string{host}, c.hosts...)
}
