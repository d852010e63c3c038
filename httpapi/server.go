package httpapi

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server serves a Handler over HTTP/1.1, or over HTTPS with HTTP/1.1 and HTTP/2, with the
// time and size limits that net/http leaves off by default.
type Server struct {
	http        *http.Server
	connections *connections

	mu    sync.Mutex
	fresh map[net.Conn]struct{} // connections that have sent no request yet
}

// DefaultIdleTimeout is how long a connection without a request stays open unless configured otherwise: twice as long
// as common balancers keep theirs. One that the node closes first may take a request with it, which the
// balancer answers 502.
const DefaultIdleTimeout = 2 * time.Minute

// headBytes is the most that a request's head may have, less the 4 KiB that
// net/http reads on beyond its limit: 16 KiB in all.
const headBytes = 16<<10 - 4<<10

// streamsOfOne is how many requests may be under way on one connection with HTTP/2.
const streamsOfOne = 100

// overHTTP2 bounds a connection with HTTP/2, whose client could otherwise fill a megabyte
// or more that no handler has asked for. A client that has that many requests under
// way opens another connection, or waits.
func overHTTP2(timeout time.Duration) *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams:          streamsOfOne,
		MaxReadFrameSize:              16 << 10,
		MaxReceiveBufferPerConnection: 64 << 10,
		MaxReceiveBufferPerStream:     64 << 10,
		// The deadline of a reply ends its stream, and this one a connection from which the
		// client reads no stream at all.
		WriteByteTimeout: timeout,
	}
}

// NewServer returns a server that does not listen yet.
func NewServer(h *Handler) *Server {
	s := &Server{connections: h.connections, fresh: map[net.Conn]struct{}{}}
	s.http = &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       h.cfg.IdleTimeout,
		MaxHeaderBytes:    headBytes,
		// net/http's own handler of OPTIONS * waits for a body without end.
		DisableGeneralOptionsHandler: true,
		ConnState:                    s.track,
		ConnContext:                  markKept,
		TLSConfig:                    h.cfg.TLS,
		HTTP2:                        overHTTP2(h.x.Config.BodyTimeout),
		ErrorLog:                     log.New(&complaints{log: h.x.Config.Logger}, "", 0),
	}
	s.http.RegisterOnShutdown(h.EndWaits)
	return s
}

// Serve accepts connections until Shutdown, and then returns nil, or else the
// listener's error. It closes the listener. It blocks.
func (s *Server) Serve(l net.Listener) error {
	var err error
	if l = (bounded{l, s.connections}); s.http.TLSConfig != nil {
		err = s.http.ServeTLS(l, "", "")
	} else {
		err = s.http.Serve(l)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown stops accepting, ends blocking queries and blocks until the requests under
// way have their replies, at most until ctx ends: then it cuts them off and returns
// ctx's error. Waits for permits end when the node drains: drain it first.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	for conn := range s.fresh {
		conn.Close()
	}
	s.mu.Unlock()
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(err, s.http.Close())
	}
	return nil
}
