package consul

import (
	"context"
	"errors"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/consul/queues"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

const (
	// leaderless is how long a node may know no leader before its waiting queries end: a holder
	// at a node that is cut off must not go on for ever.
	leaderless = 5 * time.Second
	// guardPause is the shortest time between two checks of a waiting query for a leader.
	guardPause = 500 * time.Millisecond
)

var (
	errWaitOver = errors.New("the wait is over")
	errClosing  = errors.New("the server shuts down")
)

// itemSource is the items of a node for the queues of its waiting queries.
type itemSource struct{ exchange.Node }

func (n itemSource) Watch(name string, below bool) queues.Watch { return n.WatchItems(name, below) }

func (n itemSource) Free(name string) (free bool) {
	n.View(func(m *fsm.Machine) {
		i, _ := m.Item(name) // an absent item has no session
		free = i.Session == 0
	})
	return free
}

// connOf returns the connection of a request. A query that is repeated on it keeps its place
// in line.
func connOf(c echo.Context) string { return c.Request().RemoteAddr }

// await reads the state, and calls wait for a query with an index. The context of wait ends with
// the query's wait, when the server shuts down, and when no leader is known. After the whole wait
// the state is confirmed again; after a change this node's own state is enough.
func (d *dialect) await(c echo.Context, q *query, wait func(ctx context.Context) error) (cluster.Reading, error) {
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
		return d.Node.Read(request, cluster.Consistency{Stale: true})
	case errors.Is(err, errClosing):
		return d.Node.Read(request, cluster.Consistency{Stale: true})
	}
	return at, err
}

// guard ends a wait when the server shuts down, and when this node has known no leader for
// leaderless. It returns when ctx ends. After each check it sleeps until the silence could last
// that long: with a leader that is every 5 s, since thousands of queries may wait.
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
		at, err := d.Node.Read(ctx, cluster.Consistency{Stale: true})
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
