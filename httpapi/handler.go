package httpapi

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/labstack/echo/v4"
)

// Handler serves the API of one node. It is safe for concurrent use.
type Handler struct {
	cfg     Config
	node    Node
	echo    *echo.Echo
	metrics *metrics

	seen      atomic.Uint64 // the highest index that a reply has told
	everReady atomic.Bool   // ready at least once, see health

	bodies    *bodies  // that are being received
	streams   *streams // of events
	hosts     *hosts   // under which this node may be called
	bodySpace *budget  // for bodies that are being received and read
	replies   *budget  // that clients have not taken yet
	makers    makers   // of large replies

	connections *connections  // of the server that this is served by
	closing     chan struct{} // closed when long polls are to end
	closeOnce   sync.Once
}

// New answers a Handler over cfg.Node. It fails when the configuration can't
// be: no node, an origin that is none, a collector that does not register.
func New(cfg Config) (*Handler, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	collectors := cfg.Collectors
	if cfg.Throttle != nil {
		collectors = append(collectors[:len(collectors):len(collectors)], newThrottleGauges(cfg.Node, cfg.Throttle.Declared))
	}
	m, err := newMetrics(collectors)
	if err != nil {
		return nil, err
	}
	h := &Handler{cfg: cfg, node: cfg.Node, metrics: m, bodies: newBodies(),
		streams: newStreams(cfg.MaxWatchers, m), hosts: newHosts(cfg.Hosts),
		bodySpace: &budget{most: cfg.BodyMemory}, replies: &budget{most: cfg.ReplyMemory}, makers: newMakers(),
		connections: &connections{most: int64(cfg.MaxConnections)}, closing: make(chan struct{})}
	if err := m.addBounds(h); err != nil {
		return nil, err
	}
	h.echo = echo.New()
	h.echo.Logger.SetOutput(io.Discard) // hclog is this project's log
	h.echo.HTTPErrorHandler = h.fail
	h.echo.Use(h.observe, h.plainNodeRED, h.plainThrottle, h.recover, h.keepForProbes, h.refuseWrongHost)
	if len(cfg.CORS) > 0 {
		h.echo.Use(crossOrigin(cfg.CORS))
	}
	h.echo.Use(h.refuseForeign, slashesCount)
	h.addNativeRoutes()
	if cfg.NodeRED != nil {
		h.addNodeREDRoutes()
	}
	if cfg.Throttle != nil {
		h.addThrottleRoutes()
	}
	return h, nil
}

// ServeHTTP answers one request. It blocks for as long as the request waits.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	canonicalPath(r)
	h.echo.ServeHTTP(w, r)
}

// EndWaits makes blocking queries answer with what there is, ends streams of
// events, and waits no longer for bodies: the server is going down. Waits for permits end through the node's own
// drain. It does not block and may be called more than once.
func (h *Handler) EndWaits() {
	h.closeOnce.Do(func() {
		close(h.closing)
		h.bodies.end()
		h.streams.end()
	})
}

// closed reports whether EndWaits was called.
func (h *Handler) closed() bool {
	select {
	case <-h.closing:
		return true
	default:
		return false
	}
}
