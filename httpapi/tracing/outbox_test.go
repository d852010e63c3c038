package tracing

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/signalbox/signalbox/test/logtest"
	"github.com/signalbox/signalbox/test/otlptest"
)

// spans makes this many spans.
func spans(traces *Tracing, count int) {
	for range count {
		traces.Committed(clientParent, time.Now(), 1, 1)
	}
}

// await waits until a condition holds.
func await(t *testing.T, holds func() bool) {
	t.Helper()
	late := time.After(30 * time.Second)
	for !holds() {
		select {
		case <-late:
			t.Fatal("it did not come to pass")
		case <-time.After(time.Millisecond):
		}
	}
}

// TestHangingCollector: while the collector hangs, requests do not wait. Spans beyond the bound are dropped and counted,
// a line of the log says so, and Close returns in time.
func TestHangingCollector(t *testing.T) {
	collector, log := otlptest.StartHanging(t), logtest.New()
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "200")
	traces, _ := open(t, collector, log)
	const made = maxWaiting + batchSpans + 100
	spans(traces, made)
	if dropped := traces.outbox.dropped.Load(); dropped == 0 {
		t.Error("no span was dropped")
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

// TestCloseInTime: Close returns at its deadline, whatever the collector does.
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
	collector.Refuse(http.StatusServiceUnavailable)
	traces, _ := open(t, collector, logtest.New())
	spans(traces, batchSpans)
	await(t, func() bool { return traces.outbox.sent.Load() == batchSpans })
	if got := len(collector.Spans()); got != batchSpans {
		t.Errorf("%d spans came", got)
	}
	collector.Refuse(http.StatusBadRequest)
	spans(traces, 2)
	traces.Close(t.Context())
	if posts, failed := collector.Posts.Load(), traces.outbox.failed.Load(); posts != 3 || failed != 2 {
		t.Errorf("%d posts, %d failed", posts, failed)
	}
}
