package tracing

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox/signalbox/httpapi/exchange"
)

// Request is the middleware that makes the span of a request. The client's traceparent
// names its parent; the reply to a request that is sampled has the span's own, and the log
// lines of the request have the id of the trace.
func (t *Tracing) Request(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		ctx := form.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := t.tracer.Start(ctx, nameOf(c), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			attribute.String("signalbox.node", t.node),
			attribute.String("http.request.method", r.Method),
			attribute.String("http.route", c.Path())))
		defer span.End() // a broken connection panics
		if of := span.SpanContext(); of.IsSampled() {
			c.Response().Header().Set(header, format(span))
			exchange.SetTrace(c, of.TraceID().String())
		}
		c.SetRequest(r.WithContext(ctx))
		err := next(c)
		status := c.Response().Status
		span.SetAttributes(attribute.Int("http.response.status_code", status),
			attribute.String("signalbox.request", exchange.RequestID(c)))
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, http.StatusText(status))
		}
		return err
	}
}

// nameOf returns the name of a request's span: method and route, without what a client
// has chosen.
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

// form is the one form of trace contexts, in headers and commands: W3C's traceparent.
var form propagation.TraceContext

const header = "traceparent"

// format returns a span's context as it travels in a command: 55 bytes.
func format(span trace.Span) string {
	to := propagation.MapCarrier{}
	form.Inject(trace.ContextWithSpan(context.Background(), span), to)
	return to[header]
}

// parse returns the context that format has written, or one that is not valid.
func parse(text string) trace.SpanContext {
	ctx := form.Extract(context.Background(), propagation.MapCarrier{header: text})
	return trace.SpanContextFromContext(ctx)
}

// within returns a context whose spans are children of a span on another node.
func within(parent trace.SpanContext) context.Context {
	return trace.ContextWithRemoteSpanContext(context.Background(), parent)
}
