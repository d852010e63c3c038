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

// Server serves a Handler over HTTP/1.1, or over HTTPS with HTTP/1.1 and HTTP/2. It sets the limits of time and size
// that net/http leaves off by default.
type Server struct {
	http        *http.Server
	connections *connections

	mu    sync.Mutex
	fresh map[net.Conn]struct{} // connections that have not sent a request yet
}

// DefaultIdleTimeout is the default of Config.IdleTimeout: twice the usual time-out of balancers. If the node closed
// an idle connection before the balancer does, the balancer's next request could fail, with 502 for its client.
const DefaultIdleTimeout = 2 * time.Minute

// NewServer returns a server, which Serve starts.
func NewServer(h *Handler) *Server {
	s := &Server{connections: h.connections, fresh: map[net.Conn]struct{}{}}
	s.http = &http.Server{
		Handler:           h,
		ReadHeaderTimeout: exchange.HeadTimeout,
		IdleTimeout:       h.cfg.IdleTimeout,
		MaxHeaderBytes:    exchange.HeadBytes,
		// net/http's own handler of OPTIONS * would wait for a body for ever.
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

// Serve accepts connections and blocks until Shutdown. It closes the listener. It returns nil after a Shutdown, or the
// listener's error.
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

// Shutdown stops accepting, ends blocking queries and blocks until the requests under way have their replies. If ctx
// ends first, it closes their connections and returns ctx's error. Because waits for permits end only when the node
// drains, the caller drains the node first.
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
