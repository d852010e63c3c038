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
	to                    sdk.SpanExporter
	log                   hclog.Logger
	waiting               atomic.Int64 // in the SDK's queue, in its batch, or on their way
	sent, dropped, failed atomic.Int64 // in all

	mu         sync.Mutex
	reported   [2]int64  // of dropped and failed, in lines so far
	reportedAt time.Time // the last line
}

func newOutbox(to sdk.SpanExporter, log hclog.Logger) *outbox {
	o := &outbox{to: to, log: log}
	o.SpanProcessor = sdk.NewBatchSpanProcessor(exporter{o}, sdk.WithMaxQueueSize(mostWaiting))
	return o
}

// collectors returns the number of spans by outcome.
func (o *outbox) collectors() (list []prometheus.Collector) {
	for outcome, count := range map[string]*atomic.Int64{"sent": &o.sent, "dropped": &o.dropped, "failed": &o.failed} {
		list = append(list, prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name:        "signalbox_trace_spans_total",
			Help:        "Spans by outcome: sent to the collector, dropped because too many waited, or failed to be delivered.",
			ConstLabels: prometheus.Labels{"outcome": outcome},
		}, func() float64 { return float64(count.Load()) }))
	}
	return list
}

// OnEnd implements sdk.SpanProcessor. It does not block.
func (o *outbox) OnEnd(span sdk.ReadOnlySpan) {
	if !span.SpanContext().IsSampled() {
		return
	}
	if o.waiting.Add(1) > mostWaiting {
		o.waiting.Add(-1)
		o.dropped.Add(1)
		return
	}
	o.SpanProcessor.OnEnd(span)
}

// report logs how many spans were lost since the last line, unless that was a moment ago.
func (o *outbox) report() {
	o.mu.Lock()
	defer o.mu.Unlock()
	lost := [2]int64{o.dropped.Load(), o.failed.Load()}
	if lost == o.reported || time.Since(o.reportedAt) < reportEvery {
		return
	}
	o.log.Warn("spans were lost: the collector does not take them", "dropped", lost[0]-o.reported[0], "failed", lost[1]-o.reported[1])
	o.reported, o.reportedAt = lost, time.Now()
}

// exporter is the outbox as the SDK sees it. It returns no error, since the outbox logs
// them.
type exporter struct{ *outbox }

// ExportSpans implements sdk.SpanExporter.
func (e exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.to.ExportSpans(ctx, spans)
	e.waiting.Add(-int64(len(spans)))
	if err != nil {
		e.failed.Add(int64(len(spans)))
		e.log.Debug("a batch of spans was not delivered", "spans", len(spans), "error", err)
	} else {
		e.sent.Add(int64(len(spans)))
	}
	e.report()
	return nil
}

// Shutdown implements sdk.SpanExporter.
func (e exporter) Shutdown(ctx context.Context) error { return e.to.Shutdown(ctx) }
