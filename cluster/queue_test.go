package cluster

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/fsm"
)

// put adds so many commands of a class and expects that so many are taken.
func put(t *testing.T, q *queue, c class, count, weight, bytes, want int) {
	t.Helper()
	taken := 0
	for range count {
		if q.add(failure{&fakeProposal{class: c, weight: weight, data: make([]byte, bytes)}}) {
			taken++
		}
	}
	if taken != want {
		t.Fatalf("%d of %d commands of class %d are taken, want %d", taken, count, c, want)
	}
}

// cutOf takes an entry, checks that it is within the bounds and in the order of
// classes, and returns how many commands of each class it has.
func cutOf(t *testing.T, q *queue) (count [classes]int) {
	t.Helper()
	cut := q.cut()
	weight, bytes, last := 0, 0, class(0)
	for _, p := range cut {
		l := p.load()
		if l.class < last {
			t.Fatalf("class %d stands behind class %d", l.class, last)
		}
		last, weight, bytes = l.class, weight+l.weight, bytes+l.bytes
		count[l.class]++
	}
	if len(cut) > 1 && (weight > fsm.EntryWeight || bytes > fsm.EntryBytes) {
		t.Fatalf("an entry weighs %d and has %d bytes", weight, bytes)
	}
	return count
}

func newQueue(commands, bytes int) *queue {
	return &queue{places: places{commands: commands, bytes: bytes}}
}

func TestQueuePlaces(t *testing.T) {
	const commands, bytes = 800, 80_000
	t.Run("lists have half", func(t *testing.T) {
		q := newQueue(commands, bytes)
		put(t, q, classListed, 500, 1, 10, 400)
		put(t, q, classSingle, 500, 1, 10, 300)
		put(t, q, classRelease, 60, 1, 10, 60)
		put(t, q, classRenewal, 60, 1, 10, 40)
		put(t, q, classRenewal, 1, 1, 10, 0)
	})
	t.Run("of the bytes too", func(t *testing.T) {
		q := newQueue(commands, bytes)
		put(t, q, classListed, 10, 1, 10_000, 4)
		put(t, q, classSingle, 10, 1, 10_000, 3)
		put(t, q, classRelease, 10, 1, 10_000, 1)
		put(t, q, classRenewal, 1, 1, 1, 0)
	})
	t.Run("single requests leave an eighth", func(t *testing.T) {
		q := newQueue(commands, bytes)
		put(t, q, classSingle, 900, 1, 10, 700)
		put(t, q, classListed, 1, 1, 10, 0)
		put(t, q, classRelease, 1, 1, 10, 1)
	})
	t.Run("one command has room, whatever its size", func(t *testing.T) {
		put(t, newQueue(commands, bytes), classListed, 2, 1, 2*bytes, 1)
	})
	t.Run("places come back", func(t *testing.T) {
		q := newQueue(commands, bytes)
		for range 50 {
			put(t, q, classListed, 500, 1, 100, 400)
			put(t, q, classSingle, 500, 1, 100, 300)
			for q.len() > 0 {
				cutOf(t, q)
			}
		}
		put(t, q, classRelease, 900, 1, 10, 800)
		if len(q.empty()) != 800 || q.len() != 0 {
			t.Fatal("not all are taken out")
		}
		put(t, q, classRelease, 900, 1, 10, 800)
	})
}

func TestQueueOrder(t *testing.T) {
	const many, all = 10_000, fsm.EntryWeight
	const share = all / 8
	t.Run("by class", func(t *testing.T) {
		q := newQueue(many, 1<<30)
		for c := classes - 1; ; c-- {
			put(t, q, c, 100, 1, 10, 100)
			if c == 0 {
				break
			}
		}
		if got := cutOf(t, q); got != [classes]int{100, 100, 100, 100} {
			t.Fatalf("%v", got)
		}
	})
	t.Run("each class that waits has a share", func(t *testing.T) {
		q := newQueue(many, 1<<30)
		for _, c := range []class{classRenewal, classRelease, classListed} {
			put(t, q, c, 2000, 1, 10, 2000)
		}
		put(t, q, classSingle, 10, 1, 10, 10)
		if got := cutOf(t, q); got != [classes]int{all - 2*share - 10, share, 10, share} {
			t.Fatalf("%v", got)
		}
		if got := cutOf(t, q); got != [classes]int{all - 2*share, share, 0, share} {
			t.Fatalf("%v", got)
		}
	})
	t.Run("of the bytes too", func(t *testing.T) {
		q := newQueue(many, 1<<30)
		put(t, q, classRelease, 2000, 1, 1024, 2000)
		put(t, q, classListed, 2000, 1, 1024, 2000)
		if got := cutOf(t, q); got != [classes]int{0, 224, 0, 32} {
			t.Fatalf("%v", got)
		}
	})
	t.Run("by weight", func(t *testing.T) {
		q := newQueue(many, 1<<30)
		put(t, q, classSingle, 100, 64, 10, 100)
		if got := cutOf(t, q); got != [classes]int{0, 0, all / 64, 0} {
			t.Fatalf("%v", got)
		}
		put(t, q, classRenewal, 1, 5*all, 10, 1)
		if got := cutOf(t, q); got != [classes]int{1, 0, 0, 0} {
			t.Fatalf("one that is larger than an entry: %v", got)
		}
	})
}

// TestQueueStarvesNoCommand: commands that are larger than their class's share are
// taken though others of all classes never cease to wait.
func TestQueueStarvesNoCommand(t *testing.T) {
	for _, weight := range []int{fsm.EntryWeight / 2, fsm.EntryWeight, 4 * fsm.EntryWeight} {
		for large := range classes {
			t.Run(fmt.Sprintf("weight %d of class %d", weight, large), func(t *testing.T) {
				q := newQueue(1<<20, 1<<30)
				for c := range classes {
					if c != large {
						put(t, q, c, 20*fsm.EntryWeight, 1, 10, 20*fsm.EntryWeight)
					}
				}
				put(t, q, large, 3, weight, 10, 3)
				entries, taken := 0, 0
				for taken < 3 {
					if entries++; entries > 9 {
						t.Fatalf("%d of 3 are taken by %d entries", taken, entries-1)
					}
					taken += cutOf(t, q)[large]
				}
			})
		}
	}
}

// TestQueueKeepsItsOrder: whatever comes and goes, each class keeps its order,
// nothing is lost, and no entry exceeds its bounds.
func TestQueueKeepsItsOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	q := newQueue(5000, 4<<20)
	var waiting [classes][]proposal
	took := 0
	for range 3000 {
		for range random.IntN(400) {
			c := class(random.IntN(int(classes)))
			p := failure{&fakeProposal{class: c, weight: 1 + random.IntN(80), data: make([]byte, random.IntN(9000))}}
			if q.add(p) {
				waiting[c] = append(waiting[c], p)
			}
		}
		weight, bytes, cut := 0, 0, q.cut()
		for _, p := range cut {
			l := p.load()
			if waiting[l.class][0] != p {
				t.Fatalf("class %d is out of order", l.class)
			}
			waiting[l.class] = waiting[l.class][1:]
			weight, bytes, took = weight+l.weight, bytes+l.bytes, took+1
		}
		if weight > fsm.EntryWeight || bytes > fsm.EntryBytes {
			t.Fatalf("an entry weighs %d and has %d bytes", weight, bytes)
		}
	}
	left := 0
	for c := range waiting {
		left += len(waiting[c])
	}
	if q.len() != left || took < 10_000 {
		t.Fatalf("%d wait, want %d; %d were taken", q.len(), left, took)
	}
}

// TestOverloadKeepsLeases: while the log takes nothing and more waits on each node
// than it has room for, lists fill half of the places, single requests leave room
// for renewals and releases, and these are carried out before them.
func TestOverloadKeepsLeases(t *testing.T) {
	const places = 160
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("slow", 0)
		c.semaphore("jobs", 0)
		c.semaphore("db", 10)
		leader, follower := c.leader(), c.follower()
		for _, n := range []*testNode{leader, follower} {
			session := c.open(n, 30*time.Second)
			c.do(n, fsm.Acquire{Session: session, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}, fsm.OK)
			slow := background(t.Context(), leader, Call{Command: fsm.Up{Name: "slow", Count: 1}})
			time.Sleep(10 * time.Millisecond) // virtual: it applies by now
			for range 4 {                     // fills the entries behind it
				background(t.Context(), leader, Call{Command: fsm.Up{Name: "slow", Count: 1}})
				time.Sleep(time.Millisecond) // virtual: one entry each
			}
			lists := make(chan []error, 1)
			go func() {
				_, errs := n.DoMany(t.Context(), ups(places))
				lists <- errs
			}()
			synctest.Wait()
			var singles []<-chan answer
			for range places {
				singles = append(singles, background(t.Context(), n, Call{Command: fsm.SetValue{Name: "jobs", Value: 1000}}))
			}
			synctest.Wait()
			renewed := background(t.Context(), n, Call{Command: fsm.Renew{Renewals: []fsm.Renewal{{Session: session, TTLMS: fsm.KeepTTL}}}})
			released := background(t.Context(), n, Call{Command: fsm.Release{Session: session, Name: "db"}})
			if got := <-renewed; got.err != nil || got.Each[0].Code != fsm.OK {
				t.Errorf("%s: a renewal: %v", n.id, got.err)
			}
			if got := <-released; got.err != nil || got.Code != fsm.OK {
				t.Errorf("%s: a release: %v", n.id, got.err)
			}
			taken, overloaded := 0, 0
			for i, err := range <-lists {
				switch {
				case err == nil && taken == i:
					taken++
				case err == ErrOverloaded && taken == i:
					overloaded++
				case err != ErrNotTried:
					t.Fatalf("%s: %d of the list: %v", n.id, i, err)
				}
			}
			if taken == 0 || taken > places/2 || overloaded != 1 {
				t.Errorf("%s: %d of %d listed commands were taken", n.id, taken, places)
			}
			taken = 0
			for _, single := range singles {
				switch got := <-single; got.err {
				case nil:
					taken++
				case ErrOverloaded:
				default:
					t.Fatalf("%s: a single request: %v", n.id, got.err)
				}
			}
			if taken == 0 || taken > places-places/8-places/2+1 {
				t.Errorf("%s: %d of %d single requests were taken", n.id, taken, places)
			}
			<-slow
		}
	}, slowEntry(time.Second), func(c *Config) { c.QueueSize = places })
}

// ups is a list of so many ups.
func ups(count int) (list []Call) {
	for range count {
		list = append(list, Call{Command: fsm.Up{Name: "jobs", Count: 1}})
	}
	return list
}
