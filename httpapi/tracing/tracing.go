package tracing

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// endpoint is the variable that switches tracing on.
const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"

// Config says which node is traced.
type Config struct {
	Node    string // its id
	Version string // of the program
	Logger  hclog.Logger
}

// Tracing makes the spans of one node. Over, Collectors and Close may be called on a nil
// Tracing, which makes none.
type Tracing struct {
	node     string
	tracer   trace.Tracer
	provider *sdk.TracerProvider
	outbox   *outbox
	uploads  *uploads
}

// Open returns the tracing that the environment asks for, or nil if it names no collector.
// It fails if a variable is malformed. It does not wait for the collector.
func Open(cfg Config) (*Tracing, error) {
	if os.Getenv(endpoint) == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return nil, nil
	}
	log := cfg.Logger.Named("tracing")
	uploads, err := newUploads(os.Getenv)
	if err != nil {
		return nil, err
	}
	// The variables come last, and win.
	of, err := resource.New(context.Background(), resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "signalbox"),
		attribute.String("service.version", cfg.Version),
		attribute.String("service.instance.id", cfg.Node),
	), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("OpenTelemetry reports an error", "error", err) }))
	outbox := newOutbox(otlptrace.NewUnstarted(uploads), log)
	provider := sdk.NewTracerProvider(sdk.WithResource(of), sdk.WithSpanProcessor(outbox))
	log.Info("requests are traced", "collector", uploads.to)
	return &Tracing{node: cfg.Node, provider: provider, outbox: outbox, uploads: uploads,
		tracer: provider.Tracer("github.com/signalbox/signalbox", trace.WithInstrumentationVersion(cfg.Version))}, nil
}

// Collectors returns the metrics of tracing.
func (t *Tracing) Collectors() []prometheus.Collector {
	if t == nil {
		return nil
	}
	return t.outbox.collectors()
}

// Close sends the spans that wait. It blocks until the collector has them or ctx ends;
// spans that end later are lost.
func (t *Tracing) Close(ctx context.Context) {
	if t == nil {
		return
	}
	t.uploads.hurry()
	defer t.uploads.end()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.outbox.log.Warn("the last spans were not sent", "waiting", t.outbox.waiting.Load(), "error", err)
	}
	t.outbox.report()
}

// Committed implements lead.Tracer: the span of an entry, as a child of the command's.
func (t *Tracing) Committed(of string, left time.Time, term, index uint64) {
	parent := parse(of)
	if !parent.IsValid() {
		return
	}
	_, span := t.tracer.Start(within(parent), "commit", trace.WithTimestamp(left), trace.WithAttributes(
		attribute.String("signalbox.node", t.node), number("signalbox.term", term), number("signalbox.index", index)))
	span.End()
}

// number is an attribute of a number that is shown as text where it may exceed an int64:
// an id.
func number(key string, value uint64) attribute.KeyValue {
	if value > 1<<63-1 {
		return attribute.String(key, fmt.Sprint(value))
	}
	return attribute.Int64(key, int64(value))
}
