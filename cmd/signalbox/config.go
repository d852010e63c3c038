package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/httpapi/callback"
	"github.com/signalbox/signalbox/store"
)

// config is what one node runs with. Both serve and dev make it; validate says
// what is wrong with it before anything is opened.
type config struct {
	nodeID        string
	httpAddress   string         // host:port to serve the API on
	peerAddress   string         // host:port to bind for peers
	peers         []cluster.Peer // all members; empty: a cluster of this node alone
	data          string         // folder; empty only if ephemeral
	ephemeral     bool           // state in memory
	nodesHere     int            // in this process; 0: one
	insecurePeers bool
	insecureHTTP  bool     // serve the API beyond loopback
	hosts         []string // further names of this node, see httpapi.Config
	restored      bool     // the folder was put back, see cluster.Config
	multiplier    int      // of Raft's times
	minFree       size
	queue         int // commands waiting for the log
	historyEvents int64
	historyBytes  size
	cors          []string
	dialects      []string
	linger        int         // percent of a ttl, see httpapi.Throttle
	declare       string      // file; empty: none
	ownLevel      hclog.Level // of the log, which a declared file may change; NoLevel: it may not
	callbacks     []string    // hosts that may be called back
	machine       fsm.Limits
	requests      requestLimits
}

// requestLimits bound a request before the state machine sees it.
type requestLimits struct {
	body, batchBody   size
	batch             int
	wait, bodyTimeout time.Duration
	watchers          int
	connections       int
	bodies, replies   size // in all
}

// defaultConfig is a single node as "serve --data DIR" would run it.
func defaultConfig() config {
	return config{
		nodeID:      "n1",
		httpAddress: "127.0.0.1:8701",
		peerAddress: "127.0.0.1:8711",
		multiplier:  1,
		minFree:     store.DefaultMinFree,
		queue:       cluster.DefaultQueueSize,
		dialects:    allDialects(),
		linger:      10,
		machine:     fsm.DefaultLimits(),

		historyEvents: cluster.DefaultHistoryEvents,
		historyBytes:  cluster.DefaultHistoryBytes,
		requests: requestLimits{
			body: 64 << 10, batchBody: 1 << 20, batch: 1000, wait: 10 * time.Minute, bodyTimeout: 20 * time.Second,
			watchers: httpapi.DefaultWatchers, connections: httpapi.DefaultConnections,
			bodies: httpapi.DefaultBodyMemory, replies: httpapi.DefaultReplyMemory,
		},
	}
}

// validate checks what can be checked without opening anything but a resolver.
func (c *config) validate() error {
	if err := checkNodeID(c.nodeID); err != nil {
		return fmt.Errorf("--node-id: %w", err)
	}
	if err := c.validateHTTP(); err != nil {
		return err
	}
	if err := checkBind(c.peerAddress); err != nil {
		return fmt.Errorf("--peer: %w", err)
	}
	if err := c.validatePeers(); err != nil {
		return err
	}
	if _, err := cluster.RaftConfig("n", c.multiplier, hclog.NewNullLogger()); err != nil {
		return fmt.Errorf("--raft-multiplier: %w", err)
	}
	if err := c.validateDialects(); err != nil {
		return err
	}
	// A handler over nothing, only to have its configuration checked early.
	if _, err := httpapi.New(httpapi.Config{Node: struct{ httpapi.Node }{}, CORS: c.cors}); err != nil {
		return fmt.Errorf("--cors-allow: %w", err)
	}
	if _, err := callback.New(c.callbacks); err != nil {
		return fmt.Errorf("--callback-allow: %w", err)
	}
	if c.machine.WaitList > mostWaitList {
		return fmt.Errorf("--max-wait-list: %d is more than %d, which is what one delivery of a list can carry between nodes", c.machine.WaitList, mostWaitList)
	}
	switch {
	case c.ephemeral && c.data != "":
		return errors.New("--ephemeral keeps no state: it can't be given together with --data")
	case c.ephemeral && len(c.peers) > 1:
		return errors.New("--ephemeral is for one node alone: a member that forgets could lose what others rely on")
	case !c.ephemeral && c.data == "":
		return errors.New("--data: give a folder for the state, or --ephemeral to keep it in memory only")
	}
	return nil
}

func (c *config) validatePeers() error {
	if err := cluster.CheckPeerAddress(c.peerAddress, c.insecurePeers); err != nil {
		return fmt.Errorf("--peer: %w", err)
	}
	if len(c.peers) == 0 {
		return nil
	}
	own := false
	for _, p := range c.peers {
		own = own || p.ID == c.nodeID
		if err := cluster.CheckPeerAddress(p.Address, c.insecurePeers); err != nil {
			return fmt.Errorf("--peers: %s: %w", p.ID, err)
		}
	}
	if !own {
		return fmt.Errorf("--peers: %s, this node's own id, is not among them", c.nodeID)
	}
	return nil
}

// checkBind wants host:port; the host may be empty, for all interfaces.
func checkBind(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not host:port", address)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q has no port between 1 and 65535", address)
	}
	return nil
}
