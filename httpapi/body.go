package httpapi

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster"
)

// emptyBody stands for a body that is absent.
var emptyBody = value("{}")

// readBody reads a request's JSON object whatever its Content-Type says. An
// absent body is an empty object. The bytes are the caller's.
func (h *Handler) readBody(c echo.Context, limit int64) (value, error) {
	r := c.Request()
	if err := checkEncoding(r); err != nil {
		return nil, err
	}
	if r.Body == nil || r.Body == http.NoBody {
		return emptyBody, nil
	}
	data, err := h.receive(c, limit)
	if err != nil {
		return nil, err
	}
	doc := document(data)
	if len(doc) == 0 {
		return emptyBody, nil
	}
	if fault := checkJSON(doc); fault != nil {
		return nil, badBody(fault)
	}
	if !doc.isObject() {
		return nil, invalid("", "The body is a JSON object.")
	}
	return doc, nil
}

// checkEncoding refuses a compressed body.
func checkEncoding(r *http.Request) error {
	if encoding := r.Header.Values("Content-Encoding"); len(encoding) > 1 || len(encoding) == 1 && encoding[0] != "identity" && encoding[0] != "" {
		return errEncoding
	}
	return nil
}

// receive reads up to limit bytes within BodyTimeout. The deadline is the
// body's alone: a ReadTimeout of the server would end long waits too.
func (h *Handler) receive(c echo.Context, limit int64) ([]byte, error) {
	r := c.Request()
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	conn := http.NewResponseController(c.Response())
	h.bodies.begin(conn, h.cfg.BodyTimeout)
	data, err := h.readAll(c, http.MaxBytesReader(c.Response(), r.Body, limit), limit)
	h.bodies.done(conn)
	var over *http.MaxBytesError
	var full *problem
	switch {
	case err == nil:
		r.Body = http.NoBody // there is none left, see leaveBody
		_ = conn.SetReadDeadline(time.Time{})
		return data, nil
	case errors.As(err, &over):
		return nil, tooLarge(limit)
	case errors.As(err, &full):
		return nil, full
	case errors.Is(err, os.ErrDeadlineExceeded):
		r.Body = http.NoBody // it had its time
		c.Response().Header().Set("Connection", "close")
		if h.closed() {
			return nil, cluster.ErrDraining
		}
		return nil, newProblem("request-timeout", "The body did not arrive within "+h.cfg.BodyTimeout.String()+". Nothing was done; send it again.")
	}
	return nil, invalid("", "The body ends before its announced length, or is not framed well.")
}

// readAll reads a body into memory that grows with what has arrived, not with what
// was announced, as far as the bodies of all requests leave room for it.
func (h *Handler) readAll(c echo.Context, body io.Reader, limit int64) ([]byte, error) {
	most := limit + 1 // and the end of it
	if announced := c.Request().ContentLength; announced >= 0 {
		most = announced + 1
	}
	data := make([]byte, 0, min(most, freeBodyBytes))
	for {
		if len(data) == cap(data) {
			size := min(2*int64(cap(data)), most)
			if !h.holdBody(c, size-int64(cap(data))) {
				return nil, h.bodySpace.full("body-memory", "bodies", "max-body-memory")
			}
			data = append(make([]byte, 0, size), data...)
		}
		n, err := body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if err == io.EOF {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// bodyHeld is under which key of a request its reserved bytes are.
const bodyHeld = "signalbox-body"

// holdBody reserves bytes for a request's body until doneWithBody.
func (h *Handler) holdBody(c echo.Context, bytes int64) bool {
	if !h.bodySpace.take(bytes) {
		return false
	}
	held, _ := c.Get(bodyHeld).(int64)
	c.Set(bodyHeld, held+bytes)
	return true
}

// doneWithBody gives a body's room back: it has been read, or the request is over. It
// may be called more than once.
func (h *Handler) doneWithBody(c echo.Context) {
	if held, _ := c.Get(bodyHeld).(int64); held > 0 {
		c.Set(bodyHeld, int64(0))
		h.bodySpace.give(held)
	}
}

func tooLarge(limit int64) error {
	p := newProblem("too-large", "A body of this route has up to "+strconv.FormatInt(limit, 10)+" bytes.")
	p.Limit = &limit
	return p
}
