package simulation

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/test/checks"
)

var (
	seed  = flag.Uint64("seed", 0, "seed of the first episode of TestSimulation; 0: drawn at random")
	hours = flag.Float64("hours", 0.1, "virtual hours that TestSimulation takes; episodes last up to an hour")
)

// enough is how many operations with a known outcome a virtual hour must have at least.
const enough = 1000

// TestSimulation runs episodes, each with a different seed.
func TestSimulation(t *testing.T) {
	first := *seed
	if first == 0 {
		first = rand.Uint64N(1 << 40)
	}
	for left := *hours; left > 1e-6; left-- {
		lasts := time.Duration(min(left, 1) * float64(time.Hour))
		seed := first
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			runEpisode(t, seed, lasts)
		})
		first++
	}
}

// episode is one run of a service with clients and faults, from one seed.
type episode struct {
	*service
	*checks.History
	seed    uint64
	latency time.Duration // of the network without faults

	moment     sync.Mutex
	busy       bool          // clients hurry
	changed    chan struct{} // closed and replaced when busy changes
	unreliable atomic.Bool   // the clients' transports repeat, delay and lose requests
	chance     sync.Mutex
	copies     sync.WaitGroup
	made       map[string]int // faults by name
	deposed    int            // living leaders that were deposed while their streams ended

	unserved []string
}

// pace reports whether clients hurry, and returns a channel that is closed when that changes.
func (e *episode) pace() (hurry bool, changed <-chan struct{}) {
	e.moment.Lock()
	defer e.moment.Unlock()
	return e.busy, e.changed
}

// hurry makes clients hurry, or act only now and then.
func (e *episode) hurry(busy bool) {
	e.moment.Lock()
	defer e.moment.Unlock()
	e.busy = busy
	close(e.changed)
	e.changed = make(chan struct{})
}

func runEpisode(t *testing.T, seed uint64, lasts time.Duration) {
	var e *episode
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, 0))
		e = &episode{service: newService(t, random, "n1", "n2", "n3", "n4"), History: checks.NewHistory(), seed: seed, changed: make(chan struct{}),
			made: map[string]int{}}
		e.latency = time.Duration(random.IntN(4)) * time.Millisecond
		e.multiplier = []int{1, 2, 4, 8}[random.IntN(4)]
		e.run(random, lasts)
	})
	e.judge(t, lasts)
}

// run runs the episode, within the bubble.
func (e *episode) run(random *rand.Rand, lasts time.Duration) {
	for _, n := range e.nodes[:3] {
		n.start()
	}
	defer e.close()
	if !e.ready() {
		return
	}
	e.setUp()
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := range clients {
		a := newActor(e, i, e.seed)
		all.Go(func() { a.act(stop) })
	}
	e.disturb(random, lasts)
	close(stop)
	all.Wait()
	e.copies.Wait()
	e.finish()
	time.Sleep(time.Minute) // virtual: until idle connections are closed, also those dialled last
}

// setUp makes the semaphores and the network's latency.
func (e *episode) setUp() {
	a := newActor(e, 0, e.seed)
	defer a.leave()
	e.must(a.SetUp())
	for _, host := range e.hosts() {
		for _, n := range e.nodes {
			if host != n.id {
				e.net.Delay(host, n.id, e.latency)
				e.net.Delay(n.id, host, e.latency)
			}
		}
	}
}

// finish checks liveness: all requests have ended, and all nodes agree.
func (e *episode) finish() {
	e.ready()
	a := newActor(e, 0, e.seed)
	defer a.leave()
	e.unserved = a.Whole(patience)
	e.until("no session, lease or request is left", a.Idle)
	e.until("all nodes have the same state", func() bool {
		first := e.nodes[0].live.Status()
		for _, n := range e.nodes[1:3] {
			if s := n.live.Status(); s.AppliedIndex != first.AppliedIndex || s.StateHash != first.StateHash {
				return false
			}
		}
		return true
	})
}

// judge checks all layers, and prints the information that a failure needs.
func (e *episode) judge(t *testing.T, lasts time.Duration) {
	broken, undecided := checks.Judge(e.History, e.events, checks.Permits(sameName), clockRate)
	broken = slices.Concat(e.fatal, e.unserved, broken)
	if want := int(enough * lasts.Hours()); e.Known() < want {
		broken = append(broken, fmt.Sprintf("void: %d operations have a known outcome, fewer than %d", e.Known(), want))
	}
	t.Logf("seed %d: %v, %d operations, %d of them known, %d leases, %d writes, %d snapshots given to nodes, faults %v, %d living leaders deposed by broken streams, not decided %v",
		e.seed, lasts, len(e.Operations), e.Known(), len(e.Beliefs), len(e.Writes), e.events.Jumps, e.made, e.deposed, undecided)
	if len(broken) > 0 {
		t.Errorf("seed %d:\n%s", e.seed, checks.Tail(broken, 30))
	}
	if t.Failed() {
		t.Logf("faults:\n%s", checks.Tail(e.timeline, 200))
		t.Logf("the last operations:\n%s", checks.Tail(e.Operations, 60))
		t.Logf("the nodes' log:\n%s", checks.Tail(strings.Split(e.service.log.String(), "\n"), 60))
		t.Logf("again: make simulate SEED=%d HOURS=%v", e.seed, lasts.Hours())
	}
}
