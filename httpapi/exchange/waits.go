package exchange

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/internal/wake"
)

// ReplyCost is the least time that the turn of a blocking query counts for. It is about the time to build the reply and
// to read the client's next request. The turn itself ends before the reply is built: the query may have to ask the
// leader first, and must not delay other queries meanwhile.
const ReplyCost = 200 * time.Microsecond

// Waits bounds the watchers of a node, that is, the requests that follow events or wait for a change, and ends them
// when the server shuts down. It is safe for concurrent use.
type Waits struct {
	limit  int64
	rights Rights
	open   atomic.Int64
	share  *wake.Share

	closing   chan struct{} // closed when long waits have to end
	closeOnce sync.Once
}

func newWaits(watchers int, rights Rights) *Waits {
	closing := make(chan struct{})
	return &Waits{limit: int64(watchers), rights: rights, share: wake.NewShare(closing), closing: closing}
}

// AddWatcher counts a watcher until the caller calls remove, once. It refuses the request if the node or the identity of
// the request has too many watchers. By default an identity may have half of the node's limit. gauge counts the watchers
// of one kind.
//
// When a change wakes a watcher, it calls TakeTurn before remove, so that it still counts while it waits for its turn.
func (w *Waits) AddWatcher(c echo.Context, gauge prometheus.Gauge) (remove func(), err error) {
	leave, limit, ok := w.rights.Caller(c).Watch((w.limit + 1) / 2)
	if !ok {
		return nil, LimitReached("owner-watchers", limit, fmt.Sprintf("This identity may have %d watchers on this node "+
			"that follow events or wait for a change. The request had no effect; end some, or try at another node.", limit))
	}
	if w.open.Add(1) > w.limit {
		w.open.Add(-1)
		leave()
		return nil, LimitReached("watchers", w.limit, fmt.Sprintf("The limit of %d watchers that follow this node's events "+
			"or wait for a change (--max-watchers) is reached. Try again later, or at another node.", w.limit))
	}
	gauge.Inc()
	return func() {
		gauge.Dec()
		w.open.Add(-1)
		leave()
	}, nil
}

// TakeTurn blocks until a woken watcher may work. If ctx ends first, it fails with ctx's cause. The number of turns at
// a time is bounded, so that many watchers leave CPU time to Raft and other requests. The caller calls end once. The
// turn counts for at least cost.
func (w *Waits) TakeTurn(ctx context.Context, cost time.Duration) (end func(), err error) {
	return w.share.Begin(ctx, cost)
}

func (w *Waits) end() { w.closeOnce.Do(func() { close(w.closing) }) }

// Closing returns a channel that is closed when the server shuts down and long waits end.
func (w *Waits) Closing() <-chan struct{} { return w.closing }

// Closed reports whether the channel of Closing is closed.
func (w *Waits) Closed() bool {
	select {
	case <-w.closing:
		return true
	default:
		return false
	}
}
