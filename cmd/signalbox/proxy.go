package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/signalbox/signalbox/client/cells"
	"github.com/signalbox/signalbox/client/credentials"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/httpapi/proxy"
	"github.com/signalbox/signalbox/internal/certs"
)

// dialTimeout bounds the proxy's attempt to connect to a node, before it tries another node.
const dialTimeout = 2 * time.Second

type proxyFlags struct {
	cells    string // path of the file
	listen   string
	ca       string
	api      certs.Config
	insecure bool
	idle     time.Duration // of a connection
	logs     logging
}

// newProxy makes the subcommand that sends each request to its cell.
func newProxy() *cobra.Command {
	f := proxyFlags{api: certs.Config{Server: true}, idle: httpapi.DefaultIdleTimeout}
	var run func(context.Context) error
	command := &cobra.Command{
		Use:   "proxy",
		Short: "Send each request to the cell that has its name",
		Long: "Serve the API and the dialects of several clusters, the cells of the file --cells, until SIGTERM or SIGINT. Each\n" +
			"request goes to the cell that has its name, else its session. SIGHUP reads the file again.\n\n" +
			"Tokens pass through the proxy, so that the nodes decide who may do what.",
		PreRunE: func(command *cobra.Command, _ []string) (err error) {
			run, err = f.prepare(command)
			return err
		},
		RunE: func(command *cobra.Command, _ []string) error { return run(command.Context()) },
	}
	flags := command.Flags()
	flags.StringVar(&f.cells, "cells", "", "TOML file of the cells: the prefixes, the nodes and the number of each")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8700", "host:port to serve on")
	cli.AddCAFlag(flags, &f.ca)
	flags.StringVar(&f.api.Cert, "tls-cert", "", "PEM file with the certificate for HTTPS; without it: plain HTTP")
	flags.StringVar(&f.api.Key, "tls-key", "", "PEM file with the key of --tls-cert")
	flags.BoolVar(&f.insecure, "insecure-http", false, "serve, and reach nodes, over plain HTTP beyond this machine: others may read tokens on their way")
	addIdleTimeout(flags, &f.idle)
	addLogging(flags, &f.logs, "info")
	return command
}

// prepare checks the flags and reads the files that they name. It returns the function that serves until its ctx ends.
func (f *proxyFlags) prepare(command *cobra.Command) (func(context.Context) error, error) {
	log, err := f.logs.logger(command, &config{})
	if err != nil {
		return nil, err
	}
	m, err := f.read()
	if err != nil {
		return nil, err
	}
	if err := f.validate(); err != nil {
		return nil, err
	}
	source, err := openSource("--tls-cert", f.api)
	if err != nil {
		return nil, err
	}
	transport, err := f.transport(log)
	if err != nil {
		return nil, err
	}
	p, err := proxy.New(proxy.Config{Cells: m, Transport: transport, IdleTimeout: f.idle, Logger: log})
	if err != nil {
		return nil, fmt.Errorf("--cells: %s: %w", f.cells, err)
	}
	return func(ctx context.Context) error { return f.serve(ctx, p, len(m.All()), source, log) }, nil
}

func (f *proxyFlags) serve(ctx context.Context, p *proxy.Proxy, cells int, source *certs.Source, log hclog.Logger) error {
	listener, err := listen(ctx, "--listen", f.listen)
	if err != nil {
		return err
	}
	defer atHangups(func(ctx context.Context, hangups <-chan os.Signal) { f.follow(ctx, hangups, p, log) })()
	var secure *tls.Config
	if source != nil {
		defer follow(source, "api", log)()
		secure = source.ServerTLS()
	}
	number, _ := version()
	log.Info("serving", "version", number, "http", f.listen, "tls", source != nil, "cells", cells)
	return p.Serve(ctx, listener, secure)
}

// validate checks the flags, but does not read the file of the cells.
func (f *proxyFlags) validate() error {
	if err := checkBind(f.listen); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if (f.api.Cert == "") != (f.api.Key == "") {
		return errors.New("--tls-cert and --tls-key belong together: give both, or leave both out")
	}
	host, _, _ := net.SplitHostPort(f.listen)                                           // validated by checkBind
	if local, _ := peer.OnlyLoopback(host); !local && !f.insecure && f.api.Cert == "" { // with an error: an unknown name can't be bound anyway
		return fmt.Errorf("--listen: %s is not on loopback, and others could read tokens on their way: give --tls-cert, or --insecure-http", f.listen)
	}
	return nil
}

// read returns the cells in the file.
func (f *proxyFlags) read() (*cells.Map, error) {
	if f.cells == "" {
		return nil, errors.New("--cells: give the file of the cells")
	}
	m, err := cli.ReadCells(f.cells)
	if err != nil || f.insecure {
		return m, err
	}
	for _, c := range m.All() {
		for _, address := range c.Nodes {
			base, err := credentials.ParseAddress(address)
			if err != nil || base.Scheme != "http" {
				continue // the proxy reports invalid addresses
			}
			if ip := net.ParseIP(base.Hostname()); base.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
				return nil, fmt.Errorf("--cells: %s: others could read tokens on their way to http://%s: use https://, or give --insecure-http", f.cells, base.Host)
			}
		}
	}
	return m, nil
}

// transport returns the transport to the nodes. It passes compressed replies on unchanged.
func (f *proxyFlags) transport(log hclog.Logger) (http.RoundTripper, error) {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.Proxy = nil // state: of this copy
	base.DisableCompression = true
	base.MaxIdleConns, base.MaxIdleConnsPerHost = 0, 1000
	// Notice a lost node within 20 s, as the client does.
	dialer := net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 2}}
	base.DialContext = dialer.DialContext                                                            // state: of this copy
	base.HTTP2 = &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 10 * time.Second} // state: of this copy
	transport, err := credentials.New(credentials.Config{CA: f.ca, Warn: func(err error) { log.Warn("--ca can't be read again", "error", err) }}, nil, base)
	if err != nil {
		return nil, fmt.Errorf("--ca: %w", err)
	}
	return transport, nil
}

// follow reads the file of the cells again at each SIGHUP, until ctx ends.
func (f *proxyFlags) follow(ctx context.Context, hangups <-chan os.Signal, p *proxy.Proxy, log hclog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
		}
		m, err := f.read()
		if err == nil {
			err = p.SetCells(m)
		}
		if err != nil {
			log.Error("the cells can't be read again: the cells before stay in use", "error", err)
			continue
		}
		log.Info("the cells were read again", "cells", len(m.All()))
	}
}
