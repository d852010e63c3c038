package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// open are the routes that need no token: they show no semaphore and change nothing, and
// probes and browsers ask for them before they have one.
var open = map[string]bool{"/livez": true, "/readyz": true, "/health": true, "/version": true,
	"/problems/:code": true, "/v1/openapi.json": true, "/": true, "/favicon.ico": true, "/ui": true, "/ui/": true, "/ui/api": true, "/ui/:file": true}

// traced lets a middleware see the requests of APIs alone.
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

// admit gives each request its identity. It refuses a request
// without one, on unknown paths as well, so that a stranger does not learn the routes;
// one that may read the metrics alone; and a request beyond its identity's rate. When the token ends, the request ends.
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
		half := errors.As(err, &p) && p.Code == "request-timeout" // of its body has come
		if ended := context.Cause(ctx); ended != nil && (half || errors.Is(err, context.Canceled)) && r.Context().Err() == nil {
			return ended // the token has, and not the client
		}
		return err
	}
}

// carrier returns what carries the credential of a request: the request itself, or the token
// that it has in a way of its dialect's own.
func (h *Handler) carrier(c echo.Context) *http.Request {
	r := c.Request()
	if owner, owned := h.owners[c.Path()]; owned && owner.Token != nil {
		if token := owner.Token(r); token != "" {
			return &http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}, TLS: r.TLS}
		}
	}
	return r
}

// tooFast refuses a request beyond an identity's rate.
func tooFast(id *access.Identity) *exchange.Problem {
	p := exchange.NewProblem("limit-reached", "This identity sends more requests a second to this node than its token allows (requests_per_second). Nothing was done; try again more slowly.")
	p.Rule, p.Limit = "requests-per-second", &id.PerSecond
	return p
}

// challenge names the forms of a token to a client that has none. Of Basic authentication
// a browser would ask its user in a dialog, and keep the token: the script of
// a page avoids that by X-Requested-With.
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

// maySeeChecks reports whether a probe gets the details of the checks. Probes need no
// token, but a stranger does not learn the members.
func (h *Handler) maySeeChecks(c echo.Context) bool {
	if h.x.Config.Tokens == nil {
		return true
	}
	found, err := h.x.Config.Tokens.Authenticate(c.Request())
	return err == nil && found.Identity.Needs(access.Read) == nil
}
