package httpapi

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
)

// livez answers that the process serves HTTP, without looking at the node's
// state: a probe must not kill a node that is busy.
func (h *Handler) livez(c echo.Context) error {
	h.setIndex(c, h.seen.Load())
	return h.sendText(c, http.StatusOK, "Ok")
}

// readyz answers whether this node should be sent requests; ?verbose names
// every check.
func (h *Handler) readyz(c echo.Context) error {
	h.setIndex(c, h.seen.Load())
	q, err := parseQuery(c, "verbose")
	if err != nil {
		return err
	}
	_, verbose := q.text("verbose")
	ready, report := h.checks()
	if !verbose {
		report = "Ok"
		if !ready {
			report = "not ready"
		}
	}
	if !ready {
		c.Response().Header().Set("Retry-After", "1")
	}
	return h.sendText(c, statusOfReady(ready), report)
}

// health answers Ok once this node was ready for the first time, and ever
// after: what a liveness probe that kills should look at, since a node that
// looks for a leader must not be killed.
func (h *Handler) health(c echo.Context) error {
	h.setIndex(c, h.seen.Load())
	if !h.everReady.Load() {
		h.checks()
	}
	if !h.everReady.Load() {
		return h.sendText(c, http.StatusServiceUnavailable, "not ready yet")
	}
	return h.sendText(c, http.StatusOK, "Ok")
}

// checks asks the node what its readiness depends on.
func (h *Handler) checks() (ready bool, report string) {
	var lines strings.Builder
	ready = true
	for _, check := range h.node.Checks() {
		mark := "+"
		if !check.OK {
			mark, ready = "-", false
		}
		line := strings.TrimSpace(fmt.Sprintf("[%s] %s %s", mark, check.Name, check.Detail))
		if m := check.Moved; m != nil {
			line += fmt.Sprintf(`: curl -X PUT http://ANOTHER-NODE/v1/cluster/members/%s -d '{"peer":"%s"}'`, m.ID, m.Address)
		}
		lines.WriteString(line + "\n")
	}
	if ready {
		h.everReady.Store(true)
		lines.WriteString("ready\n")
	} else {
		lines.WriteString("not ready\n")
	}
	return ready, lines.String()
}

// version answers the bare version, without a line's end.
func (h *Handler) version(c echo.Context) error {
	h.setIndex(c, h.seen.Load())
	return h.sendText(c, http.StatusOK, h.cfg.Version)
}
