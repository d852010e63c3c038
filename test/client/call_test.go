package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client"
)

func TestFailOverRemembersWhatWorks(t *testing.T) {
	for _, tc := range []struct {
		name string
		f    fault
	}{
		{"connection refused", fault{refused: true}},
		{"reply lost", fault{lose: true}},
		{"503", busy("1")},
		{"503 of a proxy", fault{status: 503, text: "<html>"}},
		{"502", fault{status: 502, text: "bad gateway"}},
		{"500", fault{status: 500, code: "internal"}},
		{"504", fault{status: 504, code: "outcome-unknown"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			virtually(t, 3, func(b *bed) {
				b.put("db", 3)
				b.net.follow(func(s sent, _ int) fault {
					if s.host == "n1:8701" {
						return tc.f
					}
					return fault{}
				})
				began := time.Now()
				for want := int64(4); want <= 6; want++ {
					value, err := b.c.Up(b.ctx, "db", 1)
					b.ok(err)
					if value != want {
						b.Errorf("value %d, wanted %d", value, want)
					}
				}
				if got := hosts(b.net.requests()); got != "n1 n2 n2 n2" {
					b.Errorf("asked %s", got)
				}
				b.took(began, 0, 0) // the next node is asked at once
			})
		})
	}
}

func TestSilentNodeIsLeftInTime(t *testing.T) {
	virtually(t, 2, func(b *bed) {
		b.put("db", 3)
		b.net.follow(func(s sent, _ int) fault { return fault{hang: s.host == "n1:8701"} })
		began := time.Now()
		_, err := b.c.Get(b.ctx, "db")
		b.ok(err)
		b.took(began, 12*time.Second, 12*time.Second)
	})
}

func TestRepeatHasTheSameKeyAndIsDoneOnce(t *testing.T) {
	for _, f := range []fault{{lose: true}, {status: 504, code: "outcome-unknown"}} {
		virtually(t, 2, func(b *bed) {
			b.put("db", 3)
			b.net.follow(first(3, "POST", "/up", f))
			value, err := b.c.Up(b.ctx, "db", 5)
			b.ok(err)
			if value != 8 || b.available("db") != 8 {
				b.Errorf("value %d, available %d; wanted 8", value, b.available("db"))
			}
			keys := map[string]bool{}
			for _, s := range b.net.requests() {
				keys[s.key] = true
			}
			if len(b.net.requests()) != 4 || len(keys) != 1 || keys[""] {
				b.Errorf("%d requests, keys %v", len(b.net.requests()), keys)
			}
		})
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.put("db", 3)
		b.net.follow(first(1, "GET", "", busy("7")))
		began := time.Now()
		_, err := b.c.Get(b.ctx, "db")
		b.ok(err)
		b.took(began, 7*time.Second, 7*time.Second)
	})
	virtually(t, 2, func(b *bed) { // each node has its own time
		b.put("db", 3)
		answers := []fault{busy("9"), busy("4"), {}}
		b.net.follow(func(_ sent, nth int) fault { return answers[min(nth, 3)-1] })
		began := time.Now()
		_, err := b.c.Get(b.ctx, "db")
		b.ok(err)
		b.took(began, 4*time.Second, 4*time.Second)
		if got := hosts(b.net.requests()); got != "n1 n2 n2" {
			b.Errorf("asked %s", got)
		}
	})
}

func TestCallEndsWithItsContext(t *testing.T) {
	for name, f := range map[string]fault{"refused": {refused: true}, "silent": {hang: true}, "far Retry-After": busy("60")} {
		t.Run(name, func(t *testing.T) {
			virtually(t, 3, func(b *bed) {
				b.net.follow(always(f))
				began := time.Now()
				_, err := b.c.Get(b.within(1500*time.Millisecond), "db")
				b.is(err, context.DeadlineExceeded)
				b.took(began, 1500*time.Millisecond, 1500*time.Millisecond)
				b.isNot(err, client.ErrOutcomeUnknown) // a read has no such outcome
			})
		})
	}
}

func TestUnknownOutcomeIsTold(t *testing.T) {
	for name, tc := range map[string]struct {
		f       fault
		unknown bool
	}{
		"refused":          {fault{refused: true}, false},
		"no leader":        {busy("0"), false},
		"reply lost":       {fault{lose: true}, true},
		"silent":           {fault{hang: true}, true},
		"504":              {fault{status: 504, code: "outcome-unknown"}, true},
		"503 of a proxy":   {fault{status: 503, text: "x"}, true},
		"lost, then limit": {fault{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, 2, func(b *bed) {
				b.put("db", 3)
				b.net.follow(always(tc.f))
				if name == "lost, then limit" {
					answers := []fault{{lose: true}, {status: 429, code: "limit-reached"}}
					b.net.follow(func(_ sent, nth int) fault { return answers[nth-1] })
				}
				_, err := b.c.Up(b.within(3*time.Second), "db", 1)
				if errors.Is(err, client.ErrOutcomeUnknown) != tc.unknown {
					b.Errorf("error %q; unknown outcome wanted: %v", err, tc.unknown)
				}
			})
		})
	}
}

func TestRefusalsAreTypedAndFinal(t *testing.T) {
	all := map[string]error{
		"invalid-request": client.ErrInvalidRequest, "unauthenticated": client.ErrUnauthenticated, "forbidden": client.ErrForbidden,
		"unknown-semaphore": client.ErrUnknownSemaphore, "unknown-session": client.ErrUnknownSession, "not-held": client.ErrNotHeld,
		"unavailable": client.ErrUnavailable, "never": client.ErrNever, "hierarchy": client.ErrHierarchy,
		"lease-exists": client.ErrLeaseExists, "session-exists": client.ErrSessionExists, "overflow": client.ErrOverflow,
		"deleted": client.ErrDeleted, "expired-session": client.ErrExpiredSession, "revoked": client.ErrRevoked,
		"precondition-failed": client.ErrPreconditionFailed, "too-large": client.ErrTooLarge, "key-reused": client.ErrKeyReused,
		"limit-reached": client.ErrLimitReached,
	}
	for code := range all {
		virtually(t, 2, func(b *bed) {
			b.net.follow(always(fault{status: 409, header: http.Header{"Content-Type": {"application/problem+json; charset=utf-8"}, "Retry-After": {"3"}},
				text: fmt.Sprintf(`{"code":%q,"title":"T","detail":"D","permits":3,"available":-1,"level":2,"reason":"why","more":[1]}`, code)}))
			_, err := b.c.Up(b.ctx, "db", 1)
			for other, target := range all {
				if errors.Is(err, target) != (other == code) {
					b.Errorf("%s: errors.Is(%q, %q)", code, err, target)
				}
			}
			var e *client.Error
			if !errors.As(err, &e) || e.Status != 409 || e.Code != code || e.Detail != "D" || *e.Permits != 3 || *e.Available != -1 ||
				*e.Level != 2 || e.Reason != "why" || string(e.Members["more"]) != "[1]" || e.RetryAfter != 3*time.Second {
				b.Errorf("%s: %+v", code, e)
			}
			requests := 1
			if code == "unauthenticated" {
				requests = 2 // each node has its own file of tokens
			}
			if len(b.net.requests()) != requests {
				b.Errorf("%s: asked %d times", code, len(b.net.requests()))
			}
		})
	}
}

func TestFaultOfEveryNodeIsFinal(t *testing.T) {
	virtually(t, 3, func(b *bed) {
		b.net.follow(always(fault{status: 500, code: "internal"}))
		_, err := b.c.Get(b.ctx, "db")
		var e *client.Error
		if !errors.As(err, &e) || e.Status != 500 || hosts(b.net.requests()) != "n1 n2 n3" {
			b.Errorf("%v after %s", err, hosts(b.net.requests()))
		}
	})
}

// Clients begin at different nodes, and turn to different ones when that one fails.
func TestClientsSpreadOverTheNodes(t *testing.T) {
	virtually(t, 3, func(b *bed) {
		b.put("db", 1)
		orders := map[string]int{}
		for range 600 {
			c, err := client.New(client.Config{Addresses: []string{"n1:8701", "n2:8701", "n3:8701"}, HTTPClient: newHTTP(b.net)})
			b.ok(err)
			b.net.follow(always(fault{refused: true}))
			_, err = c.Get(b.within(time.Millisecond), "db")
			b.is(err, client.ErrUnreachable)
			orders[hosts(b.net.requests())]++
			b.ok(c.Close(b.ctx))
		}
		for order, n := range orders {
			if n < 50 {
				b.Errorf("%d of 600 clients try %s", n, order)
			}
		}
		if len(orders) != 6 {
			b.Errorf("tried in %d orders: %v", len(orders), orders)
		}
	})
}

func TestNamesArriveAsWritten(t *testing.T) {
	for _, name := range []string{"/&", "J(3)", `^Rem2("22")`, "a b", "a%2541", ".", "..", "...", "up", "__proto__", "ä/ö?x=1#y", "+"} {
		virtually(t, 1, func(b *bed) {
			made, created, err := b.c.Put(b.ctx, name, client.Permits(2))
			b.ok(err)
			read, err := b.c.Get(b.ctx, name)
			b.ok(err)
			if !created || made.Name != name || read.Name != name {
				b.Errorf("%q: made %q, read %q", name, made.Name, read.Name)
			}
			lease, err := b.session(0).Acquire(b.ctx, name)
			b.ok(err)
			b.ok(lease.Release(b.ctx))
			for _, s := range b.net.requests() {
				if segment := strings.Split(s.path, "/"); segment[len(segment)-1] == ".." || segment[len(segment)-1] == "." {
					b.Errorf("%q was sent as %s", name, s.path)
				}
			}
		})
	}
	virtually(t, 1, func(b *bed) {
		_, err := b.c.Get(b.ctx, "")
		b.is(err, client.ErrInvalidRequest)
		b.is(b.c.Delete(b.ctx, ""), client.ErrInvalidRequest)
		_, err = b.c.Acquire(b.ctx, "")
		b.is(err, client.ErrInvalidRequest)
		_, err = b.session(0).Acquire(b.ctx, "")
		b.is(err, client.ErrInvalidRequest)
	})
}

func TestAddresses(t *testing.T) {
	for _, wrong := range [][]string{nil, {""}, {"ftp://n1"}, {"http://"}, {"http://n1?x=1"}, {"n1", "http://[::1"}} {
		if _, err := client.New(client.Config{Addresses: wrong}); err == nil {
			t.Errorf("%q accepted", wrong)
		}
	}
	virtually(t, 1, func(b *bed) {
		for address, want := range map[string]string{
			"http://h:1/": "/v1/semaphores/a%2Fb", "h:1": "/v1/semaphores/a%2Fb", "http://h:1/pre%2Ffix/": "/pre%2Ffix/v1/semaphores/a%2Fb",
		} {
			c, err := client.New(client.Config{Addresses: []string{address}, HTTPClient: &http.Client{Transport: b.net},
				Header: http.Header{"authorization": {"Bearer x"}}})
			b.ok(err)
			b.net.follow(always(fault{status: 404, code: "unknown-semaphore"}))
			_, err = c.Get(b.ctx, "a/b")
			b.is(err, client.ErrUnknownSemaphore)
			if got := b.net.requests()[0]; got.path != want || got.host != "h:1" {
				b.Errorf("%s: sent %s to %s", address, got.path, got.host)
			}
			b.ok(c.Close(b.ctx))
		}
	})
}
