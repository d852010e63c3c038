package httpapi

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/signalbox/signalbox/httpapi/exchange"
)

// metricsAtOnce bounds the concurrent requests for metrics, because a reply takes memory for each declared semaphore.
const metricsAtOnce = 8

// metrics has the metrics of requests, and the handler of GET /metrics.
type metrics struct {
	page     echo.HandlerFunc
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	open     prometheus.Gauge
}

func newMetrics(more []prometheus.Collector) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "signalbox_http_requests_total",
			Help: "Requests replied to, by method, route pattern and status.",
		}, []string{"method", "route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "signalbox_http_request_seconds",
			Help:    "Time from a request's head to the end of its reply, waits included.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 600},
		}, []string{"route"}),
		open: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "signalbox_http_requests_open",
			Help: "Requests under way, waiting ones included.",
		}),
	}
	registry := prometheus.NewRegistry()
	builtIn := []prometheus.Collector{m.requests, m.seconds, m.open, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})}
	for _, c := range append(builtIn, more...) {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("httpapi: metrics: %w", err)
		}
	}
	m.page = echo.WrapHandler(promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true, MaxRequestsInFlight: metricsAtOnce}))
	return m, nil
}

// showMetrics sends the metrics only to callers that may see all names, because metrics have names of semaphores.
func (h *Handler) showMetrics(c echo.Context) error {
	if err := h.x.Rights.MaySeeAll(c); err != nil {
		return err
	}
	return h.metrics.page(c)
}

// livez reports that the process serves HTTP. It does not check the node's state, so that a probe does not kill a busy
// node.
func (h *Handler) livez(c echo.Context) error {
	h.x.Replies.SetHighestIndex(c)
	return h.x.Replies.SendText(c, http.StatusOK, "Ok")
}

// readyz reports whether this node should get requests. With ?verbose it lists every check.
func (h *Handler) readyz(c echo.Context) error {
	h.x.Replies.SetHighestIndex(c)
	q, err := exchange.ParseQuery(c, "verbose")
	if err != nil {
		return err
	}
	_, verbose := q.Text("verbose")
	ready, report := h.checks(h.maySeeChecks(c))
	if !verbose {
		report = "Ok"
		if !ready {
			report = "not ready"
		}
	}
	status := http.StatusOK
	if !ready {
		status = http.StatusServiceUnavailable
		c.Response().Header().Set("Retry-After", "1")
	}
	return h.x.Replies.SendText(c, status, report)
}

// health reports whether this node was ever ready. It is for liveness probes that restart a node, because a node that
// loses its leader later must not be restarted.
func (h *Handler) health(c echo.Context) error {
	h.x.Replies.SetHighestIndex(c)
	if ready := h.everReady.Load(); !ready {
		if ready, _ = h.checks(false); !ready {
			return h.x.Replies.SendText(c, http.StatusServiceUnavailable, "not ready yet")
		}
	}
	return h.x.Replies.SendText(c, http.StatusOK, "Ok")
}

// checks reports whether the node is ready, and the outcome of each check. With details, the report has members and
// addresses.
func (h *Handler) checks(details bool) (ready bool, report string) {
	var lines strings.Builder
	ready = true
	for _, check := range h.x.Node.Checks() {
		mark := "+"
		if !check.OK {
			mark, ready = "-", false
		}
		if !details {
			lines.WriteString(fmt.Sprintf("[%s] %s\n", mark, check.Name))
			continue
		}
		line := strings.TrimSpace(fmt.Sprintf("[%s] %s %s", mark, check.Name, check.Detail))
		if m := check.Moved; m != nil {
			scheme := "http"
			if h.cfg.TLS != nil {
				scheme = "https"
			}
			line += fmt.Sprintf(`: curl -X PUT %s://ANOTHER-NODE/v1/cluster/members/%s -d '{"peer":"%s"}'`, scheme, m.ID, m.Address)
		}
		lines.WriteString(line + "\n")
	}
	if ready {
		h.everReady.Store(true)
		lines.WriteString("ready\n")
	} else {
		lines.WriteString("not ready\n")
	}
	return ready, lines.String()
}

// version sends the bare version, without a newline.
func (h *Handler) version(c echo.Context) error {
	h.x.Replies.SetHighestIndex(c)
	return h.x.Replies.SendText(c, http.StatusOK, h.cfg.Version)
}

func (h *Handler) problem(c echo.Context) error {
	h.x.Replies.SetHighestIndex(c)
	code, _ := exchange.PathParam(c, "code")
	page, known := exchange.ProblemPage(code)
	if !known {
		return exchange.ErrUnknownRoute
	}
	return h.x.Replies.SendText(c, http.StatusOK, page)
}
