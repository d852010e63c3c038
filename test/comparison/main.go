package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	rounds = flag.Int("rounds", 5, "how often each load takes its turn; the median counts")
	phase  = flag.Duration("phase", 1500*time.Millisecond, "how long one load runs")
	sizes  = flag.String("workers", "1,16,64,256", "numbers of workers with a name for each; and two of them, 16 and 64, share one permit")
	kills  = flag.Int("kills", 0, "kill the leaders of the systems that have one so often, instead of the loads")
	only   = flag.String("only", "", "the systems whose names contain one of these words, separated by commas")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := compare(ctx); err != nil {
		log.Fatal(err)
	}
}

// compare starts the systems, runs the rounds and prints the table.
func compare(ctx context.Context) error {
	loads, err := loadsOf(*sizes)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "comparison")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var running []*system
	services := map[*system]*service{}
	defer func() {
		for _, service := range services {
			service.stop()
		}
	}()
	for i, s := range systems() {
		if !wanted(s.name) {
			continue
		}
		service, err := s.start(ctx, filepath.Join(dir, strconv.Itoa(i)))
		if errors.Is(err, errNotInstalled) {
			log.Printf("left out: %s: %v", s.name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		running, services[s] = append(running, s), service
	}
	if *kills > 0 {
		return printFailover(ctx, running, services)
	}
	results := map[*system][][]figures{} // by load, then by round
	for _, s := range running {
		results[s] = make([][]figures, len(loads))
	}
	for round := range *rounds {
		for i, l := range loads {
			for _, s := range running {
				log.Printf("round %d of %d: %s: %s", round+1, *rounds, l, s.name)
				measured, err := l.run(ctx, services[s], *phase)
				if err != nil {
					return fmt.Errorf("%s: %s: %w", s.name, l, err)
				}
				results[s][i] = append(results[s][i], measured)
			}
		}
	}
	printTable(loads, running, results)
	return nil
}

// systems returns all systems, in the order of the table.
func systems() []*system {
	return []*system{signalboxCluster(), signalboxAlone(), etcd(), zookeeper(), jetstream(), redisAlways()}
}

func wanted(name string) bool {
	return *only == "" || slices.ContainsFunc(strings.Split(*only, ","), func(word string) bool {
		return strings.Contains(strings.ToLower(name), strings.ToLower(word))
	})
}

// loadsOf returns the loads for a list of numbers of workers.
func loadsOf(sizes string) (loads []load, err error) {
	for size := range strings.SplitSeq(sizes, ",") {
		workers, err := strconv.Atoi(size)
		if err != nil || workers < 1 || workers > 1024 {
			return nil, fmt.Errorf("-workers: %q is no number from 1 to 1024", size)
		}
		for _, shared := range []bool{false, true} {
			loads = append(loads, load{workers: workers, shared: shared})
			if workers == 16 || workers == 64 {
				loads = append(loads, load{workers: workers, hot: true, shared: shared})
			}
		}
	}
	return loads, nil
}

// printTable prints one row for each load, and one column for each system: cycles a second, and in parentheses the
// processor time of the system's processes for a cycle. Then it prints the ratios to the first system.
func printTable(loads []load, running []*system, results map[*system][][]figures) {
	row := func(cells ...string) { fmt.Printf("| %s |\n", strings.Join(cells, " | ")) }
	head, line := []string{"load"}, []string{"---"}
	for _, s := range running {
		head, line = append(head, s.name), append(line, "---")
	}
	for _, ratios := range []bool{false, true} {
		row(head...)
		row(line...)
		for i, l := range loads {
			cells := []string{l.String()}
			for _, s := range running {
				cycles, processor := medians(results[s][i])
				first, _ := medians(results[running[0]][i])
				if ratios {
					cells = append(cells, fmt.Sprintf("%.2f", first/cycles))
				} else {
					cells = append(cells, fmt.Sprintf("%.0f/s (%d µs)", cycles, processor.Microseconds()))
				}
			}
			row(cells...)
		}
		if !ratios {
			fmt.Printf("\n%s ÷ each system, cycles a second:\n\n", running[0].name)
		}
	}
	fmt.Println()
	for _, s := range running {
		fmt.Printf("* %s: %s\n", s.name, s.promise)
	}
}

func medians(rounds []figures) (cycles float64, processor time.Duration) {
	sorted := slices.SortedFunc(slices.Values(rounds), func(a, b figures) int { return int(a.cycles - b.cycles) })
	median := sorted[len(sorted)/2]
	return median.cycles, median.processor
}
