package httpapi

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/fsm"
)

const (
	headerIndex       = "X-Signalbox-Index"
	headerLastContact = "X-Signalbox-Last-Contact-Ms"
	// statusGone is what is counted for a client that hung up; nobody reads it.
	statusGone = 499
)

// sendJSON writes a whole reply. What was done is told, however much there is of it.
func (h *Handler) sendJSON(c echo.Context, status int, contentType string, body any) error {
	return encodeJSON(body, func(data []byte) error {
		bytes := countedReply(data)
		h.replies.insist(bytes)
		defer h.replies.give(bytes)
		return h.send(c, status, contentType, data)
	})
}

// sendRead writes what a read shows. build looks at the state, and returns the
// reply's body; it must not wait for anything. The reply is refused when the
// replies that clients have not taken yet leave no room for it.
func (h *Handler) sendRead(c echo.Context, build func() (any, error)) error {
	buffer := buffers.Get().(*bytes.Buffer)
	defer func() {
		if buffer.Cap() <= maxPooled {
			buffers.Put(buffer)
		}
	}()
	if err := h.make(c.Request().Context(), buffer, build); err != nil {
		return err
	}
	bytes := countedReply(buffer.Bytes())
	if !h.replies.take(bytes) {
		return h.replies.full("reply-memory", "large replies", "max-reply-memory")
	}
	defer h.replies.give(bytes)
	return h.send(c, http.StatusOK, "application/json", buffer.Bytes())
}

// make builds a reply and writes its JSON into an empty buffer.
func (h *Handler) make(ctx context.Context, buffer *bytes.Buffer, build func() (any, error)) error {
	if err := h.makers.begin(ctx); err != nil {
		return err
	}
	defer h.makers.end()
	body, err := build()
	if err != nil {
		return err
	}
	buffer.Reset()
	return writeJSON(buffer, body)
}

// countedReply is how much of a reply counts for the budget.
func countedReply(data []byte) int64 { return max(0, int64(len(data))-freeReplyBytes) }

// send writes a whole reply.
func (h *Handler) send(c echo.Context, status int, contentType string, data []byte) error {
	response := c.Response()
	response.Header().Set("Content-Type", contentType)
	response.Header().Set("Content-Length", strconv.Itoa(len(data)))
	response.WriteHeader(status)
	if _, err := response.Write(data); err != nil {
		h.cfg.Logger.Debug("reply not delivered", "error", err)
	}
	return nil
}

func (h *Handler) sendText(c echo.Context, status int, text string) error {
	return h.send(c, status, "text/plain; charset=utf-8", []byte(text))
}

// setIndex puts the index that a reply reflects into its head, the highest of
// several.
func (h *Handler) setIndex(c echo.Context, index uint64) {
	header := c.Response().Header()
	if before, err := strconv.ParseUint(header.Get(headerIndex), 10, 64); err == nil && before >= index {
		return
	}
	header.Set(headerIndex, strconv.FormatUint(index, 10))
	for {
		seen := h.seen.Load()
		if seen >= index || h.seen.CompareAndSwap(seen, index) {
			return
		}
	}
}

// indexOfNode gives a reply that reflects no index the one that this node's
// state has.
func (h *Handler) indexOfNode(c echo.Context) {
	if c.Response().Header().Get(headerIndex) != "" {
		return
	}
	var index uint64
	h.node.View(func(m *fsm.Machine) { index = m.Index() })
	h.setIndex(c, index)
}

// fail renders what the chain of a request ended with.
func (h *Handler) fail(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	if errors.Is(err, context.Canceled) && c.Request().Context().Err() != nil {
		_ = c.NoContent(statusGone)
		return
	}
	p := h.problemOf(c, err)
	header := c.Response().Header()
	header.Del("Location")
	if retry := kinds[p.Code].retryAfter; retry != "" {
		header.Set("Retry-After", retry)
	}
	if err := h.sendJSON(c, p.Status, "application/problem+json", p); err != nil {
		h.cfg.Logger.Error("problem not rendered", "error", err)
	}
}

// problemOf tells an error as a problem and, when it is a fault of ours, logs
// it once: the reply says nothing about it.
func (h *Handler) problemOf(c echo.Context, err error) *problem {
	p := problemOf(err)
	if p.Code == "internal" && !errors.Is(err, errInternal) {
		h.cfg.Logger.Error("request failed", "method", c.Request().Method, "route", c.Path(), "error", err)
	}
	return p
}
