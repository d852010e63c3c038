package tracing

import (
	"encoding/hex"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/signalbox/signalbox/httpapi/exchange"
)

// Request is the middleware that makes the span of a request, as a child of the client's traceparent. If the request is
// sampled, the reply has the traceparent of the span, and the request's log lines have the id of the trace.
func (t *Tracing) Request(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		parent, sampled := t.parentOf(c.Request())
		if !sampled {
			return next(c)
		}
		return t.request(c, parent, next)
	}
}

// parentOf returns the parent of a request's span, and whether the request is sampled.
func (t *Tracing) parentOf(r *http.Request) (parent spanContext, sampled bool) {
	if values := r.Header.Values(header); len(values) == 1 {
		if parent, valid := parse(values[0]); valid {
			return parent, t.samples(parent.trace, &parent)
		}
	}
	parent = newTrace()
	return parent, t.samples(parent.trace, nil)
}

func (t *Tracing) request(c echo.Context, parent spanContext, next echo.HandlerFunc) error {
	r := c.Request()
	s := t.start(parent, nameOf(c), text("signalbox.node", t.node), text("http.request.method", r.Method), text("http.route", c.Path()))
	s.Kind = tracepb.Span_SPAN_KIND_SERVER
	defer s.end() // a broken connection panics
	c.Response().Header().Set(header, s.format())
	exchange.SetTrace(c, hex.EncodeToString(s.trace[:]))
	c.SetRequest(r.WithContext(with(r.Context(), s)))
	err := next(c)
	status := c.Response().Status
	s.set(number("http.response.status_code", status), text("signalbox.request", exchange.RequestID(c)))
	if status >= http.StatusInternalServerError {
		s.fail(errors.New(http.StatusText(status)))
	}
	return err
}

// nameOf returns the name of a request's span: method and route, without any text of the client.
func nameOf(c echo.Context) string {
	method := c.Request().Method
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		method = "HTTP"
	}
	if c.Path() == "" {
		return method
	}
	return method + " " + c.Path()
}
