package httpapi

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/signalbox/signalbox/httpapi/exchange"
)

// Server serves a Handler over HTTP/1.1, or over HTTPS with HTTP/1.1 and HTTP/2, with the
// time and size limits that net/http leaves off by default.
type Server struct {
	http        *http.Server
	connections *connections

	mu    sync.Mutex
	fresh map[net.Conn]struct{} // connections that have sent no request yet
}

// DefaultIdleTimeout is how long a connection without a request stays open unless configured
// otherwise: twice as long as common balancers keep theirs. If the node closed a connection
// first, a balancer's next request could be lost with it, and the balancer would reply 502.
const DefaultIdleTimeout = 2 * time.Minute

// NewServer returns a server, which Serve starts.
func NewServer(h *Handler) *Server {
	s := &Server{connections: h.connections, fresh: map[net.Conn]struct{}{}}
	s.http = &http.Server{
		Handler:           h,
		ReadHeaderTimeout: exchange.HeadTimeout,
		IdleTimeout:       h.cfg.IdleTimeout,
		MaxHeaderBytes:    exchange.HeadBytes,
		// net/http's own handler of OPTIONS * waits for a body without end.
		DisableGeneralOptionsHandler: true,
		ConnState:                    s.track,
		ConnContext:                  markKept,
		TLSConfig:                    h.cfg.TLS,
		HTTP2:                        exchange.OverHTTP2(h.x.Config.BodyTimeout),
		ErrorLog:                     log.New(&complaints{log: h.x.Config.Logger}, "", 0),
	}
	s.http.RegisterOnShutdown(h.EndWaits)
	return s
}

// Serve accepts connections until Shutdown, and blocks until then. It closes the listener,
// and returns nil after a Shutdown, else the listener's error.
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

// Shutdown stops accepting, ends blocking queries and blocks until the requests under way
// have their replies. When ctx ends first, it cuts them off and returns ctx's error. Waits
// for permits end when the node drains, so the caller drains the node first.
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
