package throttle

import (
	_ "embed" // the page icon
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// Config is the configuration of the dialect.
type Config struct {
	// LingerPercent lengthens each ttl by a share of it, 0 to 100: rounded down to milliseconds, and by at most 30 s.
	// Throttle's Python client by default sends its heartbeat at the moment when the lease ends; 10 makes up for that. A
	// ttl of 0 stays 0.
	LingerPercent int

	// Declared returns the names of the semaphores that the four throttle_ gauges show, each
	// once; it may be nil. It is called at each scrape and must not block.
	Declared func() []string
}

// maxLingerMS bounds the time that is added to a ttl.
const maxLingerMS = 30_000

// linger returns the ttl of the session for the ttl of a client, both in milliseconds.
func (t *Config) linger(ttlMS int64) int64 {
	percent := int64(t.LingerPercent)
	more := ttlMS/100*percent + ttlMS%100*percent/100
	return min(ttlMS+min(more, maxLingerMS), fsm.MaxTTLMS)
}

type dialect struct {
	*exchange.Exchange
	options Config
}

// routes has no /health, /version and /metrics: the native API has them in the same form.
func (t *dialect) routes() []exchange.Route {
	return []exchange.Route{
		exchange.On("GET", "/", t.root),
		exchange.On("GET", "/favicon.ico", t.icon),
		exchange.On("POST", "/new_peer", t.newPeer),
		exchange.On("GET", "/peers/", t.listPeers),
		exchange.On("PUT", "/peers/:id", t.heartbeat),
		exchange.On("DELETE", "/peers/:id", t.deletePeer),
		exchange.On("GET", "/peers/:id/is_acquired", t.isAcquired),
		exchange.On("PUT", "/peers/:id/:semaphore", t.acquire),
		exchange.On("DELETE", "/peers/:id/:semaphore", t.release),
		exchange.On("GET", "/remainder", t.remainder),
		exchange.On("POST", "/restore", t.restore),
	}
}

// New returns the dialect, or an error if LingerPercent is not 0 to 100.
func New(x *exchange.Exchange, options Config) (exchange.Dialect, error) {
	if options.LingerPercent < 0 || options.LingerPercent > 100 {
		return exchange.Dialect{}, fmt.Errorf("throttle: a linger of %d percent: it is 0 to 100", options.LingerPercent)
	}
	t := &dialect{x, options}
	return exchange.Dialect{Routes: t.routes(), Render: t.render,
		Collectors: []prometheus.Collector{newGauges(x.Node, options.Declared)}}, nil
}

// render sends a refusal: one bare sentence.
func (t *dialect) render(c echo.Context, err error) error {
	var plain *exchange.Refusal
	if !errors.As(err, &plain) {
		plain = refusalOf(t.Replies.LoggedProblem(c, err))
	}
	return t.Replies.SendRefusal(c, plain)
}

const plainJSON = "application/json"

// root replies to GET /. Throttle's clients only check that the route exists.
func (t *dialect) root(c echo.Context) error {
	return t.Replies.Send(c, http.StatusOK, exchange.PlainText, []byte("Hello from Signalbox!"))
}

// icon is the page icon, a railway semaphore at "stop".
//
//go:embed favicon.ico
var icon string

func (t *dialect) icon(c echo.Context) error {
	return t.Replies.Send(c, http.StatusOK, "image/x-icon", []byte(icon))
}

// pathText decodes a parameter of a path, once.
func pathText(c echo.Context, name string) (string, error) {
	text, ok := exchange.PathParam(c, name)
	if !ok || !utf8.ValidString(text) {
		return "", badPath("Invalid UTF-8 in `" + name + "`")
	}
	return text, nil
}

// peerID reads the peer id in a path: 64 bits, unsigned. A leading plus and leading zeros are allowed. at names the
// value in the refusal, for a path with several values.
func (t *dialect) peerID(c echo.Context, at string) (uint64, error) {
	text, err := pathText(c, "id")
	switch {
	case err != nil:
		return 0, err
	case text == "":
		return 0, exchange.ErrUnknownRoute // for example /peers//A
	}
	id, err := strconv.ParseUint(strings.TrimPrefix(text, "+"), 10, 64)
	if err == nil {
		return id, nil
	}
	if at != "" {
		return 0, badPath("Cannot parse " + at + " with value `" + text + "` to a `u64`")
	}
	return 0, badPath("Cannot parse `" + text + "` to a `u64`")
}

// lock reads the id and the name in a path, in throttle's order of checks: both must be valid text before the id must be
// a number. The caller checks later whether a semaphore can have the name.
func (t *dialect) lock(c echo.Context) (id uint64, name string, err error) {
	if idText, err := pathText(c, "id"); err != nil || idText == "" {
		_, err = t.peerID(c, "")
		return 0, "", err
	}
	if name, err = pathText(c, "semaphore"); err != nil {
		return 0, "", err
	}
	id, err = t.peerID(c, "value at index 0")
	return id, name, err
}

func badPath(detail string) error {
	return exchange.Sentence(http.StatusBadRequest, "Invalid URL: "+detail)
}
