package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// open are the routes that need no token, because probes and browsers request them before they have a token. They show
// no semaphore and change no state.
var open = map[string]bool{"/livez": true, "/readyz": true, "/health": true, "/version": true,
	"/problems/:code": true, "/v1/openapi.json": true, "/": true, "/favicon.ico": true, "/ui": true, "/ui/": true, "/ui/api": true, "/ui/:file": true}

// traced applies a tracing middleware only to the requests of APIs.
func traced(m echo.MiddlewareFunc) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		seen := m(next)
		return func(c echo.Context) error {
			if path := c.Path(); open[path] || path == "/metrics" {
				return next(c)
			}
			return seen(c)
		}
	}
}

// admit gives each request its identity. It refuses a request without a valid token, even on an unknown path, so that
// a stranger can't find out which routes exist. It refuses an identity that may read only the metrics on other routes,
// and a request beyond its identity's rate. It cancels the request when the token ends.
func (h *Handler) admit(next echo.HandlerFunc) echo.HandlerFunc {
	tokens := h.x.Config.Tokens
	return func(c echo.Context) error {
		if open[c.Path()] {
			return next(c)
		}
		r := c.Request()
		found, err := tokens.Authenticate(h.carrier(c))
		if err != nil {
			tokens.Count(err)
			return err
		}
		if c.Path() != "/metrics" {
			if err := found.Identity.Needs(access.Read); err != nil {
				tokens.Count(err)
				return err
			}
		}
		if !found.Identity.TakesRequest() {
			tokens.Count(access.ErrRate)
			return tooFast(found.Identity)
		}
		ctx, cancel := context.WithCancelCause(access.With(r.Context(), found.Identity))
		defer cancel(nil)
		defer context.AfterFunc(found.Ended(), func() { cancel(access.ErrUnknownToken) })()
		c.SetRequest(r.WithContext(ctx))
		defer c.SetRequest(r)
		err = next(c)
		var p *exchange.Problem
		incomplete := errors.As(err, &p) && p.Code == "request-timeout" // a part of the body has not arrived
		if ended := context.Cause(ctx); ended != nil && (incomplete || errors.Is(err, context.Canceled)) && r.Context().Err() == nil {
			return ended // cancelled because the token ended, not by the client
		}
		return err
	}
}

// carrier returns the request whose Authorization has the credential: the request itself, or a copy with the token
// that a dialect's client sends in another way.
func (h *Handler) carrier(c echo.Context) *http.Request {
	r := c.Request()
	if owner, owned := h.owners[c.Path()]; owned && owner.Token != nil {
		if token := owner.Token(r); token != "" {
			return &http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}, TLS: r.TLS}
		}
	}
	return r
}

func tooFast(id *access.Identity) *exchange.Problem {
	return exchange.LimitReached("requests-per-second", id.PerSecond,
		"This identity sends more requests a second to this node than its token allows (requests_per_second). "+
			"The request had no effect; try again more slowly.")
}

// challenge tells a client without a valid token which forms of a token it may send. It leaves Basic authentication
// out for scripts of a page, which set X-Requested-With, because the browser would open a dialog and keep the token.
func challenge(c echo.Context, err error) {
	if !errors.Is(err, access.ErrNoToken) && !errors.Is(err, access.ErrUnknownToken) {
		return
	}
	forms := []string{`Bearer realm="signalbox"`, `Basic realm="signalbox", charset="UTF-8"`}
	if c.Request().Header.Get("X-Requested-With") != "" {
		forms = forms[:1]
	}
	c.Response().Header()["Www-Authenticate"] = forms
}

// maySeeChecks reports whether a probe gets the details of the checks. Probes need no token, but the details would
// show the members to a stranger.
func (h *Handler) maySeeChecks(c echo.Context) bool {
	if h.x.Config.Tokens == nil {
		return true
	}
	found, err := h.x.Config.Tokens.Authenticate(c.Request())
	return err == nil && found.Identity.Needs(access.Read) == nil
}
