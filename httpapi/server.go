package httpapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Server serves a Handler over HTTP/1.1 with the time and size limits that
// net/http leaves off by default.
type Server struct {
	http        *http.Server
	connections *connections

	mu    sync.Mutex
	fresh map[net.Conn]struct{} // connections that have sent no request yet
}

// headBytes is the most that a request's head may have, less the 4 KiB that
// net/http reads on beyond its limit: 16 KiB in all.
const headBytes = 16<<10 - 4<<10

// NewServer answers a server that does not listen yet.
func NewServer(h *Handler) *Server {
	s := &Server{connections: h.connections, fresh: map[net.Conn]struct{}{}}
	s.http = &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    headBytes,
		// net/http's own answer to OPTIONS * waits for a body, for ever.
		DisableGeneralOptionsHandler: true,
		ConnState:                    s.track,
		ConnContext:                  markKept,
		ErrorLog: h.cfg.Logger.StandardLogger(&hclog.StandardLoggerOptions{
			ForceLevel: hclog.Debug, // what strangers send is not this node's error
		}),
	}
	s.http.RegisterOnShutdown(h.EndWaits)
	return s
}

// Serve accepts connections until Shutdown, then answers nil; it answers the
// listener's error otherwise. It closes the listener. It blocks.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(bounded{l, s.connections}); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown stops accepting, ends blocking queries and blocks until requests
// under way are answered, at most until ctx ends: then it cuts them off and
// answers ctx's error. Waits for permits end through the node: drain it first.
func (s *Server) Shutdown(ctx context.Context) error {
	s.closeFresh()
	err := s.http.Shutdown(ctx)
	if err != nil {
		return errors.Join(err, s.http.Close())
	}
	return nil
}

// track notes connections on which nothing was sent yet. net/http's Shutdown
// waits for such a one for 5 s, and browsers open them in advance.
func (s *Server) track(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state == http.StateNew {
		s.fresh[conn] = struct{}{}
	} else {
		delete(s.fresh, conn)
	}
}

func (s *Server) closeFresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.fresh {
		conn.Close()
	}
}
