package consul

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/consul/queues"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// Config is the configuration of the dialect.
type Config struct {
	// LingerPercent lengthens the life of each session by a share of its TTL, 0 to 100. With 100 a session lives for
	// twice its TTL, as Consul's sessions do.
	LingerPercent int
	// Version is this program's own, as GET /v1/agent/self shows it.
	Version string
}

// dialect is the state that all routes share. Three types embed it: keys, sessions and nodes each serve their routes.
type dialect struct {
	*exchange.Exchange
	options Config
	waiting prometheus.Gauge // queries
	queues  *queues.Queues   // of the queries that wait
}

// New returns the dialect, or an error if LingerPercent is not 0 to 100.
func New(x *exchange.Exchange, options Config) (exchange.Dialect, error) {
	if options.LingerPercent < 0 || options.LingerPercent > 100 {
		return exchange.Dialect{}, fmt.Errorf("consul: a linger of %d percent: it is 0 to 100", options.LingerPercent)
	}
	d := &dialect{Exchange: x, options: options, queues: queues.New(itemSource{x.Node}), waiting: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "signalbox_consul_queries_open",
		Help: "Queries of Consul's clients that wait on this node for a change.",
	})}
	return exchange.Dialect{Routes: slices.Concat(keys{d}.routes(), sessions{d}.routes(), nodes{d}.routes()), Render: d.render, Token: tokenOf, Collectors: []prometheus.Collector{d.waiting}}, nil
}

// tokenOf returns the token of a request. It looks where Consul looks, in Consul's order: in the query, then in Consul's
// header. Without a token there, its caller reads the Authorization header, as for the native API.
func tokenOf(r *http.Request) string {
	return cmp.Or(r.URL.Query().Get("token"), r.Header.Get("X-Consul-Token"))
}

// retryable returns a refusal whose cause is this node alone, for example a lack of memory. A client's monitor then
// repeats its request.
func retryable(text, retryAfter string) *exchange.Refusal {
	return exchange.Retry(http.StatusInternalServerError, text, retryAfter)
}

// render sends a refusal: one sentence of text.
func (d *dialect) render(c echo.Context, err error) error {
	return d.Replies.SendRefusal(c, d.refusalOf(c, err))
}

// refusalOf translates an error into status 500 wherever a client should try again. At any other status, even 503, a
// client believes that it has lost its locks.
func (d *dialect) refusalOf(c echo.Context, err error) *exchange.Refusal {
	var refused *exchange.Refusal
	if errors.As(err, &refused) {
		return refused
	}
	p := d.Replies.LoggedProblem(c, err)
	switch p.Code {
	case "no-leader":
		return retryable("No cluster leader", p.RetryAfter())
	case "behind":
		return retryable("This node's state is behind the cluster's. Try again, or use another node.", p.RetryAfter())
	case "internal":
		return exchange.Sentence(p.Status, p.Detail)
	}
	switch p.Status {
	case http.StatusConflict, http.StatusGone, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return retryable(p.Detail, p.RetryAfter())
	}
	return exchange.Sentence(p.Status, p.Detail)
}

// do performs a command of a request, which may have an Idempotency-Key.
func (d *dialect) do(c echo.Context, command fsm.Command) (*calls.Reply, error) {
	key, err := exchange.IdempotencyKey(c.Request().Header)
	if err != nil {
		return nil, err
	}
	return d.doKeyed(c, command, key)
}

func (d *dialect) doKeyed(c echo.Context, command fsm.Command, key string) (*calls.Reply, error) {
	return d.Perform(c.Request().Context(), c, calls.Call{Command: command, Key: key})
}

// outcome performs a command, and sends whether its condition holds.
func (d *dialect) outcome(c echo.Context, q *query, command fsm.Command) error {
	reply, err := d.do(c, command)
	if err != nil {
		return err
	}
	return d.sendResult(c, q, reply)
}

func (d *dialect) sendResult(c echo.Context, q *query, reply *calls.Reply) error {
	switch reply.Code {
	case fsm.OK:
		return d.sendOutcome(c, q, true)
	case fsm.ItemDiffers:
		return d.sendOutcome(c, q, false)
	}
	return exchange.Refused(&reply.Result)
}
