//go:build (processes || compose) && linux

package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// rolls is in this file since the period of a fleet depends on it.
var rolls = flag.Int("rolls", 4, "how often TestRollingRestart restarts all nodes, in less than a minute each")

// fleet is many clients of one semaphore that has as many permits as there are holders. The holders renew their leases,
// and the waiters wait behind them in a known order. Whatever happens to the cluster, no lease may be lost, no token may
// change, and the waiters must be granted in their order.
type fleet struct {
	c    *client
	name string

	holders, waiters []member
	release          chan struct{} // closed: holders give their leases back
	running          sync.WaitGroup
	stop             context.CancelFunc

	mu       sync.Mutex
	faults   []string
	holding  int // clients that may believe that they hold, never more than permits
	most     int
	grants   []uint64        // tokens of the waiters, by waiter
	renewals []time.Duration // from the first attempt to the reply
	rounds   []int           // renewals of each holder
}

// member is one client of the fleet.
type member struct {
	session string
	token   uint64 // of a holder
}

const (
	holderTTL   = "10s" // a holder whose renewals fail for so long has lost its lease
	renewEvery  = 500 * time.Millisecond
	holderAsks  = 2 * time.Second // one node: it may hold a request for as long as a lease lives
	waiterAsks  = `{"wait":"5s","ttl":"60s"}`
	fleetPeriod = 5 * time.Minute // no fleet works longer, unless many rolls are asked for
)

// startFleet makes the semaphore, the leases and the queue, and starts all clients.
func startFleet(t *testing.T, c *client, name string, holders, waiters int) *fleet {
	t.Helper()
	f := &fleet{c: c, name: name, release: make(chan struct{}), grants: make([]uint64, waiters)}
	c.must(t, 0, http.MethodPut, semaphorePath(name), fmt.Sprintf(`{"permits":%d}`, holders), http.StatusCreated)
	for i := range holders {
		s := c.must(t, i, http.MethodPost, "/v1/sessions", `{"ttl":"`+holderTTL+`"}`, http.StatusCreated)
		l := c.must(t, i, http.MethodPut, leasePath(s.Session, name), "", http.StatusOK)
		f.holders = append(f.holders, member{session: s.Session, token: l.Token})
		f.holding++
	}
	f.most, f.rounds = f.holding, make([]int, holders)
	for i := range waiters {
		s := c.must(t, i, http.MethodPost, "/v1/sessions", `{"ttl":"60s"}`, http.StatusCreated)
		w := c.must(t, i, http.MethodPut, leasePath(s.Session, name), "", http.StatusAccepted)
		if w.Position != int64(i+1) {
			t.Fatalf("waiter %d was told position %d", i+1, w.Position)
		}
		f.waiters = append(f.waiters, member{session: s.Session})
	}
	ctx, stop := context.WithTimeout(context.Background(), max(fleetPeriod, time.Duration(*rolls)*time.Minute))
	f.stop = stop
	t.Cleanup(func() { stop(); f.running.Wait() })
	for i := range f.holders {
		f.running.Go(func() { f.hold(ctx, i) })
	}
	for i := range f.waiters {
		f.running.Go(func() { f.wait(ctx, i) })
	}
	return f
}

func (f *fleet) fault(format string, arguments ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.faults) < 50 {
		f.faults = append(f.faults, fmt.Sprintf(format, arguments...))
	}
}

// hold renews a lease until it is to be released.
func (f *fleet) hold(ctx context.Context, i int) {
	holder := f.holders[i]
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for round := i; ; round++ {
		select {
		case <-ctx.Done():
			return
		case <-f.release:
			f.giveBack(ctx, i, holder.session)
			return
		case <-tick.C:
		}
		start := time.Now()
		renewed, err := f.c.insistBy(ctx, holderAsks, round, http.MethodPut, "/v1/sessions/"+holder.session, "")
		if err != nil || renewed.status != http.StatusOK {
			f.fault("holder %d: renewal: %d %s %v", i, renewed.status, renewed.Code, err)
			return
		}
		took := time.Since(start)
		f.mu.Lock()
		f.renewals = append(f.renewals, took)
		f.rounds[i]++
		f.mu.Unlock()
		lease, err := f.c.insistBy(ctx, holderAsks, round, http.MethodGet, leasePath(holder.session, f.name), "")
		if err != nil || lease.status != http.StatusOK || lease.Token != holder.token {
			f.fault("holder %d: its lease of token %d is now %d %s, token %d, %v; the renewal took %v, and the read after it, first at n%d, %v",
				i, holder.token, lease.status, lease.Code, lease.Token, err, took, round%len(f.c.bases)+1, time.Since(start)-took)
			return
		}
	}
}

// wait requests the lease until it is granted, and releases it at once.
func (f *fleet) wait(ctx context.Context, i int) {
	waiter := f.waiters[i]
	for node := i; ; node++ {
		r, err := f.c.insist(ctx, node, http.MethodPut, leasePath(waiter.session, f.name), waiterAsks)
		switch {
		case err == nil && r.status == http.StatusAccepted:
			continue
		case err != nil || r.status != http.StatusOK:
			if ctx.Err() == nil {
				f.fault("waiter %d: %d %s %s %v", i, r.status, r.Code, r.Detail, err)
			}
			return
		}
		f.mu.Lock()
		f.grants[i] = r.Token
		f.holding++
		f.most = max(f.most, f.holding)
		f.mu.Unlock()
		f.giveBack(ctx, node, waiter.session)
		return
	}
}

// giveBack marks the lease as released before it sends the request.
func (f *fleet) giveBack(ctx context.Context, node int, session string) {
	f.mu.Lock()
	f.holding--
	f.mu.Unlock()
	r, err := f.c.insist(ctx, node, http.MethodDelete, leasePath(session, f.name), "")
	if err != nil || r.status != http.StatusNoContent {
		f.fault("release: %d %s %v", r.status, r.Code, err)
	}
}

// unchanged checks, by a linearizable read, that all holders still hold their leases and all waiters wait in their
// places. Call it before finish.
func (f *fleet) unchanged(t *testing.T, node int) {
	t.Helper()
	s := f.c.must(t, node, http.MethodGet, semaphorePath(f.name)+"?holders=1000&waiters=1000", "", http.StatusOK)
	tokens := map[string]uint64{}
	for _, h := range s.Holders {
		tokens[h.Session] = h.Token
	}
	for i, h := range f.holders {
		if tokens[h.session] != h.token {
			t.Errorf("holder %d had token %d and now %d", i, h.token, tokens[h.session])
		}
	}
	if len(s.Holders) != len(f.holders) || s.Held > s.Permits {
		t.Errorf("%d holders of %d permits, %d were made; held %d", len(s.Holders), s.Permits, len(f.holders), s.Held)
	}
	order := make([]string, len(s.Waiters))
	for i, w := range s.Waiters {
		order[i] = w.Session
	}
	if !slices.EqualFunc(order, f.waiters, func(session string, w member) bool { return session == w.session }) {
		t.Errorf("the queue of %d is now one of %d in another order", len(f.waiters), len(order))
	}
	f.report(t)
}

// goOn waits until every holder has renewed once more.
func (f *fleet) goOn(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	before := slices.Clone(f.rounds)
	f.mu.Unlock()
	eventually(t, 20*time.Second, func() error {
		f.report(t)
		f.mu.Lock()
		defer f.mu.Unlock()
		for i, rounds := range f.rounds {
			if rounds == before[i] {
				return fmt.Errorf("holder %d has not renewed", i)
			}
		}
		return nil
	})
}

// finish makes the holders release, so that the queue drains. It checks that the waiters are granted in the order of the
// queue, with rising tokens.
func (f *fleet) finish(t *testing.T) {
	t.Helper()
	close(f.release)
	f.running.Wait()
	f.stop()
	f.report(t)
	last := uint64(0)
	for _, h := range f.holders {
		last = max(last, h.token)
	}
	for i, token := range f.grants {
		if token <= last {
			t.Errorf("waiter %d has token %d, after %d before it", i, token, last)
		}
		last = token
	}
	if f.most > len(f.holders) {
		t.Errorf("%d clients held %d permits at one time", f.most, len(f.holders))
	}
	slices.Sort(f.renewals)
	if len(f.renewals) == 0 {
		t.Fatal("nothing was renewed: nothing was shown")
	}
	t.Logf("%d holders, %d waiters; %d renewals, p50 %v, p99 %v, longest %v", len(f.holders), len(f.waiters), len(f.renewals),
		f.renewals[len(f.renewals)/2], f.renewals[len(f.renewals)*99/100], f.renewals[len(f.renewals)-1])
}

// report fails the test with the errors of the clients so far.
func (f *fleet) report(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range f.faults {
		t.Error(fault)
	}
	f.faults = nil
}
