package client_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client"
)

// silentAt makes a node accept requests and never reply.
func silentAt(host string) func(sent, int) fault {
	return func(s sent, _ int) fault { return fault{hang: s.host == host+":8701"} }
}

// Each kind of call succeeds within 5 s beside one silent node: the first that meets
// it loses a share of its time, the others begin elsewhere.
func TestSilentNodeCostsAShare(t *testing.T) {
	for nodes, share := range map[int]time.Duration{2: 2500 * time.Millisecond, 3: 1667 * time.Millisecond} {
		for name, call := range map[string]func(b *bed, ctx context.Context) error{
			"get":     func(b *bed, ctx context.Context) error { _, err := b.c.Get(ctx, "db"); return err },
			"up":      func(b *bed, ctx context.Context) error { _, err := b.c.Up(ctx, "db", 1); return err },
			"down":    func(b *bed, ctx context.Context) error { _, err := b.c.Down(ctx, "db", 1); return err },
			"try":     func(b *bed, ctx context.Context) error { _, err := b.c.TryAcquire(ctx, "db"); return err },
			"acquire": func(b *bed, ctx context.Context) error { _, err := b.c.Acquire(ctx, "db"); return err },
			"session": func(b *bed, ctx context.Context) error {
				s, err := b.c.OpenSession(ctx, client.SessionOptions{})
				if err != nil {
					return err
				}
				_, err = s.Acquire(ctx, "db")
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				virtually(t, nodes, func(b *bed) {
					b.put("db", 100)
					b.net.follow(silentAt("n1"))
					for i := range 7 {
						began := time.Now()
						b.ok(call(b, b.within(5*time.Second)))
						if i == 0 {
							b.took(began, share-time.Millisecond, share)
						} else {
							b.took(began, 0, 0)
						}
					}
				})
			})
		}
	}
}

// A node may hold a one-call request for two thirds of its ttl: a grant in a reply that
// does not come is found before it lapses.
func TestSilentNodeCostsAPartOfTheTTL(t *testing.T) {
	virtually(t, 2, func(b *bed) {
		b.put("db", 1)
		b.net.follow(silentAt("n1"))
		began := time.Now()
		_, err := b.c.Acquire(b.within(time.Minute), "db", client.TTL(3*time.Second))
		b.ok(err)
		b.took(began, 2*time.Second, 2*time.Second)
	})
}

// A node falls silent while it holds a request, and the grant comes.
func TestNodeFallsSilentDuringAWait(t *testing.T) {
	for name, wait := range map[string]func(b *bed, s *client.Session, ctx context.Context) error{
		"session": func(_ *bed, s *client.Session, ctx context.Context) error { _, err := s.Acquire(ctx, "db"); return err },
		"one-call": func(b *bed, _ *client.Session, ctx context.Context) error {
			_, err := b.c.Acquire(ctx, "db")
			return err
		},
		"down": func(b *bed, _ *client.Session, ctx context.Context) error {
			_, err := b.c.Down(ctx, "db", 1)
			return err
		},
	} {
		for after, cut := range map[string]fault{"request lost": {hang: true}, "reply lost": {back: time.Hour}} {
			t.Run(name+", "+after, func(t *testing.T) {
				virtually(t, 3, func(b *bed) {
					b.put("db", 1)
					free := b.occupy("db", 1)
					s := b.session(time.Hour)
					b.net.follow(func(s sent, _ int) fault {
						if s.host == "n1:8701" {
							return cut
						}
						return fault{}
					})
					time.AfterFunc(time.Second, free)
					began := time.Now()
					b.ok(wait(b, s, b.within(5*time.Second)))
					b.took(began, time.Second, 3*time.Second)
					if n := len(b.grants("db")); name != "down" && n != 2 {
						b.Errorf("%d grants", n)
					}
				})
			})
		}
	}
}

// While it waits, a request that a live node holds keeps its place though the client
// asks again from time to time, and does not ask much oftener than it must.
func TestWaitInSharesKeepsItsPlace(t *testing.T) {
	for name, acquire := range map[string]func(b *bed, s *client.Session, ctx context.Context) (*client.Lease, error){
		"session": func(_ *bed, s *client.Session, ctx context.Context) (*client.Lease, error) {
			return s.Acquire(ctx, "db")
		},
		"one-call": func(b *bed, _ *client.Session, ctx context.Context) (*client.Lease, error) {
			return b.c.Acquire(ctx, "db")
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, 3, func(b *bed) {
				b.put("db", 1)
				free := b.occupy("db", 1)
				s, behind := b.session(time.Hour), b.session(time.Hour)
				b.net.follow(nil)
				ctx := b.within(30 * time.Second)
				waits := later(func() (*client.Lease, error) { return acquire(b, s, ctx) })
				time.Sleep(time.Second) // virtual
				last := later(func() (*client.Lease, error) { return behind.Acquire(b.ctx, "db") })
				time.Sleep(28 * time.Second) // virtual
				if n := len(b.net.requests()); n > 25 {
					b.Errorf("%d requests for a wait of 30 s", n)
				}
				free()
				r := <-waits
				b.ok(r.err)
				b.ok(r.lease.Release(b.ctx))
				b.ok((<-last).err)
			})
		})
	}
}

// A deadline too short for two nodes costs one call; the next begins elsewhere.
func TestShortDeadlineAtASilentNode(t *testing.T) {
	for _, limit := range []time.Duration{20 * time.Millisecond, 400 * time.Millisecond} {
		virtually(t, 3, func(b *bed) {
			b.put("db", 3)
			b.net.follow(silentAt("n1"))
			_, err := b.c.Get(b.within(limit), "db")
			b.is(err, context.DeadlineExceeded, client.ErrUnreachable)
			for range 6 {
				_, err = b.c.Get(b.within(limit), "db")
				b.ok(err)
			}
			if got := hosts(b.net.requests()); got != strings.TrimSpace("n1"+strings.Repeat(" n2", 6)) {
				b.Errorf("asked %s", got)
			}
		})
	}
}

// A suspect node is asked after the others, also when those ask for a short rest.
func TestSuspectNodeIsAskedLast(t *testing.T) {
	virtually(t, 3, func(b *bed) {
		b.put("db", 3)
		b.net.follow(silentAt("n1"))
		_, err := b.c.Get(b.within(5*time.Second), "db")
		b.ok(err)
		answers := map[string][]fault{"n2:8701": {busy("1"), {refused: true}}, "n3:8701": {busy("2"), {refused: true}}, "n1:8701": {{}}}
		b.net.follow(func(s sent, _ int) fault {
			f := answers[s.host][0]
			answers[s.host] = append(answers[s.host][1:], fault{})
			return f
		})
		began := time.Now()
		_, err = b.c.Get(b.ctx, "db")
		b.ok(err)
		if got := hosts(b.net.requests()); got != "n2 n3 n2 n2" {
			b.Errorf("asked %s", got)
		}
		b.took(began, time.Second, 3*time.Second)
	})
}

// What became of a call that its caller gave up on is found out at another node.
func TestSettlingAsksAnotherNode(t *testing.T) {
	for name, f := range map[string]fault{"request lost": {hang: true}, "reply lost": {back: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			virtually(t, 2, func(b *bed) {
				b.put("jobs", 0)
				b.contend("jobs")
				ctx, cancel := context.WithCancel(b.ctx)
				b.net.follow(func(s sent, _ int) fault {
					if s.host == "n1:8701" {
						return f
					}
					return fault{}
				})
				time.AfterFunc(100*time.Millisecond, func() { b.up("jobs") })
				time.AfterFunc(200*time.Millisecond, cancel)
				began := time.Now()
				taken, err := b.c.Down(ctx, "jobs", 1)
				b.isNot(err, client.ErrOutcomeUnknown)
				if left := b.available("jobs"); taken.Granted+left != 1 {
					b.Errorf("told of %d, %d left, %v", taken.Granted, left, err)
				}
				b.took(began, 200*time.Millisecond, 200*time.Millisecond)
				if name == "reply lost" && (err != nil || taken.Granted != 1) {
					b.Errorf("%v, %v", taken, err)
				}
			})
		})
	}
}

// A session's wait that ends beside a node that has just fallen silent is withdrawn
// in time, and says so.
func TestWithdrawalPassesASilentNode(t *testing.T) {
	virtually(t, 3, func(b *bed) {
		b.put("db", 1)
		b.occupy("db", 1)
		s := b.session(time.Hour)
		ctx, cancel := context.WithCancel(b.ctx)
		waits := later(func() (*client.Lease, error) { return s.Acquire(ctx, "db") })
		time.Sleep(time.Second) // virtual
		b.net.follow(silentAt("n1"))
		cancel()
		r := <-waits
		b.is(r.err, context.Canceled, client.ErrUnavailable)
		if b.waiters("db") != 0 {
			b.Error("the request still waits")
		}
	})
}
