//go:build chaos && linux

package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/signalbox/signalbox/test/checks"
)

const (
	// enoughEach is how many operations per second must have a known outcome before the fault.
	enoughEach = 200
	warmUp     = 4 * time.Second
	// actors is how many clients a herd has.
	actors = 14
)

// run is one fault, or a pair, while clients work.
type run struct {
	*cluster
	*checks.History
	prefix string // of the names of its semaphores
	seed   uint64
	stop   chan struct{}
	watch  sync.WaitGroup

	ending sync.Mutex
	losses []loss
}

// loss is the end of a leader.
type loss struct {
	how  string
	at   int64 // stamp
	term uint64
	// What it cost: the longest time without a change, new terms, and the time until the next loss of the run, 0 if none came.
	gap   checks.Gap
	terms uint64
	until time.Duration
}

// name names a semaphore of a herd.
func (r *run) name(herd int, kind string) string {
	return fmt.Sprintf("%sh%d-%s", r.prefix, herd, kind)
}

// permits returns the permits of all semaphores, by name.
func (r *run) permits() map[string]int64 {
	all := map[string]int64{}
	for herd := range *herds {
		maps.Copy(all, checks.Permits(func(kind string) string { return r.name(herd, kind) }))
	}
	return all
}

// eachHerd calls f for all herds at the same time, with a client whose operations are not recorded.
func (r *run) eachHerd(f func(a *actor)) {
	var all sync.WaitGroup
	for herd := range *herds {
		a := newActor(r, herd*actors)
		all.Go(func() {
			defer a.leave()
			f(a)
		})
	}
	all.Wait()
}

// lost records that a leader ends.
func (r *run) lost(how string) {
	term := r.term()
	r.ending.Lock()
	defer r.ending.Unlock()
	r.losses = append(r.losses, loss{how: how, at: r.Stamp(), term: term})
}

// term returns the highest term that any node knows.
func (c *cluster) term() (highest uint64) {
	for _, n := range c.nodes {
		var s status
		if _, err := c.ask(n, http.MethodGet, "/v1/cluster", "", &s); err == nil {
			highest = max(highest, s.Term)
		}
	}
	return highest
}

// outcome is the result of a run.
type outcome struct {
	operations, known, unknown, rate int
	undecided                        []string
	losses                           []loss
	broken                           []string
	faults                           string
}

// run lets clients work, makes the faults, and checks all that was seen.
func (c *cluster) run(number int, seed uint64, list []fault, lasts time.Duration) outcome {
	r := &run{cluster: c, History: checks.NewHistory(), prefix: fmt.Sprintf("r%d-", number), seed: seed, stop: make(chan struct{})}
	random := rand.New(rand.NewPCG(seed, uint64(number)))
	var all sync.WaitGroup
	r.eachHerd(func(a *actor) {
		if err := a.SetUp(); err != nil {
			c.fail("%v", err)
		}
	})
	r.History = checks.NewHistory()
	for i := range *herds * actors {
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
	before, living := r.foundDead(""), true
	for _, f := range list {
		living = living && f.needs&lives != 0
		detail, end := f.begin(r, random)
		r.note("%s %s", f.name, detail)
		names = append(names, f.name+" "+detail)
		ends = append(ends, end)
	}
	held := time.Duration(float64(lasts-warmUp) * (0.2 + 0.25*random.Float64()))
	<-time.After(max(held, lasts-warmUp-20*time.Second)) // long runs are for measurements
	for _, end := range slices.Backward(ends) {
		end()
	}
	r.note("healed")
	r.ready()
	if found := r.foundDead("") - before; living && found > 0 {
		r.fail("living leaders were found dead %d times", found)
	}
	return strings.Join(names, "; ")
}

// finish acquires all permits of every semaphore, and waits until no lease and no request of the run is left.
func (r *run) finish() (unserved []string) {
	r.ready()
	var mu sync.Mutex
	r.eachHerd(func(a *actor) {
		failed := a.Whole(patience)
		mu.Lock()
		defer mu.Unlock()
		for _, text := range failed {
			unserved = append(unserved, "void: the last operations failed: "+text)
		}
	})
	r.eachHerd(func(a *actor) { r.until("no lease or request of the run is left", patience, a.Idle) })
	return unserved
}

// settled waits until all events of the run have been read. The events of an entry are complete once a later entry has
// begun.
func (r *run) settled() {
	a := newActor(r, 0)
	defer a.leave()
	if _, err := a.Client.Up(context.Background(), a.Name("jobs"), 1); err != nil { // its entry follows all entries of the run
		r.fail("%v", err)
		return
	}
	last, err := a.Client.Get(context.Background(), a.Name("jobs"))
	if err != nil {
		r.fail("%v", err)
		return
	}
	r.until("the events of the run are seen", patience, func() bool {
		if _, err := a.Client.Up(context.Background(), a.Name("jobs"), 1); err != nil {
			return false
		}
		return r.events.Last() >= last.ModifiedIndex
	})
}

// judge checks all layers.
func (r *run) judge(out *outcome, unserved []string) {
	r.settled()
	r.agreed()
	broken, undecided := checks.Judge(r.History, r.events, r.permits(), 0)
	out.broken = slices.Concat(r.takeBroken(), unserved, broken)
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

// String returns the cost of the loss.
func (l loss) String() string {
	return fmt.Sprintf("%s: %v, %d terms", l.how, l.gap, l.terms)
}

// gaps returns the cost of each loss of a leader. A gap must begin within a second after the loss, and before the next
// loss.
func (r *run) gaps() (list []loss) {
	next := loss{term: r.term()}
	for _, l := range slices.Backward(r.losses) {
		l.terms, l.until = max(next.term, l.term)-l.term, max(0, time.Duration(next.at-l.at))
		l.gap = r.LongestGap(l.at, l.at+int64(cmp.Or(min(l.until, time.Second), time.Second)))
		list = append(list, l)
		next = l
	}
	return list
}

// keep writes the history into a folder beside the logs.
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
