package events

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

const (
	// eventsKeepAlive is how often a stream without events sends an id: the id up to which the client has seen the
	// history.
	eventsKeepAlive = 15 * time.Second
	// eventsFlush is the number of bytes after which a page's events are sent, even if the page has more.
	eventsFlush = 64 << 10

	// pageCost is the least time that a stream's turn counts for: the time of a write and of the wake-ups that it
	// causes.
	pageCost = 20 * time.Microsecond

	headerLastEvent = "Last-Event-Id"
)

// eventsQuery has the filters of a stream, and where it begins.
type eventsQuery struct {
	after   replica.EventID
	resumes bool            // after was given
	names   map[string]bool // of semaphores and items
	prefix  string
	group   string
	grouped bool   // events of group alone
	session uint64 // 0: any
	last    int    // begins with so many of the last events; 0: with the next event
	brief   bool   // without renewals
	caller  *access.Identity
}

// API serves GET /v1/events.
type API struct {
	x       *exchange.Exchange
	streams *streams
	tape    *eventCache
}

// New returns the route's handler.
func New(x *exchange.Exchange) *API {
	return &API{x, newStreams(), &eventCache{view: x.Node.View, tokens: x.Config.Tokens != nil, entries: map[*fsm.Effect]*encodedEntry{}}}
}

// EndStreams ends the streams of events when the server shuts down. It does not block.
func (e *API) EndStreams() { e.streams.end() }

// Routes returns the route.
func (e *API) Routes() []exchange.Route {
	return []exchange.Route{exchange.On("GET", "/v1/events", e.getEvents)}
}

// Collectors returns the metrics of streams.
func (e *API) Collectors() []prometheus.Collector { return []prometheus.Collector{e.streams.gauge} }

// getEvents sends events from now on, or after a given event. The stream ends when the client hangs up or does not read,
// when the server shuts down, or when the history has dropped events that the client has not read.
func (e *API) getEvents(c echo.Context) error {
	q, err := exchange.ParseRepeatable(c, "name", exchange.ReadParams("since", "last", "name", "prefix", "group", "session", "renewals")...)
	if err != nil {
		return err
	}
	ask, err := readEventsQuery(c.Request().Header, q)
	if err != nil {
		return err
	}
	ask.caller = e.x.Rights.Caller(c)
	for name := range ask.names {
		if err := e.x.Rights.MayName(c, name); err != nil {
			return err
		}
	}
	leave, err := e.x.Waits.AddWatcher(c, e.streams.gauge)
	if err != nil {
		return err
	}
	defer leave()
	s, err := e.streams.add(c, e.x.Config.BodyTimeout)
	if err != nil {
		return err
	}
	defer e.streams.remove(s)
	if ask.after, err = e.startOfEvents(c, q, ask); err != nil {
		return err
	}
	if page, err := e.x.Node.EventsAfter(ask.after); err != nil {
		p := exchange.ProblemOf(err)
		p.Detail += fmt.Sprintf(" This node has the events after %d.", page.Next.Index)
		return p
	}
	header := c.Response().Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no") // a proxy must not buffer events
	c.Response().WriteHeader(http.StatusOK)
	if c.Request().Method == http.MethodHead {
		return nil
	}
	if err := e.follow(c.Request().Context(), s, ask); err != nil {
		e.x.Config.Logger.Debug("a stream of events was cut off", exchange.LogPairs(c, "error", err)...)
	}
	return nil
}

// startOfEvents returns the event after which a stream begins. It waits until this node's state has this event. If the
// cluster has not reached the client's id, it refuses the id: the id is from another cluster, or from before a restore.
func (e *API) startOfEvents(c echo.Context, q exchange.Query, ask eventsQuery) (replica.EventID, error) {
	if ask.resumes && e.hasSeen(q, ask.after.Index) {
		return ask.after, nil
	}
	if ask.last > 0 && !q.AsksConsistency() {
		return e.startOfLast(c, ask)
	}
	reading, err := e.x.Reads.Await(c, q)
	if err != nil {
		return ask.after, err
	}
	e.x.Replies.SetIndex(c, reading.Index)
	switch {
	case ask.last > 0:
		return e.startOfLast(c, ask)
	case !ask.resumes:
		if !reading.Stale {
			err = e.checkSession(ask)
		}
		return replica.EventID{Index: reading.Index}, err
	case !reading.Stale && ask.after.Index > reading.Index:
		return ask.after, exchange.NewProblem("history-gone", "The cluster has never reached this event: it is from before a restore, or of another cluster. "+
			"Read the state again, and follow from its index.")
	}
	return ask.after, nil
}

// checkSession refuses a stream of future events of a session that has ended: the stream would never have an event, and
// never end. A caller who may not find the session gets the empty stream in either case, so that it does not learn
// whether the session lives.
func (e *API) checkSession(ask eventsQuery) (err error) {
	if ask.session == 0 {
		return nil
	}
	e.x.Node.View(func(m *fsm.Machine) {
		owner, known := m.OwnerOf(ask.session)
		if !m.HasSession(ask.session) && (ask.caller.Scope == access.Admin || known && ask.caller.FindsSession(owner)) {
			err = exchange.Refused(&fsm.Result{Code: fsm.UnknownSession, Session: ask.session})
		}
	})
	return err
}

// hasSeen reports whether a stream can begin without the leader: this node has the entry with the last event that the
// client has seen, and the client requires no consistency.
func (e *API) hasSeen(q exchange.Query, index uint64) (seen bool) {
	if q.AsksConsistency() {
		return false
	}
	e.x.Node.View(func(m *fsm.Machine) { seen = m.Index() >= index })
	return seen
}

// follow sends events until the stream ends. It returns the error that cut it off, or nil.
func (e *API) follow(ctx context.Context, s *stream, ask eventsQuery) error {
	at := ask.after
	if err := s.write([]byte("retry: 1000\n" + keepAlive(at))); err != nil {
		return err
	}
	idle := time.NewTimer(eventsKeepAlive)
	defer idle.Stop()
	for {
		end, err := e.x.Waits.TakeTurn(ctx, pageCost)
		if err != nil {
			return nil // the client is gone
		}
		if e.x.Waits.Closed() {
			end()
			return nil
		}
		page, sent, err := e.sendPage(s, at, &ask)
		if end(); err != nil {
			return err
		}
		at = page.Next
		if sent {
			idle.Reset(eventsKeepAlive)
		}
		more := page.News
		if more == nil {
			more = always
		}
		select {
		case <-e.x.Waits.Closing():
			return nil
		case <-ctx.Done():
			return nil
		case <-idle.C:
			if err := s.write([]byte(": \n" + keepAlive(at))); err != nil {
				return err
			}
			idle.Reset(eventsKeepAlive)
		case <-more:
		}
	}
}

// sendPage sends the events of the page after an id that pass the filters. sent reports whether there were any.
func (e *API) sendPage(s *stream, after replica.EventID, ask *eventsQuery) (page replica.EventPage, sent bool, err error) {
	if page, err = e.x.Node.EventsAfter(after); err != nil {
		return page, false, err
	}
	out, release := exchange.Buffer()
	defer release()
	for _, entry := range e.tape.encoded(page.Entries) {
		for i := range entry.events {
			event := &entry.events[i]
			if event.text == nil || !ask.wants(event) {
				continue
			}
			out.Write(event.shownTo(ask.caller))
			if sent = true; out.Len() < eventsFlush {
				continue
			}
			if err := s.write(out.Bytes()); err != nil {
				return page, sent, err
			}
			out.Reset()
		}
	}
	if out.Len() == 0 {
		return page, sent, nil
	}
	return page, sent, s.write(out.Bytes())
}

// always is a closed channel. It stands for news when a page is followed by more events.
var always = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// keepAlive advances a client's Last-Event-ID without an event. Otherwise, if no event matches its filter for long, the
// history drops the client's last id, and it cannot resume.
func keepAlive(at replica.EventID) string { return "id: " + formatEventID(at) + "\n\n" }

// nameOf returns the semaphore or the item of an event, or "" for an event of a session alone.
func nameOf(event *fsm.Effect) string { return cmp.Or(event.Semaphore, event.Item) }

// wants reports whether an event passes all filters, and the caller may read it.
func (ask *eventsQuery) wants(e *event) bool {
	if ask.brief && e.renewal || ask.session != 0 && e.session != ask.session {
		return false
	}
	if ask.grouped && (!e.grouped || e.group != ask.group) {
		return false
	}
	if (ask.prefix != "" || len(ask.names) > 0) && (e.name == "" || !ask.names[e.name] && (ask.prefix == "" || !strings.HasPrefix(e.name, ask.prefix))) {
		return false
	}
	return e.mayRead(ask.caller)
}

// readEventsQuery reads the filters, and the event after which to continue. A browser that reconnects repeats ?since=
// and adds Last-Event-ID. Last-Event-ID is later, so it takes precedence.
func readEventsQuery(header http.Header, q exchange.Query) (ask eventsQuery, err error) {
	if ask.prefix, err = q.Prefix(); err != nil {
		return ask, err
	}
	if ask.group, ask.grouped, err = q.Group(); err != nil {
		return ask, err
	}
	if text, present := q.Text("session"); present {
		if ask.session, err = exchange.SessionID("session", text); err != nil {
			return ask, err
		}
	}
	ask.names = map[string]bool{}
	for _, name := range q["name"] {
		if _, err := exchange.SemaphoreName("name", name); err != nil {
			return ask, err
		}
		ask.names[name] = true
	}
	if err := ask.readLast(q); err != nil {
		return ask, err
	}
	field, from := "since", q["since"]
	if _, present := header[headerLastEvent]; present {
		field, from = "Last-Event-ID", header[headerLastEvent]
	}
	if len(from) == 0 {
		return ask, nil
	}
	ask.resumes, ask.last = true, 0
	var ok bool
	if ask.after, ok = parseEventID(from[0]); !ok || len(from) > 1 {
		return ask, exchange.Invalid(field, eventForm)
	}
	return ask, nil
}

const eventForm = "An event's id is index.ordinal, or an index alone: after all that the log's entry did."

// parseEventID reads an id in its only spelling.
func parseEventID(text string) (id replica.EventID, ok bool) {
	index, ordinal, precise := strings.Cut(text, ".")
	if id.Index, ok = exchange.ParseDigits(index); !ok || id.Index > 1<<63-1 {
		return id, false
	}
	if !precise {
		return id, true
	}
	n, ok := exchange.ParseDigits(ordinal)
	id.Ordinal = int(n)
	return id, ok && n >= 1 && n <= 1<<31-1
}

func formatEventID(id replica.EventID) string {
	text := strconv.FormatUint(id.Index, 10)
	if id.Ordinal > 0 {
		text += "." + strconv.Itoa(id.Ordinal)
	}
	return text
}
