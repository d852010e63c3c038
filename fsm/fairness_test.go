package fsm

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
)

// tenants are what a pool serves in virtual time: 50 tenants, each of whose workers asks, holds for a while, gives back
// and asks again after a pause; and one tenant more, the hog, for whom requests always wait. Times are in milliseconds;
// a hold is meanHoldMS on average.
type tenants struct {
	permits  int
	load     float64 // of the pool, by the tenants
	grouped  bool    // a pool; else a plain semaphore with one line
	perGroup int64
	hog      int     // requests of the hog that wait at any time
	hogHolds float64 // how much longer its holds are
	requests int     // of the tenants
}

const (
	tenantCount = 50
	meanHoldMS  = 10_000
)

// fared is how tenants fared.
type fared struct {
	p99  float64 // wait of the tenants, in mean holds
	busy float64 // share of the time for which no permit was free while somebody waited with room
}

// holdEvent is an arrival of a tenant, or the end of a hold.
type holdEvent struct {
	ms      int64
	group   string // of an arrival
	session uint64 // whose hold ends
}

type holdEvents []holdEvent

func (q holdEvents) Len() int           { return len(q) }
func (q holdEvents) Less(i, j int) bool { return q[i].ms < q[j].ms }
func (q holdEvents) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *holdEvents) Push(x any)        { *q = append(*q, x.(holdEvent)) }
func (q *holdEvents) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// workers is how many the tenants have, each with one request at a time.
func (c tenants) workers() int { return tenantCount * max(1, c.permits/10) }

// pool creates the semaphore that the tenants share.
func (c tenants) pool() PutSemaphore {
	put := PutSemaphore{Name: "pool", Permits: Change[int64]{true, int64(c.permits)}}
	if c.grouped {
		put.Settings = SettingsChange{Groups: Change[Grouping]{true, ByRequest}, PerGroup: Change[int64]{true, c.perGroup}}
	}
	return put
}

// serve runs the tenants
func (c tenants) serve(t *testing.T, random *rand.Rand) fared {
	m, index, sessions := New(), uint64(0), uint64(0)
	waits, arrived, groups := []float64{}, map[uint64]int64{}, map[uint64]string{}
	var events holdEvents
	var now, idleMS, lastMS int64
	hold := func(group string) int64 {
		ms := random.ExpFloat64() * meanHoldMS
		if group == "hog" {
			ms *= c.hogHolds
		}
		return int64(ms) + 1
	}
	apply := func(command Command) Result {
		index++
		a := m.Apply(index, EncodeEntry(now, [][]byte{Envelope{}.Encode(command)}))
		for _, done := range a.Conclusions {
			if done.Result.Code == OK {
				sessionID := done.Result.Session
				heap.Push(&events, holdEvent{ms: now + hold(groups[sessionID]), session: sessionID})
				if groups[sessionID] != "hog" {
					waits = append(waits, float64(now-arrived[sessionID])/meanHoldMS)
				}
			}
		}
		return a.Commands[0].Result
	}
	ask := func(group string) {
		sessions++
		sessionID := sessions
		arrived[sessionID], groups[sessionID] = now, group
		named := group
		if !c.grouped {
			named = ""
		}
		result := apply(AcquireOnce{Session: sessionID, Name: "pool", Count: 1, TTLMS: MaxTTLMS, WaitMS: MaxTTLMS, Group: named})
		switch result.Code {
		case OK:
			heap.Push(&events, holdEvent{ms: now + hold(group), session: sessionID})
			if group != "hog" {
				waits = append(waits, 0)
			}
		case Waiting:
		default:
			t.Fatalf("%s: %v", group, result.Code)
		}
	}
	apply(c.pool())
	for range c.hog {
		ask("hog")
	}
	thinkMS := meanHoldMS * (float64(c.workers())/(c.load*float64(c.permits)) - 1)
	next := func(group string) {
		heap.Push(&events, holdEvent{ms: now + int64(random.ExpFloat64()*max(thinkMS, 0)) + 1, group: group})
	}
	for i := range c.workers() {
		next(strconv.Itoa(i % tenantCount))
	}
	for requests := 0; requests < c.requests; {
		event := heap.Pop(&events).(holdEvent)
		if free := m.semaphores.at(m.byName["pool"]); free.available() > 0 && free.choice().lane != 0 {
			idleMS += event.ms - lastMS
		}
		now, lastMS = event.ms, event.ms
		if event.session == 0 {
			ask(event.group)
			requests++
			continue
		}
		apply(EndSession{Session: event.session})
		if group := groups[event.session]; group == "hog" {
			ask("hog")
		} else {
			next(group)
		}
	}
	if err := m.check(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(waits)
	return fared{p99: waits[len(waits)*99/100], busy: 1 - float64(idleMS)/float64(now)}
}

// TestFairness: in a pool, a tenant for whom 2,000 requests always wait keeps the others waiting
// little longer than without it. p99 of the others' waits, in mean holds. With holds that are ten times as long, limits
// of the groups do it: no order takes back what is held. `go test ./fsm -run TestFairness -v` shows the figures.
func TestFairness(t *testing.T) {
	t.Parallel()
	for _, permits := range []int{1, 5, 20, 100} {
		for _, load := range []float64{0.8, 0.95} {
			t.Run(fmt.Sprintf("%d permits, load %v", permits, load), func(t *testing.T) {
				run := func(c tenants) fared {
					c.permits, c.load, c.requests = permits, load, 10_000
					return c.serve(t, rand.New(rand.NewPCG(uint64(permits), 7)))
				}
				alone := run(tenants{grouped: true})
				equal := run(tenants{grouped: true, hog: 2000, hogHolds: 1})
				line := run(tenants{hog: 200, hogHolds: 1})
				t.Logf("alone %.2f, beside the hog %.2f, in one line behind 200 requests %.1f; busy %.4f", alone.p99, equal.p99, line.p99, equal.busy)
				bound := map[int]float64{1: alone.p99 * 1.5, 5: alone.p99 + 1.5, 20: alone.p99 + 1, 100: alone.p99 + 1}[permits]
				if equal.p99 > bound || equal.p99 > line.p99/3 {
					t.Errorf("p99 %.2f beside the hog: more than %.2f, or a third of one line's %.1f", equal.p99, bound, line.p99)
				}
				if equal.busy < 0.99 {
					t.Errorf("permits are free for %.2f %% of the time while somebody with room waits", 100*(1-equal.busy))
				}
				if permits < 20 {
					return
				}
				long := run(tenants{grouped: true, perGroup: int64(permits / 10), hog: 2000, hogHolds: 10})
				t.Logf("with holds ten times as long, and a tenth of the permits for each: %.2f", long.p99)
				if long.p99 > alone.p99+1 {
					t.Errorf("p99 %.2f with longer holds: more than %.2f", long.p99, alone.p99+1)
				}
			})
		}
	}
}
