package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/batch"
	"github.com/signalbox/signalbox/client/operator"
)

// TestRealSessionsOfOthers looks at the sessions of another client, renews, revokes and
// ends them.
func TestRealSessionsOfOthers(t *testing.T) {
	really(t, 1, func(s *service, c *client.Client) {
		s.put("db", 2)
		owner, err := c.OpenSession(s.ctx, client.SessionOptions{TTL: 9 * time.Second, Metadata: map[string]string{"host": "w1"}})
		s.ok(err)
		lease, err := owner.Acquire(s.ctx, "db", client.Count(2))
		s.ok(err)
		waits, err := c.OpenSession(s.ctx, client.SessionOptions{})
		s.ok(err)
		waiting := make(chan error, 1)
		go func() {
			_, err := waits.Acquire(s.ctx, "db")
			waiting <- err
		}()
		time.Sleep(time.Second) // virtual
		seen, err := operator.New(c).GetSession(s.ctx, owner.ID())
		s.ok(err)
		if seen.ID != owner.ID() || seen.TTL != 9*time.Second || seen.ExpiresIn <= 0 || seen.ExpiresIn > 9*time.Second || seen.Metadata["host"] != "w1" ||
			len(seen.Leases) != 1 || seen.Leases[0].Semaphore != "db" || seen.Leases[0].Token != lease.Token || seen.Leases[0].ExpiresIn <= 0 {
			t.Errorf("seen as %+v", seen)
		}
		seen, err = operator.New(c).GetSession(s.ctx, waits.ID(), operator.Stale())
		s.ok(err)
		if len(seen.Waiting) != 1 || seen.Waiting[0].Semaphores["db"] != 1 || seen.Waiting[0].WaitingFor < 900*time.Millisecond || seen.Waiting[0].Reason == "" {
			t.Errorf("seen as %+v", seen)
		}
		var again operator.Session
		text, err := json.Marshal(seen)
		s.ok(err)
		s.ok(json.Unmarshal(text, &again))
		if again.TTL != seen.TTL || again.Waiting[0].WaitingFor != seen.Waiting[0].WaitingFor {
			t.Errorf("in JSON it is %s", text)
		}
		list := operator.New(c).ListSessions(s.ctx, operator.PageSize(1))
		for round := range 2 { // the second starts at the first page, too
			count := 0
			for listed, err := range list {
				s.ok(err)
				if listed.ID != owner.ID() && listed.ID != waits.ID() {
					t.Errorf("listed %+v", listed)
				}
				count++
			}
			if count != 2 {
				t.Errorf("%d sessions listed in round %d", count, round)
			}
		}
		s.ok(operator.New(c).Revoke(s.ctx, "db", owner.ID(), "maintenance", 0))
		s.ok(<-waiting)
		<-lease.Lost()
		s.is(lease.Err(), client.ErrLost, client.ErrRevoked)
		s.ok(operator.New(c).RevokeSession(s.ctx, waits.ID(), "too old"))
		_, err = operator.New(c).GetSession(s.ctx, waits.ID())
		s.is(err, client.ErrRevoked)
		var refusal *client.Error
		if !errors.As(err, &refusal) || refusal.Reason != "too old" {
			t.Errorf("refused with %v", err)
		}
		events, cancel := context.WithTimeout(s.ctx, time.Minute)
		defer cancel()
		for _, err := range operator.New(c).Events(events, operator.OfSession(waits.ID())) {
			s.is(err, client.ErrUnknownSession)
		}
		<-waits.Lost()
		s.is(waits.Close(s.ctx), client.ErrLost, client.ErrRevoked) // else the end of the test would report it
		for _, id := range []string{"", "x", "../cluster"} {
			s.is(operator.New(c).EndSession(s.ctx, id), client.ErrInvalidRequest)
			s.is(operator.New(c).Revoke(s.ctx, "db", id, "", 0), client.ErrInvalidRequest)
		}
	})
}

// TestRealDetached leaves a lease behind, which lives for its ttl, is renewed by its id,
// and released by its id.
func TestRealDetached(t *testing.T) {
	really(t, 1, func(s *service, c *client.Client) {
		s.put("db", 1)
		lease, err := c.Acquire(s.ctx, "db", client.TTL(10*time.Second))
		s.ok(err)
		s.ok(lease.Detach())
		s.is(lease.Err(), client.ErrDetached)
		s.is(lease.Detach(), client.ErrDetached)
		time.Sleep(8 * time.Second) // virtual
		left, err := operator.New(c).RenewSession(s.ctx, lease.Session, 20*time.Second)
		s.ok(err)
		if left < 19*time.Second || left > 20*time.Second {
			t.Errorf("%v left", left)
		}
		time.Sleep(15 * time.Second) // virtual
		_, err = c.TryAcquire(s.ctx, "db")
		s.is(err, client.ErrUnavailable)
		s.ok(operator.New(c).ReleaseLease(s.ctx, lease.Session, "db", lease.Token+1)) // another lease's
		_, err = c.TryAcquire(s.ctx, "db")
		s.is(err, client.ErrUnavailable)
		s.ok(operator.New(c).ReleaseLease(s.ctx, lease.Session, "db", lease.Token))
		next, err := c.TryAcquire(s.ctx, "db", client.TTL(time.Second))
		s.ok(err)
		s.ok(next.Detach())
		time.Sleep(3 * time.Second) // virtual
		_, err = operator.New(c).GetSession(s.ctx, next.Session)
		s.is(err, client.ErrExpiredSession)
		session, err := c.OpenSession(s.ctx, client.SessionOptions{})
		s.ok(err)
		held, err := session.TryAcquire(s.ctx, "db")
		s.ok(err)
		if held.Detach() == nil || held.Err() != nil {
			t.Error("a lease of a session was detached")
		}
	})
}

// TestRealWithLease releases after the work, whether it fails, panics or loses the lease.
func TestRealWithLease(t *testing.T) {
	really(t, 1, func(s *service, c *client.Client) {
		s.put("db", 1)
		failed := errors.New("failed")
		s.is(c.WithLease(s.ctx, "db", func(ctx context.Context, l *client.Lease) error {
			if l.Token == 0 || ctx.Err() != nil {
				t.Errorf("%+v, %v", l, ctx.Err())
			}
			return failed
		}), failed)
		func() {
			defer func() { _ = recover() }()
			_ = c.WithLease(s.ctx, "db", func(context.Context, *client.Lease) error { panic("") })
		}()
		err := c.WithLease(s.ctx, "db", func(ctx context.Context, l *client.Lease) error {
			s.ok(operator.New(c).RevokeSession(s.ctx, l.Session, "maintenance"))
			<-ctx.Done()
			return context.Cause(ctx)
		}, client.TTL(3*time.Second))
		s.is(err, client.ErrLost, client.ErrRevoked)
		s.ok(c.WithLease(s.ctx, "db", func(context.Context, *client.Lease) error { return nil }))
		s.is(c.WithLease(s.ctx, "db", nil, client.Count(2)), client.ErrNever)
		seen, err := c.Get(s.ctx, "db")
		s.ok(err)
		if seen.Held != 0 {
			t.Errorf("%d are held", seen.Held)
		}
	})
}

// TestRealCluster reads and changes the cluster.
func TestRealCluster(t *testing.T) {
	really(t, 3, func(s *service, c *client.Client) {
		was := s.leader()
		s.put("db", 1)
		_, err := c.Get(s.ctx, "db") // n1 has applied what came before
		s.ok(err)
		seen, err := operator.New(c).Cluster(s.ctx)
		s.ok(err)
		if seen.Node != "n1" || seen.Leader != was || len(seen.Members) != 3 || seen.ID == "" || seen.Term == 0 || seen.Level == 0 || seen.Members[1].Peer != "n2:8711" {
			t.Errorf("seen as %+v", seen)
		}
		next := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[was]
		s.ok(operator.New(c).TransferLeadership(s.ctx, next))
		for began := time.Now(); s.leader() != next; time.Sleep(10 * time.Millisecond) { // virtual
			if time.Since(began) > time.Minute {
				t.Fatalf("%s leads, not %s", s.leader(), next)
			}
		}
		s.is(operator.New(c).TransferLeadership(s.ctx, "n9"), operator.ErrUnknownMember)
		s.ok(operator.New(c).RaiseLevel(s.ctx, seen.Level))
		s.is(operator.New(c).RaiseLevel(s.ctx, 1<<30), operator.ErrLevelUnknown)
		s.is(operator.New(c).RemoveMember(s.ctx, "n9"), operator.ErrUnknownMember)
		s.ok(operator.New(c).RemoveMember(s.ctx, map[string]string{"n1": "n2", "n2": "n3", "n3": "n2"}[next])) // not n1, which is asked
		for began := time.Now(); len(seen.Members) != 2 || seen.Leader != next; {
			if time.Since(began) > time.Minute { // virtual
				t.Fatalf("seen as %+v", seen)
			}
			time.Sleep(10 * time.Millisecond) // virtual
			seen, err = operator.New(c).Cluster(s.ctx)
			s.ok(err)
		}
		s.is(operator.New(c).RemoveMember(s.ctx, ""), client.ErrInvalidRequest)
	})
}

// TestRealBatch submits operations, one of them refused, and repeats no operation whose reply
// was lost.
func TestRealBatch(t *testing.T) {
	really(t, 1, func(s *service, c *client.Client) {
		permits := int64(3)
		s.loseFirst(2, "POST", "/v1/batch")
		results, err := batch.Send(s.ctx, c,
			batch.Operation{Op: "create", Semaphore: "db", Permits: &permits},
			batch.Operation{Op: "up", Semaphore: "db", Count: 2},
			batch.Operation{Op: "acquire-once", Semaphore: "db", Count: 2, TTL: time.Minute},
			batch.Operation{Op: "up", Semaphore: "none"})
		s.ok(err)
		var lease operator.Lease
		s.ok(json.Unmarshal(results[2].Body, &lease))
		if results[0].Status != 201 || !results[1].Replayed || string(results[1].Body) != `{"value":5}` || lease.ExpiresIn <= 59*time.Second || lease.ExpiresIn > time.Minute || results[2].Err() != nil {
			t.Errorf("%+v, %+v", results, lease)
		}
		s.is(results[3].Err(), client.ErrUnknownSemaphore)
		_, err = batch.Send(s.ctx, c)
		s.ok(err)
	})
}
