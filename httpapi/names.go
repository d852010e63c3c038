package httpapi

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/fsm"
)

const (
	nameForm    = "1 to 512 bytes of UTF-8 without control characters"
	sessionForm = "a session id: a decimal number from 1 to 18446744073709551615"
)

// canonicalPath gives every path one spelling before it is routed: each
// segment decoded and encoded again. Without it Echo routes /%41 apart from /A
// and /v1/%73essions apart from /v1/sessions. Only paths with an unusual
// encoding have a RawPath, so that most requests pass untouched.
func canonicalPath(r *http.Request) {
	if r.URL.RawPath == "" {
		return
	}
	segments := strings.Split(r.URL.RawPath, "/")
	for i, segment := range segments {
		plain, err := url.PathUnescape(segment)
		if err != nil {
			return // net/http parsed it: does not happen
		}
		segments[i] = url.PathEscape(plain)
	}
	r.URL.RawPath = strings.Join(segments, "/")
}

// pathParam answers a path parameter decoded exactly once: without a RawPath,
// net/http has done it.
func pathParam(c echo.Context, name string) (string, bool) {
	text := c.Param(name)
	if c.Request().URL.RawPath == "" {
		return text, true
	}
	plain, err := url.PathUnescape(text)
	return plain, err == nil
}

// slashesCount answers 404 for a path that Echo matched although it has more
// segments than the route: the last parameter of a route swallows slashes. A
// slash inside a name is written %2F, and is no slash here.
func slashesCount(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if slashesDiffer(c) {
			return errUnknownRoute
		}
		return next(c)
	}
}

func slashesDiffer(c echo.Context) bool {
	return strings.Count(echo.GetPath(c.Request()), "/") != strings.Count(c.Path(), "/")
}

// semaphoreName checks a name from anywhere.
func semaphoreName(field, name string) (string, error) {
	if !fsm.ValidName(name) {
		return "", invalid(field, "The name of a semaphore is "+nameForm+".")
	}
	return name, nil
}

// sessionID reads a session id from anywhere. It has one spelling: no sign, no
// leading zeros.
func sessionID(field, text string) (uint64, error) {
	id, ok := parseDigits(text)
	if !ok || id == 0 {
		return 0, invalid(field, "This is not "+sessionForm+".")
	}
	return id, nil
}

// parseDigits reads an unsigned decimal number in its only spelling.
func parseDigits(text string) (uint64, bool) {
	if text == "" || len(text) > 20 || text[0] == '+' || text[0] == '0' && len(text) > 1 {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil
}

func formatSession(id uint64) string { return strconv.FormatUint(id, 10) }

// semaphorePath is where a semaphore is found.
func semaphorePath(name string) string { return "/v1/semaphores/" + url.PathEscape(name) }

func sessionPath(id uint64) string { return "/v1/sessions/" + formatSession(id) }
