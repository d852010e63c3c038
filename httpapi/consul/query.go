package consul

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

const (
	defaultWait = 5 * time.Minute
	longestWait = 10 * time.Minute
)

// query is the query of a request. A flag counts as set if it is present, even as ?stale=false. Unknown parameters are
// ignored.
type query struct {
	values     url.Values
	stale      bool
	consistent bool
	index      uint64        // the query waits for a change after it; 0: it does not wait
	wait       time.Duration // for a change
}

func (q *query) has(name string) bool { return q.values.Has(name) }

func (q *query) consistency() calls.Consistency { return calls.Consistency{Stale: q.stale} }

// after returns a change number: the query waits for a change above it. last is the number of the last change so far.
// Before the first change replies have index 1, so an index of 1 then counts as 0.
func (q *query) after(last uint64) uint64 {
	if q.index == 1 && last == 0 {
		return 0
	}
	return q.index
}

// firstError runs checks in their order, and returns the error of the first that fails.
func firstError(checks ...func() error) error {
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// readPlainQuery reads a query of a route without modes and waits.
func readPlainQuery(c echo.Context) (query, error) {
	q := query{values: c.Request().URL.Query()}
	return q, printable(c.Request())
}

// readQuery reads a query with its modes and its wait.
func (d *dialect) readQuery(c echo.Context) (query, error) {
	q, err := readPlainQuery(c)
	if err != nil {
		return q, err
	}
	q.stale, q.consistent = q.has("stale"), q.has("consistent")
	return q, firstError(q.checkModes, func() error { return q.readWait(min(longestWait, d.Config.MaxWait)) })
}

func (q *query) checkModes() error {
	if q.stale && q.consistent {
		return exchange.Sentence(http.StatusBadRequest, "Cannot specify ?stale with ?consistent, conflicting semantics.")
	}
	if text := q.values.Get("max_stale"); text != "" {
		if _, err := time.ParseDuration(text); err != nil {
			return exchange.Sentence(http.StatusBadRequest, fmt.Sprintf("Invalid max_stale value %q", text))
		}
	}
	return nil
}

func (q *query) readWait(longest time.Duration) (err error) {
	if text := q.values.Get("wait"); text != "" {
		if q.wait, err = time.ParseDuration(text); err != nil {
			return exchange.Sentence(http.StatusBadRequest, "Invalid wait time")
		}
	}
	if q.wait <= 0 {
		q.wait = defaultWait
	}
	q.wait = min(q.wait, longest)
	if text := q.values.Get("index"); text != "" {
		if q.index, err = strconv.ParseUint(text, 10, 64); err != nil {
			return exchange.Sentence(http.StatusBadRequest, "Invalid index")
		}
	}
	return nil
}

// checkNamespace refuses the parameters that only Consul's Enterprise edition knows.
func (q *query) checkNamespace() error {
	if q.values.Get("ns") != "" {
		return exchange.Sentence(http.StatusBadRequest, `Invalid query parameter: "ns" - Namespaces are a Consul Enterprise feature`)
	}
	if q.values.Get("partition") != "" {
		return exchange.Sentence(http.StatusBadRequest, `Invalid query parameter: "partition" - Partitions are a Consul Enterprise feature`)
	}
	return nil
}

// datacenter is the name of the only datacenter.
const datacenter = "dc1"

// checkDatacenter refuses another datacenter.
func (q *query) checkDatacenter() error {
	if dc := q.values.Get("dc"); dc != "" && dc != datacenter {
		return exchange.Sentence(http.StatusInternalServerError, "No path to datacenter")
	}
	return nil
}

// atMostOne refuses more than one of the members.
func (q *query) atMostOne(names ...string) func() error {
	return func() error {
		present := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !q.has(name) })
		if len(present) > 1 {
			return exchange.Sentence(http.StatusBadRequest, "Conflicting flags: "+q.values.Encode()+"\n")
		}
		return nil
	}
}

// readUint64 returns a check that reads a parameter into n. If the parameter is absent, n keeps its value. A malformed
// number is status 500, with strconv's text.
func (q *query) readUint64(name string, n *uint64) func() error {
	return func() (err error) {
		if !q.has(name) {
			return nil
		}
		if *n, err = strconv.ParseUint(q.values.Get(name), 10, 64); err != nil {
			return exchange.Sentence(http.StatusInternalServerError, err.Error())
		}
		return nil
	}
}

// required refuses an empty part of a path.
func required(text, missing string) func() error {
	return func() error {
		if text == "" {
			return exchange.Sentence(http.StatusBadRequest, "Missing "+missing)
		}
		return nil
	}
}

// printable refuses a path with unprintable characters, by a 400 without a body. It lets U+FFFD and text that is not
// UTF-8 pass: validKey judges these later.
func printable(r *http.Request) error {
	if strings.ContainsFunc(r.URL.Path, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return &exchange.Refusal{Status: http.StatusBadRequest}
	}
	return nil
}

// keyOf returns the key in a path: all text behind the route, unescaped once, with its slashes.
func keyOf(c echo.Context) string { return strings.TrimPrefix(c.Request().URL.Path, "/v1/kv/") }

// validKey refuses a key that no item can have. It passes the empty prefix of a list.
func validKey(key string) func() error {
	return func() error {
		if key != "" && !fsm.ValidName(key) {
			return exchange.Sentence(http.StatusBadRequest, "A key is up to 512 bytes of UTF-8 without control characters.")
		}
		return nil
	}
}

// cleaned redirects a request with an unclean path to the clean path. The client repeats it there with the same method
// and body. %2e%2e is not unescaped first, so it does not lead to the parent path.
func (d *dialect) cleaned(handler echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		sent, err := url.ParseRequestURI(c.Request().RequestURI)
		if err != nil {
			return handler(c)
		}
		escaped := sent.EscapedPath()
		clean := path.Clean(escaped)
		if strings.HasSuffix(escaped, "/") && clean != "/" {
			clean += "/"
		}
		if clean == escaped {
			return handler(c)
		}
		if err := printable(c.Request()); err != nil {
			return err
		}
		if sent.RawQuery != "" {
			clean += "?" + sent.RawQuery
		}
		c.Response().Header().Set("Location", clean)
		return d.Replies.Send(c, http.StatusTemporaryRedirect, "", nil)
	}
}

func pathText(c echo.Context, name string) string {
	text, _ := exchange.PathParam(c, name)
	return text
}
