package httpapi

import (
	"net/http"
	"runtime/debug"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
)

// observe is the outermost: it renders what the rest ended with, counts it,
// and puts into every reply's head what every reply has.
func (h *Handler) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		began := time.Now()
		response := c.Response()
		response.Header().Set("Cache-Control", "no-store")
		response.Before(func() {
			h.indexOfNode(c)
			leaveBody(c)
			h.timeWrites(response)
		})
		done := h.metrics.begin()
		defer h.doneWithBody(c)
		if err := next(c); err != nil {
			h.fail(err, c)
		}
		took := time.Since(began)
		done(c, took)
		if h.cfg.Logger.IsDebug() {
			h.cfg.Logger.Debug("request", "method", c.Request().Method, "path", ellipsis(c.Request().URL.Path),
				"status", response.Status, "bytes", response.Size, "took", took)
		}
		lingerOver(c)
		return nil
	}
}

// timeWrites gives the client BodyTimeout to take a reply, from its beginning:
// a WriteTimeout of the server would count the wait before it. net/http lifts
// it before the next request. A connection that can't be timed is a test's.
func (h *Handler) timeWrites(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(h.cfg.BodyTimeout))
}

// recover answers 500 for a panic, and logs it with its stack, once. The node
// goes on: what a handler can break is its own request. http.ErrAbortHandler
// is net/http's own word and goes on up.
func (h *Handler) recover(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			broken := recover()
			if broken == nil {
				return
			}
			if broken == http.ErrAbortHandler {
				panic(broken)
			}
			h.cfg.Logger.Error("handler panicked", "method", c.Request().Method, "route", c.Path(),
				"panic", broken, "stack", string(debug.Stack()))
			err = errInternal
		}()
		return next(c)
	}
}

// crossOrigin lets the pages of listed origins call from a browser.
func crossOrigin(origins []string) echo.MiddlewareFunc {
	return middleware.CORSWithConfig(middleware.CORSConfig{
		Skipper: func(c echo.Context) bool { // no preflight of what is not there
			return c.Request().Method == http.MethodOptions && (c.Path() == "" || slashesDiffer(c))
		},
		AllowOrigins: origins,
		AllowHeaders: []string{"Content-Type", "Idempotency-Key", "If-None-Match", "Last-Event-ID"},
		ExposeHeaders: []string{headerIndex, headerLastContact, headerNotice, "Idempotency-Replayed", "Location",
			"Retry-After"},
		MaxAge: 600,
	})
}
