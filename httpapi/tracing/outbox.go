package tracing

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

const (
	// mostWaiting is how many spans may wait for the collector, about 2 MB.
	mostWaiting = 2048
	// reportEvery is the least time between two log lines about lost spans.
	reportEvery = time.Minute
)

// outbox is the spans that wait for the collector. The SDK gathers them into batches and
// sends one at a time from a goroutine of its own. A span that has no room is dropped here
// and not by the SDK, which would not report it.
type outbox struct {
	sdk.SpanProcessor
	to      sdk.SpanExporter
	log     hclog.Logger
	count   *prometheus.CounterVec
	waiting atomic.Int64 // in the SDK's queue, in its batch, or on their way
	dropped atomic.Int64 // in all

	mu         sync.Mutex
	failed     int64     // not delivered, since the last line
	reported   int64     // of dropped, in lines so far
	reportedAt time.Time // the last line
}

func newOutbox(to sdk.SpanExporter, log hclog.Logger) *outbox {
	o := &outbox{to: to, log: log, count: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "signalbox_trace_spans_total",
		Help: "Spans by outcome: sent to the collector, dropped because too many waited, or failed to be delivered.",
	}, []string{"outcome"})}
	for _, outcome := range []string{"sent", "dropped", "failed"} {
		o.count.WithLabelValues(outcome)
	}
	o.SpanProcessor = sdk.NewBatchSpanProcessor(exporter{o}, sdk.WithMaxQueueSize(mostWaiting))
	return o
}

// OnEnd implements sdk.SpanProcessor. It does not block.
func (o *outbox) OnEnd(span sdk.ReadOnlySpan) {
	if !span.SpanContext().IsSampled() {
		return
	}
	if o.waiting.Add(1) > mostWaiting {
		o.waiting.Add(-1)
		o.dropped.Add(1)
		o.count.WithLabelValues("dropped").Inc()
		return
	}
	o.SpanProcessor.OnEnd(span)
}

// report logs the spans that were lost since the last line, unless that was a moment ago.
func (o *outbox) report(now time.Time, failed int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed += failed
	dropped := o.dropped.Load() - o.reported
	if o.failed+dropped == 0 || now.Sub(o.reportedAt) < reportEvery {
		return
	}
	o.log.Warn("spans were lost: the collector does not take them", "failed", o.failed, "dropped", dropped)
	o.failed, o.reported, o.reportedAt = 0, o.reported+dropped, now
}

// exporter is the outbox as the SDK sees it. It returns no error, since the outbox logs
// them.
type exporter struct{ *outbox }

// ExportSpans implements sdk.SpanExporter.
func (e exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.to.ExportSpans(ctx, spans)
	e.waiting.Add(-int64(len(spans)))
	if err != nil {
		e.count.WithLabelValues("failed").Add(float64(len(spans)))
		e.log.Debug("a batch of spans was not delivered", "spans", len(spans), "error", err)
		e.report(time.Now(), int64(len(spans)))
		return nil
	}
	e.count.WithLabelValues("sent").Add(float64(len(spans)))
	e.report(time.Now(), 0)
	return nil
}

// Shutdown implements sdk.SpanExporter.
func (e exporter) Shutdown(ctx context.Context) error { return e.to.Shutdown(ctx) }
