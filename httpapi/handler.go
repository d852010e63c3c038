package httpapi

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/client/cells"
	"github.com/signalbox/signalbox/httpapi/audit"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/ui"
	v1 "github.com/signalbox/signalbox/httpapi/v1"
)

// DefaultConnections is the default of Config.MaxConnections.
const DefaultConnections = 10_000

// Config is the configuration of a Handler. Only Exchange is required; zero members get their defaults.
type Config struct {
	Exchange *exchange.Exchange
	Native   v1.Config
	Dialects []exchange.Dialect
	Console  bool   // serve the page at /ui/
	Version  string // the reply to GET /version

	// Collectors are further metrics for GET /metrics, besides the metrics of requests, of Go and of the process.
	Collectors []prometheus.Collector

	// CORS lists the origins ("https://host:port", or "*" for all) whose pages may call this API from a browser.
	// Empty: no origin.
	CORS []string

	// Hosts lists the names and addresses that the Host of a request may have; loopback names are always allowed. An
	// unspecified address (0.0.0.0) allows every address, and "*" every name. Empty: every name is allowed.
	Hosts []string

	// Cell is the number of this node's cell: requests for another cell are refused. 0: no check.
	Cell int

	IdleTimeout time.Duration // how long a connection without a request stays open; default DefaultIdleTimeout

	MaxConnections int // bounds the open connections, and the requests under way; default 10,000

	TLS *tls.Config // TLS of the Server; nil: plain HTTP

	// Trace is the outermost middleware of every request except probes, metrics and the console's files; nil: no
	// middleware.
	Trace echo.MiddlewareFunc
}

// Handler serves the API of one node. It is safe for concurrent use.
type Handler struct {
	cfg     Config
	x       *exchange.Exchange
	native  *v1.API
	echo    *echo.Echo
	owners  map[string]*exchange.Dialect // dialects by route path: their errors have the dialect's form
	metrics *metrics
	hosts   *hosts // allowed values of Host

	everReady   atomic.Bool  // the node was ready at least once, see health
	connections *connections // connections of the Server that serves this Handler
}

// New returns a Handler over cfg.Exchange. It fails if Exchange is nil, an origin is invalid, or a collector can't be
// registered.
func New(cfg Config) (*Handler, error) {
	if cfg.Exchange == nil {
		return nil, errors.New("httpapi: an exchange is needed")
	}
	if err := CheckOrigins(cfg.CORS); err != nil {
		return nil, err
	}
	exchange.SetDefault(&cfg.MaxConnections, DefaultConnections)
	exchange.SetDefault(&cfg.IdleTimeout, DefaultIdleTimeout)
	e := echo.New()
	h := &Handler{cfg: cfg, x: cfg.Exchange, native: v1.New(cfg.Exchange, cfg.Native), echo: e,
		owners: map[string]*exchange.Dialect{}, hosts: newHosts(cfg.Hosts), connections: &connections{limit: int64(cfg.MaxConnections)}}
	collectors := slices.Concat(h.x.Collectors(), h.native.Collectors(), h.connections.collectors(), cfg.Collectors)
	for _, d := range cfg.Dialects {
		collectors = append(collectors, d.Collectors...)
	}
	var err error
	if h.metrics, err = newMetrics(collectors); err != nil {
		return nil, err
	}
	e.Logger.SetOutput(io.Discard) // because this project logs with hclog
	e.HTTPErrorHandler = h.fail    // state: echo has no other way to set it
	if cfg.Trace != nil {
		h.echo.Use(traced(cfg.Trace))
	}
	h.echo.Use(h.observe, h.recover(), h.refuseAllButProbes, h.refuseMisdirected)
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

// routes returns the routes of the native API and of probes.
func (h *Handler) routes() []exchange.Route {
	return append(h.native.Routes(),
		exchange.On("GET", "/livez", h.livez),
		exchange.On("GET", "/readyz", h.readyz),
		exchange.On("GET", "/health", h.health),
		exchange.On("GET", "/version", h.version),
		exchange.On("GET", "/metrics", h.showMetrics),
		exchange.On("GET", "/problems/:code", h.problem))
}

// onPath applies a middleware only to the requests for one path.
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

// add registers routes. A route for GET also takes HEAD, and Allow names both.
func (h *Handler) add(routes []exchange.Route) {
	for _, r := range routes {
		h.echo.Add(r.Method, r.Path, r.Handler)
		if r.Method == http.MethodGet {
			h.echo.Add(http.MethodHead, r.Path, r.Handler)
		}
	}
}

// ServeHTTP serves one request. It blocks until the reply is sent.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer h.connections.begin()()
	if r.ContentLength == 0 {
		r.Body = http.NoBody // as net/http does with HTTP/1.1
	}
	exchange.CanonicalPath(r)
	h.echo.ServeHTTP(w, r)
	h.connections.deliver(w, r)
}

// observe is the outermost middleware. It replies to failed requests, counts and logs each request, and sets the
// headers of every reply.
func (h *Handler) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		began := time.Now()
		id := exchange.NameRequest(c)
		if log := h.x.Config.Audit; log != nil {
			r := c.Request()
			c.SetRequest(r.WithContext(audit.With(r.Context(), audit.Request{Remote: log.Proxies().RemoteOf(r), ID: id})))
		}
		h.x.Replies.Begin(c)
		defer h.x.Bodies.End(c)
		h.metrics.open.Inc()
		if err := next(c); err != nil {
			h.fail(err, c)
		}
		elapsed := time.Since(began)
		h.metrics.open.Dec()
		h.metrics.count(c, elapsed)
		if log := h.x.Config.Logger; log.IsDebug() {
			log.Debug("request", exchange.LogPairs(c, "method", c.Request().Method, "path", exchange.Ellipsis(c.Request().URL.Path),
				"status", c.Response().Status, "bytes", c.Response().Size, "took", elapsed)...)
		}
		return nil
	}
}

// fail replies to a request that failed with err, in the form of the dialect that has the route, or of the native API.
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
		h.x.Replies.SendProblem(c, err)
	}
}

// EndWaits ends blocking queries, event streams and the wait for bodies when the server shuts down. It does not end
// waits for permits, which end when the node drains. It does not block and may be called more than once.
func (h *Handler) EndWaits() {
	h.x.EndWaits()
	h.native.EndStreams()
}

// count counts a request that has its reply. Unknown methods and paths share one label, so that a client can't create
// time series.
func (m *metrics) count(c echo.Context, elapsed time.Duration) {
	method, route, status := c.Request().Method, c.Path(), c.Response().Status
	if !slices.Contains([]string{"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"}, method) {
		method = "other"
	}
	if route == "" || status == http.StatusNotFound && exchange.SlashesDiffer(c) {
		route = "unknown"
	}
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route).Observe(elapsed.Seconds())
}

// track keeps the set of connections that have not sent a request yet. Browsers open such connections in advance, and
// net/http's Shutdown would wait 5 s for each. It also counts the connections that end before their TLS handshake is
// complete.
func (s *Server) track(conn net.Conn, state http.ConnState) {
	if secure, ok := conn.(*tls.Conn); ok && state == http.StateClosed && !secure.ConnectionState().HandshakeComplete {
		s.connections.failed.Add(1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if state == http.StateNew {
		s.fresh[conn] = struct{}{}
	} else {
		delete(s.fresh, conn)
	}
}

// crowded reports whether more requests are under way than connections may be open, which HTTP/2 makes possible.
func (l *connections) crowded() bool { return l.requests.Load() > l.limit+keptConnections }

// begin counts a request until end is called. Beyond twice the bound it aborts the request without a reply, because
// each reply that a client does not take uses memory.
func (l *connections) begin() (end func()) {
	if l.requests.Add(1) > 2*l.limit+keptConnections {
		l.requests.Add(-1)
		l.refused.Add(1)
		panic(http.ErrAbortHandler)
	}
	return func() { l.requests.Add(-1) }
}

// deliver blocks until the client has taken a reply over HTTP/2, so that the request counts until then. Without the
// flush, net/http would wait for the client only after the request has ended. deliver skips the flush, to save a frame,
// while the open connections together can't have more streams than the bound.
func (l *connections) deliver(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor >= 2 && l.open.Load()*exchange.StreamsPerConnection > l.limit {
		_ = http.NewResponseController(w).Flush() // ignore the error: the client is gone
	}
}

// refuseAllButProbes refuses all requests but probes on a connection that is reserved for probes, and closes the
// connection after the reply. While too many requests are under way, it refuses them on every connection.
func (h *Handler) refuseAllButProbes(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if c.Request().Context().Value(keptKey{}) != nil {
			c.Response().Header().Set("Connection", "close")
		} else if !h.connections.crowded() {
			return next(c)
		}
		switch c.Path() {
		case "/livez", "/readyz", "/health", "/version", "/metrics":
			return next(c)
		}
		h.connections.refused.Add(1)
		return exchange.LimitReached("connections", h.connections.limit,
			"This node has as many connections open, or requests under way, as it takes (--max-connections). "+
				"The request had no effect; try again later, or at another node.")
	}
}

// recover turns a panic of a handler into status 500, and logs it once. The node goes on, because a handler can
// corrupt only its own request.
func (h *Handler) recover() echo.MiddlewareFunc {
	return middleware.RecoverWithConfig(middleware.RecoverConfig{
		StackSize: 16 << 10, DisableStackAll: true, DisableErrorHandler: true,
		LogErrorFunc: func(c echo.Context, broken error, stack []byte) error {
			h.x.Config.Logger.Error("handler panicked", append(exchange.LogPairs(c, "method", c.Request().Method, "route", c.Path(), "panic", broken),
				"stack", string(stack))...) // at the end, because it has many lines
			return exchange.ErrInternal
		},
	})
}

// crossOrigin allows the pages of the listed origins to call the API from a browser.
func crossOrigin(origins []string) echo.MiddlewareFunc {
	return middleware.CORSWithConfig(middleware.CORSConfig{
		Skipper: func(c echo.Context) bool { // don't answer a preflight for an unknown route
			return c.Request().Method == http.MethodOptions && (c.Path() == "" || exchange.SlashesDiffer(c))
		},
		AllowOrigins: origins,
		AllowHeaders: []string{"Authorization", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match", "Last-Event-ID", exchange.HeaderRequest,
			"traceparent", "tracestate"},
		ExposeHeaders: []string{exchange.HeaderIndex, exchange.HeaderLastContact, exchange.HeaderNotice, "ETag", "Idempotency-Replayed", "Location",
			"Retry-After", exchange.HeaderRequest, "traceparent"},
		MaxAge: 600,
	})
}

// hosts are the names that requests to this node may use. They protect against DNS rebinding, where a page's own host
// name resolves to this node, so that the browser takes page and node for one origin. Such requests still have the
// page's name in Host, so they are refused.
type hosts struct {
	any       bool // every name is allowed
	addresses bool // every literal address is allowed, because the node listens on all addresses
	names     map[string]bool
}

func newHosts(listed []string) *hosts {
	h := &hosts{any: len(listed) == 0, names: map[string]bool{"localhost": true}}
	for _, name := range listed {
		address, err := netip.ParseAddr(name)
		h.any = h.any || name == "*"
		h.addresses = h.addresses || err == nil && address.IsUnspecified()
		h.names[plainHost(name)] = true
	}
	return h
}

// plainHost normalises a host for comparison: lower case, without the final dot, an address in its canonical form.
func plainHost(host string) string {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if address, err := netip.ParseAddr(host); err == nil {
		return address.Unmap().String()
	}
	return host
}

// has reports whether a request's Host is allowed. The port does not matter, because DNS rebinding does not change it.
// A request without a Host is allowed, because no browser sends one.
func (h *hosts) has(host string) bool {
	if h.any || host == "" {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	name := plainHost(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	if address, err := netip.ParseAddr(name); err == nil && (h.addresses || address.IsLoopback()) {
		return true
	}
	return h.names[name]
}

// refuseMisdirected refuses a request whose Host is not allowed, or which is for another cell, on every route.
func (h *Handler) refuseMisdirected(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if sent, number := c.Request().Header.Get(cells.Header), strconv.Itoa(h.cfg.Cell); sent != "" && sent != number && h.cfg.Cell != 0 {
			c.Response().Header().Set(cells.Header, number)
			return exchange.NewProblem("wrong-host", "This node is of cell "+number+", and the request is for another cell: the sender's file of cells is wrong.")
		}
		if host := c.Request().Host; !h.hosts.has(host) {
			return exchange.NewProblem("wrong-host", `This node is not called "`+strings.ToValidUTF8(exchange.Ellipsis(host), "")+
				`". Use a name or an address of it; an operator adds names with --allow-host.`)
		}
		return next(c)
	}
}

// refuseForeign refuses a changing request that a browser sends for a page of another origin. Without CORS the browser
// hides the reply from the page, but still sends the request, for example a form's POST. Browsers send the page's
// origin, or at least Sec-Fetch-Site. A read passes, because it changes no state, and links from other sites to this
// node should work.
func (h *Handler) refuseForeign(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		switch r.Method {
		case http.MethodGet, http.MethodHead, http.MethodOptions:
			return next(c)
		}
		listed := false
		for _, origin := range r.Header["Origin"] {
			if !h.ownOrigin(origin, r.Host) {
				return exchange.ErrForeignOrigin
			}
			listed = listed || h.listedOrigin(origin)
		}
		for _, site := range r.Header["Sec-Fetch-Site"] {
			if site != "same-origin" && site != "none" && !listed {
				return exchange.ErrForeignOrigin
			}
		}
		return next(c)
	}
}

func (h *Handler) listedOrigin(origin string) bool {
	return slices.Contains(h.cfg.CORS, "*") || slices.Contains(h.cfg.CORS, origin)
}

func (h *Handler) ownOrigin(origin, host string) bool {
	if h.listedOrigin(origin) {
		return true
	}
	u, err := url.Parse(origin)
	scheme := u != nil && (u.Scheme == "https" || u.Scheme == "http" && h.cfg.TLS == nil) // https too: a proxy may add TLS
	return err == nil && scheme && u.Host != "" && strings.EqualFold(u.Host, host)
}

// CheckOrigins returns an error for an entry of Config.CORS that no browser sends as its Origin, for example because
// of a typing error.
func CheckOrigins(origins []string) error {
	for _, origin := range origins {
		if origin == "*" {
			continue
		}
		u, err := url.Parse(origin)
		if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != origin {
			return fmt.Errorf("%q is not an origin: write scheme://host[:port], or *", origin)
		}
		if strings.ContainsAny(u.Host, "*?") {
			return fmt.Errorf("origin %q: only a lone * is a wildcard", origin)
		}
	}
	return nil
}
