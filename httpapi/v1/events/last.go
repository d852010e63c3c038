package events

import (
	"math"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// mostLast bounds the events that a stream begins with by last.
const mostLast = 1000

// readLast reads the parameters last and renewals.
func (ask *eventsQuery) readLast(q exchange.Query) error {
	last, err := q.Number("last", 0, 1, mostLast)
	if err != nil {
		return err
	}
	if ask.last = int(last); last > 0 && q["since"] != nil {
		return exchange.Invalid("last", "A stream begins with the last events, or since one: give either.")
	}
	renewals, present := q.Text("renewals")
	if ask.brief = renewals == "false"; present && !ask.brief && renewals != "true" {
		return exchange.Invalid("renewals", "This is true (the default) or false.")
	}
	return nil
}

// startOfLast returns the event after which the last events follow that a query is for, of those that this node
// has kept. It looks at each of them at most once, page by page, each in a turn.
func (e *API) startOfLast(c echo.Context, ask eventsQuery) (start replica.EventID, err error) {
	e.x.Node.View(func(m *fsm.Machine) { start.Index = m.Index() })
	e.x.Replies.SetIndex(c, start.Index)
	left := ask.last
	for before := uint64(math.MaxUint64); ; {
		end, err := e.x.Waits.TakeTurn(c.Request().Context(), 0)
		if err != nil {
			return start, err
		}
		page := e.x.Node.EventsBefore(before)
		e.x.Node.View(func(m *fsm.Machine) { left = ask.countBack(m, page, left, &start) })
		if end(); left == 0 || len(page) == 0 {
			return start, nil
		}
		before = page[0].Index
	}
}

// countBack goes back through a page for as many events as are left, and returns how many then are. start becomes
// the event before the first one of them.
func (ask *eventsQuery) countBack(m *fsm.Machine, page []replica.EventEntry, left int, start *replica.EventID) int {
	for at := len(page) - 1; at >= 0; at-- {
		entry := &page[at]
		for i := len(entry.Effects) - 1; i >= 0 && left > 0; i-- {
			if event := describe(m, &entry.Effects[i]); !ask.wants(&event) {
				continue
			}
			if name, _ := newEvent(entry, &entry.Effects[i]); name == "" {
				continue // streams leave it out
			}
			left--
			*start = replica.EventID{Index: entry.Index, Ordinal: entry.Before + i}
			if start.Ordinal == 0 { // the whole entry follows
				start.Index--
			}
		}
	}
	return left
}
