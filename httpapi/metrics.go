package httpapi

import (
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metricsAtOnce bounds the pages of metrics under way: one takes memory with the
// number of declared semaphores.
const metricsAtOnce = 8

// metrics are the figures of this API, and the page that serves them with
// those handed in.
type metrics struct {
	page     http.Handler
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	open     prometheus.Gauge
	watchers prometheus.Gauge
	queries  prometheus.Gauge
}

func newMetrics(more []prometheus.Collector) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "signalbox_http_requests_total",
			Help: "Requests answered, by method, route pattern and status.",
		}, []string{"method", "route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "signalbox_http_request_seconds",
			Help:    "Time from a request's head to the end of its answer, waits included.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 600},
		}, []string{"route"}),
		open: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "signalbox_http_requests_open",
			Help: "Requests under way, waiting ones included.",
		}),
		watchers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "signalbox_event_streams_open",
			Help: "Streams of events that clients follow on this node.",
		}),
		queries: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "signalbox_blocking_queries_open",
			Help: "Blocking queries that wait on this node for a change.",
		}),
	}
	registry := prometheus.NewRegistry()
	own := []prometheus.Collector{m.requests, m.seconds, m.open, m.watchers, m.queries, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})}
	for _, c := range append(own, more...) {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("httpapi: metrics: %w", err)
		}
	}
	m.registry = registry
	m.page = promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true, MaxRequestsInFlight: metricsAtOnce})
	return m, nil
}

// addBounds shows how much of its bounds a handler uses.
func (m *metrics) addBounds(h *Handler) error {
	gauge := func(name, help string, value *atomic.Int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value.Load()) })
	}
	for _, c := range []prometheus.Collector{
		gauge("signalbox_http_connections_open", "Connections that clients have open.", &h.connections.open),
		gauge("signalbox_http_body_bytes", "What bodies that are being received take, beyond the first 4 KiB of each.", &h.bodySpace.used),
		gauge("signalbox_http_reply_bytes", "What replies that clients have not taken yet take, beyond the first 16 KiB of each.", &h.replies.used),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "signalbox_http_connections_refused_total",
			Help: "Connections, and requests on those kept for probes, that were refused since too many are open.",
		}, func() float64 { return float64(h.connections.refused.Load()) }),
	} {
		if err := m.registry.Register(c); err != nil {
			return fmt.Errorf("httpapi: metrics: %w", err)
		}
	}
	return nil
}

// begin counts a request in; the answer counts it out.
func (m *metrics) begin() func(c echo.Context, took time.Duration) {
	m.open.Inc()
	return func(c echo.Context, took time.Duration) {
		m.open.Dec()
		status := c.Response().Status
		route := c.Path()
		if route == "" || status == http.StatusNotFound && slashesDiffer(c) {
			route = "unknown"
		}
		m.requests.WithLabelValues(knownMethod(c.Request().Method), route, strconv.Itoa(status)).Inc()
		m.seconds.WithLabelValues(route).Observe(took.Seconds())
	}
}

// knownMethod keeps a client from making up time series.
func knownMethod(method string) string {
	switch method {
	case "GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS":
		return method
	}
	return "other"
}

func (m *metrics) serve(c echo.Context) error {
	m.page.ServeHTTP(c.Response(), c.Request())
	return nil
}
