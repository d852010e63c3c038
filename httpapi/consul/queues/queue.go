package queues

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// wakeInterval is the time between two wake-ups of a queue for one change.
	wakeInterval = 10 * time.Millisecond
	// maxDelay is how long after a change a query is woken at the latest.
	maxDelay = 250 * time.Millisecond
	// windowLength is how long acquires on other connections are held back.
	windowLength = 15 * time.Millisecond
)

// waiter is a query in its queue.
type waiter struct {
	Query
	wakeUp    wake.Signal
	ticket    uint64    // rank in the queue; its connection keeps it for ticketTTL, for a repeat of the query
	changedAt time.Time // of the first change for which the query was not woken; zero: there was no change
}

// queue has the waiting queries of one name or prefix. Its goroutine, run, wakes them.
type queue struct {
	Keys
	parent  *Queues
	watch   Watch
	recheck wake.Signal   // wakes the goroutine when a pause is over, or a query came back
	done    chan struct{} // closed when the queue is removed

	lastChange atomic.Uint64 // the number of the last observed change; written with parent.mu

	// Guarded by parent.mu:

	queries     int                  // waiting, or reading the state after a wake-up
	monitors    map[*waiter]struct{} // woken at once and all together
	waiting     []*waiter            // by ticket
	nextWakeUp  time.Time            // of the first in waiting that has missed a change
	window      *window              // nil: no window is open
	writers     int                  // woken connections that now write
	pausedUntil time.Time            // no query is woken before, while they write
}

// window is the time in which one connection alone may acquire the key of a queue.
type window struct {
	conn   string
	until  time.Time
	closed chan struct{}
}

func newQueue(parent *Queues, keys Keys) *queue {
	return &queue{Keys: keys, parent: parent, watch: parent.items.Watch(keys.Name, keys.Below), done: make(chan struct{}), recheck: wake.NewSignal(),
		monitors: map[*waiter]struct{}{}}
}

// run follows the changes until the queue is removed.
func (q *queue) run() {
	defer q.watch.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-q.watch.News():
		case <-q.recheck:
		case <-timer.C:
		case <-q.done:
			return
		}
		q.observeChange()
		if next := q.runScheduled(time.Now()); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
	}
}

// observeChange handles the latest change, unless it has been handled before. It wakes the monitors, then the first
// query of the queue. If the change has freed the key, it opens a window for the connection of this first query.
func (q *queue) observeChange() {
	number := q.watch.Index()
	if number <= q.lastChange.Load() {
		return
	}
	free := !q.Below && q.parent.items.Free(q.Name) // the state is as new as number, or newer
	q.parent.mu.Lock()
	defer q.parent.mu.Unlock()
	if number <= q.lastChange.Load() {
		return // another goroutine was quicker
	}
	q.lastChange.Store(number)
	now := time.Now()
	for w := range q.monitors {
		if w.After < number {
			q.wake(w)
		}
	}
	for _, w := range q.waiting {
		if w.changedAt.IsZero() && w.After < number {
			w.changedAt = now
		}
	}
	if !free {
		q.closeWindow()
	}
	if q.nextWakeUp = now; now.Before(q.pausedUntil) {
		return
	}
	if first := q.first(); first != nil {
		if free && q.window == nil {
			q.window = &window{conn: first.Conn, until: now.Add(windowLength), closed: make(chan struct{})}
		}
		q.wakeFirst(first, now)
	}
}

// runScheduled wakes the first query of the queue if its time has come, and each query that has waited for maxDelay. It
// also closes an expired window. It returns when it has to run next, or the zero time if there is no need.
func (q *queue) runScheduled(now time.Time) (next time.Time) {
	q.parent.mu.Lock()
	defer q.parent.mu.Unlock()
	if first := q.first(); first != nil && !now.Before(q.nextWakeUp) && !now.Before(q.pausedUntil) {
		q.wakeFirst(first, now)
	}
	q.waiting = slices.DeleteFunc(q.waiting, func(w *waiter) (late bool) {
		if late = !w.changedAt.IsZero() && !now.Before(w.changedAt.Add(maxDelay)); late {
			w.changedAt = time.Time{}
			w.wakeUp.Set()
		}
		return late
	})
	if q.window != nil && !now.Before(q.window.until) {
		q.closeWindow()
	}
	return q.nextRun()
}

// nextRun returns the earliest moment at which runScheduled has work, or the zero time if it has no work.
func (q *queue) nextRun() (next time.Time) {
	add := func(moment time.Time) {
		if next.IsZero() || moment.Before(next) {
			next = moment
		}
	}
	for _, w := range q.waiting {
		if !w.changedAt.IsZero() {
			add(w.changedAt.Add(maxDelay))
		}
	}
	if q.first() != nil {
		if q.nextWakeUp.After(q.pausedUntil) {
			add(q.nextWakeUp)
		} else {
			add(q.pausedUntil)
		}
	}
	if q.window != nil {
		add(q.window.until)
	}
	return next
}

// pause stops wake-ups until a moment, because conn writes. If conn has a window, the window stays open until then.
func (q *queue) pause(conn string, until time.Time) {
	q.writers++
	q.pausedUntil = until
	if q.window != nil && q.window.conn == conn {
		q.window.until = until
	}
}

// resume ends the pause of a connection, and closes its window.
func (q *queue) resume(conn string) {
	if q.writers--; q.writers == 0 {
		q.pausedUntil = time.Time{}
		q.recheck.Set()
	}
	if q.window != nil && q.window.conn == conn {
		q.closeWindow()
	}
}

// mustQueue reports whether a repeated query must wait before it reads the state. It must if a change concerns it while
// other queries of the queue wait for a wake-up or a write: it would overtake them.
func (q *queue) mustQueue(w *waiter) bool {
	now := time.Now()
	if w.After >= q.lastChange.Load() || q.first() == nil && !now.Before(q.pausedUntil) {
		return false
	}
	w.changedAt = now
	q.recheck.Set()
	return true
}

// first returns the first query in the queue that has missed a change, or nil.
func (q *queue) first() *waiter {
	i := slices.IndexFunc(q.waiting, func(w *waiter) bool { return !w.changedAt.IsZero() })
	if i < 0 {
		return nil
	}
	return q.waiting[i]
}

func (q *queue) add(w *waiter) {
	if w.Monitor {
		q.monitors[w] = struct{}{}
		return
	}
	i, _ := slices.BinarySearchFunc(q.waiting, w.ticket, compareTicket)
	q.waiting = slices.Insert(q.waiting, i, w)
}

// wakeFirst wakes the first query, and schedules the next wake-up.
func (q *queue) wakeFirst(first *waiter, now time.Time) {
	q.wake(first)
	q.nextWakeUp = now.Add(wakeInterval)
}

// wake removes a query from the queue and lets it read the state.
func (q *queue) wake(w *waiter) {
	q.remove(w)
	w.changedAt = time.Time{}
	w.wakeUp.Set()
}

// remove removes a query, if it is in the queue.
func (q *queue) remove(w *waiter) {
	if w.Monitor {
		delete(q.monitors, w)
		return
	}
	if i, found := slices.BinarySearchFunc(q.waiting, w.ticket, compareTicket); found && q.waiting[i] == w {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
}

func compareTicket(w *waiter, ticket uint64) int { return cmp.Compare(w.ticket, ticket) }

func (q *queue) closeWindow() {
	if q.window != nil {
		close(q.window.closed)
		q.window = nil
		q.removeIfIdle()
	}
}

// removeIfIdle removes the queue if no query is left and no window is open.
func (q *queue) removeIfIdle() {
	if q.queries == 0 && q.window == nil && q.parent.byKeys[q.Keys] == q { // it may have been removed before
		delete(q.parent.byKeys, q.Keys)
		close(q.done)
	}
}
