package tracing

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
)

// endpoint is the variable that switches tracing on.
const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"

// Config says which node is traced.
type Config struct {
	Node    string // its id
	Version string // of the program
	Logger  hclog.Logger
}

// Tracing makes the spans of one node. Over, Collectors and Close may be called on a nil Tracing, which makes no
// spans.
type Tracing struct {
	node    string
	samples sampler
	outbox  *outbox
}

// Open returns the tracing that the environment asks for, or nil if it names no collector. It fails if a variable is
// malformed. It does not wait for the collector.
func Open(cfg Config) (*Tracing, error) {
	variable := os.Getenv
	if variable(endpoint) == "" || strings.EqualFold(variable("OTEL_SDK_DISABLED"), "true") {
		return nil, nil
	}
	samples, err := newSampler(variable)
	if err != nil {
		return nil, err
	}
	resource, err := resourceOf(cfg, variable)
	if err != nil {
		return nil, err
	}
	to, err := newExporter(variable)
	if err != nil {
		return nil, err
	}
	every, err := milliseconds(variable, "OTEL_BSP_SCHEDULE_DELAY", batchEvery)
	if err != nil {
		return nil, err
	}
	log := cfg.Logger.Named("tracing")
	log.Info("requests are traced", "collector", to.url)
	return &Tracing{node: cfg.Node, samples: samples, outbox: openOutbox(to, resource, every, log)}, nil
}

// Collectors returns the metrics of tracing, which are 0 while it is off.
func (t *Tracing) Collectors() []prometheus.Collector {
	if t == nil {
		return new(outbox).collectors()
	}
	return t.outbox.collectors()
}

// Close sends the waiting spans. It blocks until the collector has them, has failed to accept them, or ctx ends. Spans
// that end after Close are lost.
func (t *Tracing) Close(ctx context.Context) {
	if t != nil {
		t.outbox.close(ctx)
	}
}

// Committed implements lead.Tracer: it makes the span of an entry, as a child of the span of a command.
func (t *Tracing) Committed(command string, left time.Time, term, index uint64) {
	parent, valid := parse(command)
	if !valid || !t.samples(parent.trace, &parent) {
		return
	}
	s := t.start(parent, "commit", text("signalbox.node", t.node), number("signalbox.term", term), number("signalbox.index", index))
	s.StartTimeUnixNano = uint64(left.UnixNano())
	s.end()
}
