package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/client"
)

// TestDeadlineNamesTheDeadAddress: if ctx ends while no node can be reached, the error wraps ctx's error and
// ErrUnreachable, and has the address. The outcome is not unknown, since the call was never sent.
func TestDeadlineNamesTheDeadAddress(t *testing.T) {
	for name, dial := range map[string]func(over <-chan struct{}) error{
		"silent": func(over <-chan struct{}) error { // Transport lets a dial go on when its request has ended
			select {
			case <-time.After(3 * time.Second): // the time limit of a dialer
			case <-over:
			}
			return os.ErrDeadlineExceeded
		},
		"refused": func(<-chan struct{}) error { return syscall.ECONNREFUSED },
	} {
		for call, send := range map[string]func(context.Context, *client.Client) error{
			"get":         func(ctx context.Context, c *client.Client) error { _, err := c.Get(ctx, "db"); return err },
			"up":          func(ctx context.Context, c *client.Client) error { _, err := c.Up(ctx, "db", 1); return err },
			"acquire":     func(ctx context.Context, c *client.Client) error { _, err := c.Acquire(ctx, "db"); return err },
			"try-acquire": func(ctx context.Context, c *client.Client) error { _, err := c.TryAcquire(ctx, "db"); return err },
			"down":        func(ctx context.Context, c *client.Client) error { _, err := c.Down(ctx, "db", 1); return err },
			"session": func(ctx context.Context, c *client.Client) error {
				_, err := c.OpenSession(ctx, client.SessionOptions{})
				return err
			},
			"watch": func(ctx context.Context, c *client.Client) (last error) {
				for _, last = range c.Watch(ctx, "db") {
				}
				return last
			},
		} {
			t.Run(name+", "+call, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					over := make(chan struct{})
					defer close(over)
					transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
						to := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 8701}
						return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: to, Err: dial(over)}
					}}
					c, err := client.New(client.Config{Addresses: []string{"10.0.0.9:8701"}, HTTPClient: &http.Client{Transport: transport}})
					must(t, err)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					err = send(ctx, c)
					for _, want := range []error{context.DeadlineExceeded, client.ErrUnreachable} {
						if !errors.Is(err, want) {
							t.Errorf("error %q is not %q", err, want)
						}
					}
					if err == nil || !strings.Contains(err.Error(), "10.0.0.9:8701") {
						t.Errorf("error %q does not name the address", err)
					}
					if errors.Is(err, client.ErrOutcomeUnknown) && call != "down" { // which asks a node for the outcome, in vain
						t.Errorf("error %q leaves the outcome of a call open that was never sent", err)
					}
					if err := c.Close(t.Context()); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
