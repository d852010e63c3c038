package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/batch"
)

// renewals returns when the session was renewed, since began.
func (b *bed) renewals(began time.Time) (at []time.Duration) {
	for _, s := range b.net.requests() {
		if s.method == "PUT" && !strings.Contains(s.path, "/leases/") {
			at = append(at, s.at.Sub(began))
		}
	}
	return at
}

func TestSessionIsRenewedEveryThird(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		began := time.Now()
		s := b.session(30 * time.Second)
		time.Sleep(45 * time.Second) // virtual
		if got := fmt.Sprint(b.renewals(began)); got != "[10s 20s 30s 40s]" {
			b.Errorf("renewed at %s", got)
		}
		if left := time.Until(s.Deadline()); left > 25*time.Second-29*time.Millisecond || left < 24900*time.Millisecond {
			b.Errorf("%v left: a clock may go 0.1 %% slower than the leader's", left)
		}
		b.ok(s.Close(b.ctx))
		b.is(s.Err(), client.ErrClosed)
		b.isNot(s.Err(), client.ErrLost)
		if alive(s.Lost()) || b.sessions() != 0 {
			b.Error("the session is not over")
		}
		b.net.follow(nil)
		time.Sleep(time.Minute) // virtual
		if n := len(b.net.requests()); n != 0 {
			b.Errorf("%d requests after Close", n)
		}
	})
}

func TestSlowReplyDoesNotDelayTheNextRenewal(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.net.follow(always(fault{back: 3 * time.Second}))
		began := time.Now()
		b.session(30 * time.Second)
		time.Sleep(30 * time.Second) // virtual
		if got := fmt.Sprint(b.renewals(began)); got != "[10s 20s 30s]" {
			b.Errorf("renewed at %s: counted from the reply instead of the sending", got)
		}
	})
}

func TestOnlyANodesWordEndsASession(t *testing.T) {
	for name, tc := range map[string]struct {
		f    fault
		lost error
	}{
		"404 of something else": {fault{status: 404, text: "not found"}, nil},
		"404 in another JSON":   {fault{status: 404, text: `{"code":"unknown-session"}`}, nil},
		"unknown route":         {fault{status: 404, code: "unknown-route"}, nil},
		"limit":                 {fault{status: 429, code: "limit-reached"}, nil},
		"forbidden":             {fault{status: 403, code: "forbidden"}, nil},
		"nonsense":              {fault{status: 200, text: "<html>"}, nil},
		"unknown session":       {fault{status: 404, code: "unknown-session"}, client.ErrUnknownSession},
		"expired":               {fault{status: 410, code: "expired-session"}, client.ErrExpiredSession},
		"revoked":               {fault{status: 410, code: "revoked"}, client.ErrRevoked},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, 2, func(b *bed) {
				s := b.session(30 * time.Second)
				b.net.follow(first(4, "PUT", "/sessions/", tc.f))
				time.Sleep(2 * time.Minute) // virtual
				if tc.lost == nil && s.Err() != nil {
					b.Errorf("lost: %v", s.Err())
				}
				if tc.lost != nil {
					b.is(s.Err(), client.ErrLost, tc.lost)
					b.is(s.Close(b.ctx), client.ErrLost, tc.lost)
				}
			})
		})
	}
}

func TestLossByTheServersWord(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.put("db", 1)
		s := b.session(30 * time.Second)
		lease, err := s.Acquire(b.ctx, "db")
		b.ok(err)
		b.revokeSession(s.ID(), "maintenance")
		b.lostAfter(10*time.Second, lease.Lost())
		var e *client.Error
		if b.is(lease.Err(), client.ErrLost, client.ErrRevoked); !errors.As(lease.Err(), &e) || e.Reason != "maintenance" {
			b.Errorf("%+v", e)
		}
		_, err = s.Acquire(b.ctx, "db")
		b.is(err, client.ErrLost, client.ErrRevoked)
		b.is(lease.Release(b.ctx), client.ErrLost)
	})
}

func TestRevokedLeaseIsLostAndItsSessionLives(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.put("db", 1).put("other", 1)
		s := b.session(30 * time.Second)
		lease := b.acquire(s, "db")
		other := b.acquire(s, "other")
		b.revoke(s.ID(), "db", "too greedy")
		b.lostAfter(10*time.Second, lease.Lost())
		var e *client.Error
		if b.is(lease.Err(), client.ErrLost, client.ErrRevoked); !errors.As(lease.Err(), &e) || e.Reason != "too greedy" {
			b.Errorf("%+v", e)
		}
		b.is(lease.Release(b.ctx), client.ErrRevoked)
		if other.Err() != nil || s.Err() != nil {
			b.Errorf("the rest is lost too: %v, %v", other.Err(), s.Err())
		}
		again := b.acquire(s, "db")
		if again.Token <= lease.Token {
			b.Error("the same lease again")
		}
	})
}

// A lease of the same session and semaphore with another token is not the lease that was held.
func TestAnotherLeaseInThePlaceOfALostOne(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.put("db", 1)
		s := b.session(30 * time.Second)
		lease := b.acquire(s, "db")
		results, err := batch.Send(b.ctx, b.admin, batch.Operation{Op: "release", Session: s.ID(), Semaphore: "db"}, batch.Operation{Op: "acquire", Session: s.ID(), Semaphore: "db", Try: true})
		b.ok(errors.Join(err, results[0].Err(), results[1].Err()))
		b.lostAfter(10*time.Second, lease.Lost())
		b.is(lease.Err(), client.ErrLost, client.ErrNotHeld)
		if s.Err() != nil {
			b.Errorf("the session is lost too: %v", s.Err())
		}
	})
}

// A release says so if the lease was gone, though the client did not know it yet.
func TestReleaseOfALeaseThatIsGone(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.put("db", 1)
		s := b.session(30 * time.Second)
		lease := b.acquire(s, "db")
		b.ok(b.c.Delete(b.ctx, "db"))
		b.is(lease.Release(b.ctx), client.ErrLost, client.ErrUnknownSemaphore)
	})
}

func TestDeletedSemaphoreLosesItsLeases(t *testing.T) {
	for _, remake := range []bool{false, true} {
		virtually(t, 2, func(b *bed) {
			b.put("db", 1)
			s := b.session(9 * time.Second)
			lease := b.acquire(s, "db")
			b.ok(b.c.Delete(b.ctx, "db"))
			want := client.ErrUnknownSemaphore
			if remake {
				b.put("db", 1)
				want = client.ErrNotHeld
			}
			b.lostAfter(3*time.Second, lease.Lost())
			b.is(lease.Err(), client.ErrLost, want)
		})
	}
}

func TestLossByTheClientsClock(t *testing.T) {
	for name, f := range map[string]fault{"refused": {refused: true}, "silent": {hang: true}, "503": busy("1"), "404": {status: 404, text: "x"}} {
		t.Run(name, func(t *testing.T) {
			virtually(t, 3, func(b *bed) {
				b.put("db", 1)
				s := b.session(30 * time.Second)
				lease := b.acquire(s, "db")
				time.Sleep(15 * time.Second) // virtual
				b.net.follow(always(f))
				time.Sleep(24900 * time.Millisecond) // virtual
				if lease.Err() != nil {
					b.Fatalf("lost although it is held for certain: %v", lease.Err())
				}
				if d := b.lost(lease.Lost()); d > 100*time.Millisecond {
					b.Errorf("%v late", d)
				}
				b.is(lease.Err(), client.ErrLost, client.ErrNotRenewed)
				began := time.Now()
				b.is(s.Close(b.ctx), client.ErrNotRenewed)
				b.took(began, 0, 2*time.Second)
			})
		})
	}
}

func TestOutageShorterThanTheLeaseIsNoLoss(t *testing.T) {
	virtually(t, 3, func(b *bed) {
		b.put("db", 1)
		s := b.session(30 * time.Second)
		lease := b.acquire(s, "db")
		for range 20 {
			b.net.follow(always(fault{hang: true}))
			time.Sleep(18 * time.Second) // virtual
			b.net.follow(nil)
			time.Sleep(12 * time.Second) // virtual
		}
		b.ok(lease.Err())
		b.ok(lease.Release(b.ctx))
	})
}

// A node's Retry-After is a wish; the lease may not be lost over it.
func TestFarRetryAfterDoesNotCostTheLease(t *testing.T) {
	virtually(t, 3, func(b *bed) {
		s := b.session(30 * time.Second)
		b.net.follow(always(busy("60")))
		time.Sleep(25 * time.Second) // virtual
		if n := len(b.net.requests()); n > 30 {
			b.Errorf("asked %d times", n)
		}
		b.net.follow(nil)
		time.Sleep(10 * time.Second) // virtual
		b.ok(s.Err())
	})
}

func TestMarginLosesEarlier(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.put("db", 1)
		s, err := b.c.OpenSession(b.ctx, client.SessionOptions{TTL: 10 * time.Second, Margin: 4 * time.Second})
		b.ok(err)
		lease, err := s.Acquire(b.ctx, "db")
		b.ok(err)
		b.net.follow(always(fault{refused: true}))
		b.lost(lease.Lost())
		if left := time.Until(lease.Deadline()); left != 4*time.Second {
			b.Errorf("lost %v before the deadline", left)
		}
		_, err = b.c.OpenSession(b.ctx, client.SessionOptions{TTL: 10 * time.Second, Margin: 6 * time.Second})
		if err == nil {
			b.Error("a margin that leaves no time to renew was accepted")
		}
	})
}

func TestLostReplyOfOpenLeavesNoSecondSession(t *testing.T) {
	virtually(t, 2, func(b *bed) {
		b.net.follow(first(2, "POST", "/sessions", fault{lose: true}))
		s := b.session(time.Second)
		if b.sessions() != 1 {
			b.Errorf("%d sessions", b.sessions())
		}
		b.ok(s.Close(b.ctx))
		// The reply comes so late that the session is over: another one is opened.
		b.net.follow(first(1, "POST", "/sessions", fault{lateApply: time.Second}))
		s = b.session(time.Second)
		b.ok(s.Err())
	})
}

func TestCloseEndsEverything(t *testing.T) {
	virtually(t, 2, func(b *bed) {
		b.put("db", 2).put("jobs", 1)
		b.occupy("jobs", 1)
		s := b.session(30 * time.Second)
		lease := b.acquire(s, "db")
		single, err := b.c.Acquire(b.ctx, "db")
		b.ok(err)
		ended := make(chan error, 4)
		go func() { _, err := s.Acquire(b.ctx, "jobs"); ended <- err }()
		go func() { _, err := b.c.Acquire(b.ctx, "db"); ended <- err }()
		go func() { _, err := b.c.Down(b.ctx, "jobs", 1); ended <- err }()
		go func() {
			for _, err := range b.c.Watch(b.ctx, "jobs") {
				if err != nil {
					ended <- err
				}
			}
		}()
		time.Sleep(time.Second) // virtual
		began := time.Now()
		b.ok(b.c.Close(b.ctx))
		b.took(began, 0, 0)
		for range 4 {
			b.is(<-ended, client.ErrClosed)
		}
		for _, err := range []error{lease.Err(), single.Err(), s.Err()} {
			b.is(err, client.ErrClosed)
		}
		b.ok(lease.Release(b.ctx))
		if b.sessions() != 1 || b.available("db") != 2 || b.waiters("db")+b.waiters("jobs") != 0 {
			b.Errorf("left behind: %d sessions, %d waiters", b.sessions(), b.waiters("jobs"))
		}
		_, err = b.c.Up(b.ctx, "db", 1)
		b.is(err, client.ErrClosed)
		_, err = b.c.Acquire(b.ctx, "db")
		b.is(err, client.ErrClosed)
		_, err = b.c.OpenSession(b.ctx, client.SessionOptions{})
		b.is(err, client.ErrClosed)
		b.ok(b.c.Close(b.ctx))
	})
}

func TestCloseOfACutOffClientEnds(t *testing.T) {
	virtually(t, 2, func(b *bed) {
		b.put("db", 1)
		s := b.session(30 * time.Second)
		b.acquire(s, "db")
		b.net.follow(always(fault{hang: true}))
		began := time.Now()
		b.is(b.c.Close(b.within(3*time.Second)), context.DeadlineExceeded)
		b.took(began, 3*time.Second, 3*time.Second)
	})
}

// shapes lists the requests, without ids and values.
func (b *bed) shapes(s *client.Session) (shapes []string) {
	for _, sent := range b.net.requests() {
		path, query, _ := strings.Cut(sent.path, "?")
		query, _, _ = strings.Cut(query, "&")
		if sent.key != "" {
			b.Error("a renewal takes up a key")
		}
		shapes = append(shapes, strings.TrimSpace(sent.method+" "+strings.Replace(path, s.ID(), "*", 1)+" "+query))
	}
	return shapes
}

// A renewal is one request, which shows also that the leases are held. Where a node
// can't show them they are read; one that doesn't know of it is asked without.
func TestRenewalIsOneRequest(t *testing.T) {
	const plain, showing, read = "PUT /v1/sessions/*", "PUT /v1/sessions/* leases=true", "GET /v1/sessions/* consistency=stale"
	for _, tc := range []struct {
		name  string
		holds bool
		f     fault
		want  []string // three times
	}{
		{"holds nothing", false, fault{}, []string{plain}},
		{"holds a lease", true, fault{}, []string{showing}},
		{"node is behind", true, fault{strip: "leases=true"}, []string{showing, read}},
		{"node does not know", true, fault{status: 400, code: "invalid-request"}, []string{showing, plain, read}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			virtually(t, 1, func(b *bed) {
				b.put("db", 1).put("other", 1)
				s := b.session(30 * time.Second)
				if tc.holds {
					b.acquire(s, "db")
				}
				b.net.follow(on("PUT", "leases=true", tc.f))
				time.Sleep(31 * time.Second) // virtual
				if got, want := b.shapes(s), slices.Repeat(tc.want, 3); !slices.Equal(got, want) {
					b.Errorf("%q, wanted %q", got, want)
				}
				if !tc.holds {
					return
				}
				lease := b.acquire(s, "other")
				b.revoke(s.ID(), "other", "why")
				b.lost(lease.Lost())
				b.is(lease.Err(), client.ErrLost, client.ErrRevoked)
				b.ok(s.Err())
			})
		})
	}
}

func TestContextOfALease(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.put("db", 2)
		s := b.session(3 * time.Second)
		lease := b.acquire(s, "db")
		ctx, stop := lease.Context(b.ctx)
		defer stop()
		b.net.follow(always(fault{status: http.StatusBadGateway}))
		b.lost(ctx.Done())
		b.is(context.Cause(ctx), client.ErrLost, client.ErrNotRenewed)
	})
}
