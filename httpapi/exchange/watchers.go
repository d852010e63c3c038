package exchange

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/internal/wake"
)

// ReplyCost is the least that the turn of a waiting read counts as: it ends before the reply is built, so that a
// read that asks the leader first holds up no other. So much a reply costs with the request that
// follows it.
const ReplyCost = 200 * time.Microsecond

// watchers are the requests of a node that follow events or wait for a change.
type watchers struct {
	most  int64
	open  atomic.Int64
	share *wake.Share
}

// Watch counts in a request that follows events or waits for a change, unless there are too many, of its
// identity or in all. An identity has half of them at most. end, called once, counts it out. gauge has those of
// its kind.
func (x *Exchange) Watch(c echo.Context, gauge prometheus.Gauge) (end func(), err error) {
	w := &x.watchers
	id := x.Caller(c)
	leave, most, ok := id.Watch((w.most + 1) / 2)
	if !ok {
		p := NewProblem("limit-reached", fmt.Sprintf("This identity may have %d watchers on this node that follow events or wait for a change. Nothing was done; end some, or try at another node.", most))
		p.Rule, p.Limit = "owner-watchers", &most
		return nil, p
	}
	if w.open.Add(1) > w.most {
		w.open.Add(-1)
		leave()
		most = w.most
		p := NewProblem("limit-reached", fmt.Sprintf("The limit of %d watchers that follow this node's events or wait for a change (--max-watchers) is reached. Try again later, or at another node.", most))
		p.Rule, p.Limit = "watchers", &most
		return nil, p
	}
	gauge.Inc()
	return func() {
		gauge.Dec()
		w.open.Add(-1)
		leave()
	}, nil
}

// Turn blocks until a watcher that a change has woken may work, or ctx ends with its cause: however many
// they are, they leave the rest of the processors to Raft and to other requests. The caller
// calls end once; the turn counts as cost at least.
func (x *Exchange) Turn(ctx context.Context, cost time.Duration) (end func(), err error) {
	return x.watchers.share.Begin(ctx, cost)
}
