package consul

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/consul/turns"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// Config is the configuration of the dialect.
type Config struct {
	// LingerPercent is the share of its TTL that a session lives longer, 0 to 100. With
	// 100 a session lives for twice its TTL, as Consul's do.
	LingerPercent int
	// Watchers is the most queries that wait at a time; 0: 10,000.
	Watchers int
	// Version is this program's own, as GET /v1/agent/self shows it.
	Version string
}

// dialect serves the dialect's routes.
type dialect struct {
	*exchange.Exchange
	options  Config
	watchers *watchers
	lines    *turns.Lines // of the queries that wait
}

// New returns the dialect, or an error for options that can't be.
func New(x *exchange.Exchange, options Config) (exchange.Dialect, error) {
	if options.LingerPercent < 0 || options.LingerPercent > 100 {
		return exchange.Dialect{}, fmt.Errorf("consul: a linger of %d percent: it is 0 to 100", options.LingerPercent)
	}
	exchange.SetDefault(&options.Watchers, 10_000)
	d := &dialect{Exchange: x, options: options, watchers: newWatchers(options.Watchers), lines: turns.New(items{x.Node})}
	return exchange.Dialect{Routes: d.routes(), Render: d.render, Token: tokenOf, Collectors: []prometheus.Collector{d.watchers.gauge}}, nil
}

// routes are Consul's. One that ends in a slash says which part of the path is missing.
func (d *dialect) routes() []exchange.Route {
	return []exchange.Route{
		exchange.On("PUT", "/v1/session/create", d.createSession),
		exchange.On("PUT", "/v1/session/renew/:id", d.renewSession),
		exchange.On("PUT", "/v1/session/renew/", d.renewSession),
		exchange.On("PUT", "/v1/session/destroy/:id", d.destroySession),
		exchange.On("PUT", "/v1/session/destroy/", d.destroySession),
		exchange.On("GET", "/v1/session/info/:id", d.getSession),
		exchange.On("GET", "/v1/session/info/", d.getSession),
		exchange.On("GET", "/v1/session/list", d.listSessions),
		exchange.On("GET", "/v1/session/node/:node", d.listSessionsOfNode),
		exchange.On("GET", "/v1/session/node/", d.listSessionsOfNode),
		exchange.On("GET", "/v1/kv/*", d.cleaned(d.getKey)),
		exchange.On("PUT", "/v1/kv/*", d.cleaned(d.putKey)),
		exchange.On("DELETE", "/v1/kv/*", d.cleaned(d.deleteKey)),
		exchange.On("GET", "/v1/agent/self", d.self),
		exchange.On("GET", "/v1/status/leader", d.leader),
		exchange.On("GET", "/v1/status/peers", d.peers),
		exchange.On("GET", "/v1/catalog/nodes", d.nodes),
		exchange.On("GET", "/v1/health/node/:node", d.healthOfNode),
		exchange.On("GET", "/v1/health/node/", d.healthOfNode),
	}
}

// tokenOf returns the token of a request in Consul's own ways, in its order: the query, then
// the header. The native forms of Authorization come after them.
func tokenOf(r *http.Request) string {
	return cmp.Or(r.URL.Query().Get("token"), r.Header.Get("X-Consul-Token"))
}

// refusal is a refusal of the dialect's own: a status, and one sentence of text.
type refusal struct {
	status     int
	text       string
	retryAfter string // seconds, "" none
}

// Error is the text.
func (e *refusal) Error() string { return e.text }

func refuse(status int, text string) error { return &refusal{status: status, text: text} }

// trouble is a refusal that has no other reason than the state of this node: a client's
// monitor asks again.
func trouble(text, retryAfter string) *refusal {
	return &refusal{http.StatusInternalServerError, text, cmp.Or(retryAfter, "1")}
}

// render sends a refusal: one sentence of text.
func (d *dialect) render(c echo.Context, err error) error {
	own := d.refusalOf(c, err)
	if own.retryAfter != "" {
		c.Response().Header().Set("Retry-After", own.retryAfter)
	}
	if own.text == "" {
		return d.sendBare(c, own.status)
	}
	return d.SendText(c, own.status, own.text)
}

// refusalOf translates an error. Clients ride out the status 500 alone, and take any other
// one, 503 included, for the loss of what they hold.
func (d *dialect) refusalOf(c echo.Context, err error) *refusal {
	var own *refusal
	if errors.As(err, &own) {
		return own
	}
	p := d.Problem(c, err)
	switch p.Code {
	case "no-leader":
		return trouble("No cluster leader", p.RetryAfter())
	case "behind":
		return trouble("This node's state is behind the cluster's. Try again, or use another node.", p.RetryAfter())
	case "level-too-low":
		return trouble(d.belowLevel(), "")
	case "internal":
		return &refusal{status: p.Status, text: p.Detail}
	}
	switch p.Status {
	case http.StatusConflict, http.StatusGone, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return trouble(p.Detail, p.RetryAfter())
	}
	return &refusal{status: p.Status, text: p.Detail}
}

// belowLevel names the feature level that the dialect's writes need, and the way to it.
func (d *dialect) belowLevel() string {
	return fmt.Sprintf("Sessions and keys need the feature level %d, and the cluster has %d: upgrade every member, then raise it with curl -X PUT http://NODE/v1/cluster/level -d '{\"level\":%d}'.",
		fsm.ItemsLevel, d.Node.Status().Level, fsm.ItemsLevel)
}
