package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client"
)

func TestWindowIsSpentAndSettled(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		if s := b.set("tpm", client.Permits(10), client.Window(time.Minute), client.Groups(client.ByRequest)); s.Window != time.Minute {
			b.Errorf("%+v", s)
		}
		lease, err := b.c.Acquire(b.ctx, "tpm", client.Group("acme"), client.Count(6))
		b.ok(err)
		if !lease.Spent() || lease.Slots() != nil {
			b.Errorf("%v %v", lease.Spent(), lease.Slots())
		}
		if settled, err := lease.Settle(b.ctx, 2); err != nil || !settled {
			b.Errorf("%v, %v", settled, err)
		}
		if s := b.get("tpm"); s.Available != 8 || s.Returning != 2 || s.NextReturnIn <= 0 || s.NextReturnIn > 61*time.Second || s.Held != 0 || !s.Holders[0].Spent {
			b.Errorf("%+v", s)
		}
		taken, err := b.c.Down(b.ctx, "tpm", 8, client.Group("other"))
		b.ok(err)
		if taken.Granted != 8 {
			b.Errorf("%+v", taken)
		}
		_, err = b.c.TryDown(b.ctx, "tpm", 1)
		b.is(err, client.ErrUnavailable)
		time.Sleep(62 * time.Second) // virtual
		if settled, err := lease.Settle(b.ctx, 9); err != nil || settled {
			b.Errorf("after the window: %v, %v", settled, err)
		}
		b.ok(lease.Release(b.ctx))
		if s := b.get("tpm"); s.Available != 10 || s.Returning != 0 {
			b.Errorf("%+v", s)
		}
		b.put("plain", 1)
		plain, err := b.c.Acquire(b.ctx, "plain")
		b.ok(err)
		if _, err := plain.Settle(b.ctx, 1); err == nil {
			b.Error("a lease that is no receipt is settled")
		}
	})
}

func TestLostHoldsAreListedAndFreed(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		s := b.set("rig", client.Permits(3), client.OnLost(client.Quarantine), client.Slots(true), client.Cooldown(time.Second), client.MaxHold(2*time.Hour))
		if s.OnLost != client.Quarantine || !s.Slots || s.Cooldown != time.Second || s.MaxHold != 2*time.Hour {
			b.Errorf("%+v", s)
		}
		lease, err := b.c.Acquire(b.ctx, "rig", client.Count(2), client.TTL(time.Second))
		b.ok(err)
		if !slices.Equal(lease.Slots(), []int{0, 1}) || !slices.Equal(b.get("rig").Holders[0].Slots, []int{0, 1}) {
			b.Errorf("%v", lease.Slots())
		}
		b.ok(lease.Detach())
		time.Sleep(3 * time.Second) // virtual
		var found []*client.LostHold
		for lost, err := range b.c.ListLost(b.ctx, "rig", client.PageSize(1)) {
			b.ok(err)
			found = append(found, lost)
		}
		if len(found) != 1 || found[0].Token != lease.Token || found[0].Count != 2 || found[0].BackIn != nil || !slices.Equal(found[0].Slots, []int{0, 1}) || b.get("rig").LostCount != 1 {
			b.Fatalf("%+v", found)
		}
		text, err := json.Marshal(found[0])
		b.ok(err)
		var again client.LostHold
		if b.ok(json.Unmarshal(text, &again)); again.BackIn != nil || again.Token != lease.Token || again.LostFor != found[0].LostFor {
			b.Errorf("%s", text)
		}
		b.ok(b.c.FreeLost(b.ctx, "rig", lease.Token, "bench checked"))
		b.is(b.c.FreeLost(b.ctx, "rig", lease.Token, ""), client.ErrNotLost)
		if b.available("rig") != 3 {
			b.Errorf("%d available", b.available("rig"))
		}
		s = b.set("rig", client.OnLost("30s"), client.Slots(false), client.Cooldown(0), client.MaxHold(0))
		if s.OnLost != "30s" || s.Slots || s.Cooldown != 0 || s.MaxHold != 0 {
			b.Errorf("%+v", s)
		}
	})
}

// A lease ends here before MaxHold is over in the cluster, whatever its session does, and its session goes on.
func TestMaxHoldEndsALeaseInTime(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.set("db", client.Permits(2), client.MaxHold(100*time.Second), client.OnLost(client.Quarantine))
		b.put("free", 1)
		s := b.session(30 * time.Second)
		began := time.Now()
		held, err := s.Acquire(b.ctx, "db")
		b.ok(err)
		free, err := s.Acquire(b.ctx, "free")
		b.ok(err)
		once, err := b.c.Acquire(b.ctx, "db", client.TTL(30*time.Second))
		b.ok(err)
		for _, lease := range []*client.Lease{held, once} {
			<-lease.Lost()
			var refusal *client.Error
			if b.is(lease.Err(), client.ErrLost, client.ErrRevoked); !errors.As(lease.Err(), &refusal) || refusal.Reason != "max-hold" {
				b.Errorf("%v", lease.Err())
			}
			if took := time.Since(began); took < 95*time.Second || took > 100*time.Second {
				b.Errorf("lost after %v", took)
			}
			if b.get("db").LostCount != 0 {
				b.Error("the cluster ended it first")
			}
		}
		if left := time.Until(free.Deadline()); left < 15*time.Second || free.Err() != nil {
			b.Errorf("%v left, %v", left, free.Err())
		}
		time.Sleep(40 * time.Second) // virtual
		if now := b.get("db"); now.LostCount != 2 || now.Available != 0 || free.Err() != nil || s.Err() != nil {
			b.Errorf("%+v; %v, %v", now, free.Err(), s.Err())
		}
		b.ok(s.Close(b.ctx))
	})
}

// A request for what a session lost after MaxHold finds it free once the cluster has ended the lease.
func TestMaxHoldLeavesTheNameFree(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.set("db", client.Permits(1), client.MaxHold(20*time.Second))
		s := b.session(15 * time.Second)
		first, err := s.Acquire(b.ctx, "db")
		b.ok(err)
		<-first.Lost()
		second, err := s.Acquire(b.ctx, "db")
		b.ok(err)
		if second.Token <= first.Token {
			b.Errorf("%d, then %d", first.Token, second.Token)
		}
		<-second.Lost()
		time.Sleep(12 * time.Second) // virtual: a renewal comes
		third, err := s.Acquire(b.ctx, "db")
		b.ok(err)
		b.set("db", client.OnLost(client.Quarantine))
		<-third.Lost()
		ctx, cancel := context.WithTimeout(b.ctx, 10*time.Second)
		defer cancel()
		if _, err := s.Acquire(ctx, "db"); !errors.Is(err, client.ErrUnavailable) || b.get("db").LostCount != 1 {
			b.Errorf("%v, %d lost: asking again does not free what is lost", err, b.get("db").LostCount)
		}
		b.ok(s.Close(b.ctx))
	})
}
