package probe

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// idleTimeout is how long a stream may be open without a request.
	idleTimeout = 30 * time.Second
	// writeTimeout bounds the write of one reply.
	writeTimeout = 5 * time.Second
)

// Responder is the node that replies on probe streams, before and after its Raft opens. Both methods may be called
// concurrently.
type Responder interface {
	// Describe returns the node's reply to [Ask]. It does not block.
	Describe(q *Request) Answer
	// CarryOut carries out a request of any other kind, which came on conn. It fails with ErrUnknownCall for an unknown
	// kind. Its error is sent to the asking node. ctx ends after ServeTimeout.
	CarryOut(ctx context.Context, q *Request, conn net.Conn) (Reply, error)
}

// Server replies to the requests of other nodes through a Responder.
type Server struct {
	responder Responder
	log       hclog.Logger
	stopping  context.Context
}

// NewServer returns a server. The end of ctx cancels the requests that are under way.
func NewServer(ctx context.Context, responder Responder, log hclog.Logger) *Server {
	return &Server{responder: responder, log: log, stopping: ctx}
}

// Handle replies to the requests on a stream in order. It closes the stream at its end.
func (s *Server) Handle(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for {
		_ = conn.SetDeadline(time.Now().Add(idleTimeout)) // on failure, the next read fails too
		var q Request
		err := read(conn, &q)
		if errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
			return // the stream has ended, or was idle
		}
		if err == nil {
			reply := s.reply(&q, conn)
			_ = conn.SetDeadline(time.Now().Add(writeTimeout))
			err = write(conn, reply)
		}
		if err != nil {
			s.log.Debug("a probe stream ends", "from", conn.RemoteAddr(), "error", err)
			return
		}
	}
}

func (s *Server) reply(q *Request, conn net.Conn) Reply {
	if q.Kind == Ask {
		answer := s.responder.Describe(q)
		return Reply{Answer: &answer}
	}
	ctx, cancel := context.WithTimeout(s.stopping, ServeTimeout)
	defer cancel()
	reply, err := s.responder.CarryOut(ctx, q, conn)
	if err != nil {
		return Reply{Code: codeOf(err), Error: err.Error()}
	}
	return reply
}
