package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/fsm"
)

// Throttle switches the throttle dialect on: the interface of the semaphore
// service throttle 0.5, so that its Python and Rust clients need only a new
// address. A peer is a session, a lock is a lease. It is translation only: what
// is granted, refused or waited for is the state machine's.
type Throttle struct {
	// LingerPercent is the share of each ttl that is added to it, rounded down to
	// milliseconds and at most 30 s, 0 to 100; 0: ttls are exact. Throttle's Python
	// client by default sends its heartbeat at the moment when the lease ends; 10
	// makes up for that. A ttl of 0 stays 0.
	LingerPercent int

	// Declared names the semaphores of the four throttle_ gauges, each once; nil:
	// none. It is called at each scrape and must not block.
	Declared func() []string
}

// mostLingerMS bounds what is added to a ttl.
const mostLingerMS = 30_000

func (t *Throttle) complete() error {
	if t.LingerPercent < 0 || t.LingerPercent > 100 {
		return fmt.Errorf("httpapi: a linger of %d percent: it is 0 to 100", t.LingerPercent)
	}
	if t.Declared == nil {
		t.Declared = func() []string { return nil }
	}
	return nil
}

// linger answers the ttl to pass on for one that a client gives, both in
// milliseconds.
func (t *Throttle) linger(ttlMS int64) int64 {
	percent := int64(t.LingerPercent)
	more := ttlMS/100*percent + ttlMS%100*percent/100
	return min(ttlMS+min(more, mostLingerMS), fsm.MaxTTLMS)
}

// throttle serves the dialect's routes.
type throttle struct {
	*Handler
	options *Throttle
}

// routes are those that the native API does not have in the same form already:
// /health, /version and /metrics.
func (t *throttle) routes() []route {
	return []route{
		{"GET", "/", t.root},
		{"GET", "/favicon.ico", t.icon},
		{"POST", "/new_peer", t.newPeer},
		{"GET", "/peers/", t.listPeers},
		{"PUT", "/peers/:id", t.heartbeat},
		{"DELETE", "/peers/:id", t.deletePeer},
		{"GET", "/peers/:id/is_acquired", t.isAcquired},
		{"PUT", "/peers/:id/:semaphore", t.acquire},
		{"DELETE", "/peers/:id/:semaphore", t.release},
		{"GET", "/remainder", t.remainder},
		{"POST", "/restore", t.restore},
	}
}

// addThrottleRoutes registers the dialect beside the native API.
func (h *Handler) addThrottleRoutes() {
	t := &throttle{h, h.cfg.Throttle}
	for _, r := range t.routes() {
		h.echo.Add(r.method, r.path, r.handler)
		if r.method == http.MethodGet {
			h.echo.Add(http.MethodHead, r.path, r.handler)
		}
	}
}

// plainThrottle renders whatever a request of the dialect's routes ends with, at
// the guards before them too, as the dialect does: its bare sentences instead of
// problem+json. A path or method that no route has is left to the native API.
func (h *Handler) plainThrottle(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		err := next(c)
		var routed *echo.HTTPError
		if err == nil || h.cfg.Throttle == nil || !throttlePath(c.Path()) || c.Response().Committed ||
			errors.Is(err, errUnknownRoute) || errors.As(err, &routed) ||
			errors.Is(err, context.Canceled) && c.Request().Context().Err() != nil { // nobody is there to read it
			return err
		}
		var plain *throttleError
		if !errors.As(err, &plain) {
			plain = throttleErrorOf(h.problemOf(c, err))
		}
		if plain.retryAfter != "" {
			c.Response().Header().Set("Retry-After", plain.retryAfter)
		}
		t := &throttle{h, h.cfg.Throttle}
		return t.reply(c, plain.status, plain.contentType, plain.text)
	}
}

// throttlePath reports whether a route's path is the dialect's.
func throttlePath(path string) bool {
	switch path {
	case "/", "/favicon.ico", "/new_peer", "/remainder", "/restore":
		return true
	}
	return strings.HasPrefix(path, "/peers/")
}

const (
	plainText = "text/plain; charset=utf-8"
	plainJSON = "application/json"
)

// reply sends a body to the byte: without a line's end, and without a
// Content-Type when there is none.
func (t *throttle) reply(c echo.Context, status int, contentType, body string) error {
	response := c.Response()
	header := response.Header()
	if contentType == "" {
		header["Content-Type"] = nil // else net/http would guess one
	} else {
		header.Set("Content-Type", contentType)
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	response.WriteHeader(status)
	if _, err := response.Write([]byte(body)); err != nil {
		t.cfg.Logger.Debug("reply not delivered", "error", err)
	}
	return nil
}

// root greets; throttle's clients only look whether it is there.
func (t *throttle) root(c echo.Context) error {
	return t.reply(c, http.StatusOK, plainText, "Hello from Signalbox!")
}

func (t *throttle) icon(c echo.Context) error {
	return t.reply(c, http.StatusOK, "image/x-icon", throttleIcon())
}

// pathText decodes a parameter of a path, once.
func pathText(c echo.Context, name string) (string, error) {
	text, ok := pathParam(c, name)
	if !ok || !utf8.ValidString(text) {
		return "", badPath("Invalid UTF-8 in `" + name + "`")
	}
	return text, nil
}

// peerID reads the id of a path: unsigned, of 64 bits; a leading plus and leading
// zeros are allowed. at is empty, or tells which of several values it is.
func (t *throttle) peerID(c echo.Context, at string) (uint64, error) {
	text, err := pathText(c, "id")
	switch {
	case err != nil:
		return 0, err
	case text == "":
		return 0, errUnknownRoute // no route there: /peers//A
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

// lock reads the id and the name of a path; both are text before the id is a
// number. Whether a semaphore can have that name is asked later, in its turn.
func (t *throttle) lock(c echo.Context) (id uint64, name string, err error) {
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
	return &throttleError{status: http.StatusBadRequest, contentType: plainText, text: "Invalid URL: " + detail}
}
