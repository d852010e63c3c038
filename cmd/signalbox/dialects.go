package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/httpapi/declare"
)

// dialect is an interface of another system, served beside the native one.
type dialect struct {
	name  string
	serve func(c *config, n *node, api *httpapi.Config) // switches it on
}

// dialects are those that --dialects may name, in the order in which it lists them.
var dialects = []dialect{
	{"nodered", func(_ *config, n *node, api *httpapi.Config) {
		api.NodeRED = &httpapi.NodeRED{CheckCallback: n.callbacks.Check}
	}},
	{"throttle", func(c *config, n *node, api *httpapi.Config) {
		api.Throttle = &httpapi.Throttle{LingerPercent: c.linger, Declared: n.declared.names}
	}},
}

// noDialects is how a variable, which counts as not set when empty, says none.
const noDialects = "none"

func allDialects() (names []string) {
	for _, d := range dialects {
		names = append(names, d.name)
	}
	return names
}

func addDialects(flags *pflag.FlagSet, c *config) {
	flags.StringSliceVar(&c.dialects, "dialects", c.dialects, "interfaces of other systems to serve beside the native one; "+noDialects+" for none")
	flags.StringSliceVar(&c.callbacks, "callback-allow", nil,
		"HOST[:PORT],… that clients may have called back: names, addresses or ranges such as 10.1.0.0/16; alike on all nodes")
	flags.StringVar(&c.declare, "declare", "", "TOML file of semaphores to make or set at the start and at SIGHUP, as throttle's configuration")
	flags.IntVar(&c.linger, "lease-linger", c.linger, "percent by which leases of throttle's clients live longer than they ask for, at most 30s; alike on all nodes")
}

// validateDialects checks what addDialects adds.
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
	if c.declare != "" {
		if _, err := declare.Read(c.declare); err != nil {
			return fmt.Errorf("--declare: %w", err)
		}
	}
	return nil
}

// declaration is a node's --declare, none if the file is nil.
type declaration struct {
	file *declare.Declaration
	stop func() // ends keeping it; nil while nobody does
}

// openDeclaration reads the file, and lets it set the level of the log.
func openDeclaration(c *config, log hclog.Logger) (declaration, error) {
	if c.declare == "" {
		return declaration{}, nil
	}
	file, err := declare.Open(c.declare)
	if err != nil {
		return declaration{}, fmt.Errorf("--declare: %w", err)
	}
	file.OnRead = func(f *declare.File) { c.followLevel(f.LogLevel, log) }
	file.OnRead(file.File())
	return declaration{file: file}, nil
}

// names are those of the declared semaphores.
func (d *declaration) names() []string {
	if d.file == nil {
		return nil
	}
	return d.file.Names()
}

// checked is a cluster node whose readiness includes the declared semaphores.
type checked struct {
	*cluster.Node
	file *declare.Declaration
}

// Checks are the node's, and whether the declared semaphores are in place.
func (c checked) Checks() []cluster.Check { return append(c.Node.Checks(), c.file.Check()) }

// over is the node as the API sees it.
func (d *declaration) over(n *cluster.Node) httpapi.Node {
	if d.file == nil {
		return n
	}
	return checked{n, d.file}
}

// ready reports whether the node should get requests.
func (n *node) ready() bool {
	return n.cluster.Ready() && (n.declared.file == nil || n.declared.file.Check().OK)
}

// keep declares the file now, and again at each SIGHUP, until end.
func (d *declaration) keep(n *cluster.Node, log hclog.Logger) {
	if d.file == nil {
		return
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.file.Keep(ctx, n, hangups, log)
	}()
	d.stop = func() { // without signal.Stop: a SIGHUP from here on must not kill a node that stops
		cancel()
		<-done
	}
}

// end stops keeping the file, and waits until that has stopped.
func (d *declaration) end() {
	if d.stop != nil {
		d.stop()
	}
}
