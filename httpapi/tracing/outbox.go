package tracing

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const (
	// maxWaiting bounds the number of spans that wait for the collector: about 2 MB, in addition to the batch under way.
	maxWaiting = 2048
	// batchSpans is how many spans a batch has at most.
	batchSpans = 512
	// batchEvery is how long a span waits for others by default; OTEL_BSP_SCHEDULE_DELAY changes it.
	batchEvery = 5 * time.Second
	// reportEvery is the least time between two log lines about lost spans.
	reportEvery = time.Minute
)

// outbox holds the spans that wait for the collector. One goroutine, run, sends them in batches. When the outbox is
// full, further spans are dropped.
type outbox struct {
	to       *exporter
	resource *tracepb.ResourceSpans // with one scope; run's alone
	every    time.Duration
	log      hclog.Logger

	waiting chan *tracepb.Span
	closing chan struct{} // closed when run is to send the rest and to end
	closed  chan struct{} // closed by run
	once    sync.Once

	sent, dropped, failed atomic.Int64 // spans

	reported   [2]int64 // the counts of dropped and failed that the last line covered; run's alone
	reportedAt time.Time
}

// openOutbox returns an outbox that runs until it is closed.
func openOutbox(to *exporter, resource *tracepb.ResourceSpans, every time.Duration, log hclog.Logger) *outbox {
	o := &outbox{to: to, resource: resource, every: every, log: log, waiting: make(chan *tracepb.Span, maxWaiting),
		closing: make(chan struct{}), closed: make(chan struct{})}
	go o.run()
	return o
}

// add puts a span into the outbox. It does not block.
func (o *outbox) add(s *tracepb.Span) {
	select {
	case o.waiting <- s:
	default:
		o.dropped.Add(1)
	}
}

// close sends the spans that wait, and returns when that is done or ctx ends.
func (o *outbox) close(ctx context.Context) {
	o.once.Do(func() { close(o.closing) })
	select {
	case <-o.closed:
	case <-ctx.Done():
		o.log.Warn("the last spans were not sent in time", "waiting", len(o.waiting))
	}
	o.to.end()
}

// run sends a batch when it is full, and at regular intervals.
func (o *outbox) run() {
	defer close(o.closed)
	timer := time.NewTicker(o.every)
	defer timer.Stop()
	var batch []*tracepb.Span
	for {
		tick := false
		select {
		case s := <-o.waiting:
			batch = append(batch, s)
		case <-timer.C:
			tick = true
		case <-o.closing:
			o.drain(batch)
			return
		}
		if len(batch) == batchSpans || tick && len(batch) > 0 {
			o.send(batch)
			batch = nil
		}
	}
}

// drain sends the batch and all waiting spans.
func (o *outbox) drain(batch []*tracepb.Span) {
	for o.to.ctx.Err() == nil {
		select {
		case s := <-o.waiting:
			if batch = append(batch, s); len(batch) == batchSpans {
				o.send(batch)
				batch = nil
			}
			continue
		default:
		}
		if len(batch) > 0 {
			o.send(batch)
		}
		return
	}
}

// send sends one batch, and counts and logs the outcome.
func (o *outbox) send(batch []*tracepb.Span) {
	o.resource.ScopeSpans[0].Spans = batch
	// TracesData has the encoding of the request of an export.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{o.resource}})
	if err == nil {
		err = o.to.send(body, o.closing)
	}
	if err != nil {
		o.failed.Add(int64(len(batch)))
		o.log.Debug("a batch of spans was not delivered", "spans", len(batch), "error", err)
	} else {
		o.sent.Add(int64(len(batch)))
	}
	o.report(err)
}

// report logs how many spans were lost since the last line, at most once per reportEvery.
func (o *outbox) report(last error) {
	lost := [2]int64{o.dropped.Load(), o.failed.Load()}
	if lost == o.reported || time.Since(o.reportedAt) < reportEvery {
		return
	}
	o.log.Warn("spans were lost: the collector does not take them", "dropped", lost[0]-o.reported[0], "failed", lost[1]-o.reported[1], "error", last)
	o.reported, o.reportedAt = lost, time.Now()
}

// collectors returns the metric of spans by outcome.
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
