//go:build linux

package main

import (
	"fmt"
	"testing"

	goclient "github.com/signalbox/signalbox/client"
)

// BenchmarkClient compares 64 goroutines that share one Client, and so their requests, with 64 goroutines that have a
// Client each: ups, and cycles of Acquire and Release. Each figure is a ratio within one run.
func BenchmarkClient(b *testing.B) {
	leader, follower := startTrio(b)
	const goroutines = 64
	clients := make([]*goclient.Client, goroutines+1) // the last one is shared
	for i := range clients {
		c, err := goclient.New(goclient.Config{Addresses: []string{"http://" + leader, "http://" + follower}, InOrder: true})
		must(b, err)
		b.Cleanup(func() { _ = c.Close(b.Context()) })
		clients[i] = c
	}
	for i := range goroutines {
		_, _, err := clients[i].Put(b.Context(), fmt.Sprint("own-", i), goclient.Permits(1))
		must(b, err)
	}
	up := func(c *goclient.Client, name string) error {
		_, err := c.Up(b.Context(), name, 1)
		return err
	}
	cycle := func(c *goclient.Client, name string) error {
		lease, err := c.Acquire(b.Context(), name)
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
			load := func(shared bool) func(b *testing.B) rate {
				return func(b *testing.B) rate {
					return drive(b, goroutines, func(i int) (int, error) {
						c := clients[i]
						if shared {
							c = clients[goroutines]
						}
						return 1, kind.call(c, fmt.Sprint("own-", i))
					})
				}
			}
			rates := inTurns(b, []turn{{kind.name + ", a client each", load(false)}, {kind.name + ", one client", load(true)}})
			b.ReportMetric(rates[1].wall/rates[0].wall, kind.name+"-shared/single")
		}
	}
}
