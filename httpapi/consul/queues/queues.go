package queues

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/signalbox/signalbox/internal/wake"
)

// Items are the items of this node, as queues use them.
type Items interface {
	// Watch returns a watch of one item or, with below, of all items whose names begin with name. The watch misses no
	// change that is applied after Watch returns.
	Watch(name string, below bool) Watch
	// Free reports whether no session holds the item, or no item has this name. It must be quick. The caller holds no
	// lock.
	Free(name string) bool
}

// Watch follows the changes of one or several items.
type Watch interface {
	// News is a signal that is set at each change, after Index has its number.
	News() <-chan struct{}
	// Index returns the number of the latest change since the watch began, or 0 if there was no change.
	Index() uint64
	// Stop ends the watch. It is called once.
	Stop()
}

// Keys are one key or, with Below, all keys whose names begin with Name.
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
	Keys           // to watch
	Conn    string // the connection that the query came on
	Monitor bool   // woken at once, by each change
	After   uint64 // changes up to this number do not concern the query
}

const (
	// ticketTTL is how long a ticket is saved for its connection.
	ticketTTL = time.Second
	// maxWriteWait is how long a write waits at most for another connection's window and for the write before it.
	maxWriteWait = time.Second
)

// Queues are all queues of a node. Use New. All methods are safe for concurrent use.
type Queues struct {
	items Items

	mu         sync.Mutex
	byKeys     map[Keys]*queue
	lastTicket uint64
	saved      map[string][]savedTicket // by connection
	refusals   map[string]refusal       // the last refusal, by connection
	writes     map[string]*keyWrites    // by key
	sweeping   bool                     // a timer for sweep runs
}

// savedTicket is the ticket of a query that may be repeated on its connection.
type savedTicket struct {
	Keys
	ticket uint64
	until  time.Time
}

// New returns the queues of a node, without queries.
func New(items Items) *Queues {
	return &Queues{items: items, byKeys: map[Keys]*queue{}, saved: map[string][]savedTicket{}, refusals: map[string]refusal{}, writes: map[string]*keyWrites{}}
}

// Wait puts a query into its queue and calls check: once at the beginning, and then each time the query is woken. It
// returns nil when check reports done. It returns check's error, or the cause of ctx when ctx ends while the query
// waits. The query keeps its ticket until then. check runs on the caller's goroutine, without a lock.
//
// A repeated query does not check at once if its change also concerns other queries of its queue: it would overtake
// them.
func (q *Queues) Wait(ctx context.Context, query Query, check func() (done bool, err error)) error {
	w := &waiter{Query: query, wakeUp: wake.NewSignal()}
	in, wait := q.join(w)
	defer q.leave(in, w)
	for ; ; wait = false {
		if !wait {
			if done, err := check(); done || err != nil {
				return err
			}
		}
		if err := wake.Until(ctx, w.wakeUp); err != nil {
			return err
		}
		q.rejoin(in, w)
	}
}

// join puts a query into its queue, with the ticket that its connection has saved, or with a new
// one. wait reports whether the query must wait before it checks.
func (q *Queues) join(w *waiter) (in *queue, wait bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if in = q.byKeys[w.Keys]; in == nil {
		in = newQueue(q, w.Keys)
		q.byKeys[w.Keys] = in
		go in.run()
	}
	in.queries++
	if !w.Monitor {
		w.ticket, wait = q.ticketOf(w.Keys, w.Conn)
		wait = wait && in.mustQueue(w)
	}
	in.add(w)
	return in, wait
}

// rejoin puts a query that was woken back into its queue.
func (q *Queues) rejoin(in *queue, w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	in.add(w)
}

// leave removes a query from its queue, and saves its ticket for its connection.
func (q *Queues) leave(in *queue, w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	in.remove(w)
	in.queries--
	in.removeIfIdle()
	if w.Monitor {
		return
	}
	q.saved[w.Conn] = append(q.saved[w.Conn], savedTicket{in.Keys, w.ticket, time.Now().Add(ticketTTL)})
	q.sweepLater()
}

// AwaitHolder delays a client's read of a key after the refusal of the same client's acquire. It blocks while no session
// holds the key, until at most maxDelay after the refusal. A client that is refused a key and then reads that the key is
// free suspects a lock delay, and sleeps for 5 s.
func (q *Queues) AwaitHolder(ctx context.Context, conn, name string) {
	q.mu.Lock()
	r := q.refusals[conn]
	q.mu.Unlock()
	if r.name != name || !time.Now().Before(r.until) {
		return
	}
	ctx, cancel := context.WithDeadline(ctx, r.until)
	defer cancel()
	query := Query{Keys: Keys{Name: name}, Conn: conn, Monitor: true}
	_ = q.Wait(ctx, query, func() (bool, error) { return !q.items.Free(name), nil })
}

// BeginWrite begins a write by which a contender takes a key: an acquire, or a check-and-set. The caller calls end once,
// with the outcome. BeginWrite blocks
//
//   - an acquire, while the window of another connection is open;
//   - while another such write of the key is under way on this node. Its outcome mostly causes the
//     refusal of this write, which then needs no entry in the log.
//
// It blocks for maxWriteWait at most, and fails with ctx's cause when ctx ends first. Until end is called, the queues in
// which the connection was last woken wake no other query before its maxDelay. A write that took the key gives up the
// connection's tickets in these queues. A winner that comes back at once is then behind the queries that have waited for
// it.
func (q *Queues) BeginWrite(ctx context.Context, conn, name string, acquire bool) (end func(taken bool), err error) {
	bounded, cancel := context.WithTimeout(ctx, maxWriteWait)
	defer cancel()
	if acquire {
		if window := q.windowOfOthers(conn, name); window != nil {
			_ = wake.Until(bounded, window)
		}
	}
	writes := q.enter(name)
	alone := false
	select {
	case writes.slot <- struct{}{}:
		alone = true
	case <-bounded.Done():
	}
	if ctx.Err() != nil {
		q.exit(name, writes, alone)
		return nil, context.Cause(ctx)
	}
	paused := q.pause(conn, name)
	return func(taken bool) {
		if q.resume(paused, conn, name, taken); acquire && !taken {
			q.saveRefusal(conn, name)
		}
		q.exit(name, writes, alone)
	}, nil
}

// windowOfOthers returns a channel that is closed when the window of another connection closes. It returns nil if no
// such window is open.
func (q *Queues) windowOfOthers(conn, name string) <-chan struct{} {
	q.mu.Lock()
	in := q.byKeys[Keys{Name: name}]
	q.mu.Unlock()
	if in == nil {
		return nil
	}
	in.observeChange() // the acquire may come before the queue's goroutine has seen the change
	q.mu.Lock()
	defer q.mu.Unlock()
	if in.window == nil || in.window.conn == conn {
		return nil
	}
	return in.window.closed
}

// keyWrites are the writes of one key.
type keyWrites struct {
	slot    chan struct{} // holds a value while a write is under way
	callers int           // under way, or waiting for the slot
}

func (q *Queues) enter(name string) *keyWrites {
	q.mu.Lock()
	defer q.mu.Unlock()
	writes := q.writes[name]
	if writes == nil {
		writes = &keyWrites{slot: make(chan struct{}, 1)}
		q.writes[name] = writes
	}
	writes.callers++
	return writes
}

// exit ends a write, and gives its slot to the next write if it had the slot.
func (q *Queues) exit(name string, writes *keyWrites, alone bool) {
	if alone {
		<-writes.slot
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if writes.callers--; writes.callers == 0 {
		delete(q.writes, name)
	}
}

// pause stops wake-ups in the queues in which conn was last woken, and keeps conn's windows there open. Both last until
// resume is called, or for maxDelay.
func (q *Queues) pause(conn, name string) (paused []*queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	until := time.Now().Add(maxDelay)
	for _, saved := range q.saved[conn] {
		if in := q.byKeys[saved.Keys]; in != nil && saved.covers(name) {
			in.pause(conn, until)
			paused = append(paused, in)
		}
	}
	return paused
}

// resume ends a pause, and the windows of the connection.
func (q *Queues) resume(paused []*queue, conn, name string, taken bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, in := range paused {
		in.resume(conn)
	}
	if taken {
		q.setSaved(conn, slices.DeleteFunc(q.saved[conn], func(s savedTicket) bool { return s.covers(name) }))
	}
}

// refusal is a refused acquire.
type refusal struct {
	name  string
	until time.Time
}

func (q *Queues) saveRefusal(conn, name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refusals[conn] = refusal{name, time.Now().Add(maxDelay)}
	q.sweepLater()
}

// ticketOf removes and returns the ticket that a connection has saved for a queue. Without such a ticket it returns a
// new one. The caller holds mu.
func (q *Queues) ticketOf(keys Keys, conn string) (ticket uint64, repeated bool) {
	now, saved := time.Now(), q.saved[conn]
	i := slices.IndexFunc(saved, func(s savedTicket) bool { return s.Keys == keys && now.Before(s.until) })
	if i < 0 {
		q.lastTicket++
		return q.lastTicket, false
	}
	ticket = saved[i].ticket
	q.setSaved(conn, slices.Delete(saved, i, i+1))
	return ticket, true
}

// setSaved replaces the saved tickets of a connection. The caller holds mu.
func (q *Queues) setSaved(conn string, tickets []savedTicket) {
	if len(tickets) == 0 {
		delete(q.saved, conn)
		return
	}
	q.saved[conn] = tickets
}

// sweepLater schedules a sweep, unless one is scheduled. The caller holds mu.
func (q *Queues) sweepLater() {
	if !q.sweeping {
		q.sweeping = true
		time.AfterFunc(ticketTTL, q.sweep)
	}
}

// sweep removes expired tickets and refusals. It runs once a second while there are any.
func (q *Queues) sweep() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for conn, tickets := range q.saved {
		q.setSaved(conn, slices.DeleteFunc(tickets, func(s savedTicket) bool { return !now.Before(s.until) }))
	}
	maps.DeleteFunc(q.refusals, func(_ string, r refusal) bool { return !now.Before(r.until) })
	if q.sweeping = false; len(q.saved)+len(q.refusals) > 0 {
		q.sweepLater()
	}
}
