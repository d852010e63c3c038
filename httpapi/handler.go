package httpapi

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/signalbox/signalbox/httpapi/audit"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/ui"
	"github.com/signalbox/signalbox/httpapi/v1"
)

// DefaultConnections is how many connections may be open unless configured otherwise.
const DefaultConnections = 10_000

// Config is the configuration of a Handler. Zero members get their defaults, but for
// Exchange, which is needed.
type Config struct {
	Exchange *exchange.Exchange
	Native   v1.Config
	Dialects []exchange.Dialect
	Console  bool   // serve the page at /ui/
	Version  string // the reply to GET /version

	// Collectors are served by GET /metrics beside those of requests, of Go and of the
	// process.
	Collectors []prometheus.Collector

	// CORS lists the origins ("https://host:port", or "*" for all) whose pages
	// may call this API from a browser. Empty: none.
	CORS []string

	// Hosts lists the names and addresses under which requests may call this node,
	// beside those of loopback; an unspecified address (0.0.0.0) stands for every
	// address, "*" for every name. A request to another name is refused. Empty: every
	// name is allowed.
	Hosts []string

	MaxConnections int // open at a time, and requests under way; default 10,000

	TLS *tls.Config // of the Server; nil: without TLS
}

// Handler serves the API of one node. It is safe for concurrent use.
type Handler struct {
	cfg     Config
	x       *exchange.Exchange
	native  *v1.API
	echo    *echo.Echo
	owners  map[string]*exchange.Dialect // by the paths of their routes
	metrics *metrics
	hosts   *hosts // under which this node may be called

	everReady   atomic.Bool  // ready at least once, see health
	connections *connections // of the Server over this Handler
}

// New returns a Handler over cfg.Exchange. It fails if there is none, an origin is
// not one, or a collector can't be registered.
func New(cfg Config) (*Handler, error) {
	if cfg.Exchange == nil {
		return nil, errors.New("httpapi: an exchange is needed")
	}
	if err := CheckOrigins(cfg.CORS); err != nil {
		return nil, err
	}
	exchange.SetDefault(&cfg.MaxConnections, DefaultConnections)
	e := echo.New()
	h := &Handler{cfg: cfg, x: cfg.Exchange, native: v1.New(cfg.Exchange, cfg.Native), echo: e,
		owners: map[string]*exchange.Dialect{}, hosts: newHosts(cfg.Hosts), connections: &connections{most: int64(cfg.MaxConnections)}}
	collectors := slices.Concat(h.x.Collectors(), h.native.Collectors(), h.connections.collectors(), cfg.Collectors)
	for _, d := range cfg.Dialects {
		collectors = append(collectors, d.Collectors...)
	}
	var err error
	if h.metrics, err = newMetrics(collectors); err != nil {
		return nil, err
	}
	e.Logger.SetOutput(io.Discard) // hclog is this project's log
	e.HTTPErrorHandler = h.fail    // state: Echo has no other way to set it
	h.echo.Use(h.observe, h.recover(), h.keepForProbes, h.refuseWrongHost)
	if len(cfg.CORS) > 0 {
		h.echo.Use(crossOrigin(cfg.CORS))
	}
	h.echo.Use(h.refuseForeign)
	if cfg.Console {
		console, err := ui.New(h.x)
		if err != nil {
			return nil, err
		}
		h.echo.Use(onPath("/", console.FromRoot))
		h.add(console.Routes())
	}
	if h.x.Config.Tokens != nil {
		h.echo.Use(h.admit)
	}
	h.echo.Use(exchange.SlashesCount)
	h.add(h.routes())
	for i := range cfg.Dialects {
		d := &cfg.Dialects[i]
		h.add(d.Routes)
		for _, r := range d.Routes {
			h.owners[r.Path] = d
		}
	}
	return h, nil
}

// routes returns the native routes and those for probes.
func (h *Handler) routes() []exchange.Route {
	return append(h.native.Routes(),
		exchange.On("GET", "/livez", h.livez),
		exchange.On("GET", "/readyz", h.readyz),
		exchange.On("GET", "/health", h.health),
		exchange.On("GET", "/version", h.version),
		exchange.On("GET", "/metrics", h.showMetrics),
		exchange.On("GET", "/problems/:code", h.problem))
}

// onPath lets a middleware see the requests for one path alone.
func onPath(path string, m echo.MiddlewareFunc) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if c.Request().URL.Path == path {
				return m(next)(c)
			}
			return next(c)
		}
	}
}

// add registers routes. A route for GET also takes HEAD, which Allow then names.
func (h *Handler) add(routes []exchange.Route) {
	for _, r := range routes {
		h.echo.Add(r.Method, r.Path, r.Handler)
		if r.Method == http.MethodGet {
			h.echo.Add(http.MethodHead, r.Path, r.Handler)
		}
	}
}

// ServeHTTP serves one request. It blocks for as long as the request waits.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer h.connections.begin()()
	if r.ContentLength == 0 {
		r.Body = http.NoBody // as it is with HTTP/1.1
	}
	exchange.CanonicalPath(r)
	h.echo.ServeHTTP(w, r)
	h.connections.deliver(w, r)
}

// observe is the outermost middleware: it sends the reply to a request that failed,
// counts and logs each request, and sets the headers that every reply has.
func (h *Handler) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		began := time.Now()
		id := exchange.NameRequest(c)
		if log := h.x.Config.Audit; log != nil {
			r := c.Request()
			c.SetRequest(r.WithContext(audit.With(r.Context(), audit.Request{Remote: log.Proxies().RemoteOf(r), ID: id})))
		}
		h.x.Begin(c)
		defer h.x.End(c)
		h.metrics.open.Inc()
		if err := next(c); err != nil {
			h.fail(err, c)
		}
		took := time.Since(began)
		h.metrics.open.Dec()
		h.metrics.count(c, took)
		if log := h.x.Config.Logger; log.IsDebug() {
			log.Debug("request", "method", c.Request().Method, "path", exchange.Ellipsis(c.Request().URL.Path),
				"status", c.Response().Status, "bytes", c.Response().Size, "took", took, "request", id)
		}
		return nil
	}
}

// fail sends the reply to a request that ended with err: in the form of the dialect
// that its route belongs to, else natively.
func (h *Handler) fail(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	challenge(c, err)
	var unrouted *echo.HTTPError
	owner, owned := h.owners[c.Path()]
	if owned && !exchange.HungUp(c, err) && !errors.Is(err, exchange.ErrUnknownRoute) && !errors.As(err, &unrouted) {
		err = owner.Render(c, err)
	}
	if err != nil {
		h.x.Fail(c, err)
	}
}

// EndWaits ends blocking queries, streams of events and the wait for bodies when the
// server goes down. Waits for permits end when the node drains. EndWaits does not block
// and may be called more than once.
func (h *Handler) EndWaits() {
	h.x.EndWaits()
	h.native.EndStreams()
}

// metricsAtOnce bounds the pages of metrics under way: a page takes memory in
// proportion to the declared semaphores.
const metricsAtOnce = 8

// metrics are the metrics of requests, and the page that serves them with others.
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
	own := []prometheus.Collector{m.requests, m.seconds, m.open, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})}
	for _, c := range append(own, more...) {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("httpapi: metrics: %w", err)
		}
	}
	m.page = echo.WrapHandler(promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true, MaxRequestsInFlight: metricsAtOnce}))
	return m, nil
}

// count counts a request that has its reply. A client can't make up time series: other
// methods and paths are counted together.
func (m *metrics) count(c echo.Context, took time.Duration) {
	method, route, status := c.Request().Method, c.Path(), c.Response().Status
	if !slices.Contains([]string{"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"}, method) {
		method = "other"
	}
	if route == "" || status == http.StatusNotFound && exchange.SlashesDiffer(c) {
		route = "unknown"
	}
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}

// showMetrics sends the metrics, which name semaphores.
func (h *Handler) showMetrics(c echo.Context) error {
	if err := h.x.MaySeeAll(c); err != nil {
		return err
	}
	return h.metrics.page(c)
}

// livez reports that the process serves HTTP. It does not look at the node's state: a
// probe must not kill a node that is busy.
func (h *Handler) livez(c echo.Context) error {
	h.x.SetSeenIndex(c)
	return h.x.SendText(c, http.StatusOK, "Ok")
}

// readyz reports whether this node should get requests; ?verbose names every check.
func (h *Handler) readyz(c echo.Context) error {
	h.x.SetSeenIndex(c)
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
	return h.x.SendText(c, status, report)
}

// health reports whether this node was ready at least once. It is for liveness probes
// that kill: a node without a leader must live on.
func (h *Handler) health(c echo.Context) error {
	h.x.SetSeenIndex(c)
	if ready := h.everReady.Load(); !ready {
		if ready, _ = h.checks(false); !ready {
			return h.x.SendText(c, http.StatusServiceUnavailable, "not ready yet")
		}
	}
	return h.x.SendText(c, http.StatusOK, "Ok")
}

// checks reports whether the node is ready, and the outcome of each check; with details,
// which name members and addresses.
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

// version sends the bare version, without a line's end.
func (h *Handler) version(c echo.Context) error {
	h.x.SetSeenIndex(c)
	return h.x.SendText(c, http.StatusOK, h.cfg.Version)
}

// problem sends the page of a kind of problem.
func (h *Handler) problem(c echo.Context) error {
	h.x.SetSeenIndex(c)
	code, _ := exchange.PathParam(c, "code")
	page, known := exchange.ProblemPage(code)
	if !known {
		return exchange.ErrUnknownRoute
	}
	return h.x.SendText(c, http.StatusOK, page)
}
