package events

import (
	"math"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

const maxLast = 1000 // events that a stream begins with by last

func (ask *eventsQuery) readLast(q exchange.Query) error {
	last, err := q.Number("last", 0, 1, maxLast)
	if err != nil {
		return err
	}
	if ask.last = int(last); last > 0 && q["since"] != nil {
		return exchange.Invalid("last", "A stream begins with the last events, or since an event: give either.")
	}
	renewals, present := q.Text("renewals")
	if ask.brief = renewals == "false"; present && !ask.brief && renewals != "true" {
		return exchange.Invalid("renewals", "This is true (the default) or false.")
	}
	return nil
}

// startOfLast returns the event after which a stream begins to send the last ask.last events of the filters, as far as
// this node has kept events. It reads each kept event at most once, page by page, and takes a turn for each page.
func (e *API) startOfLast(c echo.Context, ask eventsQuery) (start replica.EventID, err error) {
	e.x.Node.View(func(m *fsm.Machine) { start.Index = m.Index() })
	e.x.Replies.SetIndex(c, start.Index)
	remaining := ask.last
	for before := uint64(math.MaxUint64); ; {
		end, err := e.x.Waits.TakeTurn(c.Request().Context(), 0)
		if err != nil {
			return start, err
		}
		page := e.x.Node.EventsBefore(before)
		e.x.Node.View(func(m *fsm.Machine) { remaining = ask.countBack(m, page, remaining, &start) })
		if end(); remaining == 0 || len(page) == 0 {
			return start, nil
		}
		before = page[0].Index
	}
}

// countBack goes back through a page and counts events that pass the filters, until remaining is 0. It returns how many
// events remain to be counted, and sets start to the event before the oldest event that it has counted.
func (ask *eventsQuery) countBack(m *fsm.Machine, page []replica.EventEntry, remaining int, start *replica.EventID) int {
	for at := len(page) - 1; at >= 0; at-- {
		entry := &page[at]
		for i := len(entry.Effects) - 1; i >= 0 && remaining > 0; i-- {
			if event := describe(m, &entry.Effects[i]); !ask.wants(&event) {
				continue
			}
			if name, _ := newEvent(entry, &entry.Effects[i]); name == "" {
				continue // streams leave it out
			}
			remaining--
			*start = replica.EventID{Index: entry.Index, Ordinal: entry.Before + i}
			if start.Ordinal == 0 { // the whole entry follows
				start.Index--
			}
		}
	}
	return remaining
}
