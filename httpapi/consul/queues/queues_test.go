package queues

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/internal/wake"
)

// box has the items of a test, and the events of its queries, with their moments.
type box struct {
	*Queues
	t *testing.T

	mu      sync.Mutex
	held    map[string]bool
	number  uint64
	watches map[*watch]Keys
	heard   []string
	start   time.Time // of the first change since expect was called
	begun   bool
}

type watch struct {
	news  wake.Signal
	index atomic.Uint64
	stop  func()
}

func (w *watch) News() <-chan struct{} { return w.news }
func (w *watch) Index() uint64         { return w.index.Load() }
func (w *watch) Stop()                 { w.stop() }

func newBox(t *testing.T) *box {
	b := &box{t: t, start: time.Now(), held: map[string]bool{}, watches: map[*watch]Keys{}}
	b.Queues = New(b)
	return b
}

func (b *box) Watch(name string, below bool) Watch {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := &watch{news: wake.NewSignal()}
	w.stop = func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watches, w)
	}
	b.watches[w] = Keys{name, below}
	return w
}

func (b *box) Free(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.held[name]
}

// change applies a change of an item, which leaves it held or free. The first change is moment 0 of the events.
func (b *box) change(name string, held bool) {
	if !b.begun {
		b.start, b.begun = time.Now(), true
	}
	b.apply(name, held)
	synctest.Wait()
}

func (b *box) apply(name string, held bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.number++
	b.held[name] = held
	for w, on := range b.watches {
		if on.Name == name || on.Below && strings.HasPrefix(name, on.Name) {
			w.index.Store(b.number)
			w.news.Set()
		}
	}
}

func (b *box) index() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.number
}

// note writes down an event and its moment.
func (b *box) note(words string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heard = append(b.heard, fmt.Sprintf("%s@%d", words, time.Since(b.start).Milliseconds()))
}

// ask starts a query and waits until it is in its queue. Each time the query is woken, ask records an event: the name of
// the connection, with "in vain" if the change is not above the query's index.
func (b *box) ask(conn string, query Query) { b.askWithin(b.t.Context(), conn, query) }

func (b *box) askWithin(ctx context.Context, conn string, query Query) {
	query.Conn = conn
	if query.After == 0 {
		query.After = b.index()
	}
	go func() {
		checks := 0
		err := b.Wait(ctx, query, func() (bool, error) {
			if checks++; checks > 1 && b.index() <= query.After {
				b.note(conn + " in vain")
			}
			return b.index() > query.After, nil
		})
		if err != nil {
			conn += " " + err.Error()
		}
		b.note(conn)
	}()
	synctest.Wait()
}

// expect compares all events since the last call.
func (b *box) expect(want ...string) {
	b.t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.heard, want) {
		b.t.Errorf("heard %v\nwant  %v", b.heard, want)
	}
	b.heard, b.begun = nil, false
}

// pass lets time pass.
func pass(ms int) {
	<-time.After(time.Duration(ms) * time.Millisecond)
	synctest.Wait()
}

// inBubble runs a test in virtual time. At its end no queue, no watch and no ticket is left.
func inBubble(t *testing.T, test func(b *box)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t)
		test(b)
		pass(2001)
		b.Queues.mu.Lock()
		defer b.Queues.mu.Unlock()
		if len(b.byKeys) != 0 || len(b.saved) != 0 || b.sweeping || len(b.watches) != 0 || len(b.writes) != 0 || len(b.refusals) != 0 {
			t.Errorf("left: %d queues, %d connections with tickets, %d watches, %d keys that are written", len(b.byKeys), len(b.saved), len(b.watches), len(b.writes))
		}
	})
}

var db = Query{Keys: Keys{Name: "db"}}

// TestOneEachPace: a change wakes the first query at once and another query every 10 ms, in the order in which they
// came. After 250 ms it wakes all remaining queries.
func TestOneEachPace(t *testing.T) {
	inBubble(t, func(b *box) {
		b.change("db", true)
		var want []string
		for i := range 30 {
			conn := fmt.Sprint("c", i)
			b.ask(conn, db)
			want = append(want, fmt.Sprintf("%s@%d", conn, min(i*10, 250)))
		}
		b.expect()
		b.change("db", false)
		pass(9)
		b.expect(want[0])
		pass(300)
		slices.Sort(b.heard[24:]) // those woken together
		slices.Sort(want[25:])
		b.expect(want[1:]...)
	})
}

// TestEachChangeWakesTheFirst: each further change wakes the first of the remaining queries. A query's 250 ms count from
// the first change for which the query was not woken.
func TestEachChangeWakesTheFirst(t *testing.T) {
	inBubble(t, func(b *box) {
		for _, conn := range []string{"a", "b", "c", "d", "e", "f"} {
			b.ask(conn, db)
		}
		b.change("db", true)
		pass(4)
		b.change("db", false)
		pass(4)
		b.change("db", true)
		pass(9)
		b.expect("a@0", "b@4", "c@8")
		pass(1)
		b.expect("d@18")
		pass(8)
		b.expect()
		for range 60 { // changes of others do not concern this queue
			b.apply("other", false)
			pass(1)
		}
		b.expect("e@28", "f@38")
	})
}

// TestNoneWaitsLongerThanMaxDelay: while changes keep coming, each wakes one more query. After 250 ms the remaining
// queries are woken all together.
func TestNoneWaitsLongerThanMaxDelay(t *testing.T) {
	inBubble(t, func(b *box) {
		for i := range 100 {
			b.ask(fmt.Sprint("c", i), db)
		}
		for range 50 {
			b.change("db", true)
			pass(5)
		}
		heard := len(b.heard)
		if heard != 100 || b.heard[49] != "c49@245" || !strings.HasSuffix(b.heard[50], "@250") || !strings.HasSuffix(b.heard[99], "@250") {
			t.Errorf("%d heard, %v", heard, b.heard)
		}
		b.heard = nil
	})
}

// TestChangesUpToTheIndex: a change up to a query's index does not wake the query, whatever its key or prefix is.
func TestChangesUpToTheIndex(t *testing.T) {
	inBubble(t, func(b *box) {
		b.ask("ahead", Query{Keys: Keys{Name: "db"}, After: 3})
		b.ask("other", Query{Keys: Keys{Name: "d"}})
		b.ask("below", Query{Keys: Keys{"d", true}})
		b.ask("all", Query{Keys: Keys{Below: true}})
		b.ask("apart", Query{Keys: Keys{"db/", true}})
		b.change("db", false) // 1
		pass(1000)
		slices.Sort(b.heard) // they are in the queues of their own
		b.expect("all@0", "below@0")
		b.change("db", false)
		b.change("db", false)
		pass(1000)
		b.expect()
		b.change("db", false) // 4
		b.expect("ahead@0")
		b.change("db/x", false)
		b.change("d", false)
		slices.Sort(b.heard)
		b.expect("apart@0", "other@0")
	})
}

// TestOldPlaces: a query that is repeated on its connection within a second gets its old place. A later query does not,
// nor a query on another connection or in another queue.
func TestOldPlaces(t *testing.T) {
	inBubble(t, func(b *box) {
		wakeAll := func(order ...string) {
			t.Helper()
			b.change("db", true)
			pass(100)
			for i := range order {
				order[i] = fmt.Sprintf("%s@%d", order[i], i*10)
			}
			b.expect(order...)
		}
		b.ask("a", db)
		b.ask("b", db)
		b.ask("c", db)
		b.change("db", true)
		b.expect("a@0")
		b.ask("a", db)
		pass(100)
		b.expect("b@10", "c@20")
		b.ask("x", db)
		b.ask("c", db)
		b.ask("b", Query{Keys: Keys{Name: "db"}, Monitor: true}) // has no ticket, and takes no ticket
		b.change("db", true)
		pass(100)
		slices.Sort(b.heard[:2])
		b.expect("a@0", "b@0", "c@10", "x@20")
		b.ask("c", Query{Keys: Keys{Name: "e"}}) // another queue
		b.ask("x", db)
		b.ask("c", db)
		b.ask("b", db)
		b.change("e", false)
		b.expect("c@0")
		pass(860) // 960 after the wake of a
		b.ask("a", db)
		wakeAll("a", "b", "c", "x")
		b.heard = nil
		pass(900) // 1000 after a, 990 after b
		b.ask("b", db)
		b.ask("a", db)
		wakeAll("b", "a")
	})
}

// TestWinnersLoseTheirPlace: a connection that has written the item moves to the end of its queue, and of the queues of
// the item's prefixes. It keeps its place in other queues.
func TestWinnersLoseTheirPlace(t *testing.T) {
	inBubble(t, func(b *box) {
		for _, row := range []struct {
			query Query
			took  string
			order []string
		}{
			{db, "db", []string{"b@0", "c@10", "a@20"}},
			{Query{Keys: Keys{"d", true}}, "db", []string{"b@0", "c@10", "a@20"}},
			{db, "d", []string{"a@0", "b@10", "c@20"}},
			{db, "db/x", []string{"a@0", "b@10", "c@20"}},
			{Query{Keys: Keys{"db", true}}, "d", []string{"a@0", "b@10", "c@20"}},
		} {
			for _, conn := range []string{"a", "b", "c"} {
				b.ask(conn, row.query)
			}
			b.change("db", false)
			pass(100)
			b.expect("a@0", "b@10", "c@20")
			b.ask("c", row.query)
			b.write("c", row.took)(true) // a query that waits does not lose its ticket
			b.write("b", row.took)(false)
			b.write("a", row.took)(true)
			b.ask("a", row.query)
			b.ask("b", row.query)
			b.change("db", false)
			pass(1100)
			b.expect(row.order...)
		}
	})
}

// TestMonitorsFirst: a change wakes all monitors at once, before the first of the queue.
func TestMonitorsFirst(t *testing.T) {
	inBubble(t, func(b *box) {
		b.ask("a", db)
		b.ask("b", db)
		for range 50 {
			b.ask("m", Query{Keys: Keys{Name: "db"}, Monitor: true})
		}
		b.ask("ahead", Query{Keys: Keys{Name: "db"}, Monitor: true, After: 2})
		b.change("db", false)
		pass(5)
		counts := map[string]int{}
		for _, heard := range b.heard {
			counts[heard]++
		}
		if len(counts) != 2 || counts["m@0"] != 50 || counts["a@0"] != 1 {
			t.Errorf("heard %v", counts)
		}
		b.heard = nil
		b.change("db", false)
		b.change("db", false)
		b.heard = nil
	})
}

// acquire starts an acquire that is refused as soon as it is let through.
func acquire(b *box, conn string) {
	go func() {
		if end, err := b.BeginWrite(b.t.Context(), conn, "db", true); err != nil {
			conn += " " + err.Error()
		} else {
			end(false)
		}
		b.note(conn + " acquires")
	}()
	synctest.Wait()
}

// write begins a check-and-set, which does not have to wait.
func (b *box) write(conn, name string) (end func(took bool)) {
	b.t.Helper()
	began := time.Now()
	end, err := b.BeginWrite(b.t.Context(), conn, name, false)
	if err != nil || time.Since(began) > 0 {
		b.t.Errorf("%v after %v", err, time.Since(began))
	}
	return end
}

// TestHeldBack: for 15 ms after a change that frees a key, an acquire waits, unless it comes on the connection that was
// woken first.
func TestHeldBack(t *testing.T) {
	inBubble(t, func(b *box) {
		b.change("db", true)
		acquire(b, "x") // there is no queue
		b.ask("a", db)
		b.ask("b", db)
		acquire(b, "x") // no turn is on
		b.expect("x acquires@0", "x acquires@0")
		b.apply("db", false)
		acquire(b, "x")
		acquire(b, "b")
		b.write("x", "db")(false) // not so a check-and-set
		pass(20)
		slices.Sort(b.heard)
		b.expect("a@0", "b acquires@15", "b@10", "x acquires@15")
		b.ask("b", db)
		b.change("db", false) // it was free: a turn all the same
		acquire(b, "x")
		pass(5)
		b.expect("b@0")
		b.change("db", true) // held: the turn is over
		b.expect("x acquires@0")
		b.change("db", false) // no query in the queue
		acquire(b, "x")
		b.expect("x acquires@0")
	})
	inBubble(t, func(b *box) { // queues of prefixes have no windows
		b.ask("a", Query{Keys: Keys{"d", true}})
		b.change("db", false)
		acquire(b, "x")
		b.expect("a@0", "x acquires@0")
	})
	inBubble(t, func(b *box) { // the first is gone, and the queue has no query: the window stays open
		b.ask("a", db)
		b.change("db", false)
		acquire(b, "x")
		ctx, cancel := context.WithTimeoutCause(b.t.Context(), 5*time.Millisecond, errors.New("gone"))
		defer cancel()
		if _, err := b.BeginWrite(ctx, "y", "db", true); err == nil || err.Error() != "gone" {
			t.Error(err)
		}
		pass(20)
		b.expect("a@0", "x acquires@15")
	})
}

// TestATurnIsNotProlonged: while a key is free, further changes neither lengthen the window nor give it to another
// connection.
func TestATurnIsNotProlonged(t *testing.T) {
	inBubble(t, func(b *box) {
		b.ask("a", db)
		b.ask("b", db)
		b.change("db", false)
		pass(10)
		b.change("db", false)
		acquire(b, "b")
		pass(20)
		b.expect("a@0", "b@10", "b acquires@15")
	})
}

// TestTheTurnLastsUntilTheOutcome: the write of the first connection lengthens its window until the outcome of the
// write.
func TestTheTurnLastsUntilTheOutcome(t *testing.T) {
	for took, want := range map[int][]string{ // ms until the outcome, and what is heard
		5:   {"a@0", "x acquires@5", "b@10", "c@20"},
		100: {"a@0", "x acquires@100", "b@100", "c@110"},
		300: { // the bound of a pause, then its pace
			"a@0", "b@250", "c@250", "x acquires@300", "d@260"},
	} {
		inBubble(t, func(b *box) {
			b.ask("a", db)
			b.ask("b", db)
			b.ask("c", db)
			b.change("db", false)
			end, err := b.BeginWrite(b.t.Context(), "a", "db", true)
			if err != nil {
				t.Fatal(err)
			}
			acquire(b, "x")
			if took == 300 {
				pass(40)
				b.ask("d", db)
				b.change("db", false)
				took -= 40
			}
			pass(took)
			end(true)
			pass(15)
			slices.Sort(b.heard[1:])
			slices.Sort(want[1:])
			b.expect(want...)
		})
	}
}

// TestOneWriteAtATime: writes of a key run one after another in the order in which they came, on the same connection as
// well as on others. A write waits for a second at most. Other keys do not wait.
func TestOneWriteAtATime(t *testing.T) {
	inBubble(t, func(b *box) {
		first := b.write("a", "db")
		b.write("a", "db2")(true)
		for _, conn := range []string{"b", "c", "a"} {
			go func() {
				end, err := b.BeginWrite(b.t.Context(), conn, "db", conn == "b")
				if err != nil {
					t.Error(err)
					return
				}
				b.note(conn)
				pass(30)
				end(true)
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancelCause(b.t.Context())
		gone := errors.New("gone")
		time.AfterFunc(20*time.Millisecond, func() { cancel(gone) })
		if _, err := b.BeginWrite(ctx, "d", "db", false); !errors.Is(err, gone) {
			t.Error(err)
		}
		pass(30)
		first(false)
		pass(100)
		b.expect("b@50", "c@80", "a@110")
		last := b.write("a", "db")
		b.start = time.Now()
		acquire(b, "x")
		acquire(b, "y")
		pass(1100)
		slices.Sort(b.heard)
		b.expect("x acquires@1000", "y acquires@1000")
		last(true)
	})
}

// TestTheQueuesOfAWriterPause: while a connection that was woken in a queue writes, this queue wakes no other query but
// monitors. Other queues of the key go on.
func TestTheQueuesOfAWriterPause(t *testing.T) {
	inBubble(t, func(b *box) {
		below := Query{Keys: Keys{"d", true}}
		for _, conn := range []string{"a", "b", "c", "d"} {
			b.ask(conn, below)
		}
		b.ask("o", db)
		b.ask("m", Query{Keys: Keys{"d", true}, Monitor: true})
		b.change("db", false)
		end := b.write("a", "db")
		pass(30)
		b.change("d/x", false)
		b.ask("o", db)
		b.apply("db", false)
		pass(20)
		slices.Sort(b.heard)
		b.expect("a@0", "m@0", "o@0", "o@30")
		b.start, b.begun = time.Now(), true
		end(true)
		pass(25)
		b.expect("b@0", "c@10", "d@20")
	})
}

// TestComingBackIsNoShortcut: a query that is repeated with its old index waits for its turn while other queries of the
// queue wait to be woken or one of them writes. Otherwise it checks at once.
func TestComingBackIsNoShortcut(t *testing.T) {
	inBubble(t, func(b *box) {
		old := Query{Keys: Keys{Name: "db"}, After: 1}
		b.apply("db", true)
		b.ask("ahead", Query{Keys: Keys{Name: "db"}, After: 3}) // keeps the queue busy
		for _, conn := range []string{"a", "b", "c"} {
			b.ask(conn, old)
		}
		b.change("db", false)
		b.ask("a", old)
		b.ask("new", old) // it was not in the queue before
		pass(100)
		b.expect("a@0", "new@0", "a@10", "b@20", "c@30")
		b.begun, b.start = true, time.Now()
		b.ask("b", old)
		b.expect("b@0")
		b.begun, b.start = true, time.Now()
		end := b.write("a", "db")
		b.ask("b", old)
		pass(30)
		end(false)
		synctest.Wait()
		b.ask("a", old)
		pass(5)
		b.expect("b@30", "a@30")
		b.apply("db", false)
		b.apply("db", false)
		pass(1)
		b.heard = nil
	})
}

// TestAfterRefusal: if a connection was just refused a key, its read of the key waits while the key is free, for 250 ms
// at most. Other reads do not wait.
func TestAfterRefusal(t *testing.T) {
	inBubble(t, func(b *box) {
		read := func(conn, name string) {
			go func() {
				b.AwaitHolder(b.t.Context(), conn, name)
				b.note(conn + " reads " + name)
			}()
			synctest.Wait()
		}
		read("a", "db")
		acquire(b, "a")
		read("b", "db")
		read("a", "db2")
		b.expect("a reads db@0", "a acquires@0", "b reads db@0", "a reads db2@0")
		read("a", "db")
		pass(100)
		b.apply("db", false)
		pass(50)
		b.apply("db", true)
		read("a", "db")
		b.expect("a reads db@150", "a reads db@150")
		b.apply("db", false)
		read("a", "db")
		pass(300)
		read("a", "db")
		b.expect("a reads db@250", "a reads db@450")
	})
}

// TestTheEndOfAWait: a query whose context ends leaves the queue at once, and the others move up.
func TestTheEndOfAWait(t *testing.T) {
	inBubble(t, func(b *box) {
		ended := errors.New("ended")
		ctx, cancel := context.WithTimeoutCause(b.t.Context(), 100*time.Millisecond, ended)
		defer cancel()
		b.askWithin(ctx, "a", db)
		b.askWithin(ctx, "m", Query{Keys: Keys{Name: "db"}, Monitor: true})
		b.ask("b", db)
		b.ask("c", db)
		gone, leave := context.WithCancelCause(b.t.Context())
		b.askWithin(gone, "d", db)
		b.ask("e", db)
		pass(100)
		slices.Sort(b.heard)
		b.expect("a ended@100", "m ended@100")
		b.change("db", true)
		leave(ended)
		pass(100)
		b.expect("b@0", "d ended@0", "c@10", "e@20")
		failed := errors.New("no leader")
		if err := b.Wait(b.t.Context(), db, func() (bool, error) { return false, failed }); !errors.Is(err, failed) {
			t.Error(err)
		}
	})
}

// TestAChangeThatDidNotMatter: if a woken query finds that it is not done, it goes on waiting with the same ticket.
func TestAChangeThatDidNotMatter(t *testing.T) {
	inBubble(t, func(b *box) {
		checks := 0
		go func() {
			_ = b.Wait(b.t.Context(), Query{Keys: Keys{Name: "db"}, Conn: "a"}, func() (bool, error) { checks++; return checks == 4, nil })
			b.note("a")
		}()
		synctest.Wait()
		b.ask("b", db)
		b.change("db", true)
		pass(5)
		b.change("db", true)
		b.expect() // a was first twice
		pass(5)
		b.change("db", true)
		pass(10)
		b.expect("a@0", "b@10")
		if checks != 4 {
			t.Errorf("a checked %d times", checks)
		}
	})
}

// TestConnectionsAreForgotten: the number of connections with a ticket is bounded by the queries of two seconds.
func TestConnectionsAreForgotten(t *testing.T) {
	inBubble(t, func(b *box) {
		for i := range 2500 {
			b.ask(fmt.Sprint("c", i), Query{Keys: Keys{Name: fmt.Sprint("db", i%7)}, After: b.index()})
			b.apply(fmt.Sprint("db", i%7), false)
			pass(1)
			b.Queues.mu.Lock()
			kept := len(b.saved)
			b.Queues.mu.Unlock()
			if kept > 2001 {
				t.Fatalf("%d connections have tickets", kept)
			}
		}
		b.heard = nil
	})
}

// TestManyAtOnce: queries start, end and are woken at the same time, and each is done in the end. The test is here for
// the race detector.
func TestManyAtOnce(t *testing.T) {
	inBubble(t, func(b *box) {
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				conn := fmt.Sprint("c", i%20)
				for round := range 10 {
					query := Query{Keys: Keys{Name: "db"}, Conn: conn, Monitor: i%7 == 0, After: b.index()}
					if i%3 == 0 {
						query.Name, query.Below = "d", true
					}
					ctx, cancel := context.WithTimeout(b.t.Context(), time.Duration(i+round)*time.Millisecond)
					_ = b.Wait(ctx, query, func() (bool, error) { return b.index() > query.After, nil })
					cancel()
					end, err := b.BeginWrite(b.t.Context(), conn, "db", i%2 == 0)
					if err != nil {
						t.Error(err)
						return
					}
					b.apply("db", round%2 == 0)
					end(round%2 == 0)
				}
			})
		}
		all.Wait()
	})
}
