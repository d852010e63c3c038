package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"
)

// TestServeAlone runs nodes that each are a cluster of one. A node is ready within 2 s of its start, ends within 1 s of
// the signal, and has its whole state when it is started again. Other work on the machine makes these times longer, so
// the best of several nodes counts.
func TestServeAlone(t *testing.T) {
	before, data := namesHere(t), t.TempDir()
	port := freePorts(t, 0, 1)
	peer := fmt.Sprintf("127.0.0.1:%d", port+1)
	cases := []struct {
		name  string
		flags []string
		want  int // of the semaphore's first PUT
	}{
		{"no peers", []string{"--data", data}, http.StatusCreated},
		{"again", []string{"--data", data}, http.StatusOK},
		{"one peer", []string{"--data", t.TempDir(), "--node-id", "n1", "--peers", "n1=" + peer}, http.StatusCreated},
		{"one peer that is not named twice", []string{"--data", t.TempDir(), "--peers", "solo=" + peer}, http.StatusCreated},
		{"in memory", []string{"--ephemeral"}, http.StatusCreated},
	}
	soonestReady, soonestEnded := time.Hour, time.Hour
	for _, serve := range cases {
		t.Run(serve.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			arguments := []string{"serve", "--http", fmt.Sprintf("127.0.0.1:%d", port), "--peer", peer, "--min-free", "1MiB"}
			start := time.Now()
			n := startInProcess(ctx, t, append(arguments, serve.flags...)...)
			c := newClient(fmt.Sprintf("http://127.0.0.1:%d", port))
			eventually(t, 20*time.Second, func() error {
				r, err := c.ask(t.Context(), 0, http.MethodGet, "/readyz", "")
				if err == nil && r.status != http.StatusOK {
					err = errors.New(r.Detail)
				}
				return err
			})
			soonestReady = min(soonestReady, time.Since(start))
			c.must(t, 0, http.MethodPut, semaphorePath("db"), `{"permits":3}`, serve.want)
			c.http.CloseIdleConnections()
			start = time.Now()
			cancel()
			n.ended(t, 5*time.Second)
			soonestEnded = min(soonestEnded, time.Since(start))
		})
	}
	if soonestReady > 2*time.Second || soonestEnded > time.Second {
		t.Errorf("ready after %v at best, and gone after %v", soonestReady, soonestEnded)
	}
	if after := namesHere(t); !slices.Equal(before, after) {
		t.Errorf("the working folder had %v, and has %v", before, after)
	}
}

// namesHere lists the working folder.
func namesHere(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(".")
	must(t, err)
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}
