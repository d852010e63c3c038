package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client"
)

// The real service, whose replies are lost now and then, carries each call of many
// goroutines out once, although they share requests; callers that give up disturb no other.
func TestRealGather(t *testing.T) {
	really(t, 3, func(s *service, plain *client.Client) {
		c, err := client.New(client.Config{Addresses: []string{"http://n1", "http://n2", "http://n3"}, HTTPClient: newHTTP(s.net)})
		s.ok(err)
		const goroutines, each = 8, 6
		batches := 0
		s.net.follow(func(r sent, _ int) fault {
			if strings.HasSuffix(r.path, "/batch") {
				batches++
			}
			return fault{lose: batches%5 == 4 && strings.HasSuffix(r.path, "/batch")}
		})
		for _, name := range []string{"sum", "taken"} {
			_, _, err := plain.Put(s.ctx, name, client.Permits(0))
			s.ok(err)
		}
		_, err = plain.SetValue(s.ctx, "taken", goroutines*each)
		s.ok(err)
		var all sync.WaitGroup
		for g := range goroutines {
			semaphore := fmt.Sprint("own/", g)
			_, _, err := plain.Put(s.ctx, semaphore, client.Permits(1))
			s.ok(err)
			all.Go(func() { s.gatherers(c, semaphore, each) })
		}
		all.Wait()
		s.net.follow(nil)
		if batches < each {
			t.Errorf("%d shared requests", batches)
		}
		for name, want := range map[string]int64{"sum": goroutines * each, "taken": 0, "own/3": 1} {
			if got, err := plain.Get(s.ctx, name); err != nil || got.Available != want || got.HolderCount+got.WaiterCount != 0 {
				t.Errorf("%s: %+v, %v; want %d", name, got, err, want)
			}
		}
		s.ok(c.Close(s.ctx))
	})
}

// gatherers makes calls of each kind, and some that are given up.
func (s *service) gatherers(c *client.Client, name string, times int) {
	session, err := c.OpenSession(s.ctx, client.SessionOptions{})
	if err != nil {
		s.Error(err)
		return
	}
	for i := range times {
		_, err := c.Up(s.ctx, "sum", 1)
		taken, err2 := c.TryDown(s.ctx, "taken", 1)
		lease, err3 := c.Acquire(s.ctx, name)
		if err != nil || err2 != nil || err3 != nil || taken.Granted != 1 {
			s.Errorf("%v, %v, %v, %+v", err, err2, err3, taken)
			return
		}
		_, err = session.TryAcquire(s.ctx, name)
		s.is(err, client.ErrUnavailable)
		if err := lease.Release(s.ctx); err != nil {
			s.Error(err)
		}
		// Whether this one is granted is left to chance; the permit must come back either way.
		soon, cancel := context.WithTimeout(s.ctx, time.Duration(i)*300*time.Microsecond)
		if lease, err := c.TryAcquire(soon, name); err == nil {
			err = lease.Release(s.ctx)
			if err != nil && !errors.Is(err, client.ErrLost) {
				s.Error(err)
			}
		}
		cancel()
	}
	lease, err := session.TryAcquire(s.ctx, name)
	if err != nil {
		s.Error(err)
		return
	}
	if err := errors.Join(lease.Release(s.ctx), session.Close(s.ctx)); err != nil {
		s.Error(err)
	}
}
