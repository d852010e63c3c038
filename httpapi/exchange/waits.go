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

// ReplyCost is how much time the turn of a blocking query counts at least: about as much as it
// takes to build its reply and to read the client's next request. The turn itself ends before
// the reply is built, so that a query that must ask the leader first holds up no other query.
const ReplyCost = 200 * time.Microsecond

// Waits bounds the watchers of a node: the requests that follow events or wait for a change.
// It also ends them when the server shuts down. It is safe for concurrent use.
type Waits struct {
	limit  int64
	rights Rights
	open   atomic.Int64
	share  *wake.Share

	closing   chan struct{} // closed when long waits are to end
	closeOnce sync.Once
}

func newWaits(watchers int, rights Rights) *Waits {
	closing := make(chan struct{})
	return &Waits{limit: int64(watchers), rights: rights, share: wake.NewShare(closing), closing: closing}
}

// AddWatcher counts a watcher until the caller calls remove, once. It refuses the request if
// its identity has too many watchers, which is half of the node's limit unless configured, or
// if the node has. gauge shows the watchers of one kind.
//
// A watcher that a change wakes calls TakeTurn before it calls remove, so that the watchers
// that wait for their turn still count.
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

// TakeTurn blocks until a watcher that a change has woken may work, or until ctx ends, and
// then fails with ctx's cause. Turns leave a part of the processors to Raft and to other
// requests, however many watchers there are. The caller calls end once; the turn counts as
// cost at least.
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
