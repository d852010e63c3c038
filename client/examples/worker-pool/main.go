// Command worker-pool shows producers and workers that share a semaphore: it counts the items that no worker has taken.
// A producer stores an item and then calls Up; a worker calls Down and then fetches an item. Producers and workers may
// be on any machine; here they are goroutines, and the store is a channel.
//
// Down takes its permit once, even if the client has to repeat the call, so every item is worked on once while all
// workers live. If a worker dies while it works on an item, the item is lost; if that matters, let the store keep items
// until they are done.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/signalbox/signalbox/client"
)

func main() {
	items := flag.Int("items", 10, "how many items to work on")
	workers := flag.Int("workers", 3, "how many workers")
	flag.Parse()
	if err := run(context.Background(), *items, *workers); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, items, workers int) error {
	c, err := client.New(client.Config{Addresses: addresses()})
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	name := fmt.Sprintf("worker-pool-%d", os.Getpid()) // for this run; yours has a fixed name
	if _, _, err := c.Create(ctx, name, 0); err != nil {
		return err
	}
	defer c.Delete(ctx, name)

	store := make(chan int, items)
	working, finish := context.WithCancel(ctx)
	defer finish()
	var pool, open sync.WaitGroup
	open.Add(items)
	for w := range workers {
		pool.Go(func() {
			for {
				_, err := c.Down(working, name, 1) // waits for an item
				if errors.Is(err, context.Canceled) {
					return // all is done
				}
				if err != nil {
					log.Print(err)
					return
				}
				fmt.Printf("worker %d: item %d\n", w+1, <-store)
				time.Sleep(10 * time.Millisecond) // the work
				open.Done()
			}
		})
	}
	for item := range items {
		store <- item + 1
		if _, err := c.Up(ctx, name, 1); err != nil {
			return err
		}
	}
	open.Wait()
	finish()
	pool.Wait()
	fmt.Println("all items are done")
	return nil
}

// addresses are the nodes in SIGNALBOX_ADDR, or the first one of "make run".
func addresses() []string {
	if list := os.Getenv("SIGNALBOX_ADDR"); list != "" {
		return strings.Split(list, ",")
	}
	return []string{"http://127.0.0.1:8701"}
}
