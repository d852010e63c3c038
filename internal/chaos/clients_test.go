//go:build chaos && linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/internal/checks"
)

// actor is one client: it acts until the run ends.
type actor struct {
	r       *run
	number  int
	random  *rand.Rand
	c       *client.Client
	raw     *rawClient
	session *client.Session
	leases  int
}

// newActor makes a client that prefers one of the nodes.
func newActor(r *run, number int) *actor {
	a := &actor{r: r, number: number, random: rand.New(rand.NewPCG(r.seed, uint64(number)+1000))}
	transport := &http.Transport{MaxIdleConnsPerHost: 8, IdleConnTimeout: 5 * time.Second}
	var err error
	a.c, err = client.New(client.Config{Addresses: r.urls(number), InOrder: true, HTTPClient: &http.Client{Transport: transport},
		GiveUpAfter: 20 * time.Second, AttemptTimeout: 4 * time.Second, LongestWait: 3 * time.Second, Gather: number%4 == 3})
	must(r.t, err)
	a.raw = newRawClient(r.urls(number), transport)
	return a
}

// act does one thing after the other until the run ends, and ends all that it has.
func (a *actor) act() {
	defer a.leave()
	for {
		select {
		case <-a.r.stop:
			return
		case <-time.After(time.Duration(a.random.IntN(8)) * time.Millisecond): // as a client that also works
		}
		switch {
		case a.number < 9:
			a.once()
		case a.number < 12:
			a.onceRaw()
		case a.number == 12:
			a.throttle()
		default:
			a.nodered()
		}
	}
}

// leave ends the session and the client.
func (a *actor) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_ = a.c.Close(ctx) // a session whose end is not confirmed expires
	a.raw.http.CloseIdleConnections()
}

// patient returns a context for one operation.
func (a *actor) patient(most time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), most/4+time.Duration(a.random.Int64N(int64(most))))
}

// once does one thing with the Go client.
func (a *actor) once() {
	switch n := a.random.IntN(24); {
	case n < 8:
		a.lease()
	case n < 11:
		a.oneShot()
	case n < 13:
		a.together()
	case n < 17:
		a.counting()
	case n < 19:
		a.working()
	case n < 20:
		a.listing()
	default:
		a.read(semaphores[a.random.IntN(len(semaphores))].name)
	}
}

// opened returns the session of the client, a new one if the last is over.
func (a *actor) opened() *client.Session {
	ctx, cancel := a.patient(6 * time.Second)
	defer cancel()
	if a.session != nil && a.session.Err() == nil && a.random.IntN(40) == 0 {
		_ = a.session.Close(ctx) // else it expires
	}
	if a.session == nil || a.session.Err() != nil {
		ttl := time.Duration(4000+a.random.IntN(4000)) * time.Millisecond
		s, err := a.c.OpenSession(ctx, client.SessionOptions{TTL: ttl, Margin: ttl / 10})
		if err != nil {
			return nil
		}
		a.session = s
		a.r.lives(s.ID(), ttl)
	}
	return a.session
}

// asking is an acquire as an operation, which has a name of its own.
func (a *actor) asking(name string, count int64, exact bool) checks.Operation {
	a.leases++
	return checks.Operation{Client: a.number, Kind: "acquire", Semaphore: a.r.name(name), Lease: fmt.Sprintf("%d.%d", a.number, a.leases), Count: count, Exact: exact, Call: a.r.Stamp()}
}

// asked notes how an acquire ended. One whose withdrawal was confirmed may have been granted
// before it; it holds nothing from then on.
func (a *actor) asked(o checks.Operation, l *client.Lease, err error, waits bool) {
	switch {
	case err == nil:
		o.Outcome, o.Token = checks.Done, l.Token
		a.r.Add(o)
	case errors.Is(err, client.ErrUnavailable) && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, client.ErrOutcomeUnknown):
		a.r.Withdrawn(o)
	case errors.Is(err, client.ErrUnavailable), certain(err):
		o.Outcome = checks.Refused
		o.Exact = o.Exact && !waits && errors.Is(err, client.ErrUnavailable)
		a.r.Add(o)
	default:
		o.Outcome = checks.Unknown
		a.r.Add(o)
		a.r.Drop(o, o.Call, 0)
	}
}

// certain reports whether an error makes sure that nothing was done.
func certain(err error) bool {
	return !errors.Is(err, client.ErrOutcomeUnknown) && (errors.Is(err, client.ErrLeaseExists) || errors.Is(err, client.ErrNever))
}

func (a *actor) pick() (kind, int64) {
	pick := semaphores[a.random.IntN(4)]
	return pick, 1 + a.random.Int64N(min(pick.permits, 4))
}

// lease acquires in the session, by waiting or trying, and uses the lease.
func (a *actor) lease() {
	s := a.opened()
	if s == nil {
		return
	}
	pick, count := a.pick()
	waits := a.random.IntN(3) > 0
	ctx, cancel := a.patient(6 * time.Second)
	defer cancel()
	o := a.asking(pick.name, count, pick.exact)
	acquire := s.TryAcquire
	if waits {
		acquire = s.Acquire
	}
	l, err := acquire(ctx, o.Semaphore, client.Count(count))
	a.asked(o, l, err, waits)
	if err == nil {
		a.use(o, l, a.watch(l))
	}
}

// oneShot acquires a lease of its own.
func (a *actor) oneShot() {
	pick, count := a.pick()
	ttl := time.Duration(4000+a.random.IntN(4000)) * time.Millisecond
	waits := a.random.IntN(3) > 0
	ctx, cancel := a.patient(8 * time.Second)
	defer cancel()
	o := a.asking(pick.name, count, pick.exact)
	acquire := a.c.TryAcquire
	if waits {
		acquire = a.c.Acquire
	}
	l, err := acquire(ctx, o.Semaphore, client.Count(count), client.TTL(ttl), client.Margin(ttl/10))
	if now := a.r.Stamp(); err == nil && now-o.Call > int64(ttl) {
		before := o // a grant whose reply was lost may have expired, and the client asked anew
		before.Lease += "'"
		a.r.Withdrawn(before)
	}
	a.asked(o, l, err, waits)
	if err == nil {
		a.r.lives(l.Session, ttl)
		a.use(o, l, a.watch(l))
	}
}

// together acquires two semaphores, or one of them.
func (a *actor) together() {
	s := a.opened()
	if s == nil {
		return
	}
	ctx, cancel := a.patient(6 * time.Second)
	defer cancel()
	names := []string{"left", "right"}
	a.random.Shuffle(2, func(i, j int) { names[i], names[j] = names[j], names[i] })
	asked := []checks.Operation{a.asking(names[0], 1, false), a.asking(names[1], 1, false)}
	wants := []client.Want{{Name: asked[0].Semaphore}, {Name: asked[1].Semaphore}}
	if a.random.IntN(2) == 0 {
		leases, err := s.AcquireAll(ctx, wants...)
		for i, o := range asked {
			var l *client.Lease
			if err == nil {
				l = leases[i]
			}
			a.asked(o, l, err, true)
		}
		if err == nil {
			second := a.watch(leases[1])
			a.use(asked[0], leases[0], a.watch(leases[0]))
			a.use(asked[1], leases[1], second)
		}
		return
	}
	l, err := s.AcquireAny(ctx, wants...)
	for _, o := range asked {
		if err == nil && l.Semaphore != o.Semaphore {
			continue // not this one
		}
		a.asked(o, l, err, true)
		if err == nil {
			a.use(o, l, a.watch(l))
		}
	}
}

// watch returns the stamp of the end of a lease, once it has one.
func (a *actor) watch(l *client.Lease) *atomic.Int64 {
	over := new(atomic.Int64)
	a.r.watch.Go(func() {
		<-l.Lost()
		over.Store(a.r.Stamp())
	})
	return over
}

// heldFor is how long a lease is held: mostly a moment, now and then seconds.
func (a *actor) heldFor() time.Duration {
	if a.random.IntN(50) == 0 {
		return time.Duration(a.random.IntN(4000)) * time.Millisecond
	}
	return time.Duration(a.random.IntN(10)) * time.Millisecond
}

// use holds a lease for a while, writes to what it protects, and releases it. A client that has
// lost its lease writes once more, as one that was paused would.
func (a *actor) use(o checks.Operation, l *client.Lease, gone *atomic.Int64) {
	from, fenced := a.r.Stamp(), a.r.permits()[l.Semaphore] == 1
	if fenced {
		a.r.Write(l)
	}
	select {
	case <-l.Lost():
	case <-time.After(a.heldFor()): // the client's work
	case <-a.r.stop:
	}
	if fenced {
		a.r.Write(l)
	}
	to := min(a.r.Stamp(), int64(l.Deadline().Sub(a.r.Began))) // as a client that looks at its clock
	if at := gone.Load(); at > 0 {
		to = min(to, at)
	}
	a.r.Believed(l, from, to)
	a.r.Promised(l.Session, l.Deadline())
	if err := l.Err(); err != nil {
		a.r.Drop(o, to, 0)
		if !errors.Is(err, client.ErrNotRenewed) {
			a.r.early(l, err)
		}
		return
	}
	a.release(o, l)
}

// release gives a lease back.
func (a *actor) release(o checks.Operation, l *client.Lease) {
	ctx, cancel := a.patient(8 * time.Second)
	defer cancel()
	r := o
	r.Kind, r.Token, r.Exact, r.Call = "release", 0, false, a.r.Stamp()
	if err := l.Release(ctx); err != nil {
		a.r.Drop(o, r.Call, 0)
		return
	}
	r.Outcome = checks.Done
	a.r.Add(r)
}

// counting moves a semaphore that no request waits for, whose every reply is exact.
func (a *actor) counting() {
	ctx, cancel := a.patient(8 * time.Second)
	defer cancel()
	o := checks.Operation{Client: a.number, Semaphore: a.r.name("count"), Count: 1 + a.random.Int64N(3), Exact: true, Call: a.r.Stamp()}
	var err error
	switch a.random.IntN(7) {
	case 0:
		o.Kind, o.Count = "set", a.random.Int64N(10)
		o.Available, err = a.c.SetValue(ctx, o.Semaphore, o.Count)
	case 1, 2, 3:
		o.Kind = "up"
		o.Available, err = a.c.Up(ctx, o.Semaphore, o.Count)
	default:
		o.Kind = "down"
		var taken client.Taken
		taken, err = a.c.TryDown(ctx, o.Semaphore, o.Count)
		o.Available = taken.Value
	}
	a.moved(o, err)
}

// moved notes how an operation without a lease ended.
func (a *actor) moved(o checks.Operation, err error) {
	switch {
	case err == nil:
		o.Outcome = checks.Done
	case errors.Is(err, client.ErrUnavailable) && !errors.Is(err, client.ErrOutcomeUnknown):
		o.Outcome = checks.Refused
	default:
		o.Outcome = checks.Unknown
	}
	a.r.Add(o)
}

// working puts jobs into a semaphore, or waits for one.
func (a *actor) working() {
	ctx, cancel := a.patient(4 * time.Second)
	defer cancel()
	o := checks.Operation{Client: a.number, Semaphore: a.r.name("jobs"), Count: 1, Call: a.r.Stamp()}
	var err error
	if a.random.IntN(2) == 0 {
		o.Kind = "up"
		_, err = a.c.Up(ctx, o.Semaphore, 1)
	} else {
		o.Kind = "down"
		_, err = a.c.Down(ctx, o.Semaphore, 1)
	}
	a.moved(o, err)
}

// listing waits for a permit by the wait list of a session of its own, which ends with it: a
// permit that was granted and not delivered comes back then.
func (a *actor) listing() {
	ctx, cancel := a.patient(6 * time.Second)
	defer cancel()
	up := checks.Operation{Client: a.number, Kind: "up", Semaphore: a.r.name("listed"), Count: 1, Call: a.r.Stamp()}
	_, err := a.c.Up(ctx, up.Semaphore, 1)
	a.moved(up, err)
	s, err := a.c.OpenSession(ctx, client.SessionOptions{TTL: 5 * time.Second})
	if err != nil {
		return
	}
	down := up
	down.Kind, down.Call = "down", a.r.Stamp()
	_, err = s.AddToWaitList(ctx, down.Semaphore, 1)
	var list []client.Completed
	if err == nil {
		list, err = s.WaitList(ctx)
	}
	if err == nil && len(list) == 1 && list[0].Granted == 1 {
		a.moved(down, nil)
	} else {
		down.Outcome = checks.Unknown
		back := down
		back.Kind = "up"
		a.r.Add(down)
		a.r.Add(back)
	}
	_ = s.Close(ctx) // else it expires
}

// read reads a semaphore linearizably.
func (a *actor) read(name string) {
	ctx, cancel := a.patient(4 * time.Second)
	defer cancel()
	o := checks.Operation{Client: a.number, Kind: "read", Semaphore: a.r.name(name), Call: a.r.Stamp()}
	if s, err := a.c.Get(ctx, o.Semaphore); err == nil {
		a.r.Read(o, s)
	}
}
