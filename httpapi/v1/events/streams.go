package events

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/cluster/outcome"
)

// endOfStream bounds a stream's write under way when the server shuts down, and the end of its body.
const endOfStream = time.Second

// streams are the open streams of events. It is safe for concurrent use.
type streams struct {
	gauge prometheus.Gauge

	mu    sync.Mutex
	open  map[*stream]struct{}
	ended bool
}

// stream is an open stream. If its client reads slowly, the events stay in the history, so a stream needs no memory
// beyond one write.
type stream struct {
	response *echo.Response
	control  *http.ResponseController
	timeout  time.Duration // of a write

	mu    sync.Mutex
	ended bool
}

var errStreamEnded = errors.New("the server shuts down")

func newStreams() *streams {
	return &streams{open: map[*stream]struct{}{},
		gauge: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "signalbox_event_streams_open",
			Help: "Streams of events that clients follow on this node.",
		})}
}

// add opens a stream, unless the server shuts down.
func (l *streams) add(c echo.Context, timeout time.Duration) (*stream, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil, outcome.ErrDraining
	}
	s := &stream{response: c.Response(), control: http.NewResponseController(c.Response().Writer), timeout: timeout}
	l.open[s] = struct{}{}
	return s, nil
}

func (l *streams) remove(s *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, s)
	if l.ended {
		s.end() // also bounds the write of the body's end
	}
}

// end refuses new streams and shortens the writes of the open ones.
func (l *streams) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for s := range l.open {
		s.end()
	}
}

// write sends bytes at once, and fails when the client does not take them in time.
func (s *stream) write(data []byte) error {
	if err := s.begin(); err != nil {
		return err
	}
	if _, err := s.response.Write(data); err != nil {
		return err
	}
	return s.control.Flush()
}

// begin sets the deadline of the next write. In tests, a connection may have no deadlines; begin then has no effect.
func (s *stream) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errStreamEnded
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(s.timeout))
	return nil
}

func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	_ = s.control.SetWriteDeadline(time.Now().Add(endOfStream))
}
