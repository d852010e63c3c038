package turns

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/signalbox/signalbox/internal/wake"
)

// Items are the items of this node, as a line sees them.
type Items interface {
	// Watch returns a watch of the item of that name or, with below, of all items whose names
	// begin with it. It misses no change that is applied after it returns.
	Watch(name string, below bool) Watch
	// Free reports whether no session holds the item of that name. An item that does not exist
	// is free. It must be quick, and is called with no lock held.
	Free(name string) bool
}

// Watch follows the changes of what is watched.
type Watch interface {
	// News is a signal that is set at each change, after Index has its number.
	News() <-chan struct{}
	// Index returns the highest number of a change since the watch began, 0 without one.
	Index() uint64
	// Stop ends the watch. It is called once.
	Stop()
}

// Keys are the key of a name or, with Below, all keys that begin with it.
type Keys struct {
	Name  string
	Below bool
}

// covers reports whether a change of an item concerns these keys.
func (k Keys) covers(item string) bool {
	return k.Name == item || k.Below && strings.HasPrefix(item, k.Name)
}

// Query is a query that waits for a change.
type Query struct {
	Keys           // that are watched
	Conn    string // the connection that the query came on
	Monitor bool   // it is woken at once, by each change
	After   uint64 // changes up to this number do not concern it
}

const (
	// placeTTL is how long the place of a query is kept for its connection.
	placeTTL = time.Second
	// maxWriteWait is how long a write waits at most for the turns of others and for the write before it.
	maxWriteWait = time.Second
)

// Lines are all lines of a node. Use New. Its methods are safe for concurrent use.
type Lines struct {
	items Items

	mu       sync.Mutex
	lines    map[Keys]*line
	last     uint64             // the place that was given to a query last
	kept     map[string][]kept  // by connection
	refused  map[string]refusal // the last one, by connection
	writes   map[string]*writes // by key
	sweeping bool               // a timer runs that forgets kept places
}

// kept is a place in the line of these keys, for a query that may be asked again.
type kept struct {
	Keys
	place uint64
	until time.Time
}

// New returns the lines of a node, without queries.
func New(items Items) *Lines {
	return &Lines{items: items, lines: map[Keys]*line{}, kept: map[string][]kept{}, refused: map[string]refusal{}, writes: map[string]*writes{}}
}

// Ask puts a query into its line and calls look: once at the beginning, and then each time the query is
// woken. It returns nil when look reports that it is done, look's error, or the cause of ctx
// when ctx ends while the query waits. The query keeps its place in line until then. look is
// called by the caller's goroutine, without a lock. A query that comes back does not look at once if its
// change also concerns others in its line: it would overtake them.
func (l *Lines) Ask(ctx context.Context, query Query, look func() (done bool, err error)) error {
	q := &waiter{Query: query, news: wake.NewSignal()}
	line, stands := l.join(q)
	defer l.leave(line, q)
	for ; ; stands = false {
		if !stands {
			if done, err := look(); done || err != nil {
				return err
			}
		}
		if err := wake.Until(ctx, q.news); err != nil {
			return err
		}
		l.stand(line, q)
	}
}

// Write begins a write by which a contender takes a key: an acquire, or a check-and-set. The caller
// calls end once, with the outcome, when it is known. Write blocks
//
//   - an acquire, while the turn is another connection's;
//   - while another such write of the key is under way on this node: its outcome mostly
//     refuses this one without the log.
//
// It blocks for maxWriteWait at most, and fails with ctx's cause when ctx ends first. Until end is called, no other
// query is woken in the lines in which the connection was woken last, but by the bound on
// their waits. A write that took the key gives up the places that are kept for the connection in these
// lines: a winner that asks again at once then stands behind those that have waited for it.
func (l *Lines) Write(ctx context.Context, conn, name string, acquire bool) (end func(took bool), err error) {
	bounded, cancel := context.WithTimeout(ctx, maxWriteWait)
	defer cancel()
	if acquire {
		if turn := l.turnOfOthers(conn, name); turn != nil {
			_ = wake.Until(bounded, turn)
		}
	}
	w := l.enter(name)
	first := false
	select {
	case w.one <- struct{}{}:
		first = true
	case <-bounded.Done():
	}
	if ctx.Err() != nil {
		l.exit(name, w, first)
		return nil, context.Cause(ctx)
	}
	paused := l.pause(conn, name)
	return func(took bool) {
		if l.resume(paused, conn, name, took); acquire && !took {
			l.refuse(conn, name)
		}
		l.exit(name, w, first)
	}, nil
}

func (l *Lines) refuse(conn, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused[conn] = refusal{name, time.Now().Add(maxDelay)}
	l.sweepLater()
}

// writes are the writes of one key.
type writes struct {
	one     chan struct{} // has a value while one is under way
	callers int           // under way, or waiting for that
}

func (l *Lines) enter(name string) *writes {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.writes[name]
	if w == nil {
		w = &writes{one: make(chan struct{}, 1)}
		l.writes[name] = w
	}
	w.callers++
	return w
}

// exit takes a write out, and lets the next one begin if it was under way alone.
func (l *Lines) exit(name string, w *writes, alone bool) {
	if alone {
		<-w.one
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.callers--; w.callers == 0 {
		delete(l.writes, name)
	}
}

// turnOfOthers returns a channel that is closed when the turn of another connection than conn
// is over; nil if none is on.
func (l *Lines) turnOfOthers(conn, name string) <-chan struct{} {
	l.mu.Lock()
	line := l.lines[Keys{Name: name}]
	l.mu.Unlock()
	if line == nil {
		return nil
	}
	line.follow() // the acquire may come before the line's goroutine has seen the change
	l.mu.Lock()
	defer l.mu.Unlock()
	if line.turn == nil || line.turn.conn == conn {
		return nil
	}
	return line.turn.over
}

// pause stops waking queries in the lines in which conn was woken last, and keeps conn's turn there: until
// resume, for maxDelay at most.
func (l *Lines) pause(conn, name string) (paused []*line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	until := time.Now().Add(maxDelay)
	for _, k := range l.kept[conn] {
		if line := l.lines[k.Keys]; line != nil && k.covers(name) {
			line.pause(conn, until)
			paused = append(paused, line)
		}
	}
	return paused
}

// resume ends a pause, and the turn of the connection.
func (l *Lines) resume(paused []*line, conn, name string, took bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range paused {
		line.resume(conn)
	}
	if took {
		l.keep(conn, slices.DeleteFunc(l.kept[conn], func(k kept) bool { return k.covers(name) }))
	}
}

// AfterRefusal blocks a read of a key on a connection whose acquire of it has just been refused, while
// the key is free: until a session holds it, at most maxDelay after the refusal. A client
// that finds a key free which it was refused takes it for delayed, and sleeps for 5 s.
func (l *Lines) AfterRefusal(ctx context.Context, conn, name string) {
	l.mu.Lock()
	r := l.refused[conn]
	l.mu.Unlock()
	if r.name != name || !time.Now().Before(r.until) {
		return
	}
	ctx, cancel := context.WithDeadline(ctx, r.until)
	defer cancel()
	query := Query{Keys: Keys{Name: name}, Conn: conn, Monitor: true}
	_ = l.Ask(ctx, query, func() (bool, error) { return !l.items.Free(name), nil })
}

// refusal is an acquire that was refused.
type refusal struct {
	name  string
	until time.Time // when it no longer matters
}

// join puts a query into its line, at the place that its connection has kept there or at the end. stands
// reports that it has to stand there before it looks.
func (l *Lines) join(q *waiter) (on *line, stands bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if on = l.lines[q.Keys]; on == nil {
		on = newLine(l, q.Keys)
		l.lines[q.Keys] = on
		go on.run()
	}
	on.queries++
	if !q.Monitor {
		q.place, stands = l.placeOf(q.Keys, q.Conn)
		stands = stands && on.mustStand(q)
	}
	on.add(q)
	return on, stands
}

// stand puts a query that was woken back into its line.
func (l *Lines) stand(on *line, q *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	on.add(q)
}

// leave takes a query out of its line, and keeps its place for its connection.
func (l *Lines) leave(on *line, q *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	on.remove(q)
	on.queries--
	on.endIfIdle()
	if q.Monitor {
		return
	}
	l.kept[q.Conn] = append(l.kept[q.Conn], kept{on.Keys, q.place, time.Now().Add(placeTTL)})
	l.sweepLater()
}

// sweepLater schedules a sweep, unless one is scheduled. The caller holds mu.
func (l *Lines) sweepLater() {
	if !l.sweeping {
		l.sweeping = true
		time.AfterFunc(placeTTL, l.sweep)
	}
}

// placeOf returns the place that a connection has kept in a line, and no longer keeps it, or the
// next new one. The caller holds mu.
func (l *Lines) placeOf(of Keys, conn string) (place uint64, old bool) {
	now := time.Now()
	i := slices.IndexFunc(l.kept[conn], func(k kept) bool { return k.Keys == of && now.Before(k.until) })
	if i < 0 {
		l.last++
		return l.last, false
	}
	place = l.kept[conn][i].place
	l.keep(conn, slices.Delete(l.kept[conn], i, i+1))
	return place, true
}

// keep sets the places that are kept for a connection. The caller holds mu.
func (l *Lines) keep(conn string, places []kept) {
	if len(places) == 0 {
		delete(l.kept, conn)
		return
	}
	l.kept[conn] = places
}

// sweep forgets the places whose second is over. It runs once a second while there are any.
func (l *Lines) sweep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for conn, places := range l.kept {
		l.keep(conn, slices.DeleteFunc(places, func(k kept) bool { return !now.Before(k.until) }))
	}
	maps.DeleteFunc(l.refused, func(_ string, r refusal) bool { return !now.Before(r.until) })
	if l.sweeping = false; len(l.kept)+len(l.refused) > 0 {
		l.sweepLater()
	}
}
