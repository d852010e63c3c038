package httpapi

import (
	"errors"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

// reading makes this node's state as recent as the query asks for, and puts
// into the head what a stale answer has to say about itself.
func (h *Handler) reading(c echo.Context, q query) (cluster.Reading, error) {
	asked, err := q.consistency()
	if err != nil {
		return cluster.Reading{}, err
	}
	reading, err := h.node.Read(c.Request().Context(), asked)
	if errors.Is(err, cluster.ErrBehind) {
		p := problemOf(err)
		h.view(c, func(m *fsm.Machine) {
			index := m.Index()
			p.Index = &index
		})
		return reading, p
	}
	if err == nil && reading.Stale {
		ms := int64(-1) // never heard from a leader
		if reading.LastContact >= 0 {
			ms = reading.LastContact.Milliseconds()
		}
		c.Response().Header().Set(headerLastContact, strconv.FormatInt(ms, 10))
	}
	return reading, err
}

// view lends the state to read, and puts its index into the reply's head.
func (h *Handler) view(c echo.Context, read func(m *fsm.Machine)) {
	var index uint64
	h.node.View(func(m *fsm.Machine) {
		index = m.Index()
		read(m)
	})
	h.setIndex(c, index)
}

func (h *Handler) listSemaphores(c echo.Context) error {
	q, err := parseQuery(c, readParams("prefix", "limit", "cursor")...)
	if err != nil {
		return err
	}
	prefix, err := q.prefix()
	if err != nil {
		return err
	}
	limit, cursor, err := q.page()
	if err != nil {
		return err
	}
	after, err := parseNameCursor(cursor)
	if err != nil {
		return err
	}
	if _, err = h.reading(c, q); err != nil {
		return err
	}
	return h.sendRead(c, func() (any, error) {
		var found []fsm.SemaphoreView
		h.view(c, func(m *fsm.Machine) { found = m.Semaphores(prefix, after, limit+1) })
		next := ""
		if len(found) > limit {
			found = found[:limit]
			next = nameCursor(found[limit-1].Name)
		}
		return newSemaphoresBody(found, next), nil
	})
}

// semaphoreQuery is what a GET of one semaphore asks for.
type semaphoreQuery struct {
	name             string
	epoch            uint64 // 0: any
	holders, waiters int
	blocking         bool
	index            uint64 // answer when modified after it
	wait             time.Duration
}

func (h *Handler) readSemaphoreQuery(c echo.Context, q query) (s semaphoreQuery, err error) {
	name, _ := pathParam(c, "name")
	if s.name, err = semaphoreName("name", name); err != nil {
		return s, err
	}
	if s.epoch, err = q.epoch(); err != nil {
		return s, err
	}
	holders, err := q.number("holders", defaultPage, 0, maxPage)
	if err != nil {
		return s, err
	}
	waiters, err := q.number("waiters", defaultPage, 0, maxPage)
	if err != nil {
		return s, err
	}
	s.holders, s.waiters = int(holders), int(waiters)
	if s.index, err = q.number("index", 0, 0, 1<<63-1); err != nil {
		return s, err
	}
	waitMS, err := q.waitMS(h.cfg.MaxWait.Milliseconds())
	_, s.blocking = q.text("index")
	if _, waits := q.text("wait"); waits && !s.blocking {
		return s, invalid("wait", "A wait needs an index to wait for a change of.")
	}
	s.wait = time.Duration(waitMS) * time.Millisecond
	return s, err
}

func (h *Handler) getSemaphore(c echo.Context) error {
	q, err := parseQuery(c, readParams("epoch", "holders", "waiters", "index", "wait")...)
	if err != nil {
		return err
	}
	s, err := h.readSemaphoreQuery(c, q)
	if err != nil {
		return err
	}
	if s.blocking {
		if err := h.awaitChange(c, q, s); err != nil {
			return err
		}
	}
	reading, err := h.reading(c, q)
	if err != nil {
		return err
	}
	return h.sendRead(c, func() (any, error) {
		var body wholeSemaphoreBody
		h.view(c, func(m *fsm.Machine) {
			var found fsm.SemaphoreView
			if found, err = findSemaphore(m, s.name, s.epoch); err == nil {
				body = viewedSemaphore(m, found, s.holders, s.waiters, nowOf(m, reading))
			}
		})
		return body, err
	})
}

// nowOf answers the cluster time to compute durations with. The state may have
// moved on since the reading: it is never before the state's own.
func nowOf(m *fsm.Machine, reading cluster.Reading) int64 { return max(reading.NowMS, m.NowMS()) }

// findSemaphore answers a semaphore, or the refusal that the state machine
// gives for the same name and epoch.
func findSemaphore(m *fsm.Machine, name string, epoch uint64) (fsm.SemaphoreView, error) {
	found, ok := m.Semaphore(name)
	switch {
	case !ok:
		return found, refused(&fsm.Result{Code: fsm.UnknownSemaphore, Subject: name})
	case epoch != 0 && epoch != found.Epoch:
		return found, refused(&fsm.Result{Code: fsm.EpochMismatch, Subject: name, Epoch: found.Epoch})
	}
	return found, nil
}

// awaitChange blocks until the semaphore was modified after s.index, or is
// gone, or the wait is over; at once when the index asked about is above the
// confirmed one, as after a restore. What is then told is read anew.
func (h *Handler) awaitChange(c echo.Context, q query, s semaphoreQuery) error {
	reading, err := h.reading(c, q)
	if err != nil {
		return err
	}
	if s.index > reading.Index || s.wait == 0 || h.changedSince(s) {
		return nil
	}
	if err := h.streams.beginQuery(); err != nil {
		return err
	}
	defer h.streams.endQuery()
	end := time.NewTimer(s.wait)
	defer end.Stop()
	for {
		changed, stop := h.node.Changed(s.name)
		if h.changedSince(s) {
			stop()
			return nil
		}
		select {
		case <-changed:
			stop()
		case <-end.C:
			stop()
			return nil
		case <-h.closing:
			stop()
			return nil
		case <-c.Request().Context().Done():
			stop()
			return c.Request().Context().Err()
		}
	}
}

// changedSince reports whether there is something to tell a blocking query.
func (h *Handler) changedSince(s semaphoreQuery) (changed bool) {
	h.node.View(func(m *fsm.Machine) {
		found, err := findSemaphore(m, s.name, s.epoch)
		changed = err != nil || found.ModifiedIndex > s.index
	})
	return changed
}
