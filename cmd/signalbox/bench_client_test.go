package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goclient "github.com/signalbox/signalbox/client"
)

// BenchmarkClient compares 64 goroutines of one Client that share requests with 64 that
// do not: ups, and cycles of TryAcquire and Release. Each is a ratio within one run.
func BenchmarkClient(b *testing.B) {
	leader, follower := startTrio(b)
	clients := map[bool]*goclient.Client{}
	for _, gather := range []bool{false, true} {
		c, err := goclient.New(goclient.Config{Addresses: []string{"http://" + leader, "http://" + follower}, InOrder: true, Gather: gather})
		must(b, err)
		b.Cleanup(func() { _ = c.Close(b.Context()) })
		clients[gather] = c
	}
	const goroutines = 64
	for i := range goroutines {
		_, _, err := clients[false].Put(b.Context(), fmt.Sprint("own-", i), goclient.Permits(1))
		must(b, err)
	}
	up := func(c *goclient.Client, name string) error {
		_, err := c.Up(b.Context(), name, 1)
		return err
	}
	cycle := func(c *goclient.Client, name string) error {
		lease, err := c.TryAcquire(b.Context(), name)
		if err == nil {
			err = lease.Release(b.Context())
		}
		return err
	}
	for b.Loop() {
		for _, kind := range []struct {
			name string
			call func(*goclient.Client, string) error
		}{{"up", up}, {"cycle", cycle}} {
			load := func(gather bool) func(b *testing.B) rate {
				return func(b *testing.B) rate { return loadClient(b, clients[gather], goroutines, kind.call) }
			}
			rates := inTurns(b, []turn{{kind.name + ", single", load(false)}, {kind.name + ", gathered", load(true)}})
			b.ReportMetric(rates[1].wall/rates[0].wall, kind.name+"-gathered/single")
		}
	}
}

// loadClient makes calls for one phase.
func loadClient(b *testing.B, c *goclient.Client, goroutines int, call func(*goclient.Client, string) error) rate {
	b.Helper()
	var done atomic.Int64
	var group sync.WaitGroup
	before, start := processor(b), time.Now()
	for i := range goroutines {
		group.Go(func() {
			for time.Since(start) < phase {
				if err := call(c, fmt.Sprint("own-", i)); err != nil {
					b.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	group.Wait()
	return rate{float64(done.Load()) / time.Since(start).Seconds(), float64(done.Load()) / (processor(b) - before).Seconds()}
}
