package exchange

import (
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/httpapi/audit"
)

// DefaultReplyMemory is the default of Config.ReplyMemory, in bytes.
const DefaultReplyMemory = 128 << 20

// Config is the configuration of an Exchange. Zero members get their defaults; only
// Node is required.
type Config struct {
	Node   Node           // cmd/signalbox passes layers: tracing, the check of the declared file, cluster.Node
	Logger hclog.Logger   // nil: no log
	Tokens *access.Tokens // nil: every request may do everything
	Audit  *audit.Log     // nil: no audit log

	BodyBytes   int64         // bounds one body; default 64 KiB
	MaxWait     time.Duration // bounds the wait of one request; default 10 minutes
	BodyTimeout time.Duration // bounds the arrival of a body, and the time for a client to take a reply; default 20 s
	BodyMemory  int64         // bounds the bytes of all bodies that are arriving; default 64 MiB
	ReplyMemory int64         // bounds the bytes of all replies that clients have not taken; default 128 MiB
	MaxWatchers int           // bounds the requests that follow events or wait for a change; default 10,000
}

// Exchange has the parts that the APIs of one node share to read requests and send replies. It is
// safe for concurrent use.
type Exchange struct {
	Config Config // with its defaults; must not be changed
	Node   Node   // a call passes audited (audited.go), then guarded (guard.go), then Config.Node

	Rights      Rights       // what a request may read
	Bodies      *Bodies      // reads bodies
	Reads       Reads        // reads the state for a reply
	Replies     *Replies     // sends replies
	ReplyMemory *ReplyMemory // bounds the memory of replies
	Waits       *Waits       // bounds the requests that wait for a change
}

// WithDefaults returns the configuration with the defaults of its zero limits.
func (cfg Config) WithDefaults() Config {
	SetDefault(&cfg.BodyBytes, 64<<10)
	SetDefault(&cfg.MaxWait, 10*time.Minute)
	SetDefault(&cfg.BodyTimeout, 20*time.Second)
	SetDefault(&cfg.BodyMemory, 64<<20)
	SetDefault(&cfg.ReplyMemory, DefaultReplyMemory)
	SetDefault(&cfg.MaxWatchers, 10_000)
	return cfg
}

// New returns an Exchange over cfg.Node, or an error if there is no node.
func New(cfg Config) (*Exchange, error) {
	if cfg.Node == nil {
		return nil, errors.New("exchange: a node is needed")
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	cfg.Logger = cfg.Logger.Named("http")
	cfg = cfg.WithDefaults()
	node := cfg.Node
	if cfg.Tokens != nil {
		node = &guarded{node, node, cfg.Tokens}
	}
	if cfg.Audit != nil {
		node = &audited{node, node, cfg.Audit}
	}
	rights, memory := Rights{cfg.Tokens}, newReplyMemory(cfg.ReplyMemory)
	replies := &Replies{state: node, memory: memory, timeout: cfg.BodyTimeout, log: cfg.Logger}
	return &Exchange{Config: cfg, Node: node, Rights: rights, Bodies: newBodies(cfg.BodyTimeout, cfg.BodyMemory),
		Reads: Reads{node, replies}, Replies: replies, ReplyMemory: memory, Waits: newWaits(cfg.MaxWatchers, rights)}, nil
}

// SetDefault sets a value that is not configured.
func SetDefault[T int | int64 | time.Duration](value *T, to T) {
	if *value <= 0 {
		*value = to
	}
}

// EndWaits ends the requests that wait for a change, and gives arriving bodies one more second. It does not block and
// may be called more than once.
func (x *Exchange) EndWaits() {
	x.Waits.end()
	x.Bodies.shorten()
}

// Collectors returns the metrics of bodies, replies, tokens and the audit log.
func (x *Exchange) Collectors() []prometheus.Collector {
	gauge := func(name, help string, bytes *budget) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(bytes.used.Load()) })
	}
	tokens := x.Config.Tokens
	if tokens == nil {
		tokens = access.None()
	}
	log := x.Config.Audit
	if log == nil {
		log = audit.None()
	}
	return append(slices.Concat(tokens.Collectors(), log.Collectors()),
		gauge("signalbox_http_body_bytes", "What bodies that are being received take, beyond the first 4 KiB of each.", &x.Bodies.memory),
		gauge("signalbox_http_reply_bytes", "What replies that clients have not taken yet take, beyond the first 16 KiB of each.", &x.ReplyMemory.budget))
}
