package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// running is a command that runs in this process.
type running struct {
	status         chan int
	stdout, stderr written
}

// written is a buffer that may be read while it is written to.
type written struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// startInProcess runs a command until ctx ends.
func startInProcess(ctx context.Context, t *testing.T, arguments ...string) *running {
	t.Helper()
	r := &running{status: make(chan int, 1)}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		r.status <- run(ctx, arguments, lookup(t), &r.stdout, &r.stderr)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if t.Failed() {
			t.Logf("%v:\n%s%s", arguments, r.stdout.String(), r.stderr.String())
		}
	})
	return r
}

// awaitLog waits until the words are on stderr.
func (r *running) awaitLog(t *testing.T, words string) { t.Helper(); r.await(t, &r.stderr, words) }

// awaitOutput waits until the words are on stdout.
func (r *running) awaitOutput(t *testing.T, words string) { t.Helper(); r.await(t, &r.stdout, words) }

func (r *running) await(t *testing.T, w *written, words string) {
	t.Helper()
	eventually(t, 30*time.Second, func() error {
		select {
		case status := <-r.status:
			t.Fatalf("ended with status %d: %s", status, r.stderr.String())
		default:
		}
		if !strings.Contains(w.String(), words) {
			return fmt.Errorf("%q has not been written", words)
		}
		return nil
	})
}

// ended waits until the command has ended, and checks its status and the time.
func (r *running) ended(t *testing.T, within time.Duration) {
	t.Helper()
	start := time.Now()
	select {
	case status := <-r.status:
		if status != 0 {
			t.Errorf("status %d: %s", status, r.stderr.String())
		}
		t.Logf("ended after %v", time.Since(start).Round(time.Millisecond))
	case <-time.After(within):
		t.Errorf("still running after %v", within)
	}
}

// hangUp sends SIGHUP to this process.
func hangUp(t *testing.T) {
	t.Helper()
	self, err := os.FindProcess(os.Getpid())
	must(t, err)
	must(t, self.Signal(syscall.SIGHUP))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
