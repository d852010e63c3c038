package client_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client"
)

// TestMain leaves the examples out unless SIGNALBOX_TEST_EXAMPLES has the address of a node that they may use:
// TestExamplesOfTheClient of test/client starts one.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv("SIGNALBOX_TEST_EXAMPLES") == "" {
		skip := "^Example"
		if others := flag.Lookup("test.skip").Value.String(); others != "" {
			skip += "|" + others
		}
		if err := flag.Set("test.skip", skip); err != nil {
			log.Fatal(err)
		}
	}
	os.Exit(m.Run())
}

// dial is client.New for the examples.
func dial() *client.Client {
	c, err := client.New(client.Config{Addresses: []string{os.Getenv("SIGNALBOX_TEST_EXAMPLES")}})
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// At most three of these jobs use the database at a time, wherever they run.
func Example() {
	ctx := context.Background()
	c := dial() // client.New(client.Config{Addresses: …})
	defer c.Close(ctx)

	if _, _, err := c.Put(ctx, "db", client.Permits(3)); err != nil {
		log.Fatal(err)
	}
	var jobs sync.WaitGroup
	for range 5 {
		jobs.Go(func() {
			lease, err := c.Acquire(ctx, "db")
			if err != nil {
				log.Print(err)
				return
			}
			defer lease.Release(ctx)
			// Use the database.
		})
	}
	jobs.Wait()

	db, err := c.Get(ctx, "db")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(db.Held, "held,", db.Available, "available")
	// Output: 0 held, 3 available
}

// A lock is a semaphore of one permit. The work ends when the lease is lost, and the
// token shows the storage which of two writers is the later one.
func ExampleLease_Context() {
	ctx := context.Background()
	c := dial()
	defer c.Close(ctx)
	c.Put(ctx, "deploy", client.Permits(1))

	lease, err := c.Acquire(ctx, "deploy", client.TTL(15*time.Second), client.Margin(2*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)

	work, stop := lease.Context(ctx)
	defer stop()
	write := func(ctx context.Context, token uint64) error {
		if token == 0 {
			return errors.New("no token")
		}
		return ctx.Err() // nil while the lease is held
	}
	fmt.Println("written:", write(work, lease.Token) == nil)
	// Output: written: true
}

// A lease that can't be relied on any more closes Lost, and Err has the reason.
func ExampleLease_Lost() {
	ctx := context.Background()
	c := dial()
	defer c.Close(ctx)
	c.Put(ctx, "db", client.Permits(1))
	lease, err := c.Acquire(ctx, "db", client.TTL(300*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}

	// Someone deletes the semaphore, and the lease with it.
	c.Delete(ctx, "db")

	select {
	case <-lease.Lost():
		fmt.Println("lost:", errors.Is(lease.Err(), client.ErrLost))
	case <-time.After(time.Minute):
		fmt.Println("done")
	}
	// Output: lost: true
}

// A session holds several semaphores, one after another or in one step.
func ExampleSession() {
	ctx := context.Background()
	c := dial()
	defer c.Close(ctx)
	c.Put(ctx, "cpu", client.Permits(8))
	c.Put(ctx, "gpu", client.Permits(1))

	s, err := c.OpenSession(ctx, client.SessionOptions{TTL: 30 * time.Second, Metadata: map[string]string{"job": "4711"}})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx) // releases all that it holds

	leases, err := s.AcquireAll(ctx, client.Want{Name: "cpu", Count: 4}, client.Want{Name: "gpu"})
	if err != nil {
		log.Fatal(err)
	}
	for _, lease := range leases {
		fmt.Println(lease.Semaphore, lease.Count)
	}
	// Output:
	// cpu 4
	// gpu 1
}

// ctx bounds the wait; errors.Is distinguishes the reasons for its end.
func ExampleSession_Acquire() {
	ctx := context.Background()
	c := dial()
	defer c.Close(ctx)
	c.Put(ctx, "db", client.Permits(1))
	first, _ := c.OpenSession(ctx, client.SessionOptions{})
	second, _ := c.OpenSession(ctx, client.SessionOptions{})
	first.Acquire(ctx, "db")

	soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err := second.Acquire(soon, "db")
	switch {
	case errors.Is(err, client.ErrUnreachable):
		fmt.Println("no node replied")
	case errors.Is(err, client.ErrUnavailable):
		fmt.Println("not in time")
	case errors.Is(err, client.ErrLost):
		fmt.Println("the session is over")
	}

	_, err = second.Acquire(ctx, "db", client.Count(2))
	var refusal *client.Error
	if errors.Is(err, client.ErrNever) && errors.As(err, &refusal) {
		fmt.Println("it has only", *refusal.Permits)
	}
	// Output:
	// not in time
	// it has only 1
}

// Workers wait for work: a semaphore that starts at 0, an Up for each item.
func ExampleClient_Down() {
	ctx := context.Background()
	c := dial()
	defer c.Close(ctx)
	c.Put(ctx, "jobs", client.Permits(0))

	done := make(chan int)
	go func() {
		taken, err := c.Down(ctx, "jobs", 2) // waits for both
		if err != nil {
			log.Print(err)
		}
		done <- int(taken.Granted)
	}()
	c.Up(ctx, "jobs", 1)
	c.Up(ctx, "jobs", 1)
	fmt.Println(<-done, "taken")
	// Output: 2 taken
}

// There is one permit for each branch. A group exists from its first request to the end of its last lease.
func ExampleGroup() {
	ctx := context.Background()
	c := dial()
	defer c.Close(ctx)
	c.Put(ctx, "branches", client.NoTotal(), client.Groups(client.ByRequest), client.PerGroup(1))

	lease, err := c.Acquire(ctx, "branches", client.Group("fix-17"))
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.TryAcquire(ctx, "branches", client.Group("fix-17"))
	fmt.Println("again:", errors.Is(err, client.ErrUnavailable))
	other, err := c.TryAcquire(ctx, "branches", client.Group("main"))
	fmt.Println("another branch:", err == nil, other.Group)
	lease.Release(ctx)
	other.Release(ctx)
	for range c.ListGroups(ctx, "branches") {
		fmt.Println("a group is left")
	}
	// Output:
	// again: true
	// another branch: true main
}

// Watch yields the state at once, and then each change.
func ExampleClient_Watch() {
	ctx := context.Background()
	c := dial()
	defer c.Close(ctx)
	c.Put(ctx, "db", client.Permits(3))

	for db, err := range c.Watch(ctx, "db") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(db.Permits, "permits")
		if db.Permits == 5 {
			break
		}
		c.Put(ctx, "db", client.Permits(5)) // someone changes the limit
	}
	// Output:
	// 3 permits
	// 5 permits
}
