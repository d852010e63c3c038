package client_test

import (
	"context"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client"
)

// closer is a lease or session that is given back by its owner.
type closer struct {
	name  string
	ttl   time.Duration
	close func(context.Context) error
}

// closers opens one of each kind; each holds one permit of "db".
func (b *bed) closers(kind string) closer {
	const ttl = 30 * time.Second
	lone, err := b.c.Acquire(b.ctx, "db", client.TTL(ttl))
	b.ok(err)
	if kind == "one-call lease" {
		return closer{kind, ttl, lone.Release}
	}
	b.ok(lone.Release(b.ctx))
	s := b.session(ttl)
	lease := b.acquire(s, "db")
	switch kind {
	case "session":
		return closer{kind, ttl, s.Close}
	case "client":
		return closer{kind, ttl, b.c.Close}
	}
	return closer{kind, ttl, func(ctx context.Context) error { // a lease of a session that was closed
		_ = s.Close(ctx)
		return lease.Release(ctx)
	}}
}

var closed = []string{"one-call lease", "session", "client", "lease of a closed session"}

// freeWithin reports whether the permit is back after so long.
func (b *bed) freeWithin(d time.Duration) bool {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) { // virtual
		if b.available("db") == 1 {
			return true
		}
	}
	return b.available("db") == 1
}

// An end that is unconfirmed when ctx ends goes on in the background, and a second call
// returns its outcome.
func TestCloseGoesOnInTheBackground(t *testing.T) {
	for _, kind := range closed {
		for name, f := range map[string]fault{"refused": {refused: true}, "silent": {hang: true}, "overloaded": overloaded(),
			"limit": {status: 429, code: "limit-reached"}, "a proxy's": {status: 404, text: "<html>"}} {
			t.Run(kind+", "+name, func(t *testing.T) {
				virtually(t, 3, func(b *bed) {
					b.put("db", 1)
					c := b.closers(kind)
					b.net.follow(always(f))
					began := time.Now()
					b.is(c.close(b.within(2*time.Second)), context.DeadlineExceeded, client.ErrUnreachable)
					b.took(began, 2*time.Second, 2*time.Second)
					began = time.Now()
					b.is(c.close(b.within(3*time.Second)), context.DeadlineExceeded, client.ErrUnreachable)
					b.took(began, 3*time.Second, 3*time.Second)
					if b.available("db") != 0 {
						b.Fatal("free without a release")
					}
					b.net.follow(nil)
					if !b.freeWithin(6 * time.Second) { // the cluster's own expiry comes 20 s later
						b.Error("not released in the background")
					}
					b.ok(c.close(b.within(time.Second)))
					b.ok(c.close(b.ctx))
				})
			})
		}
	}
}

// With time enough, Release and Close outlast an outage and an overload.
func TestCloseGoesOnUntilItsContextEnds(t *testing.T) {
	for _, kind := range closed {
		for name, f := range map[string]fault{"limit": {status: 429, code: "limit-reached"}, "overloaded": overloaded(), "500": {status: 500, code: "internal"}} {
			t.Run(kind+", "+name, func(t *testing.T) {
				virtually(t, 3, func(b *bed) {
					b.put("db", 1)
					c := b.closers(kind)
					b.net.follow(always(f))
					time.AfterFunc(15*time.Second, func() { b.net.follow(nil) })
					began := time.Now()
					b.ok(c.close(b.within(25 * time.Second)))
					b.took(began, 15*time.Second, 19*time.Second)
					if b.available("db") != 1 {
						b.Error("not released")
					}
				})
			})
		}
	}
}

// The background gives up at the deadline: then the cluster ends the session itself.
func TestBackgroundEndsWithTheDeadline(t *testing.T) {
	for _, kind := range closed {
		t.Run(kind, func(t *testing.T) {
			virtually(t, 2, func(b *bed) {
				b.put("db", 1)
				c := b.closers(kind)
				b.left = true
				b.net.follow(always(fault{refused: true}))
				b.is(c.close(b.within(time.Second)), context.DeadlineExceeded)
				time.Sleep(c.ttl - 2*time.Second) // virtual
				tried := len(b.net.requests())
				time.Sleep(2 * time.Second) // virtual
				b.net.follow(nil)
				time.Sleep(5 * time.Minute) // virtual
				if n := len(b.net.requests()); n != 0 || tried < 10 {
					b.Errorf("%d requests until the deadline, %d after it", tried, n)
				}
				b.is(c.close(b.ctx), client.ErrUnreachable)
				b.isNot(c.close(b.ctx), context.DeadlineExceeded)
			})
		})
	}
}

// A caller with more time than the lease has left is not cut short: cluster time may
// stand still meanwhile.
func TestCloseOutlastsTheDeadline(t *testing.T) {
	virtually(t, 2, func(b *bed) {
		b.put("db", 1)
		lease, err := b.c.Acquire(b.ctx, "db", client.TTL(time.Second))
		b.ok(err)
		b.net.follow(always(busy("1")))
		time.AfterFunc(20*time.Second, func() { b.net.follow(nil) })
		began := time.Now()
		b.ok(lease.Release(b.within(time.Minute)))
		b.took(began, 20*time.Second, 22*time.Second)
	})
}
