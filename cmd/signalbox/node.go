package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/backup"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/supervisor"
	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/httpapi/callback"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/tracing"
	"github.com/signalbox/signalbox/store"
)

// stopTime bounds how long a node takes to stop in order. After that the process ends, since service managers then send
// KILL.
const stopTime = 4500 * time.Millisecond

const flushTime = 2 * time.Second

// node is a running node. Its parts are started from the bottom up and stopped in reverse order.
type node struct {
	log       hclog.Logger
	store     *store.Store
	callbacks *callback.Sender
	cluster   *cluster.Node
	certs     *certificates
	clients   *clients
	traces    *tracing.Tracing // nil without tracing
	declared  declaration
	backups   keeper
	undeclare func() // stops declaring the semaphores
	server    *httpapi.Server
	served    chan error // the result of serving HTTP; nil after stop
}

// startNode opens the HTTP port, the data folder and the peer port, and serves. It doesn't wait for a leader. If the
// node later fails, it calls fatal once. If the start fails, it closes everything that it has opened. The error names
// flags.
func startNode(ctx context.Context, c config, log hclog.Logger, fatal func(error)) (_ *node, err error) {
	listener, err := listen(ctx, "--http", c.httpAddress)
	if err != nil {
		return nil, err
	}
	if limit, known := openFilesLimit(); known {
		c.fitConnections(limit, log)
	}
	n := &node{log: log, served: make(chan error, 1)}
	defer func() {
		if err != nil {
			listener.Close()
			n.abandon()
		}
	}()
	peers, err := listen(ctx, "--peer", c.peerAddress) // only tries the port, before a folder is made
	if err != nil {
		return nil, err
	}
	peers.Close()
	if n.declared, err = openDeclaration(&c, log); err != nil {
		return nil, err
	}
	if n.certs, err = openCertificates(c, log); err != nil {
		return nil, err
	}
	if n.clients, err = openClients(c, log); err != nil {
		return nil, err
	}
	number, _ := version()
	if n.traces, err = tracing.Open(tracing.Config{Node: c.nodeID, Version: bareVersion(number), Logger: log}); err != nil {
		return nil, err
	}
	if n.store, err = openStore(c, log); err != nil {
		return nil, err
	}
	if n.callbacks, err = callback.New(c.callbacks); err != nil {
		return nil, err
	}
	if n.cluster, err = cluster.Start(ctx, clusterConfig(c, n, log, fatal)); err != nil {
		return nil, err
	}
	if n.backups, err = c.backups.open(n.cluster, log); err != nil {
		return nil, err
	}
	handler, err := newHandler(c, n, log)
	if err != nil {
		return nil, err
	}
	n.undeclare = n.declared.keepDeclared(n.cluster, log)
	n.server = httpapi.NewServer(handler)
	go func() { n.served <- n.server.Serve(listener) }()
	return n, nil
}

func openStore(c config, log hclog.Logger) (*store.Store, error) {
	options := store.Options{
		Folder:    c.data,
		Ephemeral: c.ephemeral,
		Journal:   c.journal && !c.ephemeral,
		NodeID:    c.nodeID,
		MinFree:   uint64(c.minFree),
		Logger:    log,
		OnDamage: func(err error) {
			log.Error("stopping at once", "error", err)
			os.Exit(1) // otherwise Raft would panic because of the error
		},
	}
	if c.hooks.store != nil {
		c.hooks.store(&options)
	}
	return store.Open(options)
}

func clusterConfig(c config, n *node, log hclog.Logger, fatal func(error)) cluster.Config {
	settings := cluster.Config{
		NodeID:         c.nodeID,
		Peers:          c.peers,
		Bind:           c.peerAddress,
		PeerTLS:        n.certs.peerTLS(),
		InsecurePeers:  c.insecurePeers,
		Store:          n.store,
		Limits:         c.machine,
		Restored:       c.restored,
		Cell:           c.cell,
		RaftMultiplier: c.multiplier,
		QueueSize:      c.queue,
		HistoryEvents:  c.historyEvents,
		HistoryBytes:   int64(c.historyBytes),
		Notifier:       n.callbacks,

		MetricsSemaphores: c.metricsSemaphores,
		Logger:            log,
		OnFatal:           fatal,
	}
	if n.traces != nil {
		settings.Tracer = n.traces
	}
	if c.hooks.cluster != nil {
		c.hooks.cluster(&settings)
	}
	return settings
}

func newHandler(c config, n *node, log hclog.Logger) (*httpapi.Handler, error) {
	number, _ := version()
	c.exchange.Node, c.exchange.Logger = n.traces.Over(n.declared.over(n.cluster)), log
	c.exchange.Tokens, c.exchange.Audit = n.clients.tokens, n.clients.audit
	x, err := exchange.New(c.exchange)
	if err != nil {
		return nil, err
	}
	api := httpapi.Config{
		Exchange:       x,
		Native:         c.native,
		Version:        bareVersion(number),
		Collectors:     slices.Concat(n.certs.collectors(), n.backups.Collectors(), n.traces.Collectors(), []prometheus.Collector{n.cluster.Collector()}),
		Console:        c.console,
		CORS:           c.cors,
		Hosts:          c.allowedHosts(),
		Cell:           c.cell,
		MaxConnections: c.connections,
		IdleTimeout:    c.idleTimeout,
		TLS:            n.certs.apiTLS(),
	}
	if n.traces != nil {
		api.Trace = n.traces.Request
	}
	for _, d := range dialects {
		if !slices.Contains(c.dialects, d.name) {
			continue
		}
		served, err := d.open(&c, n, x)
		if err != nil {
			return nil, err
		}
		api.Dialects = append(api.Dialects, served)
	}
	return httpapi.New(api)
}

// listen binds a port. If another program has the port, the error is a *portTaken.
func listen(ctx context.Context, flag, address string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, &portTaken{flag, address}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return listener, nil
}

type portTaken struct{ flag, address string }

func (e *portTaken) Error() string {
	return fmt.Sprintf("%s: the port of %s is in use by another program", e.flag, e.address)
}

// stop ends the node in order: it refuses new requests, ends waiting requests, transfers leadership, and then closes
// the parts from top to bottom. It blocks for at most five seconds. It logs parts that have not ended by then, and
// leaves them to the end of the process. That loses no data, since all acknowledged data is on the disk.
func (n *node) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		n.undeclare()
		n.backups.end()
		n.certs.end()
		n.clients.stopFollowing()
		n.cluster.Drain()
		if err := n.server.Shutdown(ctx); err != nil {
			n.log.Warn("requests were cut off", "error", err)
		}
		n.clients.closeAudit()
		if err := n.cluster.Close(ctx); err != nil {
			n.log.Warn("the node has not ended in time", "error", err)
			return // don't close the store, since a hanging disk could block it
		}
		if err := n.store.Close(); err != nil {
			n.log.Warn("the data folder was not closed in order", "error", err)
		}
		n.closeTraces(ctx)
	}()
	select {
	case <-stopped:
	case <-time.After(stopTime + 200*time.Millisecond):
		n.log.Warn("the node has not stopped in time and is cut off", "limit", stopTime)
	}
}

// closeTraces sends the remaining spans. It is called last, so that no other part waits for the collector.
func (n *node) closeTraces(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	n.traces.Close(ctx)
}

// abandon closes everything that a failed start has opened.
func (n *node) abandon() {
	defer n.closeTraces(context.Background())
	if n.certs != nil {
		n.certs.end()
	}
	if n.clients != nil {
		n.clients.stopFollowing()
		n.clients.closeAudit()
	}
	if n.backups.end != nil {
		n.backups.end()
	}
	if n.cluster != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopTime)
		defer cancel()
		if n.cluster.Close(ctx) != nil { // err of the start is more useful
			return // don't close the store, since a hanging disk could block it
		}
	}
	if n.store != nil {
		_ = n.store.Close()
	}
}

// serve runs one node until ctx ends or the node fails. It notifies the service manager once the ports are open. It
// does not wait for a leader, since a new cluster needs its other nodes for that.
func serve(ctx context.Context, c config, log hclog.Logger, manager supervisor.Supervisor) error {
	fatal := make(chan error, 1)
	n, err := startNode(ctx, c, log, firstTo(fatal))
	if err != nil {
		return err
	}
	if open, err := c.unprotected(); err == nil && len(open) > 0 {
		log.Warn("--insecure-http: the API is reachable beyond this machine, and whoever reaches it can do everything", "missing", strings.Join(open, ", "))
	}
	number, commit := version()
	log.Info("serving", "version", number, "commit", commit, "node", c.nodeID, "http", c.httpAddress, "tls", n.certs.api != nil, "peer", c.peerAddress, "data", c.data)
	manager.Ready()
	watched, unwatch := context.WithCancel(ctx)
	defer unwatch()
	go manager.Watch(watched, supervisor.NewProgress(n.cluster).Made)
	select {
	case <-ctx.Done():
		log.Info("stopping")
	case err = <-fatal:
	case err = <-n.served:
	}
	unwatch()
	manager.Stopping()
	n.stop()
	return err
}

// firstTo returns a function that sends its first error to c, which has a buffer of 1, and drops later errors.
func firstTo(c chan<- error) func(error) {
	return func(err error) {
		select {
		case c <- err:
		default:
		}
	}
}

// keeper makes a node's scheduled backups.
type keeper struct {
	*backup.Keeper
	end func() // stops it, and waits up to backupGrace for a running backup
}

// backupGrace bounds how long a stopping node waits for a running backup, since the disk of the backups may hang. An
// unfinished backup does not have its final name.
const backupGrace = 500 * time.Millisecond

// open starts the scheduled backups of a node.
func (s schedule) open(n *cluster.Node, log hclog.Logger) (keeper, error) {
	k, err := backup.NewKeeper(backup.KeeperConfig{
		Folder: s.folder, Every: s.every, Keep: s.keep, Logger: log, Backup: n.Backup,
		Leads: func() bool {
			status := n.Status()
			return status.Leader == status.Node
		},
	})
	if err != nil {
		return keeper{}, fmt.Errorf("--backup-dir: %w", err)
	}
	return keeper{k, inBackground(k.Run, func() { log.Warn("--backup-dir hangs: a backup is left unfinished", "folder", s.folder) })}, nil
}

// inBackground runs work in a goroutine, and returns a function that ends it. If work has not ended after backupGrace,
// end calls hangs and returns.
func inBackground(work func(context.Context), hangs func()) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		work(ctx)
	}()
	return func() {
		cancel()
		select {
		case <-done:
		case <-time.After(backupGrace):
			hangs()
		}
	}
}
