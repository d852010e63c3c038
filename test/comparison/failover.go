package main

import (
	"context"
	"fmt"
	"log"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// attemptTime is after how long a worker gives up and tries again: etcd keeps a request that its dead leader
	// had for 7 s.
	attemptTime = 250 * time.Millisecond
	// killEvery is the time from one kill to the next: the killed member is started again after half of it.
	killEvery = 6 * time.Second
)

// failover kills the leader of a system under load, again and again, and returns for each kill the longest time in
// which no worker acquired a permit and released it.
func failover(ctx context.Context, s *service, kills int) (gaps []time.Duration, err error) {
	workers, end, err := load{workers: 16}.connect(ctx, s)
	defer end()
	if err != nil {
		return nil, err
	}
	var over atomic.Bool
	var group sync.WaitGroup
	var mu sync.Mutex
	var successes []time.Time
	for i, w := range workers {
		group.Go(func() {
			for !over.Load() {
				if err := cycle(ctx, w, load{}.nameOf(i)); err != nil {
					time.Sleep(5 * time.Millisecond)
					continue
				}
				mu.Lock()
				successes = append(successes, time.Now())
				mu.Unlock()
			}
		})
	}
	defer group.Wait()
	defer over.Store(true)
	for range kills {
		time.Sleep(killEvery / 2)
		leader, err := s.leader(ctx)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		successes = slices.Clone(successes[max(0, len(successes)-1):])
		mu.Unlock()
		s.kill(leader)
		time.Sleep(killEvery / 2)
		if err := s.restart(leader); err != nil {
			return nil, err
		}
		mu.Lock()
		longest := time.Since(successes[len(successes)-1])
		for i := range successes[1:] {
			longest = max(longest, successes[i+1].Sub(successes[i]))
		}
		mu.Unlock()
		log.Printf("member %d led: %v", leader+1, longest.Round(time.Millisecond))
		gaps = append(gaps, longest)
	}
	return gaps, nil
}

// cycle acquires and releases once.
func cycle(ctx context.Context, w worker, name string) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	if err := w.acquire(ctx, name); err != nil {
		return err
	}
	return w.release(ctx)
}

// printFailover measures and prints one row for each system that has a leader.
func printFailover(ctx context.Context, running []*system, services map[*system]*service) error {
	rows := "| system | kills | p50 | p90 | at most |\n| --- | --- | --- | --- | --- |\n"
	for _, s := range running {
		if services[s].leader == nil || len(services[s].processes) == 1 {
			continue
		}
		gaps, err := failover(ctx, services[s], *kills)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		slices.Sort(gaps)
		at := func(share int) time.Duration { return gaps[(len(gaps)*share+99)/100-1].Round(time.Millisecond) }
		rows += fmt.Sprintf("| %s | %d | %v | %v | %v |\n", s.name, len(gaps), at(50), at(90), at(100))
	}
	fmt.Print(rows)
	return nil
}
