package httpapi

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
)

// Bounds of a node's API unless configured otherwise: what bodies and replies may
// take in bytes, and how many connections may be open.
const (
	DefaultBodyMemory  = 64 << 20
	DefaultReplyMemory = 128 << 20
	DefaultConnections = 10_000
)

// DefaultWatchers is how many streams of events and blocking queries may be open
// at a time unless configured otherwise.
const DefaultWatchers = 10_000

// Config is what a Handler is built from. Zero members get their defaults, but
// for Node, which is needed.
type Config struct {
	Node    Node
	Logger  hclog.Logger // none: nothing is logged
	Version string       // as GET /version answers it

	// Collectors are served by GET /metrics beside the request, Go and process
	// figures.
	Collectors []prometheus.Collector

	// CORS lists the origins ("https://host:port", or "*" for all) whose pages
	// may call this API from a browser. Empty: none.
	CORS []string

	// Hosts lists the names and addresses under which requests may call this node,
	// beside those of loopback; an unspecified address (0.0.0.0) stands for every
	// address, "*" for every name. A request to another name is refused. Empty: none
	// is.
	Hosts []string

	// NodeRED serves the Node-RED dialect beside the native API; nil: not.
	NodeRED *NodeRED

	// Throttle serves the throttle dialect beside the native API; nil: not.
	Throttle *Throttle

	BodyBytes      int64         // of a body; default 64 KiB
	BatchBodyBytes int64         // of a /v1/batch body; default 1 MiB
	BatchSize      int           // operations in one batch; default 1,000
	MaxWait        time.Duration // the longest wait of one request; default 10 minutes
	BodyTimeout    time.Duration // for a body to arrive, and for a reply to leave; default 20 s
	BodyMemory     int64         // that bodies being received may take in all, see budget; default 64 MiB
	ReplyMemory    int64         // that replies which clients have not taken may take in all; default 128 MiB
	MaxConnections int           // that are open at a time, see connections; default 10,000
	MaxWatchers    int           // streams of events and blocking queries open at a time; default 10,000
}

func (cfg *Config) complete() error {
	if cfg.Node == nil {
		return errors.New("httpapi: a node is needed")
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	cfg.Logger = cfg.Logger.Named("http")
	setDefault(&cfg.BodyBytes, 64<<10)
	setDefault(&cfg.BatchBodyBytes, 1<<20)
	setDefault(&cfg.BatchSize, 1000)
	setDefault(&cfg.MaxWait, 10*time.Minute)
	setDefault(&cfg.BodyTimeout, 20*time.Second)
	setDefault(&cfg.BodyMemory, DefaultBodyMemory)
	setDefault(&cfg.ReplyMemory, DefaultReplyMemory)
	setDefault(&cfg.MaxConnections, DefaultConnections)
	setDefault(&cfg.MaxWatchers, DefaultWatchers)
	for _, origin := range cfg.CORS {
		if err := checkOrigin(origin); err != nil {
			return err
		}
	}
	if cfg.Throttle != nil {
		options := *cfg.Throttle // the caller's stays as it is
		cfg.Throttle = &options
		return options.complete()
	}
	return nil
}

func setDefault[T int | int64 | time.Duration](v *T, to T) {
	if *v <= 0 {
		*v = to
	}
}

// checkOrigin refuses what no browser would ever send as an Origin, so that a
// typing error in the list does not go unnoticed.
func checkOrigin(origin string) error {
	if origin == "*" {
		return nil
	}
	u, err := url.Parse(origin)
	if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != origin {
		return fmt.Errorf("%q is not an origin: write scheme://host[:port], or *", origin)
	}
	for _, r := range u.Host {
		if r == '*' || r == '?' {
			return fmt.Errorf("origin %q: only a lone * is a wildcard", origin)
		}
	}
	return nil
}
