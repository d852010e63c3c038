package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// system is a service that can limit a job to one holder at a time.
type system struct {
	name    string
	promise string // what is true once an acquire has been replied to
	// start starts the system in an empty folder. The error wraps errNotInstalled if its program is missing.
	start func(ctx context.Context, dir string) (*service, error)
}

// service is a running system.
type service struct {
	processes
	// connect makes a client with connections that no other client uses, for at most so many goroutines. Clients are
	// spread over the nodes by their number.
	connect func(ctx context.Context, number, goroutines int) (client, error)
	// prepare makes names usable; nil where a first use does that.
	prepare func(ctx context.Context, names []string) error
	// leads reports whether a process leads; nil for a system whose leaders are not killed.
	leads func(ctx context.Context, number int) (bool, error)
}

// client is the usual Go client of a system. Any number of goroutines use it, each through a worker.
type client interface {
	worker(ctx context.Context, number int) (worker, error)
	close()
}

// worker acquires one permit at a time.
type worker interface {
	// acquire returns when the worker holds the only permit of the name.
	acquire(ctx context.Context, name string) error
	release(ctx context.Context) error
}

// load is one kind of load.
type load struct {
	workers int
	hot     bool // all workers share one permit; otherwise each has a name for itself
	shared  bool // all workers share one client; otherwise each has a client for itself
	round   int  // chooses the names, so that no lock of an earlier round is in the way
}

func (l load) String() string {
	kind, clients := "own", "one connection a client"
	if l.hot {
		kind = "hot"
	}
	if l.shared {
		clients = "one client"
	}
	return fmt.Sprintf("%s/%d, %s", kind, l.workers, clients)
}

func (l load) nameOf(worker int) string {
	if l.hot {
		return "hot"
	}
	return fmt.Sprint("own-", l.round, "-", worker)
}

// figures are what one load made in one round.
type figures struct {
	cycles    float64       // acquires with their releases, a second
	processor time.Duration // of the system's processes, for one cycle
}

// run makes the load for a time, after a tenth of it to warm up.
func (l load) run(ctx context.Context, s *service, phase time.Duration) (figures, error) {
	workers, end, err := l.connect(ctx, s)
	defer end()
	if err != nil {
		return figures{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, phase+30*time.Second)
	defer cancel()
	var cycles atomic.Int64
	var over atomic.Bool
	var group sync.WaitGroup
	failures := make(chan error, len(workers))
	for i, w := range workers {
		group.Go(func() {
			for !over.Load() {
				if err := w.acquire(ctx, l.nameOf(i)); err != nil {
					failures <- fmt.Errorf("acquire: %w", err)
					return
				}
				if err := w.release(ctx); err != nil {
					failures <- fmt.Errorf("release: %w", err)
					return
				}
				cycles.Add(1)
			}
		})
	}
	time.Sleep(phase / 10)
	count, start := cycles.Load(), time.Now()
	used, err := s.processorTime()
	if err != nil {
		return figures{}, err
	}
	time.Sleep(phase)
	count, took := cycles.Load()-count, time.Since(start)
	after, err := s.processorTime()
	over.Store(true)
	group.Wait()
	close(failures)
	for failure := range failures {
		return figures{}, failure
	}
	if err != nil || count == 0 {
		return figures{}, fmt.Errorf("%d cycles: %w", count, err)
	}
	return figures{float64(count) / took.Seconds(), (after - used) / time.Duration(count)}, nil
}

// connect makes the clients and workers of a load. end closes the clients, also after an error.
func (l load) connect(ctx context.Context, s *service) (workers []worker, end func(), err error) {
	var clients []client
	end = func() {
		for _, c := range clients {
			c.close()
		}
	}
	for i := range l.workers {
		if i == 0 || !l.shared {
			goroutines := 1
			if l.shared {
				goroutines = l.workers
			}
			c, err := s.connect(ctx, i, goroutines)
			if err != nil {
				return nil, end, err
			}
			clients = append(clients, c)
		}
		w, err := clients[len(clients)-1].worker(ctx, i)
		if err != nil {
			return nil, end, err
		}
		workers = append(workers, w)
	}
	if s.prepare != nil {
		var names []string
		for i := range l.workers {
			names = append(names, l.nameOf(i))
		}
		return workers, end, s.prepare(ctx, names)
	}
	return workers, end, nil
}
