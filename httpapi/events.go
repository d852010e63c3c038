package httpapi

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

const (
	// eventsKeepAlive is how often a stream without events says that it lives, and
	// how far the history has come meanwhile.
	eventsKeepAlive = 15 * time.Second
	// eventsFlush is after how many bytes events are sent, though there are more.
	eventsFlush = 16 << 10

	headerLastEvent = "Last-Event-Id"
)

// eventsQuery is what a watcher asks for.
type eventsQuery struct {
	after      cluster.EventID
	resumes    bool // after was given
	semaphores map[string]bool
	prefix     string
	session    uint64 // 0: any
}

// getEvents is the stream of what happens, from now on or from an event on. It
// ends with the client, with the server, when the client does not read, or when
// the history has gone over what the client has not read.
func (h *Handler) getEvents(c echo.Context) error {
	q, err := parseRepeatable(c, "name", readParams("since", "name", "prefix", "session")...)
	if err != nil {
		return err
	}
	ask, err := readEventsQuery(c.Request().Header, q)
	if err != nil {
		return err
	}
	s, err := h.streams.add(c, h.cfg.BodyTimeout)
	if err != nil {
		return err
	}
	defer h.streams.remove(s)
	if ask.after, err = h.startOfEvents(c, q, ask); err != nil {
		return err
	}
	if _, err := h.node.EventsAfter(ask.after); err != nil {
		return err
	}
	header := c.Response().Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no") // a proxy must not gather events
	c.Response().WriteHeader(http.StatusOK)
	if c.Request().Method == http.MethodHead {
		return nil
	}
	if err := h.follow(c.Request().Context(), s, ask); err != nil {
		h.cfg.Logger.Debug("a stream of events was cut off", "error", err)
	}
	return nil
}

// startOfEvents answers after what a stream begins, once this node has it. An id
// that the cluster has not come to is from another one, or from before a restore.
func (h *Handler) startOfEvents(c echo.Context, q query, ask eventsQuery) (cluster.EventID, error) {
	if ask.resumes && h.hasSeen(q, ask.after.Index) {
		return ask.after, nil
	}
	reading, err := h.reading(c, q)
	if err != nil {
		return ask.after, err
	}
	h.setIndex(c, reading.Index)
	switch {
	case !ask.resumes:
		return cluster.EventID{Index: reading.Index}, nil
	case !reading.Stale && ask.after.Index > reading.Index:
		return ask.after, newProblem("history-gone", "The cluster has never come to this event. Read the state anew, and follow from its index.")
	}
	return ask.after, nil
}

// hasSeen reports whether this node has the entry after which a stream goes on, and
// the client asks for no more: then the history decides, and no leader is needed.
func (h *Handler) hasSeen(q query, index uint64) (seen bool) {
	for _, name := range consistencyNames {
		if _, given := q.text(name); given {
			return false
		}
	}
	h.node.View(func(m *fsm.Machine) { seen = m.Index() >= index })
	return seen
}

// follow sends events until the stream ends; it answers what cut it off, or nil.
func (h *Handler) follow(ctx context.Context, s *stream, ask eventsQuery) error {
	at := ask.after
	if err := s.write([]byte("retry: 1000\n" + keepAlive(at))); err != nil {
		return err
	}
	idle := time.NewTimer(eventsKeepAlive)
	defer idle.Stop()
	for {
		page, err := h.node.EventsAfter(at)
		if err != nil {
			return err
		}
		sent, err := s.sendPage(page, &ask)
		if err != nil {
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
		case <-h.closing:
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

// always is ready: there is more already.
var always = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// keepAlive moves a client's Last-Event-ID on without an event, so that one whose
// filter lets nothing through does not fall behind the history.
func keepAlive(at cluster.EventID) string { return "id: " + formatEventID(at) + "\n\n" }

// sendPage sends what of a page the watcher asked for, and reports whether there
// was anything.
func (s *stream) sendPage(page cluster.EventPage, ask *eventsQuery) (sent bool, err error) {
	buffer := buffers.Get().(*bytes.Buffer)
	defer func() {
		if buffer.Cap() <= maxPooled {
			buffers.Put(buffer)
		}
	}()
	buffer.Reset()
	for _, entry := range page.Entries {
		for i := range entry.Effects {
			if !ask.wants(&entry.Effects[i]) || !writeEvent(buffer, &entry, i) {
				continue
			}
			sent = true
			if buffer.Len() < eventsFlush {
				continue
			}
			if err := s.write(buffer.Bytes()); err != nil {
				return sent, err
			}
			buffer.Reset()
		}
	}
	if buffer.Len() == 0 {
		return sent, nil
	}
	return sent, s.write(buffer.Bytes())
}

// wants reports whether an event passes all of the filters.
func (ask *eventsQuery) wants(e *fsm.Effect) bool {
	if ask.session != 0 && e.Session != ask.session {
		return false
	}
	if ask.prefix == "" && len(ask.semaphores) == 0 {
		return true
	}
	return ask.semaphores[e.Semaphore] || ask.prefix != "" && strings.HasPrefix(e.Semaphore, ask.prefix)
}

// readEventsQuery reads the filters, and the event to go on after. A browser that
// comes back repeats ?since= and adds Last-Event-ID, which is the later one.
func readEventsQuery(header http.Header, q query) (ask eventsQuery, err error) {
	if ask.prefix, err = q.prefix(); err != nil {
		return ask, err
	}
	if text, given := q.text("session"); given {
		if ask.session, err = sessionID("session", text); err != nil {
			return ask, err
		}
	}
	ask.semaphores = map[string]bool{}
	for _, name := range q["name"] {
		if _, err := semaphoreName("name", name); err != nil {
			return ask, err
		}
		ask.semaphores[name] = true
	}
	field, from := "since", q["since"]
	if _, given := header[headerLastEvent]; given {
		field, from = "Last-Event-ID", header[headerLastEvent]
	}
	if len(from) == 0 {
		return ask, nil
	}
	ask.resumes = true
	var ok bool
	if ask.after, ok = parseEventID(from[0]); !ok || len(from) > 1 {
		return ask, invalid(field, eventForm)
	}
	return ask, nil
}

const eventForm = "An event's id is index.ordinal, or an index alone: after all that the log's entry did."

// parseEventID reads an id in its only spelling.
func parseEventID(text string) (id cluster.EventID, ok bool) {
	index, ordinal, precise := strings.Cut(text, ".")
	if id.Index, ok = parseDigits(index); !ok || id.Index > 1<<63-1 {
		return id, false
	}
	if !precise {
		return id, true
	}
	n, ok := parseDigits(ordinal)
	id.Ordinal = int(n)
	return id, ok && n >= 1 && n <= 1<<31-1
}

func formatEventID(id cluster.EventID) string {
	text := strconv.FormatUint(id.Index, 10)
	if id.Ordinal > 0 {
		text += "." + strconv.Itoa(id.Ordinal)
	}
	return text
}
