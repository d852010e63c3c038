//go:build chaos && linux

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/internal/checks"
)

const (
	// enoughEach is how many operations a second must be known before the fault.
	enoughEach = 200
	warmUp     = 4 * time.Second
	// actors is how many clients there are.
	actors = 14
)

// kind is a semaphore of a run: its permits, and whether a refusal says something about the
// state. Others may be refused since requests wait in line.
type kind struct {
	name    string
	permits int64
	exact   bool
}

var semaphores = []kind{
	{"lock", 1, true}, {"mutex", 1, true}, {"db", 3, false}, {"pool", 10, false},
	{"left", 1, false}, {"right", 1, false}, // asked for together
	{"count", 5, true}, {"jobs", 0, false}, {"listed", 0, false}, // without leases
}

// run is one fault amid the work of clients.
type run struct {
	*cluster
	*checks.History
	prefix string // of the names of its semaphores
	seed   uint64
	stop   chan struct{}
	watch  sync.WaitGroup

	ending  sync.Mutex
	ttls    map[string]time.Duration // of sessions
	earlies []string
	losses  []loss
}

// loss is an end of a leader.
type loss struct {
	hard bool
	at   int64 // stamp
	gap  time.Duration
}

func (r *run) name(of string) string { return r.prefix + of }

func (r *run) permits() map[string]int64 {
	list := map[string]int64{}
	for _, s := range semaphores {
		list[r.name(s.name)] = s.permits
	}
	return list
}

// lives notes the ttl of a session.
func (r *run) lives(session string, ttl time.Duration) {
	r.ending.Lock()
	defer r.ending.Unlock()
	r.ttls[session] = ttl
}

// early notes a lease that was lost while its client had been promised more time.
func (r *run) early(l *client.Lease, why error) {
	r.ending.Lock()
	defer r.ending.Unlock()
	r.earlies = append(r.earlies, fmt.Sprintf("%v: token %d of %s was lost: %v", time.Since(r.Began), l.Token, l.Semaphore, why))
}

// lost notes that a leader goes.
func (r *run) lost(hard bool) {
	r.ending.Lock()
	defer r.ending.Unlock()
	r.losses = append(r.losses, loss{hard: hard, at: r.Stamp()})
}

// outcome is what a run comes to.
type outcome struct {
	operations, known, unknown, rate int
	undecided                        []string
	losses                           []loss
	broken                           []string
	faults                           string
}

// run lets clients work, breaks something, and checks all that was seen.
func (c *cluster) run(number int, seed uint64, list []fault, lasts time.Duration) outcome {
	r := &run{cluster: c, History: checks.NewHistory(), prefix: fmt.Sprintf("r%d-", number), seed: seed, stop: make(chan struct{}), ttls: map[string]time.Duration{}}
	random := rand.New(rand.NewPCG(seed, uint64(number)))
	var all sync.WaitGroup
	setUp := newActor(r, 0)
	for _, s := range semaphores {
		if _, _, err := setUp.c.Create(context.Background(), r.name(s.name), s.permits); err != nil {
			c.fail("create %s: %v", s.name, err)
		}
	}
	setUp.leave()
	r.History = checks.NewHistory()
	for i := range actors {
		a := newActor(r, i)
		all.Go(a.act)
	}
	out := outcome{}
	began := time.Now()
	<-time.After(warmUp)
	before := r.Known()
	out.rate = int(float64(before) / time.Since(began).Seconds())
	out.faults = r.disturb(random, list, lasts)
	<-time.After(max(time.Until(began.Add(lasts)), 3*time.Second)) // how long clients go on
	close(r.stop)
	all.Wait()
	r.watch.Wait()
	unserved := r.finish()
	r.judge(&out, unserved)
	return out
}

// disturb makes the faults, and heals them.
func (r *run) disturb(random *rand.Rand, list []fault, lasts time.Duration) string {
	var ends []func()
	var names []string
	for _, f := range list {
		detail, end := f.begin(r, random)
		r.note("%s %s", f.name, detail)
		names = append(names, f.name+" "+detail)
		ends = append(ends, end)
	}
	held := time.Duration(float64(lasts-warmUp) * (0.2 + 0.25*random.Float64()))
	<-time.After(held) // how long they last
	for _, end := range slices.Backward(ends) {
		end()
	}
	r.note("healed")
	r.ready()
	return strings.Join(names, "; ")
}

// finish acquires every semaphore whole, and waits until nothing is left of the run.
func (r *run) finish() (unserved []string) {
	r.ready()
	a := newActor(r, 0)
	defer a.leave()
	for _, s := range semaphores {
		if s.permits == 0 || s.name == "count" {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		l, err := a.c.Acquire(ctx, r.name(s.name), client.Count(s.permits))
		if err == nil {
			err = l.Release(ctx)
		}
		cancel()
		if err != nil {
			unserved = append(unserved, fmt.Sprintf("void: the last operations failed: %d permits of %s: %v", s.permits, s.name, err))
		}
	}
	r.until("no lease or request of the run is left", patience, func() bool {
		left := int64(0)
		for _, s := range semaphores {
			seen, err := a.c.Get(context.Background(), r.name(s.name))
			if err != nil {
				return false
			}
			left += seen.HolderCount + seen.WaiterCount
		}
		return left == 0
	})
	return unserved
}

// settled waits until the events of all that was done have been seen: those of an entry
// are known once a later one has begun.
func (r *run) settled() {
	a := newActor(r, 0)
	defer a.leave()
	last, err := a.c.Get(context.Background(), r.name("lock"))
	if err != nil {
		r.fail("%v", err)
		return
	}
	r.until("the events of the run are seen", patience, func() bool {
		if _, err := a.c.Up(context.Background(), r.name("jobs"), 1); err != nil {
			return false
		}
		entries, _ := r.events.All()
		return len(entries) > 0 && entries[len(entries)-1].Index >= last.ModifiedIndex
	})
}

// judge checks all layers.
func (r *run) judge(out *outcome, unserved []string) {
	r.settled()
	r.agreed()
	entries, gap := r.events.All()
	log := checks.Log(entries)
	disordered, undecided := checks.Linear(r.Operations, r.permits(), checks.DecideWithin)
	if len(undecided) > len(semaphores)/2 {
		disordered = append(disordered, fmt.Sprintf("void: no order was found or excluded within %v for %v", checks.DecideWithin, undecided))
	}
	out.broken = slices.Concat(r.takeBroken(), r.events.Differ, log.Broken, r.earlies, unserved,
		checks.Expiries(log.Ended, r.Deadlines, r.ttls, 0), checks.Beliefs(r.Beliefs, r.permits()), checks.Writes(r.Writes, log.Grants),
		checks.Indexes(r.Indexes), checks.Grants(r.Beliefs, log.Grants), disordered)
	if gap > 0 {
		out.broken = append(out.broken, fmt.Sprintf("no node has shown the events of index %d", gap))
	}
	if out.rate < *enough {
		out.broken = append(out.broken, fmt.Sprintf("void: %d operations a second before the fault, fewer than %d", out.rate, *enough))
	}
	for _, o := range r.Operations {
		if o.Outcome == checks.Unknown && o.Kind != "drop" {
			out.unknown++
		}
	}
	out.operations, out.known, out.undecided = len(r.Operations), r.Known(), undecided
	out.losses = r.gaps()
	if len(out.broken) > 0 {
		r.keep(out)
	}
}

// gaps finds the longest time without a change that was carried out, around each loss of a
// leader.
func (r *run) gaps() (list []loss) {
	var ends []int64
	for _, o := range r.Operations {
		if o.Outcome == checks.Done && o.Kind != "read" {
			ends = append(ends, o.Ret)
		}
	}
	slices.Sort(ends)
	for _, l := range r.losses {
		at, longest := l.at, int64(0)
		for _, end := range ends {
			if end > l.at && end < l.at+int64(15*time.Second) {
				longest = max(longest, end-at)
				at = end
			}
		}
		l.gap = time.Duration(longest)
		list = append(list, l)
	}
	return list
}

// keep writes the history beside the logs.
func (r *run) keep(out *outcome) {
	folder := filepath.Join(r.dir, strings.TrimSuffix(r.prefix, "-"))
	entries, _ := r.events.All()
	_ = os.MkdirAll(folder, 0o700)
	for name, content := range map[string]any{"operations": r.Operations, "beliefs": r.Beliefs, "writes": r.Writes, "events": entries, "timeline": r.timeline, "broken": out.broken} {
		text, err := json.MarshalIndent(content, "", " ")
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name+".json"), text, 0o600)
		}
		if err != nil {
			r.t.Error(err)
		}
	}
	r.t.Logf("kept: %s", folder)
}
