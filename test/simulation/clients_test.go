package simulation

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/test/checks"
)

// clients is the number of clients. Each is a separate host of the network.
const clients = 12

func clientHost(i int) string { return fmt.Sprintf("c%d", i) }

// actor is one client: it acts until the episode ends.
type actor struct {
	*checks.Actor
	e     *episode
	way   *way
	plain *checks.Plain
	stop  <-chan struct{} // closed when the episode ends
}

// way is the transport of a client's requests over the network in memory. While it is unreliable, it also delivers some
// requests twice or late, and loses some replies.
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
	case 1: // late, after the client has given up
		w.again(r, late)
		<-r.Context().Done()
		return nil, r.Context().Err()
	case 2: // carried out, but the reply is lost
		response, err := w.Transport.RoundTrip(r)
		if err == nil {
			_ = response.Body.Close()
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return w.Transport.RoundTrip(r)
}

// again sends a copy of a request after a while and drops the reply. It returns a request that can still be sent.
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
		time.Sleep(late) // virtual: the delay of the copy
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
	a := &actor{e: e}
	a.Actor = &checks.Actor{History: e.History, Run: a, Number: number, Random: rand.New(rand.NewPCG(seed, uint64(number)+1))}
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
	a.Client, err = client.New(client.Config{Addresses: addresses, InOrder: true, HTTPClient: &http.Client{Transport: a.way},
		GiveUpAfter: 20 * time.Second})
	e.must(err)
	a.plain = &checks.Plain{Actor: a.Actor, Addresses: addresses, HTTP: &http.Client{Transport: a.way}, Attempt: 10 * time.Second,
		Pause: time.Second, Held: a.heldFor, Fail: e.failed}
	return a
}

// act makes operations one after the other until stop is closed, and then ends the client's sessions.
func (a *actor) act(stop <-chan struct{}) {
	a.stop, a.plain.Stop = stop, stop
	for {
		hurry, wake := a.e.pace()
		pause := time.Duration(a.Random.IntN(240_000)) * time.Millisecond
		if hurry {
			pause = time.Duration(a.Random.IntN(900)) * time.Millisecond
		}
		select {
		case <-stop:
			a.leave()
			return
		case <-wake:
		case <-time.After(pause):
			switch a.Random.IntN(12) {
			case 0:
				a.plain.Once()
			case 1:
				a.plain.Throttle()
			case 2:
				a.plain.NodeRED()
			default:
				a.Once()
			}
			a.rest()
		}
	}
}

// rest ends the session, unless the client is in a hurry, since an hour of virtual time costs little without sessions.
func (a *actor) rest() {
	if hurry, _ := a.e.pace(); !hurry && a.HasSession() && a.Random.IntN(4) > 0 {
		a.CloseSession()
	}
}

// leave ends the session and the client.
func (a *actor) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = a.Client.Close(ctx) // after an error the session expires
	a.way.CloseIdleConnections()
}

// Name implements checks.Run.
func (a *actor) Name(kind string) string { return sameName(kind) }

// sameName names each semaphore as its kind.
func sameName(kind string) string { return kind }

// Patience implements checks.Run.
func (a *actor) Patience(longest time.Duration) time.Duration {
	return time.Duration(1 + a.Random.Int64N(int64(longest)))
}

// TTL implements checks.Run.
func (a *actor) TTL(longest time.Duration) time.Duration {
	return time.Duration(4000+a.Random.IntN(int(longest.Milliseconds())-4000)) * time.Millisecond
}

// Go implements checks.Run.
func (a *actor) Go(f func()) { a.e.copies.Go(f) }

// heldFor is how long a lease is held.
func (a *actor) heldFor() time.Duration {
	if a.Random.IntN(8) == 0 { // into the next snapshot, which Raft takes within a minute
		return time.Duration(a.Random.IntN(90)) * time.Second
	}
	return time.Duration(a.Random.IntN(1500)) * time.Millisecond
}

// Hold implements checks.Run.
func (a *actor) Hold(l *client.Lease, fenced bool, gone *atomic.Int64) (to int64) {
	writes := a.Random.IntN(3)
	over := time.After(a.heldFor())
	for writing := true; writing; {
		if fenced && writes > 0 {
			writes--
			a.Write(l)
		}
		select {
		case <-l.Lost():
			writing = false
		case <-over:
			writing = false
		case <-time.After(time.Duration(1+a.Random.IntN(5000)) * time.Millisecond):
		case <-a.stop:
			writing = false
		}
	}
	to = a.Stamp()
	if at := gone.Load(); at > 0 {
		to = at
	}
	return to
}

// Lost implements checks.Run. The client writes once more, as a client would that was paused.
func (a *actor) Lost(l *client.Lease, fenced bool) {
	if fenced {
		time.Sleep(time.Duration(a.Random.IntN(20)) * time.Second) // virtual: how long it was paused
		a.Write(l)
	}
}
