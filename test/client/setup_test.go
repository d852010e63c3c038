package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
	"github.com/signalbox/signalbox/test/clienttest"
)

// node is a real node, with a client for what a test does and sees beside the client that it
// is about.
type node struct {
	*testing.T
	ctx   context.Context
	admin *client.Client
}

func (n *node) put(name string, permits int64) *node {
	n.Helper()
	_, _, err := n.admin.Put(n.ctx, name, client.Permits(permits))
	n.ok(err)
	return n
}

func (n *node) up(name string) {
	n.Helper()
	_, err := n.admin.Up(n.ctx, name, 1)
	n.ok(err)
}

func (n *node) get(name string) *client.Semaphore {
	n.Helper()
	seen, err := n.admin.Get(n.ctx, name)
	n.ok(err)
	return seen
}

func (n *node) available(name string) int64 { return n.get(name).Available }

func (n *node) waiters(name string) int64 { return n.get(name).WaiterCount }

// sessions counts the sessions of all clients.
func (n *node) sessions() (count int) {
	for _, err := range operator.New(n.admin).ListSessions(n.ctx) {
		n.ok(err)
		count++
	}
	return count
}

// grants lists the tokens of all grants of a semaphore, so far.
func (n *node) grants(name string) (tokens []uint64) {
	n.put("end", 1)
	for e, err := range operator.New(n.admin).Events(n.ctx, operator.Since("0"), operator.OfSemaphore(name), operator.OfSemaphore("end")) {
		if n.ok(err); e.Kind == "granted" {
			tokens = append(tokens, e.Token)
		}
		if e.Semaphore == "end" {
			break
		}
	}
	n.ok(n.admin.Delete(n.ctx, "end"))
	return tokens
}

// contend lets the client find a semaphore contended, so that its next calls wait without a try before.
func (b *bed) contend(name string) {
	b.Helper()
	_, err := b.c.TryDown(b.ctx, name, 1)
	b.is(err, client.ErrUnavailable)
}

// occupy holds permits, until free.
func (n *node) occupy(name string, count int64) (free func()) {
	n.Helper()
	lease, err := n.admin.Acquire(n.ctx, name, client.Count(count), client.TTL(24*time.Hour))
	n.ok(err)
	return func() { n.ok(lease.Release(n.ctx)) }
}

func (n *node) revoke(session, name, reason string) {
	n.Helper()
	n.ok(operator.New(n.admin).Revoke(n.ctx, name, session, reason, 0))
}

func (n *node) revokeSession(id, reason string) {
	n.Helper()
	n.ok(operator.New(n.admin).RevokeSession(n.ctx, id, reason))
}

// bed is a client that reaches its node by a network with faults, in virtual time. A goroutine
// that outlives the client's Close fails the test: its bubble does not end.
type bed struct {
	*node
	net  *network
	c    *client.Client
	left bool // the test leaves sessions behind whose end is never confirmed
}

// virtually runs a test in virtual time, against a node that has so many addresses.
func virtually(t *testing.T, addresses int, test func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster := clienttest.Start(t)
		b := newBed(&node{t, context.Background(), cluster.Client()}, addresses, func(string) http.Handler { return cluster.Handler() })
		defer b.end()
		test(b)
	})
}

// many runs a test so often at a time in virtual time, against one node: each has a client, a
// network and the name of a semaphore.
func many(t *testing.T, times int, test func(b *bed, name string, seed int)) {
	t.Helper()
	virtually(t, 3, func(b *bed) {
		var all sync.WaitGroup
		for seed := range times {
			all.Go(func() {
				seeded := newBed(b.node, 3, b.net.node)
				defer seeded.end()
				test(seeded, fmt.Sprint("db/", seed), seed)
			})
		}
		all.Wait()
	})
}

// newBed makes a client with the addresses n1, n2 …
func newBed(n *node, addresses int, at func(host string) http.Handler) *bed {
	b := &bed{node: n, net: &network{t: n, node: at}}
	config := client.Config{HTTPClient: newHTTP(b.net), InOrder: true}
	for i := range addresses {
		config.Addresses = append(config.Addresses, fmt.Sprintf("n%d:8701", i+1))
	}
	var err error
	b.c, err = client.New(config)
	b.ok(err)
	return b
}

// end closes the client, beside all faults.
func (b *bed) end() {
	b.net.follow(nil)
	if err := b.c.Close(b.ctx); err != nil && !errors.Is(err, client.ErrLost) && !b.left {
		b.Errorf("close: %v", err)
	}
	b.net.pending.Wait()
}

func (n *node) ok(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

// is fails the test unless err is all of the targets.
func (b *bed) is(err error, targets ...error) {
	b.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			b.Errorf("error %q is not %q", err, target)
		}
	}
}

// isNot fails the test if err is any of the targets.
func (b *bed) isNot(err error, targets ...error) {
	b.Helper()
	for _, target := range targets {
		if errors.Is(err, target) {
			b.Errorf("error %q is %q", err, target)
		}
	}
}

func (b *bed) session(ttl time.Duration) *client.Session {
	b.Helper()
	s, err := b.c.OpenSession(b.ctx, client.SessionOptions{TTL: ttl})
	b.ok(err)
	return s
}

// acquire acquires a permit by a session.
func (b *bed) acquire(s *client.Session, name string) *client.Lease {
	b.Helper()
	lease, err := s.Acquire(b.ctx, name)
	b.ok(err)
	return lease
}

func (b *bed) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(b.ctx, d)
	b.Cleanup(cancel)
	return ctx
}

// nodeTime bounds how long a node takes to log what the calls of a test ask for.
const nodeTime = 10 * time.Millisecond

// took fails the test unless so much time has passed since began.
func (b *bed) took(began time.Time, shortest, longest time.Duration) {
	b.Helper()
	if d := time.Since(began); d < shortest || d > longest+nodeTime {
		b.Errorf("took %v, wanted %v … %v", d, shortest, longest)
	}
}

// lost waits for a channel to be closed, and returns after how long. It fails the test after ten
// virtual minutes.
func (b *bed) lost(over <-chan struct{}) time.Duration {
	b.Helper()
	began := time.Now()
	select {
	case <-over:
	case <-time.After(10 * time.Minute):
		b.Fatal("not lost within ten minutes")
	}
	return time.Since(began)
}

// lostAfter fails the test unless a channel is closed after so long.
func (b *bed) lostAfter(d time.Duration, over <-chan struct{}) {
	b.Helper()
	began := time.Now()
	b.lost(over)
	b.took(began, d, d)
}

func alive(over <-chan struct{}) bool {
	select {
	case <-over:
		return false
	default:
		return true
	}
}

// hosts lists where requests went.
func hosts(log []sent) string {
	var out []string
	for _, s := range log {
		out = append(out, strings.TrimSuffix(s.host, ":8701"))
	}
	return strings.Join(out, " ")
}

// on makes a fault for the requests whose method and path match.
func on(method, part string, f fault) func(sent, int) fault {
	return func(s sent, _ int) fault {
		if s.method == method && strings.Contains(s.path, part) {
			return f
		}
		return fault{}
	}
}

// first makes only the first n matching requests meet the fault.
func first(n int, method, part string, f fault) func(sent, int) fault {
	matching := on(method, part, f)
	return func(s sent, nth int) fault {
		if s.method != method || !strings.Contains(s.path, part) || n == 0 {
			return fault{}
		}
		n--
		return matching(s, nth)
	}
}

// loseFirst loses the replies to the first n requests that match.
func (b *bed) loseFirst(n int, method, part string) {
	b.net.follow(first(n, method, part, fault{lose: true}))
}

// always is a fault for every request.
func always(f fault) func(sent, int) fault { return func(sent, int) fault { return f } }

// busy is a node's 503.
func busy(seconds string) fault {
	return fault{status: http.StatusServiceUnavailable, code: "no-leader", header: http.Header{"Retry-After": {seconds}}}
}

// newRandom is a source of chance that a seed repeats.
func newRandom(seed int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 1)) }

func newHTTP(n *network) *http.Client { return &http.Client{Transport: n} }

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
