package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/batch"
	"github.com/signalbox/signalbox/client/operator"
)

// set creates or changes a semaphore, and returns it as a read shows it.
func (n *node) set(name string, opts ...client.PutOption) *client.Semaphore {
	n.Helper()
	_, _, err := n.admin.Put(n.ctx, name, opts...)
	n.ok(err)
	return n.get(name)
}

// pool makes a semaphore with groups, of which each may use perGroup.
func (n *node) pool(name string, permits, perGroup int64) {
	n.Helper()
	n.set(name, client.Permits(permits), client.Groups(client.ByRequest), client.PerGroup(perGroup))
}

// family makes a semaphore with one permit for each group.
func (n *node) family(name string) {
	n.Helper()
	n.set(name, client.NoTotal(), client.Groups(client.ByRequest), client.PerGroup(1))
}

// occupyGroup holds one permit of a group, until free.
func (n *node) occupyGroup(name, group string) (free func()) {
	n.Helper()
	lease, err := n.admin.Acquire(n.ctx, name, client.Group(group), client.TTL(24*time.Hour))
	n.ok(err)
	return func() { n.ok(lease.Release(n.ctx)) }
}

func TestSettingsAreSetShownAndCleared(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		all := []client.PutOption{client.Permits(9), client.Groups(client.ByOwner), client.PerGroup(2), client.Paused("drill"), client.MaxWaiting(7),
			client.WhenFull(client.DropOldest), client.HeadStart(90 * time.Minute)}
		s := b.set("pool", all...)
		if s.NoTotal || s.Permits != 9 || s.Groups != "owner" || s.PerGroup != 2 || s.Paused != "drill" || s.MaxWaiting != 7 || s.WhenFull != "drop-oldest" ||
			s.HeadStart != 90*time.Minute || s.GroupsCount == nil || *s.GroupsCount != 0 {
			b.Errorf("%+v", s)
		}
		if s = b.set("pool", client.MaxWaiting(8)); s.MaxWaiting != 8 || s.WhenFull != "drop-oldest" || s.Paused != "drill" {
			b.Errorf("others changed: %+v", s)
		}
		s = b.set("pool", client.Groups(""), client.PerGroup(0), client.Paused(""), client.MaxWaiting(0), client.WhenFull(""), client.HeadStart(0))
		text, err := json.Marshal(s)
		b.ok(err)
		for _, member := range []string{"groups", "per_group", "paused", "max_waiting", "when_full", "head_start", "null,"} {
			if strings.Contains(strings.ReplaceAll(string(text), `"level":null`, ""), member) {
				b.Errorf("%s is not cleared: %s", member, text)
			}
		}
		_, _, err = b.c.Put(b.ctx, "pool", client.PerGroup(3))
		var refusal *client.Error
		if !errors.As(err, &refusal) || refusal.Field != "per_group" || !errors.Is(err, client.ErrInvalidRequest) {
			b.Errorf("%v", err)
		}
		made, created, err := b.c.Create(b.ctx, "branches", 5, client.NoTotal(), client.Groups(client.ByRequest), client.PerGroup(1), client.HeadStart(time.Second))
		b.ok(err)
		if !created || !made.NoTotal || made.Permits != 0 || made.Available != 0 || made.PerGroup != 1 || made.HeadStart != time.Second {
			b.Errorf("%v %+v", created, made)
		}
		if text, err = json.Marshal(made); err != nil || !strings.Contains(string(text), `"permits":null,"available":null,"head_start_ms":1000`) || strings.Count(string(text), `"permits"`) != 1 {
			b.Errorf("%v %s", err, text)
		}
		var again client.Semaphore
		if b.ok(json.Unmarshal(text, &again)); !again.NoTotal || again.HeadStart != time.Second || again.Name != "branches" {
			b.Errorf("%+v", again)
		}
		if s = b.set("branches", client.Permits(4)); s.NoTotal || s.Permits != 4 || s.Available != 4 {
			b.Errorf("%+v", s)
		}
	})
}

func TestLeasesOfOneSessionInGroups(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.pool("pool", 9, 2)
		s := b.session(30 * time.Second)
		leases := map[string]*client.Lease{}
		for _, group := range []string{"acme", "-/ü", ""} {
			lease, err := s.Acquire(b.ctx, "pool", client.Group(group), client.Count(2))
			b.ok(err)
			if lease.Group != group || lease.Semaphore != "pool" || lease.Count != 2 {
				b.Errorf("%+v", lease)
			}
			leases[group] = lease
		}
		_, err := s.Acquire(b.ctx, "pool", client.Group("acme"))
		b.is(err, client.ErrLeaseExists)
		_, err = s.TryAcquire(b.ctx, "pool", client.Group("other"), client.Count(3))
		b.is(err, client.ErrNever)
		b.ok(leases["acme"].Release(b.ctx))
		if left := b.get("pool").Holders; len(left) != 2 || left[0].Group != "-/ü" || left[1].Group != "" || b.available("pool") != 5 {
			b.Errorf("%+v", left)
		}
		time.Sleep(time.Minute) // virtual: renewals look at each lease
		if leases["-/ü"].Err() != nil || leases[""].Err() != nil {
			b.Errorf("lost: %v, %v", leases["-/ü"].Err(), leases[""].Err())
		}
		b.ok(operator.New(b.admin).Revoke(b.ctx, "pool", s.ID(), "drill", 0, operator.OfGroup("-/ü")))
		b.lost(leases["-/ü"].Lost())
		b.is(leases["-/ü"].Err(), client.ErrLost, client.ErrRevoked)
		b.ok(leases[""].Err())
		again, err := s.Acquire(b.ctx, "pool", client.Group("acme")) // the name is free for another lease
		b.ok(err)
		b.ok(operator.New(b.admin).ReleaseLease(b.ctx, s.ID(), "pool", again.Token, operator.OfGroup("acme")))
		b.lost(again.Lost())
		b.is(again.Err(), client.ErrNotHeld)
		b.ok(s.Close(b.ctx))
	})
}

// A request that is given up is withdrawn in its group alone.
func TestWithdrawalNamesTheGroup(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.family("branches")
		defer b.occupyGroup("branches", "a")()
		s := b.session(30 * time.Second)
		held, err := s.Acquire(b.ctx, "branches", client.Group("b"))
		b.ok(err)
		_, err = s.Acquire(b.within(time.Second), "branches", client.Group("a"))
		b.is(err, client.ErrUnavailable)
		if b.waiters("branches") != 0 || held.Err() != nil {
			b.Errorf("%d wait, %v", b.waiters("branches"), held.Err())
		}
		_, err = b.c.Acquire(b.within(time.Second), "branches", client.Group("a"))
		b.is(err, client.ErrUnavailable)
		free, err := b.c.Acquire(b.within(time.Second), "branches", client.Group("c"))
		b.ok(err)
		if free.Group != "c" {
			b.Errorf("%+v", free)
		}
	})
}

// With groups by owner the same lease comes back for each name, and a session does not hold it twice.
func TestGroupsByOwnerIgnoreTheName(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.set("db", client.Permits(5), client.Groups(client.ByOwner))
		s := b.session(30 * time.Second)
		lease, err := s.Acquire(b.ctx, "db", client.Group("x"))
		b.ok(err)
		if lease.Group != "" {
			b.Errorf("%+v", lease)
		}
		_, err = s.Acquire(b.ctx, "db", client.Group("y"))
		b.is(err, client.ErrLeaseExists)
		_, err = s.AcquireAny(b.ctx, client.Want{Name: "db", Group: "z"}, client.Want{Name: "db", Group: "y", Count: 1})
		if err == nil {
			b.Error("the lease is there twice")
		}
		time.Sleep(time.Minute) // virtual
		b.ok(lease.Err())
		b.net.follow(on("DELETE", "/leases/db", fault{there: time.Second}))
		go func() { b.ok(lease.Release(b.ctx)) }()
		<-lease.Lost()
		token := lease.Token
		lease, err = s.Acquire(b.ctx, "db", client.Group("x")) // waits until the release is confirmed
		b.ok(err)
		if lease.Token == token {
			b.Error("the lease that is released was granted again")
		}
		b.set("db", client.Groups(client.ByRequest)) // names count from now on, and the lease is in the group ""
		b.ok(lease.Release(b.ctx))
		if held := b.get("db").Held; held != 0 {
			b.Errorf("%d held", held)
		}
	})
}

func TestListsOfGroups(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.family("branches")
		b.put("rpm", 3)
		s := b.session(30 * time.Second)
		leases, err := s.AcquireAll(b.ctx, client.Want{Name: "rpm", Count: 2}, client.Want{Name: "branches", Group: "a"}, client.Want{Name: "branches", Group: "b"})
		b.ok(err)
		if len(leases) != 3 || leases[0].Count != 2 || leases[1].Group != "a" || leases[2].Group != "b" {
			b.Errorf("%+v", leases)
		}
		other := b.session(30 * time.Second)
		waiting := later(func() (*client.Lease, error) {
			return other.AcquireAny(b.ctx, client.Want{Name: "branches", Group: "a"}, client.Want{Name: "branches", Group: "b"})
		})
		time.Sleep(2 * time.Minute) // virtual: more than one request
		seen, err := operator.New(b.admin).GetSession(b.ctx, other.ID())
		b.ok(err)
		if wants := fmt.Sprint(seen.Waiting[0].Wants()); len(seen.Waiting) != 1 || len(seen.Waiting[0].Semaphores) != 0 || wants != "[{branches 1 a 0s} {branches 1 b 0s}]" {
			b.Errorf("%+v", seen.Waiting)
		}
		b.ok(leases[2].Release(b.ctx))
		granted := <-waiting
		b.ok(granted.err)
		if granted.lease.Group != "b" {
			b.Errorf("%+v", granted.lease)
		}
		b.ok(granted.lease.Release(b.ctx))
		b.pool("pool", 1, 1)
		b.pool("pool2", 1, 1)
		_, err = s.AcquireAll(b.ctx, client.Want{Name: "pool", Group: "a"}, client.Want{Name: "pool2", Group: "a"})
		b.is(err, client.ErrInvalidRequest)
		_, err = s.AcquireAll(b.ctx, client.Want{Name: "pool", Group: "\xff"})
		b.is(err, client.ErrInvalidRequest)
		if b.get("pool").Held != 0 {
			b.Error("another group was granted")
		}
	})
}

func TestDownAndWaitListNameAGroup(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.pool("pool", 1, 1)
		taken, err := b.c.Down(b.ctx, "pool", 1, client.Group("acme"))
		b.ok(err)
		s := b.session(time.Hour)
		entry, err := s.AddToWaitList(b.ctx, "pool", 1, client.Group("acme"))
		b.ok(err)
		other, err := s.AddToWaitList(b.ctx, "pool", 1, client.Group("b"))
		b.ok(err)
		if taken.Granted != 1 || entry.Group != "acme" || other.Group != "b" || other.Position != 1 || b.waiters("pool") != 2 {
			b.Errorf("%+v %+v %+v", taken, entry, other)
		}
		b.ok(s.RemoveFromWaitList(b.ctx, "pool", client.Group("acme")))
		if waiters := b.get("pool").Waiters; len(waiters) != 1 || waiters[0].Group != "b" {
			b.Errorf("%+v", waiters)
		}
		b.up("pool")
		completed, err := s.WaitList(b.ctx)
		b.ok(err)
		if len(completed) != 1 || completed[0].Group != "b" || completed[0].Granted != 1 {
			b.Errorf("%+v", completed)
		}
		b.family("branches")
		_, err = b.c.Down(b.ctx, "branches", 1)
		b.is(err, client.ErrNoTotal)
		_, err = b.c.Up(b.ctx, "branches", 1)
		b.is(err, client.ErrNoTotal)
		_, err = s.AddToWaitList(b.ctx, "branches", 1)
		b.is(err, client.ErrNoTotal)
	})
}

func TestGroupsAreListedAndLimited(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.pool("pool", 9, 2)
		for _, group := range []string{"", "-", "-/x", "a b"} {
			b.ok(b.c.SetGroupLimit(b.ctx, "pool", group, 1))
			state, err := b.c.GetGroup(b.ctx, "pool", group)
			b.ok(err)
			if state.Group != group || !state.Own || state.Limit == nil || *state.Limit != 1 {
				b.Errorf("%q: %+v", group, state)
			}
		}
		b.occupyGroup("pool", "a b")
		waiting := later(func() (*client.Lease, error) { return b.c.Acquire(b.within(time.Minute), "pool", client.Group("a b")) })
		time.Sleep(5 * time.Second) // virtual
		names := func(opts ...client.GroupsOption) (text string) {
			for state, err := range b.c.ListGroups(b.ctx, "pool", opts...) {
				b.ok(err)
				text += fmt.Sprintf("%q %d %d;", state.Group, state.Used, state.Waiting)
			}
			return text
		}
		if got := names(client.PageSize(1), client.Stale()); got != `"" 0 0;"-" 0 0;"-/x" 0 0;"a b" 1 1;` {
			b.Error(got)
		}
		if got := names(client.OnlyWaiting()); got != `"a b" 1 1;` {
			b.Error(got)
		}
		state, err := b.c.GetGroup(b.ctx, "pool", "a b")
		b.ok(err)
		text, _ := json.Marshal(state)
		if state.OldestWait < 4*time.Second || state.OldestWait > 5*time.Second || !strings.Contains(string(text), `"oldest_wait_ms":`) {
			b.Errorf("%s", text)
		}
		b.ok(b.c.ClearGroupLimit(b.ctx, "pool", "a b")) // two per group
		b.ok((<-waiting).err)
		b.ok(b.c.ClearGroupLimit(b.ctx, "pool", "-"))
		_, err = b.c.GetGroup(b.ctx, "pool", "-")
		b.is(err, client.ErrUnknownGroup)
		var refusal *client.Error
		b.ok(b.c.SetGroupLimit(b.ctx, "pool", "none", 0))
		if _, err = b.c.Acquire(b.ctx, "pool", client.Group("none")); !errors.As(err, &refusal) || refusal.Group != "none" || !errors.Is(err, client.ErrNever) {
			b.Errorf("%v", err)
		}
		for _, err := range b.c.ListGroups(b.ctx, "") {
			b.is(err, client.ErrInvalidRequest)
		}
		b.is(b.c.SetGroupLimit(b.ctx, "", "a", 1), client.ErrInvalidRequest)
		b.is(b.c.SetGroupLimit(b.ctx, "nosuch", "a", 1), client.ErrUnknownSemaphore)
		epoch := b.get("pool").Epoch
		b.is(b.c.SetGroupLimit(b.ctx, "pool", "a", 1, client.Epoch(epoch+1)), client.ErrPreconditionFailed)
		for _, err := range b.c.ListGroups(b.ctx, "pool", client.Epoch(epoch+1)) {
			b.is(err, client.ErrPreconditionFailed)
		}
	})
}

func TestPauseKeepsPlacesAndTries(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.put("db", 1)
		b.ok(b.c.Pause(b.ctx, "db", "disk swap"))
		_, err := b.c.TryAcquire(b.ctx, "db")
		var refusal *client.Error
		if !errors.As(err, &refusal) || refusal.Reason != "disk swap" || refusal.Rule != "paused" {
			b.Errorf("%v", err)
		}
		waiting := later(func() (*client.Lease, error) { return b.c.Acquire(b.ctx, "db") })
		time.Sleep(time.Minute) // virtual
		if s := b.get("db"); s.Paused != "disk swap" || s.WaiterCount != 1 || s.Waiters[0].BlockedBy != "paused" {
			b.Errorf("%+v", s)
		}
		b.ok(b.c.Resume(b.ctx, "db"))
		b.ok((<-waiting).err)
		b.is(b.c.Pause(b.ctx, "nosuch", "x"), client.ErrUnknownSemaphore)
		b.is(b.c.Pause(b.ctx, "", "x"), client.ErrInvalidRequest)
		b.is(b.c.Pause(b.ctx, "db", ""), client.ErrInvalidRequest)
		b.is(b.c.Pause(b.ctx, "db", "x", client.Epoch(b.get("db").Epoch+1)), client.ErrPreconditionFailed)
		b.family("branches")
		b.is(b.c.Pause(b.ctx, "branches", "x"), client.ErrInvalidRequest)
	})
}

// A full line and a newer request are final: the client does not ask again, and leaves no request behind.
func TestShortLinesAreFinal(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.set("db", client.Permits(1), client.MaxWaiting(1))
		free := b.occupy("db", 1)
		first, second := b.session(time.Hour), b.session(time.Hour)
		b.contend("db")
		old := later(func() (*client.Lease, error) { return first.Acquire(b.ctx, "db") })
		time.Sleep(time.Minute) // virtual
		before := len(b.net.requests())
		_, err := second.Acquire(b.ctx, "db")
		b.is(err, client.ErrLineFull)
		b.isNot(err, client.ErrUnavailable)
		if n := len(b.net.requests()) - before; n > 2 { // a try, and the request
			b.Errorf("%d requests", n)
		}
		_, err = b.c.Acquire(b.ctx, "db")
		b.is(err, client.ErrLineFull)
		_, err = b.c.Down(b.ctx, "db", 1)
		b.is(err, client.ErrLineFull)
		b.set("db", client.WhenFull(client.DropOldest))
		newer := later(func() (*client.Lease, error) { return second.Acquire(b.ctx, "db") })
		b.is((<-old).err, client.ErrSuperseded)
		down := make(chan error, 1)
		go func() {
			_, err := b.c.Down(b.ctx, "db", 1)
			down <- err
		}()
		b.is((<-newer).err, client.ErrSuperseded)
		lease := later(func() (*client.Lease, error) { return b.c.Acquire(b.ctx, "db") })
		b.is(<-down, client.ErrSuperseded)
		if b.waiters("db") != 1 {
			b.Errorf("%d wait", b.waiters("db"))
		}
		newest := later(func() (*client.Lease, error) { return first.Acquire(b.ctx, "db") }) // the earlier request left no claim
		b.is((<-lease).err, client.ErrSuperseded)
		for _, s := range b.net.requests()[before:] {
			if s.method == "DELETE" {
				b.Errorf("withdrawn: %+v", s)
			}
		}
		free()
		b.ok((<-newest).err)
		b.ok(b.change("db", client.Groups(client.ByRequest)))
	})
}

// change returns the error of a Put.
func (n *node) change(name string, opts ...client.PutOption) error {
	_, _, err := n.admin.Put(n.ctx, name, opts...)
	return err
}

func TestKindChangesOnlyWhileNobodyWaits(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.put("db", 1)
		free := b.occupy("db", 1)
		waiting := later(func() (*client.Lease, error) { return b.c.Acquire(b.ctx, "db") })
		time.Sleep(time.Second) // virtual
		b.is(b.change("db", client.Groups(client.ByRequest)), client.ErrRequestsWaiting)
		free()
		b.ok((<-waiting).err)
		b.ok(b.change("db", client.Groups(client.ByRequest)))
		_, err := b.c.Acquire(b.ctx, "plain", client.Group("a"))
		b.is(err, client.ErrUnknownSemaphore)
		b.put("plain", 1)
		_, err = b.c.Acquire(b.ctx, "plain", client.Group("a"))
		b.is(err, client.ErrInvalidRequest)
	})
}

// A head start passes requests that came later than it allows, by session, one-call lease and down.
func TestHeadStartPassesLaterRequests(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.set("release", client.Permits(1), client.HeadStart(15*time.Minute))
		free := b.occupy("release", 1)
		b.set("release-2", client.Permits(1), client.HeadStart(15*time.Minute))
		defer b.occupy("release-2", 1)()
		s := b.session(24 * time.Hour)
		order := make(chan string, 5)
		var released sync.WaitGroup
		ask := func(name string, acquire func() (*client.Lease, error)) {
			released.Go(func() {
				lease, err := acquire()
				if err != nil {
					b.Error(err)
					return
				}
				order <- name
				b.ok(lease.Release(b.ctx))
			})
			time.Sleep(time.Minute) // virtual
		}
		ask("deploy", func() (*client.Lease, error) { return b.c.Acquire(b.ctx, "release") })
		ask("hotfix", func() (*client.Lease, error) { return b.c.Acquire(b.ctx, "release", client.HeadStart(5*time.Minute)) })
		ask("session", func() (*client.Lease, error) { return s.Acquire(b.ctx, "release", client.HeadStart(15*time.Minute)) })
		released.Go(func() {
			_, err := b.c.Down(b.ctx, "release", 1, client.HeadStart(10*time.Minute))
			b.ok(err)
			order <- "down"
			b.up("release")
		})
		ask("list", func() (*client.Lease, error) {
			other := b.session(24 * time.Hour)
			return other.AcquireAny(b.ctx, client.Want{Name: "release"}, client.Want{Name: "release-2", HeadStart: 210 * time.Second})
		})
		time.Sleep(time.Minute) // virtual
		free()
		if got := fmt.Sprint(<-order, <-order, <-order, <-order, <-order); got != "sessiondownhotfixlistdeploy" {
			b.Error(got)
		}
		released.Wait()
	})
}

// Calls that share a request carry group and head start too.
func TestSharedRequestsNameTheGroup(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.family("branches")
		b.net.follow(func(s sent, _ int) fault { return fault{there: time.Second} })
		s := b.session(time.Hour)
		var waits []<-chan got
		for i := range 9 {
			group := fmt.Sprintf(`a"%d\`, i)
			if i%2 == 0 {
				waits = append(waits, later(func() (*client.Lease, error) {
					return s.Acquire(b.ctx, "branches", client.Group(group), client.HeadStart(time.Minute))
				}))
			} else {
				waits = append(waits, later(func() (*client.Lease, error) {
					return b.c.Acquire(b.ctx, "branches", client.Group(group), client.HeadStart(time.Minute))
				}))
			}
		}
		var leases []*client.Lease
		for i, w := range waits {
			granted := <-w
			b.ok(granted.err)
			if want := fmt.Sprintf(`a"%d\`, i); granted.lease.Group != want {
				b.Errorf("%q, wanted %q", granted.lease.Group, want)
			}
			leases = append(leases, granted.lease)
		}
		released := make(chan error, len(leases))
		for _, lease := range leases {
			go func() { released <- lease.Release(b.ctx) }()
		}
		for range leases {
			b.ok(<-released)
		}
		shared := 0
		for _, r := range b.net.requests() {
			if strings.HasSuffix(r.path, "/batch") {
				shared++
			}
		}
		if shared < 2 || b.get("branches").Held != 0 {
			b.Errorf("%d shared requests, %d held", shared, b.get("branches").Held)
		}
	})
}

func TestBatchKnowsGroupsAndSettings(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		limit := int64(1)
		results, err := batch.Send(b.ctx, b.c,
			batch.Operation{Op: "create", Semaphore: "pool", Permits: &limit, Groups: client.ByRequest, PerGroup: 1, Paused: "x", MaxWaiting: 3, WhenFull: client.DropOldest, HeadStart: time.Minute},
			batch.Operation{Op: "patch", Semaphore: "pool", Null: []string{"paused", "when_full"}},
			batch.Operation{Op: "group-put", Semaphore: "pool", Limit: &limit},
			batch.Operation{Op: "group-put", Semaphore: "pool", Group: "a", Limit: &limit},
			batch.Operation{Op: "group-put", Semaphore: "pool", Group: "a", Null: []string{"limit"}},
			batch.Operation{Op: "acquire-once", Semaphore: "pool", Group: "acme", HeadStart: 1500 * time.Microsecond, TTL: time.Hour})
		b.ok(err)
		for i, r := range results {
			if err := r.Err(); err != nil {
				b.Errorf("%d: %v", i, err)
			}
		}
		s := b.get("pool")
		if s.Paused != "" || s.WhenFull != "refuse" || s.MaxWaiting != 3 || s.HeadStart != time.Minute || len(s.Holders) != 1 || s.Holders[0].Group != "acme" || *s.GroupsCount != 2 {
			b.Errorf("%+v", s)
		}
	})
}

func TestOperatorsSelectAGroup(t *testing.T) {
	virtually(t, 1, func(b *bed) {
		b.pool("pool", 2, 1)
		b.occupyGroup("pool", "a")
		b.occupyGroup("pool", "b")
		s := b.session(time.Hour)
		_, err := s.AddToWaitList(b.ctx, "pool", 1, client.Group("b"))
		b.ok(err)
		o := operator.New(b.admin)
		var found []string
		for h, err := range o.ListHolders(b.ctx, "pool", operator.OfGroup("b")) {
			b.ok(err)
			found = append(found, "holder "+h.Group)
		}
		for w, err := range o.ListWaiters(b.ctx, "pool", operator.OfGroup("b")) {
			b.ok(err)
			found = append(found, "waiter "+w.Group+" "+w.BlockedBy)
			if o := w.Obstacles[0]; o.Group != "b" || *o.Limit != 1 || *o.Used != 1 {
				b.Errorf("%+v", w.Obstacles)
			}
		}
		b.ok(b.c.SetGroupLimit(b.ctx, "pool", "b", 7))
		for e, err := range o.Events(b.ctx, operator.Last(9), operator.OfSemaphore("pool"), operator.OfGroup("b")) {
			b.ok(err)
			if found = append(found, e.Kind+" "+e.Group); e.Limit != nil && *e.Limit == 7 {
				break
			}
		}
		if got := strings.Join(found, ", "); !strings.HasPrefix(got, "holder b, waiter b group-limit, granted b") || strings.Contains(got, " a") {
			b.Error(got)
		}
		seen, err := o.GetSession(b.ctx, s.ID())
		if err != nil || len(seen.WaitList) != 1 || seen.WaitList[0].Group != "b" {
			b.Errorf("%+v %v", seen, err)
		}
	})
}
