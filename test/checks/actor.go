package checks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/signalbox/signalbox/client"
)

// Kind is a semaphore of a run. Exact says that a refusal proves that too few permits were available. For the other
// semaphores a request may also be refused because requests wait in line.
type Kind struct {
	Name    string
	Permits int64
	Exact   bool
}

// Kinds are the semaphores on which an Actor acts.
var Kinds = []Kind{
	{"lock", 1, true}, {"mutex", 1, true}, {"db", 3, false}, {"pool", 10, false}, // acquired alone
	{"left", 1, false}, {"right", 1, false}, // acquired together
	{"count", 5, true}, {"jobs", 0, false}, {"listed", 0, false}, // without leases
}

// single is how many of Kinds, from the first on, are acquired alone.
const single = 4

// Permits returns the permits of Kinds, by the names that the run uses.
func Permits(name func(kind string) string) map[string]int64 {
	permits := map[string]int64{}
	for _, k := range Kinds {
		permits[name(k.Name)] = k.Permits
	}
	return permits
}

// Run is the part of a client that differs between runs: names, durations, and how it works with a
// lease. One Actor calls it.
type Run interface {
	// Name returns the run's name for a kind of semaphore.
	Name(kind string) string
	// Patience draws how long an operation may take: in a run without hurry up to longest.
	Patience(longest time.Duration) time.Duration
	// TTL draws a ttl: in a run without hurry up to longest.
	TTL(longest time.Duration) time.Duration
	// Hold blocks while the client works with a lease. For a fenced semaphore it also writes to the resource that the
	// semaphore protects. gone is the stamp of the lease's end, 0 before the end. Hold returns the stamp until which
	// the client counted on the lease.
	Hold(l *client.Lease, fenced bool, gone *atomic.Int64) (to int64)
	// Lost is called after a lease has ended that its client had not released.
	Lost(l *client.Lease, fenced bool)
	// Go runs a function that ends with the run.
	Go(f func())
}

// Actor is a user of the Go client that records what it saw. Only one goroutine may use it. Each of Lease, OneShot,
// Together, Counting, Working, Listing and Look makes one kind of operation and records its outcome.
type Actor struct {
	*History
	Run    Run
	Number int
	Random *rand.Rand
	Client *client.Client

	session *client.Session // the last session; nil before the first
	leases  int
}

// Patient returns a context for one operation.
func (a *Actor) Patient(longest time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), a.Run.Patience(longest))
}

// SetUp creates all semaphores of the run.
func (a *Actor) SetUp() error {
	for name, permits := range Permits(a.Run.Name) {
		if _, _, err := a.Client.Create(context.Background(), name, permits); err != nil {
			return fmt.Errorf("create %s: %w", name, err)
		}
	}
	return nil
}

// Once makes one operation, of a kind that it draws.
func (a *Actor) Once() {
	switch n := a.Random.IntN(24); {
	case n < 8:
		a.Lease()
	case n < 11:
		a.OneShot()
	case n < 13:
		a.Together()
	case n < 17:
		a.Counting()
	case n < 19:
		a.Working()
	case n < 20:
		a.Listing()
	default:
		a.Look()
	}
}

// HasSession reports whether the client has opened a session.
func (a *Actor) HasSession() bool { return a.session != nil }

// CloseSession ends the session. If no node confirms it in time, the session expires.
func (a *Actor) CloseSession() {
	ctx, cancel := a.Patient(20 * time.Second)
	defer cancel()
	_ = a.session.Close(ctx)
}

// opened returns the client's session, or a new session if the last one has ended; nil if it can't be opened.
func (a *Actor) opened() *client.Session {
	if a.session != nil && a.session.Err() == nil && a.Random.IntN(15) == 0 {
		a.CloseSession()
	}
	if a.session == nil || a.session.Err() != nil {
		ttl := a.Run.TTL(30 * time.Second)
		ctx, cancel := a.Patient(20 * time.Second)
		defer cancel()
		s, err := a.Client.OpenSession(ctx, client.SessionOptions{TTL: ttl, Margin: ttl / 10})
		if err != nil {
			return nil
		}
		a.session = s // state: the session that is in use
		a.NoteTTL(s.ID(), ttl)
	}
	return a.session
}

// Pick draws a semaphore that is acquired alone, and a count of permits.
func (a *Actor) Pick() (Kind, int64) {
	pick := Kinds[a.Random.IntN(single)]
	return pick, 1 + a.Random.Int64N(min(pick.Permits, 4))
}

// Asking returns the operation of an acquire, with a new lease name.
func (a *Actor) Asking(kind string, count int64, exact bool) Operation {
	a.leases++
	return Operation{Client: a.Number, Kind: "acquire", Semaphore: a.Run.Name(kind), Lease: fmt.Sprintf("%d.%d", a.Number, a.leases),
		Count: count, Exact: exact, Call: a.Stamp()}
}

// noteAcquire records how an acquire ended. If its withdrawal was confirmed, it may have been granted before that, but
// it holds no permit from then on, even if the network delivers the request late.
func (a *Actor) noteAcquire(o Operation, l *client.Lease, err error, waits bool) {
	unsure := errors.Is(err, client.ErrOutcomeUnknown)
	switch {
	case err == nil:
		o.Outcome, o.Token = Done, l.Token
		a.Add(o)
	case !unsure && errors.Is(err, client.ErrUnavailable) && errors.Is(err, context.DeadlineExceeded):
		a.Withdrawn(o)
	case errors.Is(err, client.ErrUnavailable), !unsure && noEffect(err):
		o.Outcome = Refused
		o.Exact = o.Exact && !waits && errors.Is(err, client.ErrUnavailable)
		a.Add(o)
	default:
		o.Outcome = Unknown
		a.Add(o)
		a.Drop(o, o.Call, 0)
	}
}

// noEffect reports whether a refusal proves that the operation had no effect.
func noEffect(err error) bool {
	return errors.Is(err, client.ErrLeaseExists) || errors.Is(err, client.ErrNever) || errors.Is(err, client.ErrUnknownSemaphore)
}

// Lease acquires in the client's session, by waiting or trying, and uses the lease.
func (a *Actor) Lease() {
	s := a.opened()
	if s == nil {
		return
	}
	pick, count := a.Pick()
	waits := a.Random.IntN(3) > 0
	ctx, cancel := a.Patient(30 * time.Second)
	defer cancel()
	o := a.Asking(pick.Name, count, pick.Exact)
	acquire := s.TryAcquire
	if waits {
		acquire = s.Acquire
	}
	l, err := acquire(ctx, o.Semaphore, client.Count(count))
	a.noteAcquire(o, l, err, waits)
	if err == nil {
		a.use(o, l, a.watch(l))
	}
}

// OneShot acquires with a separate session for the lease.
func (a *Actor) OneShot() {
	pick, count := a.Pick()
	ttl := a.Run.TTL(24 * time.Second)
	waits := a.Random.IntN(3) > 0
	ctx, cancel := a.Patient(40 * time.Second)
	defer cancel()
	o := a.Asking(pick.Name, count, pick.Exact)
	acquire := a.Client.TryAcquire
	if waits {
		acquire = a.Client.Acquire
	}
	l, err := acquire(ctx, o.Semaphore, client.Count(count), client.TTL(ttl), client.Margin(ttl/10))
	if now := a.Stamp(); err == nil && now-o.Call > int64(ttl) {
		// The reply to an earlier grant may have been lost, and that lease has expired since.
		earlier := o
		earlier.Lease += "'"
		a.Withdrawn(earlier)
	}
	a.noteAcquire(o, l, err, waits)
	if err == nil {
		a.NoteTTL(l.Session, ttl)
		a.use(o, l, a.watch(l))
	}
}

// Together acquires two semaphores, or either of them.
func (a *Actor) Together() {
	s := a.opened()
	if s == nil {
		return
	}
	ctx, cancel := a.Patient(30 * time.Second)
	defer cancel()
	kinds := []string{"left", "right"}
	a.Random.Shuffle(2, func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	operations := []Operation{a.Asking(kinds[0], 1, false), a.Asking(kinds[1], 1, false)}
	wants := []client.Want{{Name: operations[0].Semaphore}, {Name: operations[1].Semaphore}}
	if a.Random.IntN(2) == 0 {
		leases, err := s.AcquireAll(ctx, wants...)
		for i, o := range operations {
			var l *client.Lease
			if err == nil {
				l = leases[i]
			}
			a.noteAcquire(o, l, err, true)
		}
		if err == nil {
			second := a.watch(leases[1])
			a.use(operations[0], leases[0], a.watch(leases[0]))
			a.use(operations[1], leases[1], second)
		}
		return
	}
	l, err := s.AcquireAny(ctx, wants...)
	for _, o := range operations {
		if err == nil && l.Semaphore != o.Semaphore {
			continue // this semaphore was not granted
		}
		a.noteAcquire(o, l, err, true)
		if err == nil {
			a.use(o, l, a.watch(l))
		}
	}
}

// watch returns a variable that gets the stamp of a lease's end.
func (a *Actor) watch(l *client.Lease) *atomic.Int64 {
	over := new(atomic.Int64)
	a.Run.Go(func() {
		<-l.Lost()
		over.Store(a.Stamp())
	})
	return over
}

// use holds a lease, and releases it unless it was lost.
func (a *Actor) use(o Operation, l *client.Lease, gone *atomic.Int64) {
	from, fenced := a.Stamp(), a.Fenced(l.Semaphore)
	to := a.Run.Hold(l, fenced, gone)
	a.NoteBelief(Belief{l.Semaphore, l.Session, l.Token, l.Count, from, to})
	a.NoteDeadline(l.Session, l.Deadline())
	if err := l.Err(); err != nil {
		a.Drop(o, to, 0)
		if !errors.Is(err, client.ErrNotRenewed) {
			a.Early(l, err)
		}
		a.Run.Lost(l, fenced)
		return
	}
	a.release(o, l)
}

// Fenced reports whether a semaphore has one permit, and so protects a resource.
func (a *Actor) Fenced(semaphore string) bool {
	for _, k := range Kinds {
		if a.Run.Name(k.Name) == semaphore {
			return k.Permits == 1
		}
	}
	return false
}

// release gives a lease back.
func (a *Actor) release(o Operation, l *client.Lease) {
	ctx, cancel := a.Patient(15 * time.Second)
	defer cancel()
	r := o
	r.Kind, r.Token, r.Exact, r.Call = "release", 0, false, a.Stamp()
	if err := l.Release(ctx); err != nil {
		a.Drop(o, r.Call, 0)
		return
	}
	r.Outcome = Done
	a.Add(r)
}

// Counting changes the value of a semaphore for which no request waits, so that every reply is exact.
func (a *Actor) Counting() {
	ctx, cancel := a.Patient(20 * time.Second)
	defer cancel()
	o := Operation{Client: a.Number, Semaphore: a.Run.Name("count"), Count: 1 + a.Random.Int64N(3), Exact: true, Call: a.Stamp()}
	var err error
	switch a.Random.IntN(7) {
	case 0:
		o.Kind, o.Count = "set", a.Random.Int64N(10)
		o.Available, err = a.Client.SetValue(ctx, o.Semaphore, o.Count)
	case 1, 2, 3:
		o.Kind = "up"
		o.Available, err = a.Client.Up(ctx, o.Semaphore, o.Count)
	default:
		o.Kind = "down"
		var taken client.Taken
		taken, err = a.Client.TryDown(ctx, o.Semaphore, o.Count)
		o.Available = taken.Value
	}
	a.Moved(o, err)
}

// Moved records how an operation without a lease ended.
func (a *Actor) Moved(o Operation, err error) {
	switch {
	case err == nil:
		o.Outcome = Done
	case errors.Is(err, client.ErrUnavailable) && !errors.Is(err, client.ErrOutcomeUnknown):
		o.Outcome = Refused
	default:
		o.Outcome = Unknown
	}
	a.Add(o)
}

// Working adds a job to a semaphore, or waits for a job.
func (a *Actor) Working() {
	o := Operation{Client: a.Number, Kind: "up", Semaphore: a.Run.Name("jobs"), Count: 1}
	move, longest := a.Client.Up, 20*time.Second
	if a.Random.IntN(2) > 0 {
		o.Kind, longest = "down", 40*time.Second
		move = func(ctx context.Context, name string, n int64, _ ...client.CallOption) (int64, error) {
			taken, err := a.Client.Down(ctx, name, n)
			return taken.Value, err
		}
	}
	ctx, cancel := a.Patient(longest)
	defer cancel()
	o.Call = a.Stamp()
	_, err := move(ctx, o.Semaphore, 1)
	a.Moved(o, err)
}

// Listing adds a job to a semaphore, and waits for a job with the wait list of a separate session. A job that was
// granted and not delivered comes back when the session ends.
func (a *Actor) Listing() {
	ctx, cancel := a.Patient(40 * time.Second)
	defer cancel()
	up := Operation{Client: a.Number, Kind: "up", Semaphore: a.Run.Name("listed"), Count: 1, Call: a.Stamp()}
	_, err := a.Client.Up(ctx, up.Semaphore, 1)
	a.Moved(up, err)
	s, err := a.Client.OpenSession(ctx, client.SessionOptions{TTL: a.Run.TTL(30 * time.Second)})
	if err != nil {
		return
	}
	down := up
	down.Kind, down.Call = "down", a.Stamp()
	_, err = s.AddToWaitList(ctx, down.Semaphore, 1)
	var list []client.Completed
	if err == nil {
		list, err = s.WaitList(ctx)
	}
	delivered := err == nil && len(list) == 1 && list[0].Granted == 1
	if delivered {
		a.Moved(down, nil)
	}
	closed := s.Close(ctx) // after an error the session expires
	if delivered {
		return
	}
	down.Outcome = Unknown
	if closed == nil {
		down.Ret = a.Stamp()
	}
	back := down
	back.Kind = "up"
	a.Add(down)
	a.Add(back)
}

// Look makes a linearizable read of a semaphore.
func (a *Actor) Look() {
	kind := Kinds[a.Random.IntN(len(Kinds))].Name
	ctx, cancel := a.Patient(15 * time.Second)
	defer cancel()
	o := Operation{Client: a.Number, Kind: "read", Semaphore: a.Run.Name(kind), Call: a.Stamp()}
	if s, err := a.Client.Get(ctx, o.Semaphore); err == nil {
		a.Read(o, s)
	}
}

// Whole acquires all permits of each semaphore and releases them, each within a time. It returns the semaphores for
// which that failed. So all earlier leases and requests have ended when it succeeds.
func (a *Actor) Whole(within time.Duration) (unserved []string) {
	for _, k := range Kinds {
		if k.Permits == 0 || k.Name == "count" {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), within)
		l, err := a.Client.Acquire(ctx, a.Run.Name(k.Name), client.Count(k.Permits))
		if err == nil {
			err = l.Release(ctx)
		}
		cancel()
		if err != nil {
			unserved = append(unserved, fmt.Sprintf("%d permits of %s: %v", k.Permits, k.Name, err))
		}
	}
	return unserved
}

// Idle reports whether no semaphore has a holder or a waiter.
func (a *Actor) Idle() bool {
	for _, k := range Kinds {
		seen, err := a.Client.Get(context.Background(), a.Run.Name(k.Name))
		if err != nil || seen.HolderCount+seen.WaiterCount > 0 {
			return false
		}
	}
	return true
}
