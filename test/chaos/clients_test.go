//go:build chaos && linux

package chaos

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/test/checks"
)

// actor is one client: it acts until the run ends.
type actor struct {
	*checks.Actor
	r     *run
	herd  int // the herd whose semaphores it uses
	plain *checks.Plain
}

// newActor makes a client that prefers one of the nodes.
func newActor(r *run, number int) *actor {
	a := &actor{r: r, herd: number / actors}
	a.Actor = &checks.Actor{History: r.History, Run: a, Number: number, Random: rand.New(rand.NewPCG(r.seed, uint64(number)+1000))}
	transport := &http.Transport{MaxIdleConnsPerHost: 8, IdleConnTimeout: 5 * time.Second}
	var err error
	a.Client, err = client.New(client.Config{Addresses: r.urls(number), InOrder: true, HTTPClient: &http.Client{Transport: transport},
		GiveUpAfter: 20 * time.Second, AttemptTimeout: 4 * time.Second, LongestWait: 3 * time.Second})
	must(r.t, err)
	a.plain = &checks.Plain{Actor: a.Actor, Addresses: r.urls(number), HTTP: &http.Client{Transport: transport}, Attempt: 4 * time.Second,
		Pause: 20 * time.Millisecond, Held: a.heldFor, Stop: r.stop, Keys: r.prefix, Fail: r.fail}
	return a
}

// act makes operations one after the other until the run ends, and then ends the client's sessions.
func (a *actor) act() {
	defer a.leave()
	for {
		select {
		case <-a.r.stop:
			return
		case <-time.After(time.Duration(a.Random.IntN(8)) * time.Millisecond): // a client also works
		}
		switch role := a.Number % actors; {
		case role < 9:
			a.Once()
		case role < 12:
			a.plain.Once()
		case role == 12:
			a.plain.Throttle()
		default:
			a.plain.NodeRED()
		}
	}
}

// leave ends the session and the client.
func (a *actor) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_ = a.Client.Close(ctx) // after an error the session expires
	a.plain.HTTP.CloseIdleConnections()
}

// Name implements checks.Run.
func (a *actor) Name(kind string) string { return a.r.name(a.herd, kind) }

// Patience implements checks.Run. These clients wait only a fifth of the longest time.
func (a *actor) Patience(longest time.Duration) time.Duration {
	longest /= 5
	return longest/4 + time.Duration(a.Random.Int64N(int64(longest)))
}

// TTL implements checks.Run.
func (a *actor) TTL(time.Duration) time.Duration {
	return time.Duration(4000+a.Random.IntN(4000)) * time.Millisecond
}

// Go implements checks.Run.
func (a *actor) Go(f func()) { a.r.watch.Go(f) }

// heldFor is how long a lease is held: mostly a moment, now and then seconds.
func (a *actor) heldFor() time.Duration {
	if a.Random.IntN(50) == 0 {
		return time.Duration(a.Random.IntN(4000)) * time.Millisecond
	}
	return time.Duration(a.Random.IntN(10)) * time.Millisecond
}

// Hold implements checks.Run. A client that has lost its lease writes once more, as a client would that was paused.
func (a *actor) Hold(l *client.Lease, fenced bool, gone *atomic.Int64) (to int64) {
	if fenced {
		a.Write(l)
	}
	select {
	case <-l.Lost():
	case <-time.After(a.heldFor()): // the client's work
	case <-a.r.stop:
	}
	if fenced {
		a.Write(l)
	}
	to = min(a.Stamp(), int64(l.Deadline().Sub(a.Began))) // a client checks its clock
	if at := gone.Load(); at > 0 {
		to = min(to, at)
	}
	return to
}

// Lost implements checks.Run: see Hold for the last write.
func (a *actor) Lost(*client.Lease, bool) {}
