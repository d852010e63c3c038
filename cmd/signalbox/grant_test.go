//go:build (processes || compose) && linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"
)

const (
	// grantWithin is how soon permits must be granted again after the last sign of a leader. It follows from Raft's
	// time-outs.
	grantWithin = 2 * time.Second
	// grantAtMost is the limit for the rare case of a second election: the first candidate comes too early, or two
	// candidates come at once, on a busy machine.
	grantAtMost = 4 * time.Second
)

// firstGrant acquires at the given nodes at the same time until one grants. It returns how long that took.
func firstGrant(t *testing.T, c *client, nodes ...int) time.Duration {
	t.Helper()
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	granted := make(chan error, len(nodes))
	for _, node := range nodes {
		name := fmt.Sprintf("first-%d", node)
		go func() {
			_, err := c.insistOn(ctx, node, http.MethodPut, semaphorePath(name), `{"permits":1000000}`)
			if err == nil {
				var r reply
				r, err = c.insistOn(ctx, node, http.MethodPost, semaphorePath(name)+"/leases", `{"ttl":"5s"}`)
				if err == nil && r.status != http.StatusCreated {
					err = fmt.Errorf("acquire: %d %s", r.status, r.Code)
				}
			}
			granted <- err
		}()
	}
	must(t, <-granted)
	return time.Since(start)
}

// insistOn repeats a request to one node until it has a reply.
func (c *client) insistOn(ctx context.Context, node int, method, path, body string) (reply, error) {
	alone := &client{bases: c.bases[node : node+1], http: c.http}
	return alone.insist(ctx, 0, method, path, body)
}

// mustLead waits until some node leads, and returns it.
func (c *client) mustLead(t *testing.T) (node int) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		if node = c.leader(t.Context()); node < 0 {
			return errors.New("no leader")
		}
		return nil
	})
	return node
}

// others are the two nodes beside the given one.
func others(node int) (first, second int) { return (node + 1) % 3, (node + 2) % 3 }
