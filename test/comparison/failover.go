package main

import (
	"context"
	"errors"
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
	// aroundKill is how long the load runs before a kill, and after it.
	aroundKill = 3 * time.Second
)

// failover kills the leader of a system under load, and returns the longest time in which no worker acquired a permit
// and released it. The leader runs again at the end.
func failover(ctx context.Context, s *service, round int) (longest time.Duration, err error) {
	l := load{workers: 16, round: round}
	workers, end, err := l.connect(ctx, s)
	defer end()
	if err != nil {
		return 0, err
	}
	var over atomic.Bool
	var group sync.WaitGroup
	var mu sync.Mutex
	var successes []time.Time
	for i, w := range workers {
		group.Go(func() {
			for !over.Load() {
				if err := cycle(ctx, w, l.nameOf(i)); err != nil {
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
	time.Sleep(aroundKill)
	leader, err := s.leader(ctx)
	if err != nil {
		return 0, err
	}
	killed := time.Now()
	s.kill(leader)
	time.Sleep(aroundKill)
	mu.Lock()
	defer mu.Unlock()
	last := killed
	for _, at := range append(successes, time.Now()) {
		if at.After(killed) {
			longest = max(longest, at.Sub(last))
		}
		last = at
	}
	return longest, s.restart(leader)
}

// leader returns the number of the process that leads, once all members are up.
func (s *service) leader(ctx context.Context) (leader int, err error) {
	return leader, await(ctx, func(ctx context.Context) error {
		leader = -1
		for number := range s.processes {
			ok, err := s.leads(ctx, number)
			if err != nil {
				return err
			}
			if ok {
				leader = number
			}
		}
		if leader < 0 {
			return errors.New("no leader")
		}
		return nil
	})
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

// printFailover kills the leaders of the systems in turn, and prints one row for each system.
func printFailover(ctx context.Context, running []*system, services map[*system]*service) error {
	gaps := map[*system][]time.Duration{}
	for round := range *kills {
		for _, s := range running {
			if services[s].leads == nil || len(services[s].processes) == 1 {
				continue
			}
			gap, err := failover(ctx, services[s], round)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			log.Printf("%s: %v", s.name, gap.Round(time.Millisecond))
			gaps[s] = append(gaps[s], gap)
		}
	}
	fmt.Println("| system | kills | p50 | p90 | at most |\n| --- | --- | --- | --- | --- |")
	for _, s := range running {
		if list := gaps[s]; len(list) > 0 {
			slices.Sort(list)
			at := func(share int) time.Duration { return list[(len(list)*share+99)/100-1].Round(time.Millisecond) }
			fmt.Printf("| %s | %d | %v | %v | %v |\n", s.name, len(list), at(50), at(90), at(100))
		}
	}
	return nil
}
