package events

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// endOfStream bounds a stream's write under way when the server goes down, and the end of its body.
const endOfStream = time.Second

// streams are the open streams of events, and the blocking queries, which count with
// them. It is safe for concurrent use.
type streams struct {
	most         int // of both
	gauge        prometheus.Gauge
	queriesGauge prometheus.Gauge

	mu      sync.Mutex
	open    map[*stream]struct{}
	queries int
	ended   bool
}

// stream is one of them. Events that its client does not take stay in the history, so
// that a stream takes no memory beyond one write.
type stream struct {
	response *echo.Response
	control  *http.ResponseController
	timeout  time.Duration // of a write

	mu    sync.Mutex
	ended bool
}

var errStreamEnded = errors.New("the server goes down")

func newStreams(most int) *streams {
	return &streams{most: most, open: map[*stream]struct{}{},
		gauge: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "signalbox_event_streams_open",
			Help: "Streams of events that clients follow on this node.",
		}),
		queriesGauge: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "signalbox_blocking_queries_open",
			Help: "Blocking queries that wait on this node for a change.",
		})}
}

// add opens a stream, unless there are too many or the server goes down.
func (l *streams) add(c echo.Context, timeout time.Duration) (*stream, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil, outcome.ErrDraining
	}
	if err := l.room(); err != nil {
		return nil, err
	}
	s := &stream{response: c.Response(), control: http.NewResponseController(c.Response().Writer), timeout: timeout}
	l.open[s] = struct{}{}
	l.gauge.Set(float64(len(l.open)))
	return s, nil
}

// room refuses one watcher too many. Callers hold mu.
func (l *streams) room() error {
	if len(l.open)+l.queries < l.most {
		return nil
	}
	p := exchange.NewProblem("limit-reached", fmt.Sprintf("The limit of %d watchers that follow this node's events or wait for a change (--max-watchers) is reached. Try again later, or at another node.", l.most))
	most := int64(l.most)
	p.Rule, p.Limit = "watchers", &most
	return p
}

// beginQuery is API.BeginQuery.
func (l *streams) beginQuery() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.room(); err != nil {
		return err
	}
	l.queries++
	l.queriesGauge.Set(float64(l.queries))
	return nil
}

func (l *streams) endQuery() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queries--
	l.queriesGauge.Set(float64(l.queries))
}

func (l *streams) remove(s *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, s)
	l.gauge.Set(float64(len(l.open)))
	if l.ended {
		s.end() // the end of the body is a write of its own, however late its turn comes
	}
}

// end refuses new streams and shortens the writes of the others. It does not block.
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

// begin sets the deadline of the next write. It has no effect on a connection without
// deadlines, as in tests.
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
