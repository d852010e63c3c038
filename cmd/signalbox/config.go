package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cluster/raftlib"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/httpapi/callback"
	"github.com/signalbox/signalbox/httpapi/exchange"
	v1 "github.com/signalbox/signalbox/httpapi/v1"
	"github.com/signalbox/signalbox/internal/certs"
	"github.com/signalbox/signalbox/store"
)

// config is the configuration of one node, for serve and dev. validate finds its errors before the data folder or a
// port is opened.
type config struct {
	nodeID            string
	httpAddress       string         // host:port of the API
	peerAddress       string         // host:port to bind for peers
	peers             []cluster.Peer // all members; empty: a cluster of this node alone
	data              string         // path of the data folder; empty only with ephemeral
	ephemeral         bool           // keep the state in memory
	journal           bool           // put a journal before the log
	nodesHere         int            // number of nodes in this process; 0: one
	peerCerts         certs.Config   // empty: no TLS with peers
	insecurePeers     bool
	apiCerts          certs.Config // empty: plain HTTP
	tokens            string       // path; empty: requests need no token
	audit             string       // path, or "stderr"; empty: no audit log
	proxies           []string     // addresses of proxies that tell the audit log who their clients are
	insecureHTTP      bool         // serve the API beyond loopback, without protection
	hosts             []string     // further names of this node, see httpapi.Config
	restored          bool         // the folder was restored, see cluster.Config
	cell              int          // the cell in session ids, see cluster.Config; 0: no cell
	multiplier        int          // stretches Raft's times
	minFree           size
	queue             int // number of commands that may wait for the log
	historyEvents     int64
	historyBytes      size
	metricsSemaphores int // number of semaphores with separate metrics
	cors              []string
	console           bool // serve the page at /ui/
	dialects          []string
	linger            int         // percent of a ttl, see throttle.Config
	consulLinger      int         // percent of a TTL, see consul.Config
	declare           string      // path; may be empty
	ownLevel          hclog.Level // the level at the start if a declared file may change the level, else NoLevel
	backups           schedule
	callbacks         []string // hosts to which callbacks may be sent
	machine           fsm.Limits
	exchange          exchange.Config // the limits of package exchange
	native            v1.Config
	connections       int // most connections to the API
	idleTimeout       time.Duration

	hooks struct { // for tests; nil: no hook
		store   func(*store.Options)
		cluster func(*cluster.Config)
	}
}

// defaultConfig returns the configuration of "serve --data DIR" with no other flag.
func defaultConfig() config {
	return config{
		nodeID:            "n1",
		httpAddress:       "127.0.0.1:8701",
		peerAddress:       "127.0.0.1:8711",
		multiplier:        1,
		minFree:           store.DefaultMinFree,
		queue:             cluster.DefaultQueueSize,
		console:           true,
		journal:           true,
		dialects:          defaultDialects(),
		linger:            10,
		consulLinger:      100,
		backups:           defaultSchedule(),
		machine:           fsm.DefaultLimits(),
		historyEvents:     replica.DefaultHistoryEvents,
		historyBytes:      replica.DefaultHistoryBytes,
		metricsSemaphores: 100,
		exchange:          exchange.Config{}.WithDefaults(),
		native:            v1.Config{}.WithDefaults(),
		connections:       httpapi.DefaultConnections,
		idleTimeout:       httpapi.DefaultIdleTimeout,
	}
}

// validate checks everything that needs neither the data folder nor a port. It reads the files that the settings name.
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
	if err := validateAccess(c); err != nil {
		return err
	}
	if err := checkCertificates(c.peerCerts, c.apiCerts); err != nil {
		return err
	}
	if _, _, err := c.openSources(); err != nil {
		return err
	}
	if err := c.validatePeers(); err != nil {
		return err
	}
	if c.cell < 0 || c.cell > calls.MaxCell {
		return fmt.Errorf("--cell: it is 1 to %d, or 0 for no cell", calls.MaxCell)
	}
	if _, err := raftlib.Config("n", c.multiplier, hclog.NewNullLogger()); err != nil {
		return fmt.Errorf("--raft-multiplier: %w", err)
	}
	if err := c.validateDialects(); err != nil {
		return err
	}
	if err := c.backups.validate(); err != nil {
		return err
	}
	if err := httpapi.CheckOrigins(c.cors); err != nil {
		return fmt.Errorf("--cors-allow: %w", err)
	}
	if _, err := callback.New(c.callbacks); err != nil {
		return fmt.Errorf("--callback-allow: %w", err)
	}
	if err := boundLimits(&c.machine); err != nil {
		return err
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
	if err := c.checkPeer(c.peerAddress); err != nil {
		return fmt.Errorf("--peer: %w", err)
	}
	if len(c.peers) == 0 {
		return nil
	}
	listed := false
	for _, p := range c.peers {
		listed = listed || p.ID == c.nodeID
		if err := c.checkPeer(p.Address); err != nil {
			return fmt.Errorf("--peers: %s: %w", p.ID, err)
		}
	}
	if !listed {
		return fmt.Errorf("--peers: %s, this node's own id, is not among them", c.nodeID)
	}
	return nil
}

// checkPeer refuses a peer address that strangers may reach. The error names the flag.
func (c *config) checkPeer(address string) error {
	err := peer.CheckAddress(address, c.insecurePeers || c.peerCerts.Cert != "")
	if errors.Is(err, peer.ErrNotLoopback) {
		err = fmt.Errorf("%w, and --insecure-peers is given; or give the node a certificate, see --peer-cert", err)
	}
	return err
}

// checkBind checks host:port. An empty host means all interfaces.
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

// followLevel sets the level of the log, and of its named parts, to the level in a declared file, or to the level at
// the start if the file has no level. It does not change a level that was given by flag or variable.
func (c *config) followLevel(text string, log hclog.Logger) {
	if c.ownLevel == hclog.NoLevel {
		return
	}
	level := hclog.LevelFromString(text)
	if level == hclog.NoLevel {
		level = c.ownLevel
	}
	log.SetLevel(level)
}
