// Command cron-lock runs a command unless another machine runs it already. Let cron
// start it on every machine at the same minute:
//
//	0 3 * * *  cron-lock -name nightly-report -- /usr/local/bin/report
//
// The lock is a semaphore of one permit. It is held for a while after the command has
// ended, so that a machine whose clock is late does not run the command once more.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/signalbox/signalbox/client"
)

func main() {
	name := flag.String("name", "cron-lock", "the lock: the same on all machines")
	atLeast := flag.Duration("at-least", time.Second, "how long to hold the lock: more than the machines' clocks differ")
	flag.Parse()
	if flag.NArg() == 0 {
		log.Fatal("which command? cron-lock [flags] -- COMMAND [ARGUMENT…]")
	}
	if err := run(context.Background(), *name, *atLeast, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, name string, atLeast time.Duration, command []string) error {
	c, err := client.New(client.Config{Addresses: addresses()})
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	if _, _, err := c.Create(ctx, name, 1); err != nil { // returns an existing semaphore
		return err
	}
	lease, err := c.TryAcquire(ctx, name, client.TTL(20*time.Second), client.Margin(5*time.Second))
	if errors.Is(err, client.ErrUnavailable) {
		fmt.Println("another machine runs it")
		return nil
	}
	if err != nil {
		return err
	}
	defer lease.Release(ctx)
	enough := time.After(atLeast)

	// The margin ends the ctx, and so the command, before the cluster can grant the lock to another machine.
	work, stop := lease.Context(ctx)
	defer stop()
	job := exec.CommandContext(work, command[0], command[1:]...)
	job.Stdout, job.Stderr = os.Stdout, os.Stderr
	if err := job.Run(); err != nil {
		if lost := lease.Err(); lost != nil {
			return lost
		}
		return err
	}
	select {
	case <-enough:
	case <-lease.Lost():
	}
	return nil
}

// addresses are the nodes in SIGNALBOX_ADDR, or the first one of "make run".
func addresses() []string {
	if list := os.Getenv("SIGNALBOX_ADDR"); list != "" {
		return strings.Split(list, ",")
	}
	return []string{"http://127.0.0.1:8701"}
}
