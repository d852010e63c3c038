package exchange

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/httpapi/strictjson"
)

// emptyBody is the value of an absent body.
var emptyBody = strictjson.Value("{}")

// ReadBody reads the JSON object of a request, whatever its Content-Type is. An
// absent body is an empty object. The bytes belong to the caller.
func (x *Exchange) ReadBody(c echo.Context, limit int64) (strictjson.Value, error) {
	r := c.Request()
	if err := CheckEncoding(r); err != nil {
		return nil, err
	}
	if r.Body == nil || r.Body == http.NoBody {
		return emptyBody, nil
	}
	data, err := x.Receive(c, limit)
	if err != nil {
		return nil, err
	}
	doc := strictjson.Document(data)
	if len(doc) == 0 {
		return emptyBody, nil
	}
	if fault := strictjson.Check(doc, strictjson.Strict); fault != nil {
		return nil, BadBody(fault)
	}
	if !doc.IsObject() {
		return nil, Invalid("", "The body is a JSON object.")
	}
	return doc, nil
}

// CheckEncoding refuses a compressed body.
func CheckEncoding(r *http.Request) error {
	if encoding := r.Header.Values("Content-Encoding"); len(encoding) > 1 || len(encoding) == 1 && encoding[0] != "identity" && encoding[0] != "" {
		return errEncoding
	}
	return nil
}

// Receive reads up to limit bytes of a body within BodyTimeout. Only the body has
// this deadline; a ReadTimeout of the server would end long waits too.
func (x *Exchange) Receive(c echo.Context, limit int64) ([]byte, error) {
	r := c.Request()
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	conn := http.NewResponseController(c.Response())
	x.bodies.begin(conn, x.Config.BodyTimeout)
	data, err := x.readAll(c, http.MaxBytesReader(c.Response(), r.Body, limit), limit)
	x.bodies.done(conn)
	if err != nil {
		return nil, x.bodyFailed(c, err, limit)
	}
	r.Body = http.NoBody // leaveBody has no rest to leave
	_ = conn.SetReadDeadline(time.Time{})
	return data, nil
}

// bodyFailed translates the error of reading a body.
func (x *Exchange) bodyFailed(c echo.Context, err error, limit int64) error {
	var over *http.MaxBytesError
	var full *Problem
	switch {
	case errors.As(err, &over):
		return tooLarge(limit)
	case errors.As(err, &full):
		return full
	case errors.Is(err, os.ErrDeadlineExceeded):
		closeAfter(c)
		c.Request().Body = http.NoBody // leaveBody need not wait for it
		if x.Closed() {
			return outcome.ErrDraining
		}
		return NewProblem("request-timeout", "The body did not arrive within "+x.Config.BodyTimeout.String()+". Nothing was done; send it again.")
	}
	return Invalid("", "The body ends before its announced length, or is not framed well.")
}

// Stream returns a body of up to limit bytes that is read as it arrives, and takes no
// memory: each partBytes of it have BodyTimeout. The errors of its Read are refusals of the request.
func (x *Exchange) Stream(c echo.Context, limit int64) (io.Reader, error) {
	r := c.Request()
	if err := CheckEncoding(r); err != nil {
		return nil, err
	}
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	return &streamedBody{x: x, c: c, conn: http.NewResponseController(c.Response()), limit: limit, body: http.MaxBytesReader(c.Response(), r.Body, limit)}, nil
}

// streamedBody is the body of one request.
type streamedBody struct {
	x     *Exchange
	c     echo.Context
	conn  *http.ResponseController
	limit int64
	body  io.Reader

	got    int           // bytes of the present part
	waited time.Duration // for them
}

// partBytes is how much of a streamed body has to arrive within BodyTimeout, unless it ends: a
// client that sends a byte now and then must not hold up others for ever.
const partBytes = 64 << 10

// Read implements io.Reader.
func (s *streamedBody) Read(part []byte) (int, error) {
	began := time.Now()
	s.x.bodies.begin(s.conn, s.x.Config.BodyTimeout-s.waited)
	n, err := s.body.Read(part)
	s.x.bodies.done(s.conn)
	s.waited += time.Since(began)
	if s.got += n; s.got >= partBytes {
		s.got, s.waited = 0, 0
	}
	if err == io.EOF {
		s.c.Request().Body = http.NoBody // leaveBody has no rest to leave
		_ = s.conn.SetReadDeadline(time.Time{})
	} else if err != nil {
		err = s.x.bodyFailed(s.c, err, s.limit)
	}
	return n, err
}

// readAll reads a body into memory that grows with the bytes that have arrived, not
// with the announced length, and only while the budget of all bodies has room.
func (x *Exchange) readAll(c echo.Context, body io.Reader, limit int64) ([]byte, error) {
	most := limit + 1 // and one more, to see the end
	if announced := c.Request().ContentLength; announced >= 0 {
		most = announced + 1
	}
	data := make([]byte, 0, min(most, freeBodyBytes))
	for {
		if len(data) == cap(data) {
			size := min(2*int64(cap(data)), most)
			if !x.holdBody(c, size-int64(cap(data))) {
				return nil, x.bodySpace.full("body-memory", "bodies", "max-body-memory")
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

// bodyHeld is the key of a request's reserved bytes.
const bodyHeld = "signalbox-body"

// holdBody reserves bytes for a request's body until DoneWithBody.
func (x *Exchange) holdBody(c echo.Context, bytes int64) bool {
	if !x.bodySpace.take(bytes) {
		return false
	}
	held, _ := c.Get(bodyHeld).(int64)
	c.Set(bodyHeld, held+bytes)
	return true
}

// DoneWithBody releases the memory of a body that has been read. It may be called
// more than once. A handler calls it before it waits.
func (x *Exchange) DoneWithBody(c echo.Context) {
	if held, _ := c.Get(bodyHeld).(int64); held > 0 {
		c.Set(bodyHeld, int64(0))
		x.bodySpace.give(held)
	}
}

func tooLarge(limit int64) error {
	p := NewProblem("too-large", "A body of this route has up to "+strconv.FormatInt(limit, 10)+" bytes.")
	p.Limit = &limit
	return p
}

// endOfBody is the time that a body still has to arrive after the reply to its
// request was sent without it, or after the shutdown began.
const endOfBody = time.Second

// bodies are the bodies that are arriving. It is safe for concurrent use.
type bodies struct {
	mu    sync.Mutex
	open  map[*http.ResponseController]struct{}
	ended bool
}

// begin sets the deadline of a body. It has no effect on a connection without
// deadlines, as in tests.
func (b *bodies) begin(conn *http.ResponseController, timeout time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		timeout = min(timeout, endOfBody)
	}
	b.open[conn] = struct{}{}
	_ = conn.SetReadDeadline(time.Now().Add(timeout))
}

// done forgets a body. The connection's deadline is the caller's matter.
func (b *bodies) done(conn *http.ResponseController) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, conn)
}

// end shortens the time of all bodies. It does not block.
func (b *bodies) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	for conn := range b.open {
		_ = conn.SetReadDeadline(time.Now().Add(endOfBody))
	}
}

// lingerOver reads and drops the rest of a body that was refused as too large, for
// endOfBody at most. If the connection closed while the client still sends, it would
// be reset, and most clients would not see the refusal.
func lingerOver(c echo.Context) {
	r := c.Request()
	if c.Response().Status != http.StatusRequestEntityTooLarge || r.Body == nil || r.Body == http.NoBody || r.Header.Get("Expect") != "" {
		return
	}
	conn := http.NewResponseController(c.Response())
	if conn.Flush() != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(endOfBody))
	_, _ = io.Copy(io.Discard, r.Body) // whatever the error: the connection closes next
}

// leaveBody lets a reply go out before a body that no handler has read. Otherwise
// net/http would first wait for the body, without end if it never comes.
func leaveBody(c echo.Context) {
	if body := c.Request().Body; body == nil || body == http.NoBody {
		return
	}
	closeAfter(c)
	_ = http.NewResponseController(c.Response()).SetReadDeadline(time.Now().Add(endOfBody))
}

// closeAfter closes the connection after the reply, since the rest of the body is not a
// request. With HTTP/2 the body has a stream of its own, which ends with the reply.
func closeAfter(c echo.Context) {
	if c.Request().ProtoMajor == 1 {
		c.Response().Header().Set("Connection", "close")
	}
}
