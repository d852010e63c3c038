package consul

import (
	"context"
	"errors"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/consul/queues"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

const (
	// leaderless is how long a node may know no leader before its waiting queries end. Otherwise a client that holds a
	// lock and watches it at a cut-off node would never learn that it lost the lock.
	leaderless = 5 * time.Second
	// guardPause is the shortest time between two checks of a waiting query whether a leader is known.
	guardPause = 500 * time.Millisecond
)

var (
	errWaitOver = errors.New("the wait is over")
	errClosing  = errors.New("the server shuts down")
)

// itemSource lets queues watch the items of a node.
type itemSource struct{ exchange.Node }

func (n itemSource) Watch(name string, below bool) queues.Watch { return n.WatchItems(name, below) }

func (n itemSource) Free(name string) (free bool) {
	n.View(func(m *fsm.Machine) {
		i, _ := m.Item(name) // an absent item has no session
		free = i.Session == 0
	})
	return free
}

// connOf returns the connection of a request. A query that is repeated on the same connection keeps its place in the
// queue.
func connOf(c echo.Context) string { return c.Request().RemoteAddr }

// await reads the state and, for a query with an index, calls wait to wait for a change. The context of wait ends after
// the query's maximum time, when the server shuts down, and when no leader is known. If the time ends without a change,
// await confirms the state with the leader; after a change this node's own state is enough.
func (d *dialect) await(c echo.Context, q *query, wait func(ctx context.Context) error) (calls.Reading, error) {
	request := c.Request().Context()
	at, err := d.Node.Read(request, q.consistency())
	if err != nil || q.index == 0 {
		return at, err
	}
	leave, err := d.Waits.AddWatcher(c, d.waiting)
	if err != nil {
		return at, err
	}
	defer leave()
	timed, cancel := context.WithTimeoutCause(request, q.wait, errWaitOver)
	defer cancel()
	ctx, end := context.WithCancelCause(timed)
	defer end(nil)
	go d.guard(ctx, end)
	switch err = wait(ctx); {
	case request.Err() != nil:
		return at, request.Err()
	case errors.Is(err, errWaitOver):
		return d.Node.Read(request, q.consistency())
	case err == nil:
		end, err := d.Waits.TakeTurn(request, exchange.ReplyCost)
		if err != nil {
			return at, err
		}
		end()
		return d.Node.Read(request, calls.Consistency{Stale: true})
	case errors.Is(err, errClosing):
		return d.Node.Read(request, calls.Consistency{Stale: true})
	}
	return at, err
}

// guard ends a wait when the server shuts down, and when this node has known no leader for leaderless. It returns when
// ctx ends. Thousands of queries may wait, so it checks rarely: it sleeps until the silence could reach leaderless, so
// every 5 s while there is a leader.
func (d *dialect) guard(ctx context.Context, end context.CancelCauseFunc) {
	began := time.Now()
	for pause := guardPause; ; {
		select {
		case <-ctx.Done():
			return
		case <-d.Waits.Closing():
			end(errClosing)
			return
		case <-time.After(pause):
		}
		at, err := d.Node.Read(ctx, calls.Consistency{Stale: true})
		silence := at.LastContact
		if silence < 0 {
			silence = time.Since(began)
		}
		if err == nil && silence >= leaderless {
			end(outcome.ErrNoLeader)
			return
		}
		pause = max(guardPause, leaderless-silence)
	}
}
