package client_test

import (
	"testing"
	"time"

	"github.com/signalbox/signalbox/client"
)

// An acquire or a down whose permits can be had at once is one request, which may share with others. Where it has
// to wait it asks again, in a request that a node holds. For a second after that, calls for the semaphore ask in
// such a request at once.
func TestCallsTryBeforeTheyWait(t *testing.T) {
	for name, call := range map[string]func(b *bed, s *client.Session) (free func(), err error){
		"one-call": func(b *bed, _ *client.Session) (func(), error) {
			lease, err := b.c.Acquire(b.ctx, "db")
			return func() { b.ok(lease.Release(b.ctx)) }, err
		},
		"session": func(b *bed, s *client.Session) (func(), error) {
			lease, err := s.Acquire(b.ctx, "db")
			return func() { b.ok(lease.Release(b.ctx)) }, err
		},
		"down": func(b *bed, _ *client.Session) (func(), error) {
			_, err := b.c.Down(b.ctx, "db", 1)
			return func() { b.up("db") }, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, 1, func(b *bed) {
				b.put("db", 1)
				session := b.session(time.Hour)
				requests := func() int { return len(b.net.requests()) }
				asks := func(want int) {
					b.Helper()
					before := requests()
					free, err := call(b, session)
					b.ok(err)
					if got := requests() - before; got != want {
						b.Errorf("%d requests, wanted %d", got, want)
					}
					free()
				}
				asks(1)
				for _, want := range []int{2, 1} { // a try before the wait, unless the semaphore is contended
					free := b.occupy("db", 1)
					time.AfterFunc(200*time.Millisecond, free)
					asks(want)
				}
				time.Sleep(time.Second) // virtual
				free := b.occupy("db", 1)
				time.AfterFunc(200*time.Millisecond, free)
				asks(2)
			})
		})
	}
}

// Calls of one group of a semaphore try before they wait, although another group is contended.
func TestContentionIsOfAGroup(t *testing.T) {
	for name, call := range map[string]func(b *bed, s *client.Session) (*client.Lease, error){
		"one-call": func(b *bed, _ *client.Session) (*client.Lease, error) {
			return b.c.Acquire(b.ctx, "db", client.Group("b"))
		},
		"session": func(b *bed, s *client.Session) (*client.Lease, error) {
			return s.Acquire(b.ctx, "db", client.Group("b"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, 1, func(b *bed) {
				b.family("db")
				session, other := b.session(time.Hour), b.session(time.Hour)
				b.occupyGroup("db", "a")
				_, err := other.TryAcquire(b.ctx, "db", client.Group("a"))
				b.is(err, client.ErrUnavailable)
				_, err = b.c.TryAcquire(b.ctx, "db", client.Group("a"))
				b.is(err, client.ErrUnavailable)
				time.AfterFunc(200*time.Millisecond, b.occupyGroup("db", "b"))
				before := len(b.net.requests())
				_, err = call(b, session)
				b.ok(err)
				if got := len(b.net.requests()) - before; got != 2 {
					b.Errorf("%d requests", got)
				}
			})
		})
	}
}
