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

// Bodies reads the bodies of requests. Each body has a limit of size and of time, and all bodies together have a
// budget of memory. It is safe for concurrent use.
type Bodies struct {
	timeout time.Duration // for a body to arrive
	memory  budget        // used by all bodies that are arriving or being read

	mu       sync.Mutex
	arriving map[*http.ResponseController]struct{}
	ended    bool // the server shuts down
}

func newBodies(timeout time.Duration, memory int64) *Bodies {
	return &Bodies{timeout: timeout, memory: budget{limit: memory, rule: "body-memory", content: "bodies", flag: "max-body-memory"},
		arriving: map[*http.ResponseController]struct{}{}}
}

// ReadObject reads the JSON object of a request with any Content-Type. A request without a body has an empty object.
// The bytes belong to the caller.
func (b *Bodies) ReadObject(c echo.Context, limit int64) (strictjson.Value, error) {
	r := c.Request()
	if err := CheckEncoding(r); err != nil {
		return nil, err
	}
	data, err := b.Receive(c, limit)
	if err != nil {
		return nil, err
	}
	doc := strictjson.Document(data)
	if len(doc) == 0 {
		return strictjson.Value("{}"), nil
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

// Receive reads up to limit bytes of a body within BodyTimeout; nil without a body. The deadline is set on the body
// only, because a ReadTimeout of the server would end long waits too.
func (b *Bodies) Receive(c echo.Context, limit int64) ([]byte, error) {
	r := c.Request()
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	conn := http.NewResponseController(c.Response())
	b.setDeadline(conn, b.timeout)
	data, err := b.readAll(c, http.MaxBytesReader(c.Response(), r.Body, limit), limit)
	b.forget(conn)
	if err != nil {
		return nil, b.refusal(c, err, limit)
	}
	r.Body = http.NoBody // the body is read: leaveBody has no effect
	_ = conn.SetReadDeadline(time.Time{})
	return data, nil
}

// refusal translates an error of reading a body into a refusal.
func (b *Bodies) refusal(c echo.Context, err error, limit int64) error {
	var over *http.MaxBytesError
	var full *Problem
	switch {
	case errors.As(err, &over):
		return tooLarge(limit)
	case errors.As(err, &full):
		return full
	case errors.Is(err, os.ErrDeadlineExceeded):
		closeAfter(c)
		c.Request().Body = http.NoBody // the body has failed: leaveBody has no effect
		if b.shuttingDown() {
			return outcome.ErrDraining
		}
		return NewProblem("request-timeout", "The body did not arrive within "+b.timeout.String()+". The request had no effect; send it again.")
	}
	return Invalid("", "The body ends before its announced length, or is not framed well.")
}

// Stream returns a body of up to limit bytes that is read as it arrives, outside of the memory budget. Each partBytes
// of it have to arrive within BodyTimeout. Its Read fails with refusals of the request.
func (b *Bodies) Stream(c echo.Context, limit int64) (io.Reader, error) {
	r := c.Request()
	if err := CheckEncoding(r); err != nil {
		return nil, err
	}
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	return &streamedBody{bodies: b, c: c, conn: http.NewResponseController(c.Response()), limit: limit,
		body: http.MaxBytesReader(c.Response(), r.Body, limit)}, nil
}

// streamedBody is the body of one request.
type streamedBody struct {
	bodies *Bodies
	c      echo.Context
	conn   *http.ResponseController
	limit  int64
	body   io.Reader

	partSize int           // bytes of the current part so far
	partTime time.Duration // time in which these bytes arrived
}

// partBytes is how much of a streamed body has to arrive within BodyTimeout, so that a client that sends very slowly
// can't hold the request open for ever. The last part may be shorter.
const partBytes = 64 << 10

func (s *streamedBody) Read(part []byte) (int, error) {
	began := time.Now()
	s.bodies.setDeadline(s.conn, s.bodies.timeout-s.partTime)
	n, err := s.body.Read(part)
	s.bodies.forget(s.conn)
	s.partTime += time.Since(began)
	if s.partSize += n; s.partSize >= partBytes {
		s.partSize, s.partTime = 0, 0
	}
	if err == io.EOF {
		s.c.Request().Body = http.NoBody // the body has ended: leaveBody has no effect
		_ = s.conn.SetReadDeadline(time.Time{})
	} else if err != nil {
		err = s.bodies.refusal(s.c, err, s.limit)
	}
	return n, err
}

// readAll reads a body into memory that grows with the bytes that arrive, because the announced length may be false.
// It fails when the budget of all bodies has no room.
func (b *Bodies) readAll(c echo.Context, body io.Reader, limit int64) ([]byte, error) {
	maxSize := limit + 1 // one byte more, to notice a body that is too large
	if announced := c.Request().ContentLength; announced >= 0 {
		maxSize = announced + 1
	}
	data := make([]byte, 0, min(maxSize, freeBodyBytes))
	for {
		if len(data) == cap(data) {
			size := min(2*int64(cap(data)), maxSize)
			if !b.reserveFor(c, size-int64(cap(data))) {
				return nil, b.memory.refusal()
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

// reservedKey is the key, in a request's context, of the bytes reserved for its body.
const reservedKey = "signalbox-body"

// reserveFor reserves bytes of the budget for a request's body, until Release.
func (b *Bodies) reserveFor(c echo.Context, bytes int64) bool {
	if !b.memory.tryAdd(bytes) {
		return false
	}
	reserved, _ := c.Get(reservedKey).(int64)
	c.Set(reservedKey, reserved+bytes)
	return true
}

// Release releases the memory of a body. A handler calls it before it waits. It may be called more than once.
func (b *Bodies) Release(c echo.Context) {
	if reserved, _ := c.Get(reservedKey).(int64); reserved > 0 {
		c.Set(reservedKey, int64(0))
		b.memory.subtract(reserved)
	}
}

// End releases the memory of a request's body, and drops the remaining bytes of a refused body. It runs after the
// reply is sent.
func (b *Bodies) End(c echo.Context) {
	drainRefused(c)
	b.Release(c)
}

func tooLarge(limit int64) error {
	p := NewProblem("too-large", "A body of this route has up to "+strconv.FormatInt(limit, 10)+" bytes.")
	p.Limit = &limit
	return p
}

// endOfBody is how long a body may go on to arrive after the reply was sent or after the shutdown began.
const endOfBody = time.Second

// setDeadline sets the deadline for a body. It has no effect on a connection without deadlines, as in tests.
func (b *Bodies) setDeadline(conn *http.ResponseController, timeout time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		timeout = min(timeout, endOfBody)
	}
	b.arriving[conn] = struct{}{}
	_ = conn.SetReadDeadline(time.Now().Add(timeout))
}

// forget removes a body that has arrived or failed from the set of arriving bodies. The caller resets the connection's
// deadline.
func (b *Bodies) forget(conn *http.ResponseController) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.arriving, conn)
}

// shorten gives each arriving body endOfBody to arrive from now on, because the server shuts down.
func (b *Bodies) shorten() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return
	}
	b.ended = true
	for conn := range b.arriving {
		_ = conn.SetReadDeadline(time.Now().Add(endOfBody))
	}
}

func (b *Bodies) shuttingDown() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

// drainRefused reads and drops the remaining bytes of a body that was refused as too large, for at most endOfBody. If
// the connection were closed while the client still sends, TCP would reset it, and most clients would not see the
// refusal.
func drainRefused(c echo.Context) {
	r := c.Request()
	if c.Response().Status != http.StatusRequestEntityTooLarge || r.Body == nil || r.Body == http.NoBody || r.Header.Get("Expect") != "" {
		return
	}
	conn := http.NewResponseController(c.Response())
	if conn.Flush() != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(endOfBody))
	_, _ = io.Copy(io.Discard, r.Body) // ignore the error: the connection is closed next
}

// leaveBody lets a reply be sent before the body was read. Otherwise net/http would wait for the body first, for ever
// if it never arrives.
func leaveBody(c echo.Context) {
	if body := c.Request().Body; body == nil || body == http.NoBody {
		return
	}
	closeAfter(c)
	_ = http.NewResponseController(c.Response()).SetReadDeadline(time.Now().Add(endOfBody))
}

// closeAfter closes the connection after the reply, because the unread body would be taken for the next request. Over
// HTTP/2 only the stream ends.
func closeAfter(c echo.Context) {
	if c.Request().ProtoMajor == 1 {
		c.Response().Header().Set("Connection", "close")
	}
}
