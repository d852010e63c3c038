package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/client"
)

// bed is a client of a fake cluster, in virtual time. A goroutine that outlives the
// client's Close fails the test: its bubble does not end.
type bed struct {
	*testing.T
	ctx  context.Context
	fake *fake
	net  *network
	c    *client.Client
	left bool // the test leaves sessions behind whose end is never confirmed
}

// virtually runs a test in virtual time, against a fake with so many nodes.
func virtually(t *testing.T, nodes int, test func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nodes)
		test(b)
		b.net.follow(nil)
		if err := b.c.Close(context.Background()); err != nil && !errors.Is(err, client.ErrLost) && !b.left {
			t.Errorf("close: %v", err)
		}
		b.net.pending.Wait()
	})
}

func newBed(t *testing.T, nodes int) *bed {
	b := &bed{T: t, ctx: context.Background(), fake: newFake()}
	b.net = &network{fake: b.fake}
	config := client.Config{HTTPClient: &http.Client{Transport: b.net}, InOrder: true}
	for i := range nodes {
		config.Addresses = append(config.Addresses, fmt.Sprintf("n%d:8701", i+1))
	}
	var err error
	if b.c, err = client.New(config); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bed) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
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

func (b *bed) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(b.ctx, d)
	b.Cleanup(cancel)
	return ctx
}

// took fails the test unless so much time has passed since began.
func (b *bed) took(began time.Time, least, most time.Duration) {
	b.Helper()
	if d := time.Since(began); d < least || d > most {
		b.Errorf("took %v, wanted %v … %v", d, least, most)
	}
}

// lost waits for a channel to be closed and returns after how long; it fails the
// test after a virtual hour.
func (b *bed) lost(over <-chan struct{}) time.Duration {
	b.Helper()
	began := time.Now()
	select {
	case <-over:
	case <-time.After(time.Hour):
		b.Fatal("not lost within an hour")
	}
	return time.Since(began)
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

// always is a fault for every request.
func always(f fault) func(sent, int) fault { return func(sent, int) fault { return f } }

// busy is a node's 503.
func busy(seconds string) fault {
	return fault{status: http.StatusServiceUnavailable, code: "no-leader", header: http.Header{"Retry-After": {seconds}}}
}

// newRandom is a source of chance that a seed repeats.
func newRandom(seed int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 1)) }

func newHTTP(n *network) *http.Client { return &http.Client{Transport: n} }
