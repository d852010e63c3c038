package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/signalbox/signalbox/httpapi/exchange"
)

// Server serves a Handler over HTTP/1.1, or over HTTPS with HTTP/1.1 and HTTP/2, with the
// time and size limits that net/http leaves off by default.
type Server struct {
	http        *http.Server
	connections *connections

	mu    sync.Mutex
	fresh map[net.Conn]struct{} // connections that have sent no request yet
}

// headBytes is the most that a request's head may have, less the 4 KiB that
// net/http reads on beyond its limit: 16 KiB in all.
const headBytes = 16<<10 - 4<<10

// streamsOfOne is how many requests may be under way on one connection with HTTP/2.
const streamsOfOne = 100

// overHTTP2 bounds a connection with HTTP/2, whose client could otherwise fill a megabyte
// or more that no handler has asked for. A client that has that many requests under
// way opens another connection, or waits.
func overHTTP2(timeout time.Duration) *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams:          streamsOfOne,
		MaxReadFrameSize:              16 << 10,
		MaxReceiveBufferPerConnection: 64 << 10,
		MaxReceiveBufferPerStream:     64 << 10,
		// The deadline of a reply ends its stream, and this one a connection from which the
		// client reads no stream at all.
		WriteByteTimeout: timeout,
	}
}

// NewServer returns a server that does not listen yet.
func NewServer(h *Handler) *Server {
	s := &Server{connections: h.connections, fresh: map[net.Conn]struct{}{}}
	s.http = &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    headBytes,
		// net/http's own handler of OPTIONS * waits for a body without end.
		DisableGeneralOptionsHandler: true,
		ConnState:                    s.track,
		ConnContext:                  markKept,
		TLSConfig:                    h.cfg.TLS,
		HTTP2:                        overHTTP2(h.x.Config.BodyTimeout),
		ErrorLog:                     log.New(&complaints{log: h.x.Config.Logger}, "", 0),
	}
	s.http.RegisterOnShutdown(h.EndWaits)
	return s
}

// Serve accepts connections until Shutdown, and then returns nil, or else the
// listener's error. It closes the listener. It blocks.
func (s *Server) Serve(l net.Listener) error {
	var err error
	if l = (bounded{l, s.connections}); s.http.TLSConfig != nil {
		err = s.http.ServeTLS(l, "", "")
	} else {
		err = s.http.Serve(l)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown stops accepting, ends blocking queries and blocks until the requests under
// way have their replies, at most until ctx ends: then it cuts them off and returns
// ctx's error. Waits for permits end when the node drains: drain it first.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	for conn := range s.fresh {
		conn.Close()
	}
	s.mu.Unlock()
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(err, s.http.Close())
	}
	return nil
}

// track notes new connections without a request. net/http's Shutdown waits 5 s for
// such a connection, and browsers open them in advance. It counts those that end without
// a handshake.
func (s *Server) track(conn net.Conn, state http.ConnState) {
	if secure, is := conn.(*tls.Conn); is && state == http.StateClosed && !secure.ConnectionState().HandshakeComplete {
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

// crowded reports whether more requests are under way than connections may be open, which
// takes connections with HTTP/2.
func (l *connections) crowded() bool { return l.requests.Load() > l.most+keptConnections }

// begin counts a request until end is called. It aborts a request beyond twice the bound
// without a reply, since replies that are not taken hold memory.
func (l *connections) begin() (end func()) {
	if l.requests.Add(1) > 2*l.most+keptConnections {
		l.requests.Add(-1)
		l.refused.Add(1)
		panic(http.ErrAbortHandler)
	}
	return func() { l.requests.Add(-1) }
}

// deliver blocks until the client has taken a reply over HTTP/2, which net/http would do
// after the request has ended. It spares the extra frame while the open connections can't
// have more streams than the bound.
func (l *connections) deliver(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor >= 2 && l.open.Load()*streamsOfOne > l.most {
		_ = http.NewResponseController(w).Flush() // the client's matter
	}
}

// keepForProbes refuses requests other than probes on a connection that is kept for
// probes, and closes the connection after the reply. On other connections it refuses them
// while too many are under way.
func (h *Handler) keepForProbes(next echo.HandlerFunc) echo.HandlerFunc {
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
		p := exchange.NewProblem("limit-reached", "This node has as many connections open, or requests under way, as it takes (--max-connections). Nothing was done; try again later, or at another node.")
		most := h.connections.most
		p.Rule, p.Limit = "connections", &most
		return p
	}
}

// recover turns a panic of a handler into status 500, and logs it once. The node goes
// on: a handler can break its own request only.
func (h *Handler) recover() echo.MiddlewareFunc {
	return middleware.RecoverWithConfig(middleware.RecoverConfig{
		StackSize: 16 << 10, DisableStackAll: true, DisableErrorHandler: true,
		LogErrorFunc: func(c echo.Context, broken error, stack []byte) error {
			h.x.Config.Logger.Error("handler panicked", "method", c.Request().Method, "route", c.Path(), "panic", broken,
				"request", exchange.RequestID(c), "stack", string(stack))
			return exchange.ErrInternal
		},
	})
}

// crossOrigin lets the pages of listed origins call from a browser.
func crossOrigin(origins []string) echo.MiddlewareFunc {
	return middleware.CORSWithConfig(middleware.CORSConfig{
		Skipper: func(c echo.Context) bool { // an unknown route has no preflight
			return c.Request().Method == http.MethodOptions && (c.Path() == "" || exchange.SlashesDiffer(c))
		},
		AllowOrigins: origins,
		AllowHeaders: []string{"Authorization", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match", "Last-Event-ID", exchange.HeaderRequest},
		ExposeHeaders: []string{exchange.HeaderIndex, exchange.HeaderLastContact, exchange.HeaderNotice, "ETag", "Idempotency-Replayed", "Location",
			"Retry-After", exchange.HeaderRequest},
		MaxAge: 600,
	})
}

// hosts are the names under which this node may be called. A page whose own host
// name leads to this node (DNS rebinding) is of the same origin to the browser, but
// its requests still carry that name: this check is what stops them.
type hosts struct {
	any       bool // every name; the check is off
	addresses bool // every literal address: the node listens on all of its machine's
	names     map[string]bool
}

// newHosts returns the hosts of Config.Hosts.
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

// plainHost returns the spelling of a host that is compared: without the dot of the
// root, in lower case, an address in its one spelling.
func plainHost(host string) string {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if address, err := netip.ParseAddr(host); err == nil {
		return address.Unmap().String()
	}
	return host
}

// has reports whether a request's Host is this node's. Its port does not count, since a
// page can't choose another name by it. A browser always sends a Host.
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

// refuseWrongHost refuses a request to a name that is not this node's, on every
// route and before anything else looks at it.
func (h *Handler) refuseWrongHost(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if host := c.Request().Host; !h.hosts.has(host) {
			return exchange.NewProblem("wrong-host", `This node is not called "`+strings.ToValidUTF8(exchange.Ellipsis(host), "")+
				`". Use a name or an address of it; an operator adds names with --allow-host.`)
		}
		return next(c)
	}
}

// refuseForeign refuses a changing request that a browser sends for a page of
// another origin. Such a request needs no CORS to be carried out (a form's POST).
// Browsers name the page's origin, or at least its relation to this node
// (Sec-Fetch-Site). A read passes: it changes no state, the browser keeps its reply
// from the page, and a link to this node from another site stays usable.
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

// listedOrigin reports whether an operator has listed an origin.
func (h *Handler) listedOrigin(origin string) bool {
	return slices.Contains(h.cfg.CORS, "*") || slices.Contains(h.cfg.CORS, origin)
}

func (h *Handler) ownOrigin(origin, host string) bool {
	if h.listedOrigin(origin) {
		return true
	}
	u, err := url.Parse(origin)
	scheme := u != nil && (u.Scheme == "https" || u.Scheme == "http" && h.cfg.TLS == nil) // a proxy may add TLS
	return err == nil && scheme && u.Host != "" && strings.EqualFold(u.Host, host)
}

// CheckOrigins returns an error for a list that Config.CORS can't be: no browser sends
// such an Origin, so a typing error would go unnoticed.
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
