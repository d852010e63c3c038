//go:build chaos && linux

package chaos

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/test/checks"
)

var (
	seed     = flag.Uint64("seed", 0, "seed of TestChaos; 0: drawn at random")
	duration = flag.Duration("duration", 0, "how long TestChaos goes on; 0: one round of some faults")
	each     = flag.Duration("each", 20*time.Second, "how long a run lasts: one fault, or a pair")
	count    = flag.Int("faults", 12, "runs of a round, if no duration is given")
	nodes    = flag.Int("nodes", 0, "nodes of the cluster; 0: three, and five in every second round")
	only     = flag.String("only", "", "the name of the only fault to make")
	herds    = flag.Int("herds", 1, "herds of 14 clients, each with semaphores of its own")
	enough   = flag.Int("enough", enoughEach, "operations a second before the fault, below which a run is void")
)

// report is the result of all runs.
type report struct {
	network                                      string
	runs, operations, known, unknown, violations int
	undecided, snapshots                         int
	losses                                       map[string][]loss
}

// TestChaos breaks clusters, one after the other, with a seed for each.
func TestChaos(t *testing.T) {
	first := *seed
	if first == 0 {
		first = rand.Uint64N(1 << 40)
	}
	program := buildProgram(t)
	dir, err := os.MkdirTemp("", "chaos-")
	must(t, err)
	began, all := time.Now(), &report{losses: map[string][]loss{}}
	for round := 0; round == 0 || time.Since(began) < *duration; round++ {
		size := *nodes
		if size == 0 {
			size = 3 + 2*(round%2)
		}
		t.Run(fmt.Sprintf("seed %d, %d nodes", first+uint64(round), size), func(t *testing.T) {
			home := filepath.Join(dir, fmt.Sprint(round))
			must(t, os.MkdirAll(home, 0o700))
			runRound(t, all, newCluster(t, program, home, size), first+uint64(round), began)
			if !t.Failed() {
				t.Cleanup(func() { _ = os.RemoveAll(home) })
			}
		})
	}
	t.Log(all.text(first, time.Since(began)))
	if t.Failed() {
		t.Logf("histories and logs: %s; again: make chaos SEED=%d DURATION=%v NODES=%d HERDS=%d ENOUGH=%d EACH=%v FAULT=%q",
			dir, first, *duration, *nodes, *herds, *enough, *each, *only)
		return
	}
	_ = os.RemoveAll(dir)
}

// runRound makes each fault once, and pairs of faults, in an order that depends on the seed.
func runRound(t *testing.T, all *report, c *cluster, seed uint64, began time.Time) {
	random := rand.New(rand.NewPCG(seed, 1))
	all.network = c.net.kind()
	runs := schedule(random, c.possible())
	if len(runs) == 0 {
		t.Fatalf("no fault here has the name %q", *only)
	}
	for i, list := range runs {
		if *duration == 0 && i == *count || *duration > 0 && i > 0 && time.Since(began) > *duration {
			break
		}
		out := c.run(i, seed, list, *each)
		all.add(out)
		t.Logf("run %d: %s: %d operations, %d unknown, %d a second before the fault, not decided %v, losses of a leader %v", i, out.faults, out.operations, out.unknown, out.rate, out.undecided, out.losses)
		if len(out.broken) > 0 {
			t.Errorf("seed %d, run %d, %s:\n%s\nthe timeline:\n%s", seed, i, out.faults, strings.Join(out.broken[:min(len(out.broken), 30)], "\n"), strings.Join(c.timeline, "\n"))
			break // later runs would show the same violation
		}
	}
	all.snapshots += c.events.Jumps
}

// schedule shuffles the faults, and adds a pair after every third.
func schedule(random *rand.Rand, list []fault) (runs [][]fault) {
	if *only != "" {
		list = slices.DeleteFunc(slices.Clone(list), func(f fault) bool { return f.name != *only })
	}
	var pairs []fault
	for _, f := range list {
		if f.needs&beside != 0 {
			pairs = append(pairs, f)
		}
	}
	for i, at := range random.Perm(len(list)) {
		runs = append(runs, []fault{list[at]})
		if i%3 == 2 && len(pairs) > 1 {
			p := random.Perm(len(pairs))
			runs = append(runs, []fault{pairs[p[0]], pairs[p[1]]})
		}
	}
	return runs
}

func (a *report) add(out outcome) {
	a.runs++
	a.operations += out.operations
	a.known += out.known
	a.unknown += out.unknown
	a.undecided += len(out.undecided)
	a.violations += len(out.broken)
	for _, l := range out.losses {
		a.losses[l.how] = append(a.losses[l.how], l)
	}
}

func (a *report) text(seed uint64, took time.Duration) string {
	lines := []string{fmt.Sprintf("seed %d, %v, %s: %d runs, %d operations, %d of them known, %d unknown; %d snapshots given to nodes; %d parts not decided; %d violations",
		seed, took.Round(time.Second), a.network, a.runs, a.operations, a.known, a.unknown, a.snapshots, a.undecided, a.violations)}
	for how, list := range a.losses {
		slices.SortFunc(list, func(a, b loss) int { return cmp.Compare(a.gap, b.gap) })
		at := func(share int) checks.Gap { return list[(len(list)*share+99)/100-1].gap }
		more, split := 0, 0
		var without, between time.Duration
		for _, l := range list {
			if l.terms > 1 {
				more++
			}
			if l.terms > 1 && l.gap > checks.Gap(time.Second/2) {
				split++
			}
			if l.until > 0 {
				without, between = without+min(time.Duration(l.gap), l.until), between+l.until
			}
		}
		lines = append(lines, fmt.Sprintf("a leader %s, %d times: no change was carried out for p50 %v, p90 %v, p99 %v, at most %v, in all %.1f %% of the time; %d took several terms, %d of them more than 0.5 s",
			how, len(list), at(50), at(90), at(99), at(100), 100*float64(without)/float64(max(between, 1)), more, split))
	}
	return strings.Join(lines, "\n")
}
