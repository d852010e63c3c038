package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client"
)

func TestOneCallLease(t *testing.T) {
	virtually(t, 2, func(b *bed) {
		b.put("db", 3)
		lease, err := b.c.Acquire(b.ctx, "db", client.Count(2), client.TTL(9*time.Second), client.Metadata{"who": "me"})
		b.ok(err)
		time.Sleep(10 * time.Minute) // virtual
		b.ok(lease.Err())
		seen, err := b.c.Get(b.ctx, "db")
		b.ok(err)
		if seen.Held != 2 || seen.Holders[0].Token != lease.Token || seen.Holders[0].Metadata["who"] != "me" || seen.Holders[0].Session != lease.Session {
			b.Errorf("%+v", seen)
		}
		b.ok(lease.Release(b.ctx))
		b.ok(lease.Release(b.ctx))
		b.is(lease.Err(), client.ErrReleased)
		if b.sessions() != 0 {
			b.Error("its session lives on")
		}
		_, err = b.c.TryAcquire(b.ctx, "db", client.Count(4))
		b.is(err, client.ErrNever)
		b.occupy("db", 3)
		_, err = b.c.TryAcquire(b.ctx, "db")
		b.is(err, client.ErrUnavailable)
	})
}

func TestOneCallLeaseIsLost(t *testing.T) {
	virtually(t, 2, func(b *bed) {
		b.put("db", 1)
		lease, err := b.c.Acquire(b.ctx, "db")
		b.ok(err)
		b.revokeSession(lease.Session, "why")
		b.lost(lease.Lost())
		b.is(lease.Err(), client.ErrLost, client.ErrRevoked)
		b.is(lease.Release(b.ctx), client.ErrRevoked)
	})
}

func TestOneCallWaitIsOneRequest(t *testing.T) {
	for name, f := range map[string]fault{"none": {}, "reply lost": {lose: true}, "silent": {hang: true}, "504": {status: 504, code: "outcome-unknown"}} {
		t.Run(name, func(t *testing.T) {
			virtually(t, 2, func(b *bed) {
				b.put("db", 1)
				free := b.occupy("db", 1)
				b.contend("db")
				b.net.follow(first(1, "POST", "/leases", f))
				ctx := b.within(9 * time.Minute)
				waits := later(func() (*client.Lease, error) { return b.c.Acquire(ctx, "db") })
				time.Sleep(8 * time.Minute) // virtual
				if n := b.waiters("db"); n != 1 && name != "silent" {
					b.Errorf("%d wait", n)
				}
				free()
				time.Sleep(2 * time.Minute) // virtual
				r := <-waits
				b.ok(r.err)
				b.ok(r.lease.Err())
				want := 1
				if name == "silent" { // that request was never carried out, and now can't be
					want = 2
				}
				if keys := b.keysOf("POST", "/leases"); len(keys) != want || len(b.grants("db")) != 2 {
					b.Errorf("keys %v, %d grants", keys, len(b.grants("db")))
				}
			})
		})
	}
}

// A wait beyond what the nodes accept is made of several, the last ended by ctx.
func TestOneCallWaitBeyondTheLongest(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.put("db", 1)
		free := b.occupy("db", 1)
		began := time.Now()
		_, err := b.c.Acquire(b.within(25*time.Minute), "db")
		b.is(err, context.DeadlineExceeded, client.ErrUnavailable)
		b.took(began, 25*time.Minute, 25*time.Minute)
		waits := later(func() (*client.Lease, error) { return b.c.Acquire(b.ctx, "db") })
		time.Sleep(25 * time.Minute) // virtual
		free()
		b.ok((<-waits).err)
	})
}

func TestCancelledOneCallWaitLeavesNothing(t *testing.T) {
	for name, f := range map[string]fault{"none": {}, "reply lost": {lose: true}, "503": busy("0")} {
		t.Run(name, func(t *testing.T) {
			virtually(t, 2, func(b *bed) {
				b.put("db", 1)
				b.occupy("db", 1)
				ctx, cancel := context.WithCancel(b.ctx)
				waits := later(func() (*client.Lease, error) { return b.c.Acquire(ctx, "db") })
				down := later(func() (*client.Lease, error) { _, err := b.c.Down(ctx, "db", 1); return nil, err })
				time.Sleep(time.Minute) // virtual
				b.net.follow(first(3, "POST", "", f))
				cancel()
				b.is((<-waits).err, context.Canceled, client.ErrUnavailable)
				b.is((<-down).err, context.Canceled, client.ErrUnavailable)
				if seen := b.get("db"); seen.WaiterCount != 0 || seen.Offset != 0 || b.sessions() != 1 {
					b.Errorf("%+v, %d sessions", seen, b.sessions())
				}
			})
		})
	}
}

// The time that a request waited does not count for the lease, but the time since its grant.
func TestDeadlineAfterAWait(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.put("db", 1)
		free := b.occupy("db", 1)
		waits := later(func() (*client.Lease, error) { return b.c.Acquire(b.ctx, "db", client.TTL(6*time.Second)) })
		time.Sleep(time.Minute) // virtual
		free()
		r := <-waits
		b.ok(r.err)
		if left := time.Until(r.lease.Deadline()); left < 5900*time.Millisecond || left > 6*time.Second {
			b.Errorf("%v left", left)
		}
	})
}

// The grant and the end of ctx cross: the lease is given back.
func TestGrantToACancelledAcquireIsGivenBack(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.put("db", 1)
		free := b.occupy("db", 1)
		b.contend("db")
		ctx, cancel := context.WithCancel(b.ctx)
		b.net.follow(on("POST", "/leases", fault{back: 5 * time.Second}))
		waits := later(func() (*client.Lease, error) { return b.c.Acquire(ctx, "db") })
		time.Sleep(time.Second) // virtual
		free()
		time.Sleep(time.Second) // virtual
		b.net.follow(nil)
		cancel()
		r := <-waits
		b.is(r.err, context.Canceled)
		if len(b.grants("db")) != 2 || b.available("db") != 1 {
			b.Errorf("%d grants, %d available", len(b.grants("db")), b.available("db"))
		}
	})
}

// The reply to the grant is lost for longer than the lease lives: it is asked anew.
func TestLapsedGrantIsAskedAnew(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.put("db", 1)
		began := time.Now()
		b.net.follow(func(_ sent, nth int) fault {
			if nth == 1 {
				return fault{lateApply: time.Second}
			}
			return fault{hang: time.Since(began) < 5*time.Second}
		})
		lease, err := b.c.Acquire(b.ctx, "db", client.TTL(2*time.Second))
		b.ok(err)
		b.ok(lease.Err())
		if tokens := b.grants("db"); len(tokens) != 2 || lease.Token != tokens[1] {
			b.Errorf("granted %d, after %d", lease.Token, tokens)
		}
	})
}

// The reply to the grant of a wait is lost for longer than the lease lives. The next request is a try, which names
// no wait, since the semaphore is not contended any more.
func TestLapsedGrantOfAWaitIsTriedAgain(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.put("db", 1)
		free := b.occupy("db", 1)
		b.contend("db")
		began := time.Now()
		b.net.follow(func(s sent, _ int) fault {
			return fault{lose: s.method == "POST" && time.Since(began) < 6*time.Second}
		})
		waits := later(func() (*client.Lease, error) { return b.c.Acquire(b.ctx, "db", client.TTL(2*time.Second)) })
		time.Sleep(time.Second) // virtual
		free()
		b.ok((<-waits).err)
		posts := slices.DeleteFunc(b.net.requests(), func(s sent) bool { return s.method != "POST" })
		if tried, before := posts[len(posts)-1], posts[len(posts)-2]; tried.key == before.key || strings.Contains(tried.path, "wait=") {
			b.Errorf("asked with %s", tried.path)
		}
	})
}

// Neither a repeat's reply, which has the wait of the first attempt, nor a wait
// longer than the call took may prolong a lease.
func TestUntrueWaitDoesNotCount(t *testing.T) {
	for replayed, took := range map[string]time.Duration{"true": 70 * time.Second, "false": time.Second} {
		virtually(t, 2, func(b *bed) {
			b.put("db", 1)
			c, err := client.New(client.Config{Addresses: []string{"n1"}, AttemptTimeout: time.Hour, HTTPClient: newHTTP(b.net)})
			b.ok(err)
			began := time.Now()
			b.net.follow(on("POST", "/leases", fault{status: 201, header: map[string][]string{"Idempotency-Replayed": {replayed}},
				text: `{"session":"9","semaphore":"db","count":1,"token":3,"expires_in_ms":4000,"waited_ms":60000}`, there: took}))
			lease, err := c.Acquire(b.ctx, "db", client.TTL(time.Hour))
			b.ok(err)
			if d := lease.Deadline().Sub(began); replayed == "true" && d > 4*time.Second || d > 5*time.Second {
				b.Errorf("replayed %s: counts until %v after it was sent", replayed, d)
			}
			_ = c.Close(b.ctx) // of the invented session
		})
	}
}

func TestDown(t *testing.T) {
	virtually(t, 2, func(b *bed) {
		b.put("jobs", 0)
		_, err := b.c.TryDown(b.ctx, "jobs", 1)
		b.is(err, client.ErrUnavailable)
		_, err = b.c.TryDown(b.ctx, "jobs", 1, client.Partial())
		b.is(err, client.ErrUnavailable)
		_, err = b.c.Down(b.within(time.Minute), "jobs", 1)
		b.is(err, client.ErrUnavailable, context.DeadlineExceeded)
		_, err = b.c.Down(b.within(time.Minute), "jobs", 1, client.Partial())
		b.is(err, client.ErrUnavailable, context.DeadlineExceeded)
		_, err = b.c.Up(b.ctx, "jobs", 3)
		b.ok(err)
		taken, err := b.c.Down(b.ctx, "jobs", 2)
		b.ok(err)
		if taken != (client.Taken{Granted: 2, Value: 1}) {
			b.Errorf("%+v", taken)
		}
		taken, err = b.c.Down(b.ctx, "jobs", 2, client.Partial())
		b.ok(err)
		if taken != (client.Taken{Granted: 1, Value: 0}) {
			b.Errorf("%+v", taken)
		}
		value, err := b.c.SetValue(b.ctx, "jobs", 7)
		if b.ok(err); value != 7 || b.sessions() != 0 {
			b.Errorf("%d; %d sessions", value, b.sessions())
		}
	})
}

// Each down takes once, whatever happens to its requests and its ctx, and returns that.
func TestDownTakesExactlyWhatItTells(t *testing.T) {
	faults := []fault{{lose: true}, {status: 504, code: "outcome-unknown"}, busy("0"), {refused: true}, {back: 800 * time.Millisecond}, {}, {}, {}}
	const seeds, each = 200, 5
	unknown := int64(0)
	many(t, seeds, func(b *bed, name string, seed int) {
		random, chance := newRandom(seed), newRandom(-seed)
		b.put(name, 0)
		b.net.follow(func(sent, int) fault { return faults[chance.IntN(len(faults))] })
		told, open := int64(0), int64(0)
		results := make(chan got)
		for range each {
			wait := time.Duration(random.IntN(2000)) * time.Millisecond
			go func() {
				taken, err := b.c.Down(b.within(wait), name, 1)
				results <- got{taken: taken.Granted, err: err}
			}()
			time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond) // virtual
			b.up(name)
		}
		for range each {
			r := <-results
			if told += r.taken; errors.Is(r.err, client.ErrOutcomeUnknown) {
				open++
			}
		}
		atomic.AddInt64(&unknown, open)
		if missing := each - told - b.available(name); missing < 0 || missing > open {
			b.Errorf("seed %d: %d left of %d, told of %d taken and of %d unknown", seed, b.available(name), each, told, open)
		}
	})
	if unknown > seeds*each/50 {
		t.Errorf("%d of %d outcomes are unknown", unknown, seeds*each)
	}
}

func TestDownGrantedAsItsContextEnds(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.put("jobs", 0)
		b.net.follow(on("POST", "/down", fault{back: time.Second}))
		ctx, cancel := context.WithCancel(b.ctx)
		time.AfterFunc(1500*time.Millisecond, cancel)
		time.AfterFunc(time.Second, func() { b.up("jobs") })
		taken, err := b.c.Down(ctx, "jobs", 1)
		b.ok(err)
		if taken.Granted != 1 {
			b.Errorf("%+v", taken)
		}
	})
}

func TestWatch(t *testing.T) {
	virtually(t, 2, func(b *bed) {
		b.put("db", 3)
		b.net.follow(func(_ sent, nth int) fault { return []fault{{}, {lose: true}, busy("0")}[nth%3] })
		go func() {
			for permits := int64(4); permits <= 6; permits++ {
				time.Sleep(2 * time.Minute) // virtual
				b.put("db", permits)
			}
			time.Sleep(2 * time.Minute) // virtual
			b.ok(b.admin.Delete(b.ctx, "db"))
		}()
		began := time.Now()
		var seen []string
		for s, err := range b.c.Watch(b.ctx, "db") {
			if err != nil {
				b.is(err, client.ErrUnknownSemaphore)
				break
			}
			seen = append(seen, fmt.Sprint(s.Permits, " @ ", time.Since(began).Round(time.Second)))
		}
		if want := []string{"3 @ 0s", "4 @ 2m0s", "5 @ 4m0s", "6 @ 6m0s"}; !slices.Equal(seen, want) {
			b.Errorf("%q", seen)
		}
		for _, err := range b.c.Watch(b.within(time.Minute), "none") {
			b.is(err, client.ErrUnknownSemaphore)
		}
	})
	virtually(t, 1, func(b *bed) {
		b.put("db", 3)
		n := 0
		for s, err := range b.c.Watch(b.within(5*time.Minute), "db", client.Stale(), client.MinIndex(1)) {
			if n++; n == 1 {
				b.ok(err)
			} else if b.is(err, context.DeadlineExceeded); s != nil {
				b.Errorf("%+v", s)
			}
		}
		if n != 2 {
			b.Errorf("%d times", n)
		}
		for _, s := range b.net.requests() {
			if !strings.Contains(s.path, "consistency=stale") {
				b.Errorf("%s", s.path)
			}
		}
	})
}

func TestSemaphores(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		made, _, err := b.c.Create(b.ctx, "db", 3)
		b.ok(err)
		opened, created, err := b.c.Create(b.ctx, "db", 9)
		b.ok(err)
		if created || opened.Permits != 3 {
			b.Errorf("%+v", opened)
		}
		_, _, err = b.c.Put(b.ctx, "new", client.Level(1))
		b.is(err, client.ErrInvalidRequest)
		_, err = b.c.Get(b.ctx, "db", client.Epoch(made.Epoch+9))
		b.is(err, client.ErrPreconditionFailed)
		b.ok(b.c.Delete(b.ctx, "db", client.Epoch(made.Epoch)))
		b.net.follow(always(fault{status: 403, code: "forbidden"}))
		for _, err := range b.c.List(b.ctx, "") {
			b.is(err, client.ErrForbidden)
		}
	})
}
