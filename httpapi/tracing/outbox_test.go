package tracing

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/signalbox/signalbox/internal/logtest"
	"github.com/signalbox/signalbox/internal/otlptest"
)

// spans makes so many spans.
func spans(traces *Tracing, count int) {
	for range count {
		traces.Committed(clientParent, time.Now(), 1, 1)
	}
}

// TestHangingCollector: no span waits for a collector that hangs; those beyond the bound
// are dropped and counted, and Close returns in time. One line of the log says so.
func TestHangingCollector(t *testing.T) {
	collector, log := otlptest.StartHanging(t), logtest.New()
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "200")
	traces, _ := open(t, collector, log)
	const made = mostWaiting + 1000
	spans(traces, made)
	if waiting, dropped := traces.outbox.waiting.Load(), traces.outbox.dropped.Load(); waiting > mostWaiting || dropped == 0 {
		t.Errorf("%d wait, %d were dropped", waiting, dropped)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	traces.Close(ctx)
	if failed, dropped := traces.outbox.failed.Load(), traces.outbox.dropped.Load(); failed+dropped != made {
		t.Errorf("%d failed and %d were dropped, of %d", failed, dropped, made)
	}
	if lines := log.Lines("spans were lost"); len(lines) != 1 {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}

// TestCloseInTime: Close heeds its deadline whatever the collector does.
func TestCloseInTime(t *testing.T) {
	traces, _ := open(t, otlptest.StartHanging(t), logtest.New())
	spans(traces, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if traces.Close(ctx); time.Since(began) > uploadTimeout/2 {
		t.Errorf("it took %v", time.Since(began))
	}
}

// TestUnavailableCollector: a batch is sent again to a collector that asks for it.
func TestUnavailableCollector(t *testing.T) {
	collector := otlptest.Start(t)
	collector.Status.Store(http.StatusServiceUnavailable)
	traces, _ := open(t, collector, logtest.New())
	sent := make(chan error, 1)
	spans(traces, 3)
	go func() { sent <- traces.provider.ForceFlush(t.Context()) }()
	for collector.Posts.Load() == 0 {
		select {
		case err := <-sent:
			t.Fatalf("it has given up: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	collector.Status.Store(0)
	if err := <-sent; err != nil || len(collector.Spans()) != 3 || traces.outbox.sent.Load() != 3 {
		t.Errorf("%v; %d spans, %d sent", err, len(collector.Spans()), traces.outbox.sent.Load())
	}
	collector.Status.Store(http.StatusBadRequest)
	spans(traces, 2)
	traces.Close(t.Context())
	if posts, failed := collector.Posts.Load(), traces.outbox.failed.Load(); posts != 3 || failed != 2 {
		t.Errorf("%d posts, %d failed", posts, failed)
	}
}
