package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals // whoever asks twice doesn't want to wait
		os.Exit(1)
	}()
	os.Exit(run(ctx, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr))
}

// run is the whole program but for signals: it returns the exit status, and ends
// in order when ctx does.
func run(ctx context.Context, arguments []string, lookup func(string) (string, bool), stdout, stderr io.Writer) int {
	root := newRoot(lookup)
	root.SetArgs(arguments)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		if text := strings.Join(strings.Fields(err.Error()), " "); text != "" { // one line
			fmt.Fprintln(stderr, "signalbox:", text)
		}
		return statusOf(err)
	}
	return 0
}
