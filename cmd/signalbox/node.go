package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/httpapi/callback"
	"github.com/signalbox/signalbox/store"
)

// stopTime is within what a node stops in order. Past it, the process ends anyhow:
// whoever asked will soon do it less gently.
const stopTime = 4500 * time.Millisecond

// node is one running node. It is built bottom up and stopped top down.
type node struct {
	log       hclog.Logger
	store     *store.Store
	callbacks *callback.Sender
	cluster   *cluster.Node
	declared  declaration
	server    *httpapi.Server
	served    chan error // what serving HTTP ended with; nil if asked to
}

// startNode opens the HTTP port, the data folder and the peer port, and serves. It
// doesn't wait for a leader. fatal is told, once, when the node can't go on. On an
// error everything is closed again, and the error is for whoever typed the command.
func startNode(ctx context.Context, c config, log hclog.Logger, fatal func(error)) (_ *node, err error) {
	listener, err := listen(ctx, "--http", c.httpAddress)
	if err != nil {
		return nil, err
	}
	if most, known := openFiles(); known {
		c.fitConnections(most, log)
	}
	n := &node{log: log, served: make(chan error, 1)}
	defer func() {
		if err != nil {
			listener.Close()
			n.abandon()
		}
	}()
	peers, err := listen(ctx, "--peer", c.peerAddress)
	if err != nil { // told before a folder is made for nothing
		return nil, err
	}
	peers.Close()
	if n.declared, err = openDeclaration(&c, log); err != nil {
		return nil, err
	}
	if n.store, err = openStore(c, log); err != nil {
		return nil, err
	}
	if n.callbacks, err = callback.New(c.callbacks); err != nil {
		return nil, err
	}
	if n.cluster, err = cluster.Start(ctx, clusterConfig(c, n.store, n.callbacks, log, fatal)); err != nil {
		return nil, err
	}
	handler, err := httpapi.New(apiConfig(c, n, log))
	if err != nil {
		return nil, err
	}
	n.declared.keep(n.cluster, log)
	n.server = httpapi.NewServer(handler)
	go func() { n.served <- n.server.Serve(listener) }()
	return n, nil
}

func openStore(c config, log hclog.Logger) (*store.Store, error) {
	return store.Open(store.Options{
		Folder:    c.data,
		Ephemeral: c.ephemeral,
		NodeID:    c.nodeID,
		MinFree:   uint64(c.minFree),
		Logger:    log,
		OnDamage: func(err error) {
			log.Error("stopping at once", "error", err)
			os.Exit(1) // Raft would panic over it next
		},
	})
}

func clusterConfig(c config, s *store.Store, sender *callback.Sender, log hclog.Logger, fatal func(error)) cluster.Config {
	return cluster.Config{
		NodeID:         c.nodeID,
		Peers:          c.peers,
		Bind:           c.peerAddress,
		InsecurePeers:  c.insecurePeers,
		Store:          s,
		Limits:         c.machine,
		Restored:       c.restored,
		RaftMultiplier: c.multiplier,
		QueueSize:      c.queue,
		HistoryEvents:  c.historyEvents,
		HistoryBytes:   int64(c.historyBytes),
		Notifier:       sender,
		Logger:         log,
		OnFatal:        fatal,
	}
}

func apiConfig(c config, n *node, log hclog.Logger) httpapi.Config {
	api := httpapi.Config{
		Node:           n.declared.over(n.cluster),
		Logger:         log,
		Version:        semanticVersion(version()),
		Collectors:     []prometheus.Collector{n.cluster.Collector()},
		CORS:           c.cors,
		Hosts:          c.allowedHosts(),
		BodyBytes:      int64(c.requests.body),
		BatchBodyBytes: int64(c.requests.batchBody),
		BatchSize:      c.requests.batch,
		MaxWait:        c.requests.wait,
		BodyTimeout:    c.requests.bodyTimeout,
		MaxWatchers:    c.requests.watchers,
		MaxConnections: c.requests.connections,
		BodyMemory:     int64(c.requests.bodies),
		ReplyMemory:    int64(c.requests.replies),
	}
	for _, d := range dialects {
		if slices.Contains(c.dialects, d.name) {
			d.serve(&c, n, &api)
		}
	}
	return api
}

// listen binds a port, and makes plain to read that it is taken.
func listen(ctx context.Context, flag, address string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s: the port of %s is in use by another program", flag, address)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return listener, nil
}

// stop ends the node in order: nothing new is taken, what waits is answered,
// leadership is handed over, then it closes from top to bottom. It blocks for at
// most five seconds. What has not ended by then is logged and left to the end of
// the process, which loses nothing: whatever was acknowledged is on the disk.
func (n *node) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		n.declared.end()
		n.cluster.Drain()
		if err := n.server.Shutdown(ctx); err != nil {
			n.log.Warn("requests were cut off", "error", err)
		}
		if err := n.cluster.Close(ctx); err != nil {
			n.log.Warn("the node has not ended in time", "error", err)
			return // closing the store could wait for a disk that hangs
		}
		if err := n.store.Close(); err != nil {
			n.log.Warn("the data folder was not closed in order", "error", err)
		}
	}()
	select {
	case <-stopped:
	case <-time.After(stopTime + 200*time.Millisecond): // it had time to heed the deadline
		n.log.Warn("the node has not stopped in time and is cut off", "limit", stopTime)
	}
}

// abandon closes what a failed start has opened.
func (n *node) abandon() {
	if n.cluster != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopTime)
		defer cancel()
		_ = n.cluster.Close(ctx) // the error that led here is the one to tell
	}
	if n.store != nil {
		_ = n.store.Close()
	}
}

// serve runs one node until ctx ends or the node can't go on.
func serve(ctx context.Context, c config, log hclog.Logger) error {
	fatal := make(chan error, 1)
	n, err := startNode(ctx, c, log, firstTo(fatal))
	if err != nil {
		return err
	}
	log.Info("serving", "version", version(), "node", c.nodeID, "http", c.httpAddress, "peer", c.peerAddress, "data", c.data)
	select {
	case <-ctx.Done():
		log.Info("stopping")
	case err = <-fatal:
	case err = <-n.served:
	}
	n.stop()
	return err
}

// firstTo takes the first error to the channel, which has room for one, and drops
// the others.
func firstTo(c chan<- error) func(error) {
	return func(err error) {
		select {
		case c <- err:
		default:
		}
	}
}
