package client_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/client"
)

// toldLater is a WaitList in a new goroutine.
func toldLater(ctx context.Context, s *client.Session) <-chan string {
	done := make(chan string, 1)
	go func() { done <- toldNow(ctx, s) }()
	return done
}

func toldNow(ctx context.Context, s *client.Session) string {
	all, err := s.WaitList(ctx)
	if err != nil {
		return err.Error()
	}
	told := ""
	for _, c := range all {
		told += fmt.Sprintf("%s %d %v", c.Name, c.Granted, c.Deleted)
		if c.Superseded {
			told += " superseded"
		}
		told += ";"
	}
	return told
}

// listed opens a session that waits for permits of semaphores without any.
func (s *service) listed(c *client.Client, names ...string) *client.Session {
	s.Helper()
	session, err := c.OpenSession(s.ctx, client.SessionOptions{})
	s.ok(err)
	for _, name := range names {
		_, _, err := c.Create(s.ctx, name, 0)
		s.ok(err)
		entry, err := session.AddToWaitList(s.ctx, name, 5)
		s.ok(err)
		if entry.Name != name || entry.Wanted != 5 || entry.Granted != 0 || entry.Position != 1 || entry.Epoch == 0 {
			s.Errorf("%+v", entry)
		}
	}
	return session
}

func TestRealWaitList(t *testing.T) {
	really(t, 3, func(s *service, c *client.Client) {
		session := s.listed(c, "wait", "b/&", "..")
		up := func(name string, n int64) {
			s.Helper()
			_, err := c.Up(s.ctx, name, n)
			s.ok(err)
		}
		told := toldLater(s.ctx, session)
		time.Sleep(2 * time.Minute) // virtual: beyond what one request waits
		up("b/&", 2)
		if got := <-told; got != "b/& 2 false;" {
			t.Errorf("told %q", got)
		}
		s.loseFirst(1, "PUT", "/waitlist/") // its repeat must not add twice
		entry, err := session.AddToWaitList(s.ctx, "wait", 2)
		s.ok(err)
		if entry.Wanted != 7 {
			t.Errorf("%+v", entry)
		}
		s.loseFirst(1, "POST", "/waitlist/wait") // its repeat must return the same
		up("wait", 3)
		if got := toldNow(s.ctx, session); got != "wait 3 false;" {
			t.Errorf("told %q", got)
		}
		s.is(func() error { _, err := session.AddToWaitList(s.ctx, "..", 1, client.Epoch(77)); return err }(), client.ErrPreconditionFailed)
		s.ok(session.RemoveFromWaitList(s.ctx, ".."))
		s.ok(session.RemoveFromWaitList(s.ctx, ".."))
		began := time.Now()
		if got := toldNow(s.ctx, session); got != "" || time.Since(began) > time.Second {
			t.Errorf("an empty list: %q after %v", got, time.Since(began))
		}
		_, err = session.AddToWaitList(s.ctx, "", 1)
		s.is(err, client.ErrInvalidRequest)
		_, err = session.AddToWaitList(s.ctx, "none", 1)
		s.is(err, client.ErrUnknownSemaphore)
	})
}

func TestRealWaitListEnds(t *testing.T) {
	really(t, 3, func(s *service, c *client.Client) {
		session := s.listed(c, "a", "b")
		ctx, cancel := context.WithTimeout(s.ctx, 3*time.Second)
		defer cancel()
		_, err := session.WaitList(ctx)
		s.is(err, context.DeadlineExceeded, client.ErrUnavailable)

		// Delivered just as the caller's time ends, by replies that it does not get.
		ctx, hangUp := context.WithCancel(s.ctx)
		s.loseFirst(3, "POST", "/waitlist/wait")
		told := toldLater(ctx, session)
		time.Sleep(time.Second) // virtual
		_, err = c.Up(s.ctx, "a", 2)
		s.ok(err)
		synctest.Wait() // all nodes have been asked, and it rests
		hangUp()
		if got := <-told; got != "a 2 false;" {
			t.Errorf("told %q", got)
		}

		told = toldLater(s.ctx, session)
		time.Sleep(time.Second) // virtual
		s.stop(s.leader())
		time.Sleep(10 * time.Second) // virtual
		s.ok(c.Delete(s.ctx, "b"))
		if got := <-told; got != "b 0 true;" {
			t.Errorf("told %q", got)
		}

		_, _, err = c.Create(s.ctx, "newest", 0, client.MaxWaiting(1), client.WhenFull(client.DropOldest))
		s.ok(err)
		_, err = session.AddToWaitList(s.ctx, "newest", 1)
		s.ok(err)
		told = toldLater(s.ctx, session)
		time.Sleep(time.Second) // virtual
		newer, err := c.OpenSession(s.ctx, client.SessionOptions{})
		s.ok(err)
		began := time.Now()
		_, err = newer.AddToWaitList(s.ctx, "newest", 1)
		s.ok(err)
		if got := <-told; got != "newest 0 false superseded;" || time.Since(began) > time.Second {
			t.Errorf("told %q after %v", got, time.Since(began))
		}

		_, err = session.AddToWaitList(s.ctx, "a", 1)
		s.ok(err)
		ends := make(chan error, 1)
		go func() {
			_, err := session.WaitList(s.ctx)
			ends <- err
		}()
		time.Sleep(time.Second) // virtual
		s.ok(session.Close(s.ctx))
		s.is(<-ends, client.ErrClosed)
		_, err = session.WaitList(s.ctx)
		s.is(err, client.ErrClosed)
	})
}

// An ask that the network delivers after its caller has given up takes ready
// entries off the list: the next caller gets them.
func TestRealLateDeliveryGoesToTheNextCall(t *testing.T) {
	really(t, 3, func(s *service, c *client.Client) {
		session := s.listed(c, "jobs")
		s.net.follow(first(1, "POST", "/waitlist/wait", fault{lateApply: 10 * time.Second}))
		ctx, cancel := context.WithCancel(s.ctx)
		time.AfterFunc(time.Second, cancel)
		_, err := session.WaitList(ctx)
		s.is(err, context.Canceled, client.ErrUnavailable)
		_, err = c.Up(s.ctx, "jobs", 2)
		s.ok(err)
		time.Sleep(10 * time.Second) // virtual
		if got := toldNow(s.ctx, session); got != "jobs 2 false;" {
			t.Errorf("told %q", got)
		}
		_, err = session.AddToWaitList(s.ctx, "jobs", 1)
		s.ok(err)
		_, err = c.Up(s.ctx, "jobs", 1)
		s.ok(err)
		if got := toldNow(s.ctx, session); got != "jobs 1 false;" {
			t.Errorf("the next one: told %q", got)
		}
	})
}

// Two calls of one session get two deliveries, though they share a key.
func TestRealWaitListCallsTakeTurns(t *testing.T) {
	really(t, 3, func(s *service, c *client.Client) {
		session := s.listed(c, "a", "b")
		first, second := toldLater(s.ctx, session), toldLater(s.ctx, session)
		ctx, cancel := context.WithTimeout(s.ctx, time.Second)
		defer cancel()
		_, err := session.WaitList(ctx)
		s.is(err, context.DeadlineExceeded, client.ErrUnavailable)
		for _, name := range []string{"a", "b"} {
			_, err := c.Up(s.ctx, name, 1)
			s.ok(err)
			time.Sleep(time.Second) // virtual
		}
		if got := []string{<-first, <-second}; !slices.Contains(got, "a 1 false;") || !slices.Contains(got, "b 1 false;") {
			t.Errorf("told %q", got)
		}
	})
}
