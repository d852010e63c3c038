package httpapi

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

// query is a request's query, read strictly: a parameter that the route does
// not know, or one given twice, is refused rather than ignored, since what it
// was meant to restrict (?epoch=) would not be.
type query map[string][]string

// parseQuery reads the query of a route that knows the names given.
func parseQuery(c echo.Context, names ...string) (query, error) {
	return parseRepeatable(c, "", names...)
}

// parseRepeatable is parseQuery for a route with one parameter that may be given
// several times.
func parseRepeatable(c echo.Context, repeatable string, names ...string) (query, error) {
	raw := c.Request().URL.RawQuery
	if raw == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, invalid("", "The query can't be read: check its percent-encoding.")
	}
	for name, given := range values {
		if !contains(names, name) {
			return nil, invalid(name, "This route does not know this query parameter.")
		}
		if len(given) > 1 && name != repeatable {
			return nil, invalid(name, "This query parameter is given more than once.")
		}
	}
	return query(values), nil
}

func contains(names []string, name string) bool {
	for _, known := range names {
		if known == name {
			return true
		}
	}
	return false
}

// text answers a parameter and whether it was given.
func (q query) text(name string) (string, bool) {
	given, ok := q[name]
	if !ok {
		return "", false
	}
	return given[0], true
}

// number answers a parameter between low and high, or absent when not given.
func (q query) number(name string, absent, low, high uint64) (uint64, error) {
	text, ok := q.text(name)
	if !ok {
		return absent, nil
	}
	n, ok := parseDigits(text)
	if !ok || n < low || n > high {
		return 0, invalid(name, fmt.Sprintf("This is not a whole number from %d to %d.", low, high))
	}
	return n, nil
}

func (q query) flag(name string) (bool, error) {
	text, ok := q.text(name)
	if !ok || text == "false" {
		return false, nil
	}
	if text != "true" {
		return false, invalid(name, "This is neither true nor false.")
	}
	return true, nil
}

func (q query) waitMS(limitMS int64) (int64, error) {
	text, ok := q.text("wait")
	if !ok {
		return 0, nil
	}
	ms, ok := queryDuration(text, limitMS)
	if !ok {
		return 0, badWait(limitMS)
	}
	return ms, nil
}

func (q query) epoch() (uint64, error) { return q.number("epoch", 0, 1, 1<<63-1) }

// token names the lease that is meant, 0: any.
func (q query) token() (uint64, error) { return q.number("token", 0, 1, 1<<63-1) }

// consistencyNames are the parameters that every read knows.
var consistencyNames = []string{"consistency", "min_index"}

func readParams(more ...string) []string { return append(more, consistencyNames...) }

// consistency answers how recent a read must be.
func (q query) consistency() (cluster.Consistency, error) {
	var c cluster.Consistency
	switch text, given := q.text("consistency"); {
	case !given:
	case text == "linearizable":
		c.Linearizable = true // though there is a min_index
	case text == "stale":
		c.Stale = true
	default:
		return c, invalid("consistency", "This is neither linearizable nor stale.")
	}
	var err error
	c.MinIndex, err = q.number("min_index", 0, 0, 1<<63-1)
	return c, err
}

// prefix answers the beginning of the names to list.
func (q query) prefix() (string, error) {
	text, _ := q.text("prefix")
	if text != "" && !fsm.ValidName(text) {
		return "", invalid("prefix", "A prefix is the beginning of a name: "+nameForm+".")
	}
	return text, nil
}

// reason answers an operator's reason, and whether one was given.
func (q query) reason() (string, bool, error) {
	text, given := q.text("reason")
	if !fsm.ValidReason(text) {
		return "", false, invalid("reason", reasonForm)
	}
	return text, given, nil
}

const reasonForm = "A reason is up to 1,024 bytes of UTF-8 without control characters."

// ellipsis shortens a client's text for a reply.
func ellipsis(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
