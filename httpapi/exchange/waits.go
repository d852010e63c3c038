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

// ReplyCost is how long the turn of a blocking query counts at least: about as much as building its
// reply and reading the request that follows take. The turn itself ends before the reply is built, so that
// a query that must ask the leader first holds up no other query.
const ReplyCost = 200 * time.Microsecond

// Waits bounds the watchers of a node: the requests that follow events or wait for a change. It
// also ends them when the server shuts down. It is safe for concurrent use.
type Waits struct {
	max    int64
	rights Rights
	open   atomic.Int64
	share  *wake.Share

	closing   chan struct{} // closed when long waits are to end
	closeOnce sync.Once
}

func newWaits(watchers int, rights Rights) *Waits {
	closing := make(chan struct{})
	return &Waits{max: int64(watchers), rights: rights, share: wake.NewShare(closing), closing: closing}
}

// AddWatcher counts a request that follows events or waits for a change, until remove is called, once. It
// refuses the request if there are too many watchers, of its identity or in all. An identity has half of them
// at most. gauge shows the watchers of one kind.
//
// A watcher that a change wakes calls TakeTurn before it calls remove: the watchers that wait for
// their turn are so bounded as well.
func (w *Waits) AddWatcher(c echo.Context, gauge prometheus.Gauge) (remove func(), err error) {
	leave, limit, ok := w.rights.Caller(c).Watch((w.max + 1) / 2)
	if !ok {
		return nil, tooManyWatchers("owner-watchers", limit,
			"This identity may have %d watchers on this node that follow events or wait for a change. Nothing was done; end some, or try at another node.")
	}
	if w.open.Add(1) > w.max {
		w.open.Add(-1)
		leave()
		return nil, tooManyWatchers("watchers", w.max,
			"The limit of %d watchers that follow this node's events or wait for a change (--max-watchers) is reached. Try again later, or at another node.")
	}
	gauge.Inc()
	return func() {
		gauge.Dec()
		w.open.Add(-1)
		leave()
	}, nil
}

func tooManyWatchers(rule string, limit int64, format string) *Problem {
	p := NewProblem("limit-reached", fmt.Sprintf(format, limit))
	p.Rule, p.Limit = rule, &limit
	return p
}

// TakeTurn blocks until a watcher that a change has woken may work, or ctx ends with its cause. However many
// watchers there are, they leave the rest of the processors to Raft and to other requests. The caller
// calls end once; the turn counts as cost at least.
func (w *Waits) TakeTurn(ctx context.Context, cost time.Duration) (end func(), err error) {
	return w.share.Begin(ctx, cost)
}

// end closes Closing. It does not block and may be called more than once.
func (w *Waits) end() { w.closeOnce.Do(func() { close(w.closing) }) }

// Closing returns a channel that is closed when the server shuts down and long waits
// have to end.
func (w *Waits) Closing() <-chan struct{} { return w.closing }

// Closed reports whether Closing is closed.
func (w *Waits) Closed() bool {
	select {
	case <-w.closing:
		return true
	default:
		return false
	}
}
