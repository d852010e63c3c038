//go:build (processes || compose) && linux

package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// counters are clients that each count up one counter, and repeat each request under its key until it has a reply. In
// the end each counter must show exactly the acknowledged steps: no step is lost, and no step counts twice.
type counters struct {
	acknowledged []atomic.Int64
	tokens       []atomic.Uint64 // of one lease after another, which must rise
	faults       chan string
	stop         context.CancelFunc
	running      sync.WaitGroup
}

func startCounters(t *testing.T, c *client, count int) *counters {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), fleetPeriod)
	w := &counters{acknowledged: make([]atomic.Int64, count), tokens: make([]atomic.Uint64, count), faults: make(chan string, count), stop: stop}
	t.Cleanup(func() { stop(); w.running.Wait() })
	for i := range count {
		c.must(t, i, http.MethodPut, semaphorePath(counterName(i)), `{"permits":0}`, http.StatusCreated)
		c.must(t, i, http.MethodPut, semaphorePath(lockName(i)), `{"permits":1}`, http.StatusCreated)
		w.running.Go(func() {
			if err := w.count(ctx, c, i); err != nil && ctx.Err() == nil {
				w.faults <- err.Error()
			}
		})
	}
	return w
}

func counterName(i int) string { return fmt.Sprintf("counter-%d", i) }
func lockName(i int) string    { return fmt.Sprintf("lock-%d", i) }

// count makes steps until it is stopped. It then finishes the step under way, since a step counts only once it has a
// reply.
func (w *counters) count(ctx context.Context, c *client, i int) error {
	for n := 0; ctx.Err() == nil; n++ {
		if err := w.step(context.WithoutCancel(ctx), c, i, n); err != nil {
			return err
		}
	}
	return nil
}

// step adds one to the counter, and acquires and releases the lock.
func (w *counters) step(ctx context.Context, c *client, i, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	key := fmt.Sprintf("counter-%02d-step-%09d", i, n)
	r, err := c.insist(ctx, i+n, http.MethodPost, semaphorePath(counterName(i))+"/up", "", "Idempotency-Key", key)
	if err != nil || r.status != http.StatusOK {
		return fmt.Errorf("%s: %d %s (%v)", key, r.status, r.Code, err)
	}
	if r.Value != int64(n+1) {
		return fmt.Errorf("%s: counted to %d", key, r.Value)
	}
	w.acknowledged[i].Store(int64(n + 1))
	lease, err := c.insist(ctx, i+n, http.MethodPost, semaphorePath(lockName(i))+"/leases", `{"ttl":"30s"}`, "Idempotency-Key", "lock-"+key)
	if err != nil || lease.status != http.StatusCreated && lease.status != http.StatusOK {
		return fmt.Errorf("lock of %s: %d %s (%v)", key, lease.status, lease.Code, err)
	}
	if before := w.tokens[i].Swap(lease.Token); lease.Token <= before {
		return fmt.Errorf("lock of %s: token %d after %d", key, lease.Token, before)
	}
	end, err := c.insist(ctx, i+n, http.MethodDelete, "/v1/sessions/"+lease.Session, "")
	if err != nil || end.status != http.StatusNoContent {
		return fmt.Errorf("unlock of %s: %d %s (%v)", key, end.status, end.Code, err)
	}
	return nil
}

// await waits until the counters together have made this many more steps.
func (w *counters) await(t *testing.T, more int64) {
	t.Helper()
	start := w.total()
	eventually(t, 20*time.Second, func() error {
		w.report(t)
		if got := w.total() - start; got < more {
			return fmt.Errorf("only %d more were counted, not %d", got, more)
		}
		return nil
	})
}

func (w *counters) total() (sum int64) {
	for i := range w.acknowledged {
		sum += w.acknowledged[i].Load()
	}
	return sum
}

func (w *counters) report(t *testing.T) {
	t.Helper()
	select {
	case fault := <-w.faults:
		t.Fatal(fault)
	default:
	}
}

// finish stops the counters. It compares the value of each counter at each node with the acknowledged steps.
func (w *counters) finish(t *testing.T, c *client) {
	t.Helper()
	w.stop()
	w.running.Wait()
	w.report(t)
	for i := range w.acknowledged {
		for node := range c.bases {
			s := c.must(t, node, http.MethodGet, semaphorePath(counterName(i)), "", http.StatusOK)
			if want := w.acknowledged[i].Load(); s.Available != want {
				t.Errorf("n%d: counter %d is %d, acknowledged were %d", node+1, i, s.Available, want)
			}
		}
	}
	t.Logf("%d changes acknowledged, all there, none twice", w.total())
}
