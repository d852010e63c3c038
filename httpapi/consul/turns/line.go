package turns

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// wakeInterval is the time between two queries of a line that hear of one change.
	wakeInterval = 10 * time.Millisecond
	// maxDelay is how long after a change a query hears of it at the latest.
	maxDelay = 250 * time.Millisecond
	// turnFor is how long acquires on other connections are held back.
	turnFor = 15 * time.Millisecond
)

// waiter is a query in its line.
type waiter struct {
	Query
	news  wake.Signal
	place uint64
	since time.Time // of the first change that it was not woken for; zero: there was none
}

// line is the line of one name or prefix.
type line struct {
	Keys
	watch Watch
	idle  chan struct{} // closed when the line ends
	poke  wake.Signal   // a pause is over
	all   *Lines

	// Guarded by all.mu:

	queries  int                  // under way, waiting or looking
	monitors map[*waiter]struct{} // that wait; all are woken and leave at the same time
	waiting  []*waiter            // by place
	next     time.Time            // when the next one of the line is woken, if a change concerns one
	turn     *turn                // nil: none is on
	writers  int                  // connections that were woken and now write
	paused   time.Time            // until then no query is woken, while they write

	number atomic.Uint64 // of the last change that was seen; written with all.mu
}

// turn is the time in which one connection alone may acquire a key.
type turn struct {
	conn  string
	until time.Time
	over  chan struct{} // closed at its end
}

func newLine(all *Lines, of Keys) *line {
	return &line{Keys: of, watch: all.items.Watch(of.Name, of.Below), idle: make(chan struct{}), poke: wake.NewSignal(), all: all,
		monitors: map[*waiter]struct{}{}}
}

// run follows the changes until no query is left and no turn is on.
func (l *line) run() {
	defer l.watch.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-l.watch.News():
		case <-l.poke:
		case <-timer.C:
		case <-l.idle:
			return
		}
		l.follow()
		if at := l.advance(time.Now()); at.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(at))
		}
	}
}

// follow looks for a change that was not seen yet. A change wakes the monitors, then the first
// of the line; if it has freed the key, that one's turn begins.
func (l *line) follow() {
	number := l.watch.Index()
	if number <= l.number.Load() {
		return
	}
	free := !l.Below && l.all.items.Free(l.Name) // the state is as new as number, or newer
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	if number <= l.number.Load() {
		return // another goroutine was quicker
	}
	l.number.Store(number)
	now := time.Now()
	for q := range l.monitors {
		if q.After < number {
			l.wake(q)
		}
	}
	for _, q := range l.waiting {
		if q.since.IsZero() && q.After < number {
			q.since = now
		}
	}
	if !free {
		l.endTurn()
	}
	if l.next = now; now.Before(l.paused) {
		return
	}
	if first := l.first(); first != nil {
		if free && l.turn == nil {
			l.turn = &turn{conn: first.Conn, until: now.Add(turnFor), over: make(chan struct{})}
		}
		l.wake(first)
		l.next = now.Add(wakeInterval)
	}
}

// pause stops waking queries until a moment, while conn writes.
func (l *line) pause(conn string, until time.Time) {
	l.writers++
	l.paused = until
	if l.turn != nil && l.turn.conn == conn {
		l.turn.until = until
	}
}

// resume ends the pause of a connection, and its turn.
func (l *line) resume(conn string) {
	if l.writers--; l.writers == 0 {
		l.paused = time.Time{}
		l.poke.Set()
	}
	if l.turn != nil && l.turn.conn == conn {
		l.endTurn()
	}
}

// advance does what is due by now: it wakes the next of the line and all that have waited for too
// long, and ends the turn. It returns when it has to be called next, the zero time for never.
func (l *line) advance(now time.Time) (again time.Time) {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	if first := l.first(); first != nil && !now.Before(l.next) && !now.Before(l.paused) {
		l.wake(first)
		l.next = now.Add(wakeInterval)
	}
	sooner := func(at time.Time) {
		if again.IsZero() || at.Before(again) {
			again = at
		}
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(q *waiter) bool {
		if q.since.IsZero() {
			return false
		}
		if due := q.since.Add(maxDelay); now.Before(due) {
			sooner(due)
			return false
		}
		q.look()
		return true
	})
	if l.first() != nil {
		sooner(later(l.next, l.paused))
	}
	if l.turn != nil && !now.Before(l.turn.until) {
		l.endTurn()
	}
	if l.turn != nil {
		sooner(l.turn.until)
	}
	return again
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// mustStand reports whether a query that comes back is concerned by a change while others of the line are, or
// one of them writes. It then waits for its turn, as they do.
func (l *line) mustStand(q *waiter) bool {
	now := time.Now()
	if q.After >= l.number.Load() || l.first() == nil && !now.Before(l.paused) {
		return false
	}
	q.since = now
	l.poke.Set()
	return true
}

// first returns the first of the line that has a change to hear of, or nil.
func (l *line) first() *waiter {
	i := slices.IndexFunc(l.waiting, func(q *waiter) bool { return !q.since.IsZero() })
	if i < 0 {
		return nil
	}
	return l.waiting[i]
}

// add puts a query among those that wait.
func (l *line) add(q *waiter) {
	if q.Monitor {
		l.monitors[q] = struct{}{}
		return
	}
	i, _ := slices.BinarySearchFunc(l.waiting, q.place, byPlace)
	l.waiting = slices.Insert(l.waiting, i, q)
}

// wake takes a query out of the line and lets it look.
func (l *line) wake(q *waiter) {
	l.remove(q)
	q.look()
}

// look lets a query look that is not, or no longer, in its line.
func (q *waiter) look() {
	q.since = time.Time{}
	q.news.Set()
}

// remove takes a query out of the line, if it stands there.
func (l *line) remove(q *waiter) {
	if q.Monitor {
		delete(l.monitors, q)
		return
	}
	if i, found := slices.BinarySearchFunc(l.waiting, q.place, byPlace); found && l.waiting[i] == q {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
}

func byPlace(q *waiter, place uint64) int { return cmp.Compare(q.place, place) }

func (l *line) endTurn() {
	if l.turn != nil {
		close(l.turn.over)
		l.turn = nil
		l.endIfIdle()
	}
}

// endIfIdle ends the line if no query is left and no turn is on.
func (l *line) endIfIdle() {
	if l.queries == 0 && l.turn == nil && l.all.lines[l.Keys] == l { // it may have ended before
		delete(l.all.lines, l.Keys)
		close(l.idle)
	}
}
