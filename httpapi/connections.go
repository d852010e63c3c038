package httpapi

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
)

const (
	// keptConnections are open beyond Config.MaxConnections, for probes alone: a node
	// whose clients use up its connections is not to look dead.
	keptConnections = 32
	// keptHead is how long such a connection has for a request's head.
	keptHead = time.Second
)

// connections bounds how many of them a Server has open. Safe for concurrent use.
type connections struct {
	most    int64
	open    atomic.Int64
	refused atomic.Int64 // requests on kept connections, and connections beyond those
}

// bounded is a listener whose connections are counted.
type bounded struct {
	net.Listener
	of *connections
}

// Accept waits for a connection that there is room for. Others are closed at once.
func (l bounded) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		open := l.of.open.Add(1)
		if open <= l.of.most+keptConnections {
			return &countedConn{Conn: conn, of: l.of, kept: open > l.of.most}, nil
		}
		l.of.open.Add(-1)
		l.of.refused.Add(1)
		conn.Close()
	}
}

type countedConn struct {
	net.Conn
	of     *connections
	kept   bool // for probes alone
	closed sync.Once
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.closed.Do(func() { c.of.open.Add(-1) })
	return c.Conn.Close()
}

// CloseWrite ends what is sent, as net/http does before it closes a connection on
// which more may arrive: the last reply is not to be lost to a reset.
func (c *countedConn) CloseWrite() error {
	if half, can := c.Conn.(interface{ CloseWrite() error }); can {
		return half.CloseWrite()
	}
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *countedConn) SetReadDeadline(t time.Time) error {
	if soon := time.Now().Add(keptHead); c.kept && (t.IsZero() || t.After(soon)) {
		t = soon
	}
	return c.Conn.SetReadDeadline(t)
}

// keptKey marks the context of a request on a kept connection.
type keptKey struct{}

func markKept(ctx context.Context, conn net.Conn) context.Context {
	if counted, is := conn.(*countedConn); is && counted.kept {
		return context.WithValue(ctx, keptKey{}, true)
	}
	return ctx
}

// keepForProbes refuses what is no probe on a connection that is kept for these, and
// lets the connection end with the reply.
func (h *Handler) keepForProbes(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if c.Request().Context().Value(keptKey{}) == nil {
			return next(c)
		}
		c.Response().Header().Set("Connection", "close")
		switch c.Path() {
		case "/livez", "/readyz", "/health", "/version", "/metrics":
			return next(c)
		}
		h.connections.refused.Add(1)
		p := newProblem("limit-reached", "This node has as many connections open as it takes (--max-connections). Nothing was done; try again later, or at another node.")
		most := h.connections.most
		p.Rule, p.Limit = "connections", &most
		return p
	}
}
