package simulation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/internal/checks"
)

// clients is how many there are, each a host of its own.
const clients = 12

func clientHost(i int) string { return fmt.Sprintf("c%d", i) }

// semaphores are those of an episode: their permits, and which refusals say something
// about the state. Others may be refused since requests wait in line.
var semaphores = []struct {
	name    string
	permits int64
	exact   bool
}{
	{"lock", 1, true}, {"mutex", 1, true}, {"db", 3, false}, {"pool", 10, false},
	{"left", 1, false}, {"right", 1, false}, // asked for together
	{"count", 5, true}, {"jobs", 0, false}, // without leases
}

// permitsOf is the permits by name.
func permitsOf() map[string]int64 {
	permits := map[string]int64{}
	for _, s := range semaphores {
		permits[s.name] = s.permits
	}
	return permits
}

// actor is one client: it acts until the episode ends.
type actor struct {
	e       *episode
	number  int
	random  *rand.Rand
	c       *client.Client
	way     *way
	stop    <-chan struct{} // closed when the episode ends
	session *client.Session
	ttl     time.Duration // of the session
	leases  int
}

// way carries the requests of a client, over the network in memory. While it is
// unreliable, it also brings some of them twice, or late, and loses replies.
type way struct {
	*http.Transport
	e      *episode
	random *rand.Rand
}

func (w *way) RoundTrip(r *http.Request) (*http.Response, error) {
	if !w.e.unreliable.Load() {
		return w.Transport.RoundTrip(r)
	}
	w.e.chance.Lock()
	fate, late := w.random.IntN(6), time.Duration(w.random.IntN(12_000))*time.Millisecond
	w.e.chance.Unlock()
	switch fate {
	case 0: // twice
		return w.Transport.RoundTrip(w.again(r, late))
	case 1: // late, when the client has given up
		w.again(r, late)
		<-r.Context().Done()
		return nil, r.Context().Err()
	case 2: // done, but the reply is lost
		response, err := w.Transport.RoundTrip(r)
		if err == nil {
			_ = response.Body.Close()
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return w.Transport.RoundTrip(r)
}

// again sends a copy of a request after a while, whose reply is dropped, and returns the
// request itself.
func (w *way) again(r *http.Request, late time.Duration) *http.Request {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body) // it is in memory
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	w.e.copies.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), late+10*time.Second)
		defer cancel()
		time.Sleep(late) // virtual: how long it is under way
		copied := r.Clone(ctx)
		copied.Body = io.NopCloser(bytes.NewReader(body))
		if response, err := w.Transport.RoundTrip(copied); err == nil {
			_ = response.Body.Close()
		}
	})
	return r
}

// newActor makes a client that prefers one of the nodes.
func newActor(e *episode, number int, seed uint64) *actor {
	a := &actor{e: e, number: number, random: rand.New(rand.NewPCG(seed, uint64(number)+1))}
	host := e.net.Host(clientHost(number))
	a.way = &way{e: e, random: rand.New(rand.NewPCG(seed, uint64(number)+1000)), Transport: &http.Transport{
		DialContext:         func(ctx context.Context, _, address string) (net.Conn, error) { return host.Dial(ctx, address) },
		MaxIdleConnsPerHost: 8, IdleConnTimeout: 20 * time.Second,
	}}
	var addresses []string
	for i := range 3 {
		addresses = append(addresses, fmt.Sprintf("http://n%d:8701", 1+(number+i)%3))
	}
	var err error
	a.c, err = client.New(client.Config{Addresses: addresses, InOrder: true, HTTPClient: &http.Client{Transport: a.way},
		GiveUpAfter: 20 * time.Second, Gather: number%4 == 3})
	e.must(err)
	return a
}

// act does one thing after the other until stop is closed, and ends all that it has.
func (a *actor) act(stop <-chan struct{}) {
	a.stop = stop
	for {
		hurry, wake := a.e.pace()
		pause := time.Duration(a.random.IntN(240_000)) * time.Millisecond
		if hurry {
			pause = time.Duration(a.random.IntN(900)) * time.Millisecond
		}
		select {
		case <-stop:
			a.leave()
			return
		case <-wake:
		case <-time.After(pause):
			a.once()
			a.rest()
		}
	}
}

// rest ends the session, unless the client is in a hurry: without sessions an hour of
// virtual time costs little.
func (a *actor) rest() {
	if hurry, _ := a.e.pace(); !hurry && a.session != nil && a.random.IntN(4) > 0 {
		ctx, cancel := a.patient(20 * time.Second)
		defer cancel()
		_ = a.session.Close(ctx) // else it expires
	}
}

// leave ends the session and the client.
func (a *actor) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = a.c.Close(ctx) // a session whose end is not confirmed expires
	a.way.CloseIdleConnections()
}

// patient returns a context for one operation.
func (a *actor) patient(most time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Duration(1+a.random.Int64N(int64(most))))
}

// once does one thing.
func (a *actor) once() {
	switch n := a.random.IntN(20); {
	case n < 7:
		a.lease()
	case n < 10:
		a.oneShot()
	case n < 12:
		a.together()
	case n < 15:
		a.counting()
	case n < 17:
		a.working()
	default:
		a.read(semaphores[a.random.IntN(len(semaphores))].name)
	}
}

// opened returns the session of the client, a new one if the last is over.
func (a *actor) opened() *client.Session {
	if a.session != nil && a.session.Err() == nil && a.random.IntN(15) == 0 {
		ctx, cancel := a.patient(20 * time.Second)
		defer cancel()
		_ = a.session.Close(ctx) // else it expires
	}
	if a.session == nil || a.session.Err() != nil {
		a.ttl = time.Duration(4000+a.random.IntN(26_000)) * time.Millisecond
		ctx, cancel := a.patient(20 * time.Second)
		defer cancel()
		s, err := a.c.OpenSession(ctx, client.SessionOptions{TTL: a.ttl, Margin: a.ttl / 10})
		if err != nil {
			return nil
		}
		a.session = s
		a.e.lives(s.ID(), a.ttl)
	}
	return a.session
}

// asking is an acquire as an operation, which has a name of its own.
func (a *actor) asking(name string, count int64, exact bool) checks.Operation {
	a.leases++
	return checks.Operation{Client: a.number, Kind: "acquire", Semaphore: name, Lease: fmt.Sprintf("%d.%d", a.number, a.leases), Count: count, Exact: exact, Call: a.e.Stamp()}
}

// asked notes how an acquire ended. One whose withdrawal was confirmed may have been granted
// before it; it holds nothing from then on, also if the network delivers the request late.
func (a *actor) asked(o checks.Operation, l *client.Lease, err error, waits bool) {
	h := a.e.History
	switch {
	case err == nil:
		o.Outcome, o.Token = checks.Done, l.Token
		h.Add(o)
	case errors.Is(err, client.ErrUnavailable) && errors.Is(err, context.DeadlineExceeded):
		h.Withdrawn(o)
	case errors.Is(err, client.ErrUnavailable), a.certain(err):
		o.Outcome = checks.Refused
		o.Exact = o.Exact && !waits && errors.Is(err, client.ErrUnavailable)
		h.Add(o)
	default:
		o.Outcome = checks.Unknown
		h.Add(o)
		h.Drop(o, o.Call, 0)
	}
}

// certain reports whether an error makes sure that nothing was done.
func (a *actor) certain(err error) bool {
	if errors.Is(err, client.ErrOutcomeUnknown) {
		return false
	}
	return errors.Is(err, client.ErrLeaseExists) || errors.Is(err, client.ErrNever) || errors.Is(err, client.ErrUnknownSemaphore)
}

// lease acquires in the session, by waiting or trying, and uses the lease.
func (a *actor) lease() {
	s := a.opened()
	if s == nil {
		return
	}
	pick := semaphores[a.random.IntN(4)]
	count := 1 + a.random.Int64N(min(pick.permits, 4))
	waits := a.random.IntN(3) > 0
	ctx, cancel := a.patient(30 * time.Second)
	defer cancel()
	o := a.asking(pick.name, count, pick.exact)
	acquire := s.TryAcquire
	if waits {
		acquire = s.Acquire
	}
	l, err := acquire(ctx, pick.name, client.Count(count))
	a.asked(o, l, err, waits)
	if err == nil {
		a.use(o, l, a.watch(l))
	}
}

// oneShot acquires a lease of its own.
func (a *actor) oneShot() {
	pick := semaphores[a.random.IntN(4)]
	count := 1 + a.random.Int64N(min(pick.permits, 4))
	ttl := time.Duration(4000+a.random.IntN(20_000)) * time.Millisecond
	waits := a.random.IntN(3) > 0
	ctx, cancel := a.patient(40 * time.Second)
	defer cancel()
	o := a.asking(pick.name, count, pick.exact)
	acquire := a.c.TryAcquire
	if waits {
		acquire = a.c.Acquire
	}
	l, err := acquire(ctx, pick.name, client.Count(count), client.TTL(ttl), client.Margin(ttl/10))
	if now := a.e.Stamp(); err == nil && now-o.Call > int64(ttl) {
		before := o // a grant whose reply was lost may have expired, and the client asked anew
		before.Lease += "'"
		a.e.History.Withdrawn(before)
	}
	a.asked(o, l, err, waits)
	if err == nil {
		a.e.lives(l.Session, ttl)
		a.use(o, l, a.watch(l))
	}
}

// together acquires two semaphores, or one of them.
func (a *actor) together() {
	s := a.opened()
	if s == nil {
		return
	}
	ctx, cancel := a.patient(30 * time.Second)
	defer cancel()
	names := []string{"left", "right"}
	a.random.Shuffle(2, func(i, j int) { names[i], names[j] = names[j], names[i] })
	wants := []client.Want{{Name: names[0]}, {Name: names[1]}}
	asked := []checks.Operation{a.asking(names[0], 1, false), a.asking(names[1], 1, false)}
	if a.random.IntN(2) == 0 {
		leases, err := s.AcquireAll(ctx, wants...)
		for i, o := range asked {
			if err != nil {
				a.asked(o, nil, err, true)
			} else {
				a.asked(o, leases[i], nil, true)
			}
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
	a.e.copies.Go(func() {
		<-l.Lost()
		over.Store(a.e.Stamp())
	})
	return over
}

// use holds a lease for a while, writes to what it protects, and releases it. Now and then
// the client behaves as one that was paused: it writes on after it has lost the lease.
func (a *actor) use(o checks.Operation, l *client.Lease, gone *atomic.Int64) {
	h := a.e.History
	from, fenced := h.Stamp(), permitsOf()[l.Semaphore] == 1
	writes := a.random.IntN(3)
	held := time.Duration(a.random.IntN(1500)) * time.Millisecond
	if a.random.IntN(8) == 0 { // into the next snapshot, which Raft takes within a minute
		held = time.Duration(a.random.IntN(90)) * time.Second
	}
	over := time.After(held)
	for writing := true; writing; {
		if fenced && writes > 0 {
			writes--
			h.Write(l)
		}
		select {
		case <-l.Lost():
			writing = false
		case <-over:
			writing = false
		case <-time.After(time.Duration(1+a.random.IntN(5000)) * time.Millisecond):
		case <-a.stop:
			writing = false
		}
	}
	to := h.Stamp()
	if at := gone.Load(); at > 0 {
		to = at
	}
	h.Believed(l, from, to)
	h.Promised(l.Session, l.Deadline())
	if err := l.Err(); err != nil {
		a.lost(o, l, err, to)
		if fenced {
			time.Sleep(time.Duration(a.random.IntN(20)) * time.Second) // virtual: how long it was paused
			h.Write(l)
		}
		return
	}
	a.release(o, l)
}

// lost notes the end of a lease that its client did not want.
func (a *actor) lost(o checks.Operation, l *client.Lease, why error, to int64) {
	a.e.History.Drop(o, to, 0)
	if !errors.Is(why, client.ErrNotRenewed) {
		a.e.early(l, why)
	}
}

// release gives a lease back.
func (a *actor) release(o checks.Operation, l *client.Lease) {
	ctx, cancel := a.patient(15 * time.Second)
	defer cancel()
	r := o
	r.Kind, r.Token, r.Exact, r.Call = "release", 0, false, a.e.Stamp()
	err := l.Release(ctx)
	if err == nil {
		r.Outcome = checks.Done
		a.e.History.Add(r)
		return
	}
	a.e.History.Drop(o, r.Call, 0)
}

// counting moves a semaphore that no request waits for, whose every reply is exact.
func (a *actor) counting() {
	ctx, cancel := a.patient(20 * time.Second)
	defer cancel()
	o := checks.Operation{Client: a.number, Semaphore: "count", Count: 1 + a.random.Int64N(3), Exact: true, Call: a.e.Stamp()}
	var err error
	switch a.random.IntN(7) {
	case 0:
		o.Kind, o.Count = "set", a.random.Int64N(10)
		o.Available, err = a.c.SetValue(ctx, "count", o.Count)
	case 1, 2, 3:
		o.Kind = "up"
		o.Available, err = a.c.Up(ctx, "count", o.Count)
	default:
		o.Kind = "down"
		var taken client.Taken
		taken, err = a.c.TryDown(ctx, "count", o.Count)
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
	a.e.History.Add(o)
}

// working puts jobs into a semaphore, or waits for one.
func (a *actor) working() {
	o := checks.Operation{Client: a.number, Semaphore: "jobs", Count: 1}
	if a.random.IntN(2) == 0 {
		ctx, cancel := a.patient(20 * time.Second)
		defer cancel()
		o.Kind, o.Call = "up", a.e.Stamp()
		_, err := a.c.Up(ctx, "jobs", 1)
		a.moved(o, err)
		return
	}
	ctx, cancel := a.patient(40 * time.Second)
	defer cancel()
	o.Kind, o.Call = "down", a.e.Stamp()
	_, err := a.c.Down(ctx, "jobs", 1)
	a.moved(o, err)
}

// read reads a semaphore linearizably.
func (a *actor) read(name string) {
	ctx, cancel := a.patient(15 * time.Second)
	defer cancel()
	o := checks.Operation{Client: a.number, Kind: "read", Semaphore: name, Call: a.e.Stamp()}
	if s, err := a.c.Get(ctx, name); err == nil {
		a.e.History.Read(o, s)
	}
}
