package httpapi

import (
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
)

// endOfBody is how long a body may still take to arrive once nobody waits for
// it: the request is answered without it, or the server goes down.
const endOfBody = time.Second

// bodies are those that are being received. Safe for concurrent use.
type bodies struct {
	mu    sync.Mutex
	open  map[*http.ResponseController]struct{}
	ended bool
}

func newBodies() *bodies { return &bodies{open: map[*http.ResponseController]struct{}{}} }

// begin gives a body its time. A connection that can't be timed is a test's.
func (b *bodies) begin(conn *http.ResponseController, timeout time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		timeout = min(timeout, endOfBody)
	}
	b.open[conn] = struct{}{}
	_ = conn.SetReadDeadline(time.Now().Add(timeout))
}

// done leaves the deadline of the connection to the caller.
func (b *bodies) done(conn *http.ResponseController) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, conn)
}

// end lets no body take long any more. It does not block.
func (b *bodies) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	for conn := range b.open {
		_ = conn.SetReadDeadline(time.Now().Add(endOfBody))
	}
}

// lingerOver reads on, for endOfBody at most, what a client still sends of a body
// that was refused as too large. Closed at once, the connection would be reset while
// the client sends, and most clients would then never see the refusal.
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
	_, _ = io.Copy(io.Discard, r.Body) // however it ends: the connection is closed then
}

// leaveBody answers ahead of a body that no handler has read to its end. Left to
// itself, net/http would first wait for it, for ever if it never comes. The
// connection ends with the reply: what may still arrive on it is no request.
func leaveBody(c echo.Context) {
	if body := c.Request().Body; body == nil || body == http.NoBody {
		return
	}
	c.Response().Header().Set("Connection", "close")
	_ = http.NewResponseController(c.Response()).SetReadDeadline(time.Now().Add(endOfBody))
}
