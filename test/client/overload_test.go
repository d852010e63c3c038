package client_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client"
)

// overloaded is the reply of a cluster that has too much to do.
func overloaded() fault {
	return fault{status: http.StatusServiceUnavailable, code: "overloaded", header: http.Header{"Retry-After": {"1"}}}
}

// Waits go on through an overload of any length, and add little to it.
func TestAcquireWaitsThroughOverload(t *testing.T) {
	for name, acquire := range map[string]func(b *bed, ctx context.Context) error{
		"one-call": func(b *bed, ctx context.Context) error { _, err := b.c.Acquire(ctx, "db"); return err },
		"session": func(b *bed, ctx context.Context) error {
			s, err := b.c.OpenSession(b.ctx, client.SessionOptions{TTL: time.Hour})
			b.ok(err)
			b.net.follow(always(overloaded()))
			_, err = s.Acquire(ctx, "db")
			return err
		},
		"down": func(b *bed, ctx context.Context) error { _, err := b.c.Down(ctx, "db", 1); return err },
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, 3, func(b *bed) {
				b.put("db", 1)
				if name != "session" {
					b.net.follow(always(overloaded()))
				}
				requests := 0
				time.AfterFunc(5*time.Minute, func() {
					requests = len(b.net.requests())
					b.net.follow(nil)
				})
				began := time.Now()
				b.ok(acquire(b, b.ctx))
				b.took(began, 5*time.Minute, 5*time.Minute+10*time.Second)
				if requests > 300 || requests < 60 {
					b.Errorf("asked %d times in 5 minutes", requests)
				}
			})
		})
	}
}

func TestOverloadEndsWithTheCallersTime(t *testing.T) {
	virtually(t, 3, func(b *bed) {
		b.put("db", 1)
		b.net.follow(always(overloaded()))
		began := time.Now()
		_, err := b.c.Acquire(b.within(10*time.Second), "db")
		b.is(err, context.DeadlineExceeded, client.ErrOverloaded)
		b.isNot(err, client.ErrUnavailable, client.ErrOutcomeUnknown)
		b.took(began, 10*time.Second, 13*time.Second)
		began = time.Now()
		_, err = b.c.Up(b.ctx, "db", 1) // does not wait, and has no deadline
		b.is(err, client.ErrUnreachable, client.ErrOverloaded)
		b.took(began, time.Minute, time.Minute+3*time.Second)
	})
}
