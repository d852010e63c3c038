package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/httpapi/consul"
	"github.com/signalbox/signalbox/httpapi/declare"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/fleetlock"
	"github.com/signalbox/signalbox/httpapi/nodered"
	"github.com/signalbox/signalbox/httpapi/terraform"
	"github.com/signalbox/signalbox/httpapi/throttle"
)

// dialect is the API of another system, as a node serves it.
type dialect struct {
	name string
	off  bool // not served by default
	open func(c *config, n *node, x *exchange.Exchange) (exchange.Dialect, error)
}

// dialects are the possible values of --dialects, in the order in which the help lists them.
var dialects = []dialect{
	{"nodered", false, func(_ *config, n *node, x *exchange.Exchange) (exchange.Dialect, error) {
		return nodered.New(x, nodered.Config{CheckCallback: n.callbacks.Check}), nil
	}},
	{"throttle", false, func(c *config, n *node, x *exchange.Exchange) (exchange.Dialect, error) {
		return throttle.New(x, throttle.Config{LingerPercent: c.linger, Declared: n.declared.names})
	}},
	{"consul", true, func(c *config, _ *node, x *exchange.Exchange) (exchange.Dialect, error) {
		number, _ := version()
		return consul.New(x, consul.Config{LingerPercent: c.consulLinger, Version: bareVersion(number)})
	}},
	{"fleetlock", true, func(_ *config, _ *node, x *exchange.Exchange) (exchange.Dialect, error) { return fleetlock.New(x), nil }},
	{"terraform", true, func(_ *config, _ *node, x *exchange.Exchange) (exchange.Dialect, error) { return terraform.New(x), nil }},
}

// noDialects is the value of --dialects for no dialect. The empty value would not work in a variable, where it counts as
// not set.
const noDialects = "none"

func allDialects() (names []string) {
	for _, d := range dialects {
		names = append(names, d.name)
	}
	return names
}

// defaultDialects returns the dialects that are served without --dialects.
func defaultDialects() (names []string) {
	for _, d := range dialects {
		if !d.off {
			names = append(names, d.name)
		}
	}
	return names
}

func addDialects(flags *pflag.FlagSet, c *config) {
	flags.StringSliceVar(&c.dialects, "dialects", c.dialects, "interfaces of other systems to serve: "+strings.Join(allDialects(), ", ")+"; "+noDialects+" switches all off")
	flags.StringSliceVar(&c.callbacks, "callback-allow", nil,
		"HOST[:PORT],… that clients may have called back: names, addresses or ranges such as 10.1.0.0/16; alike on all nodes")
	flags.StringVar(&c.declare, "declare", "", "TOML file of semaphores to make or set at the start and at SIGHUP, as throttle's configuration")
	flags.IntVar(&c.linger, "lease-linger", c.linger, "percent by which leases of throttle's clients live longer than they ask for, at most 30s; alike on all nodes")
	flags.IntVar(&c.consulLinger, "consul-linger", c.consulLinger, "percent by which sessions of Consul's clients live longer than their TTL; alike on all nodes")
}

func (c *config) validateDialects() error {
	known := allDialects()
	if slices.Equal(c.dialects, []string{noDialects}) {
		c.dialects = nil
	}
	for _, name := range c.dialects {
		if !slices.Contains(known, name) {
			return fmt.Errorf("--dialects: %q is not %s", name, strings.Join(append(known, noDialects), " or "))
		}
	}
	if c.linger < 0 || c.linger > 100 {
		return fmt.Errorf("--lease-linger must be between 0 and 100, as a percentage")
	}
	if c.consulLinger < 0 || c.consulLinger > 100 {
		return fmt.Errorf("--consul-linger must be between 0 and 100, as a percentage")
	}
	if c.declare != "" {
		if _, err := declare.Read(c.declare); err != nil {
			return fmt.Errorf("--declare: %w", err)
		}
	}
	return nil
}

// declaration is the file of --declare, or nil without the flag.
type declaration struct{ file *declare.Declaration }

// openDeclaration reads the file. It also sets the level of the log, if the file has one.
func openDeclaration(c *config, log hclog.Logger) (declaration, error) {
	if c.declare == "" {
		return declaration{}, nil
	}
	file, err := declare.Open(c.declare, func(f *declare.File) { c.followLevel(f.LogLevel, log) })
	if err != nil {
		return declaration{}, fmt.Errorf("--declare: %w", err)
	}
	return declaration{file: file}, nil
}

// names returns the names of the declared semaphores.
func (d *declaration) names() []string {
	if d.file == nil {
		return nil
	}
	return d.file.Names()
}

type checked struct {
	*cluster.Node
	file *declare.Declaration
}

func (c checked) Checks() []cluster.Check { return append(c.Node.Checks(), c.file.Check()) }

// over returns the node for the API. Its Checks include the check of the declared semaphores.
func (d *declaration) over(n *cluster.Node) exchange.Node {
	if d.file == nil {
		return n
	}
	return checked{n, d.file}
}

// ready reports whether clients should send requests to this node.
func (n *node) ready() bool {
	return n.cluster.Ready() && (n.declared.file == nil || n.declared.file.Check().OK)
}

// keepDeclared declares the semaphores of the file now, and again at each SIGHUP, until end is called. end blocks until
// a declaration that is under way has ended.
func (d *declaration) keepDeclared(n *cluster.Node, log hclog.Logger) (end func()) {
	if d.file == nil {
		return func() {}
	}
	return atHangups(func(ctx context.Context, hangups <-chan os.Signal) { d.file.Keep(ctx, n, hangups, log) })
}
