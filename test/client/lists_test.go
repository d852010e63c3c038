package client_test

import (
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
)

// listed goes through a list, and returns a text of each member. change runs after the first.
func listed[T any](s *service, list iter.Seq2[T, error], text func(T) string, change func()) string {
	s.Helper()
	var found []string
	for item, err := range list {
		s.ok(err)
		if found = append(found, text(item)); len(found) == 1 && change != nil {
			change()
		}
	}
	return strings.Join(found, " ")
}

// TestRealLists reads all holders, waiters and leases from the leader and from each follower, by
// pages of several sizes, and goes on behind members that are gone.
func TestRealLists(t *testing.T) {
	really(t, 3, func(s *service, c *client.Client) {
		s.put("db", 5)
		var sessions []*client.Session
		var holders, names []string
		for range 5 {
			session, err := c.OpenSession(s.ctx, client.SessionOptions{TTL: time.Hour})
			s.ok(err)
			_, err = session.Acquire(s.ctx, "db")
			s.ok(err)
			sessions, holders = append(sessions, session), append(holders, session.ID())
		}
		for i := range 4 {
			name := fmt.Sprint("more/", 3-i)
			_, _, err := c.Put(s.ctx, name, client.Permits(1))
			s.ok(err)
			_, err = sessions[0].Acquire(s.ctx, name)
			s.ok(err)
			names = append(names, name)
		}
		for i := range 3 {
			waits := make(chan struct{})
			go func() {
				close(waits)
				_, _ = c.Down(s.ctx, "db", int64(i+1))
			}()
			<-waits
			time.Sleep(time.Second) // virtual: it waits in line
		}
		leader := s.leader()
		for id := range s.nodes {
			at, err := client.New(client.Config{Addresses: []string{"http://" + id}, HTTPClient: newHTTP(s.net)})
			s.ok(err)
			o := operator.New(at)
			for size := 1; size <= 6; size += 2 {
				setting := fmt.Sprintf("%d a page, at %s, the leader is %s", size, id, leader)
				if got := listed(s, o.ListHolders(s.ctx, "db", operator.PageSize(size)), func(h *client.Holder) string { return h.Session }, nil); got != strings.Join(holders, " ") {
					t.Errorf("holders %s, want %s, %s", got, holders, setting)
				}
				waiter := func(w *client.Waiter) string { return fmt.Sprintf("%d:%d", w.Position, w.Count) }
				if got := listed(s, o.ListWaiters(s.ctx, "db", operator.PageSize(size)), waiter, nil); got != "1:1 2:2 3:3" {
					t.Errorf("waiters %s, %s", got, setting)
				}
				if got := listed(s, o.ListLeases(s.ctx, holders[0], operator.PageSize(size)), func(l *operator.Lease) string { return l.Semaphore }, nil); got != "db "+strings.Join(names, " ") {
					t.Errorf("leases %s, %s", got, setting)
				}
			}
			s.ok(at.Close(s.ctx))
		}
		gone := listed(s, operator.New(c).ListHolders(s.ctx, "db", operator.PageSize(1)), func(h *client.Holder) string { return h.Session }, func() {
			s.ok(sessions[0].Close(s.ctx)) // the permit goes to a Down, which is no holder
		})
		if gone != strings.Join(holders, " ") {
			t.Errorf("holders %s while the first goes, want %s", gone, holders)
		}
		for _, err := range operator.New(c).ListWaiters(s.ctx, "none") {
			s.is(err, client.ErrUnknownSemaphore)
		}
		for _, err := range operator.New(c).ListHolders(s.ctx, "") {
			s.is(err, client.ErrInvalidRequest)
		}
		for _, err := range operator.New(c).ListLeases(s.ctx, "../x") {
			s.is(err, client.ErrInvalidRequest)
		}
	})
}

// TestRealConditionalChange: of two programs that read a semaphore and change its permits, the
// second is refused; leases and metadata of others don't matter, but a new epoch does.
func TestRealConditionalChange(t *testing.T) {
	really(t, 1, func(s *service, c *client.Client) {
		_, _, err := c.Put(s.ctx, "db", client.OnlyExisting(), client.Permits(2))
		s.is(err, client.ErrUnknownSemaphore)
		s.put("db", 2)
		seen, err := c.Get(s.ctx, "db")
		s.ok(err)
		_, err = c.Acquire(s.ctx, "db") // moves no setting
		s.ok(err)
		changed, created, err := c.Put(s.ctx, "db", client.OnlyExisting(), client.Unchanged(seen), client.Permits(seen.Permits+1))
		s.ok(err)
		if created || changed.Permits != 3 || changed.Settings != seen.Settings+1 {
			t.Errorf("created %v, changed to %+v", created, changed)
		}
		_, _, err = c.Put(s.ctx, "db", client.OnlyExisting(), client.Unchanged(seen), client.Permits(9))
		s.is(err, client.ErrPreconditionFailed)
		_, _, err = c.Put(s.ctx, "db", client.Unchanged(changed), client.Metadata{"by": "ops"})
		s.ok(err)
		s.ok(c.Delete(s.ctx, "db"))
		_, _, err = c.Put(s.ctx, "db", client.Unchanged(changed), client.Permits(9))
		s.is(err, client.ErrPreconditionFailed) // no semaphore is made
		s.put("db", 1)
		_, _, err = c.Put(s.ctx, "db", client.Unchanged(seen), client.Permits(9))
		s.is(err, client.ErrPreconditionFailed)
		last, err := c.Get(s.ctx, "db")
		s.ok(err)
		if last.Permits != 1 {
			t.Errorf("%d permits after refusals", last.Permits)
		}
	})
}
