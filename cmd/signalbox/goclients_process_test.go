//go:build processes && linux

package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/credentials"
)

// goClients is a process with the Go client: sessions with leases on one semaphore, waiters in
// line behind them, and a worker that acquires and releases another semaphore.
type goClients struct {
	client *signalbox.Client
	held   []*signalbox.Lease
	grants []chan grant // of each waiter

	stop   context.CancelFunc // of the worker
	turns  atomic.Int64
	worker chan error
}

// grant is the conclusion of a wait.
type grant struct {
	lease *signalbox.Lease
	err   error
}

func startGoClients(t *testing.T, addresses []string, keys credentials.Config, count int) *goClients {
	t.Helper()
	c, err := signalbox.New(signalbox.Config{Addresses: addresses, CA: keys.CA, TokenFile: keys.TokenFile})
	must(t, err)
	ctx, stop := context.WithTimeout(context.Background(), fleetPeriod)
	t.Cleanup(stop)
	u := &goClients{client: c, worker: make(chan error, 1)}
	for _, name := range []string{"held", "turns"} {
		_, _, err := c.Create(ctx, name, int64(count))
		must(t, err)
	}
	open := func() *signalbox.Session {
		session, err := c.OpenSession(ctx, signalbox.SessionOptions{TTL: 10 * time.Second})
		must(t, err)
		return session
	}
	for range count {
		lease, err := open().Acquire(ctx, "held")
		must(t, err)
		u.held = append(u.held, lease)
	}
	for i := range count {
		acquire := func() (*signalbox.Lease, error) { return c.Acquire(ctx, "held") } // one call, and its key
		if i%2 == 0 {
			session := open()
			acquire = func() (*signalbox.Lease, error) { return session.Acquire(ctx, "held") }
		}
		granted := make(chan grant, 1)
		u.grants = append(u.grants, granted)
		go func() {
			lease, err := acquire()
			granted <- grant{lease, err}
		}()
		eventually(t, 20*time.Second, func() error {
			if s, err := c.Get(ctx, "held"); err != nil || s.WaiterCount != int64(i+1) {
				return fmt.Errorf("waiter %d is not in line: %w", i, err)
			}
			return nil
		})
	}
	working, stopWork := context.WithCancel(ctx)
	u.stop = stopWork
	go func() { u.worker <- u.work(working) }()
	return u
}

func (u *goClients) work(ctx context.Context) error {
	for ctx.Err() == nil {
		lease, err := u.client.Acquire(context.WithoutCancel(ctx), "turns")
		if err != nil {
			return err
		}
		if err := lease.Release(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		u.turns.Add(1)
	}
	return nil
}

// goOn waits until the worker has made progress. It checks that no lease is lost and no waiter is granted.
func (u *goClients) goOn(t *testing.T) {
	t.Helper()
	before := u.turns.Load()
	eventually(t, 20*time.Second, func() error {
		if u.turns.Load() < before+5 {
			select {
			case err := <-u.worker:
				t.Fatalf("the worker: %v", err)
			default:
			}
			return fmt.Errorf("the worker has taken %d turns", u.turns.Load()-before)
		}
		return nil
	})
	for i, lease := range u.held {
		if err := lease.Err(); err != nil {
			t.Errorf("lease %d: %v", i, err)
		}
	}
	s, err := u.client.Get(t.Context(), "held")
	if err != nil || s.WaiterCount != int64(len(u.grants)) || s.Held != int64(len(u.held)) {
		t.Errorf("%+v, %v", s, err)
	}
}

// finish releases the leases, and checks that the waiters are granted in their order.
func (u *goClients) finish(t *testing.T) {
	t.Helper()
	u.stop()
	if err := <-u.worker; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var last uint64
	for _, lease := range u.held {
		last = max(last, lease.Token)
	}
	for i, lease := range u.held {
		must(t, lease.Release(ctx))
		select {
		case g := <-u.grants[i]:
			if g.err != nil || g.lease.Token <= last {
				t.Fatalf("waiter %d: %+v, after token %d: %v", i, g.lease, last, g.err)
			}
			last = g.lease.Token
		case <-ctx.Done():
			t.Fatalf("waiter %d has no lease", i)
		}
	}
	must(t, u.client.Close(ctx))
	t.Logf("%d turns of the worker", u.turns.Load())
}
