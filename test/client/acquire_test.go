package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client"
)

// got is the result of a call, later.
type got struct {
	lease *client.Lease
	taken int64
	err   error
}

func later(acquire func() (*client.Lease, error)) <-chan got {
	out := make(chan got, 1)
	go func() {
		lease, err := acquire()
		out <- got{lease: lease, err: err}
	}()
	return out
}

// keysOf are the distinct keys of the requests that match.
func (b *bed) keysOf(method, part string) map[string]int {
	keys := map[string]int{}
	for _, s := range b.net.requests() {
		if s.method == method && strings.Contains(s.path, part) {
			keys[s.key]++
		}
	}
	return keys
}

func TestAcquireWaitsAndKeepsItsPlace(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.put("db", 1)
		free := b.occupy("db", 1)
		b.contend("db")
		s, later2 := b.session(30*time.Second), b.session(30*time.Second)
		first := later(func() (*client.Lease, error) { return s.Acquire(b.ctx, "db") })
		time.Sleep(time.Second) // virtual
		second := later(func() (*client.Lease, error) { return later2.Acquire(b.ctx, "db") })
		time.Sleep(10 * time.Minute) // virtual
		if b.waiters("db") != 2 {
			b.Fatalf("%d wait", b.waiters("db"))
		}
		keys := b.keysOf("PUT", s.ID()+"/leases/db")
		for key, n := range keys {
			if len(keys) != 1 || key == "" || n < 12 || n > 14 {
				b.Errorf("asked with keys %v", keys)
			}
		}
		free()
		r := <-first
		b.ok(r.err)
		if r.lease.Semaphore != "db" || r.lease.Count != 1 || r.lease.Token == 0 || r.lease.Session != s.ID() {
			b.Errorf("%+v", r.lease)
		}
		b.ok(r.lease.Release(b.ctx))
		b.is(r.lease.Err(), client.ErrReleased)
		if alive(r.lease.Lost()) {
			b.Error("released, and Lost is open")
		}
		b.ok((<-second).err)
	})
}

func TestReconnectJoinsTheSamePlace(t *testing.T) {
	for name, f := range map[string]fault{"reply lost": {lose: true}, "504": {status: 504, code: "outcome-unknown"}, "503": busy("0"),
		"not sent": {refused: true}, "silent": {hang: true}} {
		t.Run(name, func(t *testing.T) {
			virtually(t, 3, func(b *bed) {
				b.put("db", 1)
				free := b.occupy("db", 1)
				s, other := b.session(time.Hour), b.session(time.Hour)
				b.net.follow(func(s sent, nth int) fault {
					if nth%2 == 1 && strings.Contains(s.path, "/leases/") {
						f := f
						f.there = time.Second
						return f
					}
					return fault{}
				})
				first := later(func() (*client.Lease, error) { return s.Acquire(b.ctx, "db") })
				time.Sleep(2 * time.Minute) // virtual
				second := later(func() (*client.Lease, error) { return other.Acquire(b.ctx, "db") })
				time.Sleep(5 * time.Minute) // virtual
				free()
				r := <-first
				b.ok(r.err)
				b.ok(r.lease.Release(b.ctx))
				b.ok((<-second).err)
				if b.waiters("db") != 0 || len(b.grants("db")) != 3 {
					b.Errorf("%d wait, %d grants", b.waiters("db"), len(b.grants("db")))
				}
			})
		})
	}
}

func TestAcquireEndsWithItsContextAndWithdraws(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.put("db", 1)
		b.occupy("db", 1)
		s := b.session(30 * time.Second)
		for _, wait := range []time.Duration{time.Millisecond, 7 * time.Second, 3 * time.Minute} {
			began := time.Now()
			_, err := s.Acquire(b.within(wait), "db")
			b.is(err, context.DeadlineExceeded, client.ErrUnavailable)
			b.isNot(err, client.ErrUnreachable, client.ErrOutcomeUnknown, client.ErrLost)
			b.took(began, wait, wait)
			if b.waiters("db") != 0 {
				b.Error("the request still waits")
			}
		}
		ctx, cancel := context.WithCancel(b.ctx)
		time.AfterFunc(time.Second, cancel)
		_, err := s.Acquire(ctx, "db")
		b.is(err, context.Canceled, client.ErrUnavailable)
		b.ok(s.Err())
	})
}

func TestCutOffAcquireSaysSoAndWithdrawsLater(t *testing.T) {
	for _, f := range []fault{{refused: true}, {hang: true}} {
		virtually(t, 2, func(b *bed) {
			b.put("db", 1)
			b.occupy("db", 1)
			s := b.session(time.Minute)
			waits := later(func() (*client.Lease, error) { return s.Acquire(b.within(20*time.Second), "db") })
			time.Sleep(10 * time.Second) // virtual
			b.net.follow(always(f))
			r := <-waits
			b.is(r.err, context.DeadlineExceeded, client.ErrUnreachable)
			b.isNot(r.err, client.ErrUnavailable)
			if b.waiters("db") != 1 {
				b.Fatal("the request does not wait")
			}
			b.net.follow(nil)
			time.Sleep(15 * time.Second) // virtual
			if b.waiters("db") != 0 {
				b.Error("the request still waits")
			}
		})
	}
}

func TestWaitEndsWithTheSession(t *testing.T) {
	virtually(t, 2, func(b *bed) {
		b.put("db", 1)
		b.occupy("db", 1)
		s := b.session(30 * time.Second)
		waits := later(func() (*client.Lease, error) { return s.Acquire(b.ctx, "db") })
		time.Sleep(time.Minute) // virtual
		b.net.follow(always(fault{hang: true}))
		r := <-waits
		b.is(r.err, client.ErrLost, client.ErrNotRenewed)
	})
	virtually(t, 2, func(b *bed) { // reported by the acquire, before any renewal
		b.put("db", 1)
		s := b.session(time.Hour)
		b.net.follow(first(1, "PUT", "/leases/", fault{status: 410, code: "expired-session"}))
		_, err := s.Acquire(b.ctx, "db")
		b.is(err, client.ErrLost, client.ErrExpiredSession)
		b.is(s.Err(), client.ErrLost, client.ErrExpiredSession)
	})
}

func TestRefusedAcquires(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.put("db", 2)
		free := b.occupy("db", 1)
		s := b.session(30 * time.Second)
		_, err := s.Acquire(b.ctx, "none")
		b.is(err, client.ErrUnknownSemaphore)
		_, err = s.Acquire(b.ctx, "db", client.Count(3))
		b.is(err, client.ErrNever)
		var e *client.Error
		if !errors.As(err, &e) || *e.Permits != 2 {
			b.Errorf("%+v", e)
		}
		_, err = s.TryAcquire(b.ctx, "db", client.Count(2))
		b.is(err, client.ErrUnavailable)
		b.isNot(err, context.DeadlineExceeded)
		if b.waiters("db") != 0 {
			b.Error("a try waits")
		}
		waits := later(func() (*client.Lease, error) { return s.Acquire(b.ctx, "db", client.Count(2)) })
		time.Sleep(time.Second) // virtual
		_, err = s.Acquire(b.ctx, "db", client.Count(2))
		b.is(err, client.ErrLeaseExists)
		free()
		r := <-waits
		b.ok(r.err)
		_, err = s.TryAcquire(b.ctx, "db", client.Count(2))
		b.is(err, client.ErrLeaseExists)
		_, err = s.AcquireAll(b.ctx, client.Want{Name: "other"}, client.Want{Name: "other"})
		b.is(err, client.ErrLeaseExists)
		b.ok(r.lease.Release(b.ctx))
		b.ok(r.lease.Release(b.ctx))
		waits = later(func() (*client.Lease, error) { return s.Acquire(b.ctx, "db", client.Count(2)) })
		b.ok((<-waits).err)
	})
}

func TestDeletedWhileWaiting(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.put("db", 1)
		b.occupy("db", 1)
		s := b.session(30 * time.Second)
		waits := later(func() (*client.Lease, error) { return s.Acquire(b.ctx, "db") })
		time.Sleep(time.Second) // virtual
		b.ok(b.c.Delete(b.ctx, "db"))
		b.is((<-waits).err, client.ErrDeleted)
		b.ok(s.Err())
	})
}

func TestSeveralAtOnce(t *testing.T) {
	virtually(t, 2, func(b *bed) {
		b.put("a", 1).put("b", 2).put("c", 1)
		s, other := b.session(30*time.Second), b.session(30*time.Second)
		leases, err := s.AcquireAll(b.ctx, client.Want{Name: "b", Count: 2}, client.Want{Name: "a"})
		b.ok(err)
		if leases[0].Semaphore != "b" || leases[0].Count != 2 || leases[1].Semaphore != "a" || leases[1].Count != 1 {
			b.Errorf("%+v %+v", leases[0], leases[1])
		}
		lease, err := other.AcquireAny(b.ctx, client.Want{Name: "a"}, client.Want{Name: "c"})
		b.ok(err)
		if lease.Semaphore != "c" {
			b.Errorf("%+v", lease)
		}
		waits := later(func() (*client.Lease, error) {
			return other.AcquireAny(b.ctx, client.Want{Name: "a"}, client.Want{Name: "b"})
		})
		time.Sleep(5 * time.Minute) // virtual
		b.ok(leases[0].Release(b.ctx))
		r := <-waits
		b.ok(r.err)
		if r.lease.Semaphore != "b" || b.waiters("a") != 0 {
			b.Errorf("%+v", r.lease)
		}
		b.ok(leases[1].Release(b.ctx))
		_, err = other.AcquireAll(b.within(time.Second), client.Want{Name: "a"}, client.Want{Name: "b"})
		b.is(err, client.ErrLeaseExists) // it holds b
		_, err = s.AcquireAll(b.within(time.Second), client.Want{Name: "a"}, client.Want{Name: "c"})
		b.is(err, client.ErrUnavailable, context.DeadlineExceeded)
		if b.waiters("a")+b.waiters("c") != 0 || b.available("a") != 1 {
			b.Error("the request still waits, or holds")
		}
	})
}

// A node that stops sends waiters away early: they come back, but not in a tight loop.
func TestEarlyAnswersDoNotSpin(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.put("db", 1)
		s := b.session(time.Hour)
		b.net.follow(on("PUT", "/leases/", fault{status: 202, text: `{"session":"1","position":1}`}))
		_, err := s.Acquire(b.within(time.Minute), "db")
		b.is(err, client.ErrUnavailable)
		if n := len(b.net.requests()); n > 60 || n < 20 {
			b.Errorf("asked %d times in a minute", n)
		}
		b.net.follow(on("GET", "index=", fault{status: 200, text: `{"name":"db","modified_index":7}`}))
		for range b.c.Watch(b.within(time.Minute), "db") {
			continue
		}
		if n := len(b.net.requests()); n > 60 || n < 20 {
			b.Errorf("watched %d times in a minute", n)
		}
	})
}

// An overload that meets a repeat must not cost the place in the queue.
func TestLimitDuringAWaitKeepsThePlace(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.put("db", 1)
		free := b.occupy("db", 1)
		s := b.session(time.Hour)
		waits := later(func() (*client.Lease, error) { return s.Acquire(b.ctx, "db") })
		time.Sleep(49 * time.Second) // virtual
		b.net.follow(first(3, "PUT", "/leases/", fault{status: 429, code: "limit-reached"}))
		time.Sleep(time.Minute) // virtual
		if b.waiters("db") != 1 {
			b.Error("the place is gone")
		}
		free()
		b.ok((<-waits).err)
	})
}

func TestReleaseIsConfirmedEvenIfLate(t *testing.T) {
	virtually(t, 2, func(b *bed) {
		b.put("db", 1)
		s := b.session(time.Minute)
		lease, err := s.Acquire(b.ctx, "db")
		b.ok(err)
		b.net.follow(on("DELETE", "", fault{refused: true}))
		b.is(lease.Release(b.within(3*time.Second)), context.DeadlineExceeded)
		again := later(func() (*client.Lease, error) { return s.Acquire(b.ctx, "db") }) // waits for the release
		time.Sleep(5 * time.Minute)                                                     // virtual
		if b.available("db") != 0 {
			b.Fatal("released by nobody")
		}
		b.net.follow(nil)
		r := <-again
		b.ok(r.err)
		if r.lease.Token == lease.Token {
			b.Error("the lease that was released")
		}
		b.ok(lease.Release(b.ctx))
		b.ok(r.lease.Err())
	})
}

// An attempt that the network delivers after the reply to its repeat must not take
// effect again: not release a later lease, not acquire behind one's back.
func TestLateDuplicatesChangeNothing(t *testing.T) {
	virtually(t, 2, func(b *bed) {
		b.put("db", 1)
		s := b.session(time.Hour)
		b.net.follow(first(1, "PUT", "/leases/", fault{lateApply: 20 * time.Second}))
		lease, err := s.Acquire(b.ctx, "db")
		b.ok(err)
		b.ok(lease.Release(b.ctx))
		time.Sleep(time.Minute) // virtual
		if b.available("db") != 1 {
			b.Error("acquired behind the session's back")
		}
		lease = b.acquire(s, "db")
		b.net.follow(first(1, "DELETE", "/leases/", fault{lateApply: 20 * time.Second}))
		b.ok(lease.Release(b.ctx))
		b.acquire(s, "db")
		time.Sleep(time.Minute) // virtual
		if b.available("db") != 0 {
			b.Error("the later lease was released")
		}
	})
}

// A request that was given up on its way to a node, and that the node carries out after the
// withdrawal, must not leave the session a lease that its client doesn't know of.
func TestGivenUpAcquireComesToNothing(t *testing.T) {
	asks := map[string]func(s *client.Session, b *bed) error{
		"acquire": func(s *client.Session, b *bed) error {
			_, err := s.Acquire(b.within(3*time.Second), "db")
			return err
		},
		"try": func(s *client.Session, b *bed) error {
			_, err := s.TryAcquire(b.within(3*time.Second), "db")
			return err
		},
		"all": func(s *client.Session, b *bed) error {
			_, err := s.AcquireAll(b.within(3*time.Second), client.Want{Name: "db"}, client.Want{Name: "other"})
			return err
		},
		"any": func(s *client.Session, b *bed) error {
			_, err := s.AcquireAny(b.within(3*time.Second), client.Want{Name: "db"}, client.Want{Name: "other"})
			return err
		},
	}
	for name, ask := range asks {
		for _, free := range []bool{true, false} { // when the request is given up
			t.Run(fmt.Sprint(name, free), func(t *testing.T) {
				virtually(t, 1, func(b *bed) {
					b.put("db", 1).put("other", 1)
					give := []func(){}
					if !free {
						give = append(give, b.occupy("db", 1), b.occupy("other", 1))
					}
					s := b.session(time.Hour)
					late := fault{lateApply: 20 * time.Second}
					b.net.follow(func(_ sent, nth int) fault {
						if nth == 1 {
							return late
						}
						return fault{}
					})
					b.is(ask(s, b), context.DeadlineExceeded, client.ErrUnavailable)
					for _, give := range give {
						give()
					}
					time.Sleep(time.Minute) // virtual
					if b.available("db") != 1 || b.available("other") != 1 {
						b.Error("acquired behind the session's back")
					}
					lease, err := s.Acquire(b.within(time.Second), "db")
					b.ok(err)
					b.ok(lease.Release(b.ctx))
				})
			})
		}
	}
}

// A release that no key protects, since the cluster has no room for it, and that the
// network delivers late, ends the lease that it meant and no later one.
func TestLateReleaseMeansItsOwnLease(t *testing.T) {
	virtually(t, 2, func(b *bed) {
		b.put("db", 1)
		s := b.session(time.Hour)
		lease := b.acquire(s, "db")
		lates := 0
		b.net.follow(func(s sent, nth int) fault { // each attempt without a key arrives, late
			if s.method != "DELETE" || s.key != "" || lates > 0 {
				return noKeys(s, nth)
			}
			lates++
			return fault{lateApply: 20 * time.Second}
		})
		b.ok(lease.Release(b.ctx))
		again := b.acquire(s, "db")
		time.Sleep(time.Minute) // virtual
		if lates != 1 || b.available("db") != 0 {
			b.Errorf("%d late, %d available: the later lease was released", lates, b.available("db"))
		}
		b.ok(again.Err())
	})
}

// noKeys is the network to a cluster that has no room for keys.
func noKeys(s sent, _ int) fault {
	if s.key == "" {
		return fault{}
	}
	return full("keys")
}

func TestSessionsGoOnWithoutRoomForKeys(t *testing.T) {
	virtually(t, 2, func(b *bed) {
		b.put("db", 1)
		s := b.session(30 * time.Second)
		b.net.follow(noKeys)
		lease, err := s.Acquire(b.ctx, "db")
		b.ok(err)
		b.ok(lease.Release(b.ctx))
		_, err = b.c.Up(b.ctx, "db", 1)
		b.is(err, client.ErrLimitReached)
		var e *client.Error
		if !errors.As(err, &e) || e.Rule != "keys" {
			b.Errorf("%v", err)
		}
	})
}
