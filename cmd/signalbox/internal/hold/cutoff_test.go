//go:build unix

package hold

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

// actor is a child that follows a script, in virtual time.
type actor struct {
	onTerm time.Duration // the command ends so long after TERM; below 0: never
	onKill time.Duration // the rest is gone so long after KILL
	orphan bool          // a process of the group ignores TERM
	after  time.Duration // the command ends unasked; 0: never

	mu             sync.Mutex
	ended          chan struct{}
	over, orphaned bool // the command has ended; the orphan has
	heard          []syscall.Signal
	began, term    time.Time
	vanished       time.Time // when all of it was gone
	code           int
}

func (a *actor) begin(_, _ []string) (child, error) {
	a.began, a.ended, a.orphaned = time.Now(), make(chan struct{}), !a.orphan
	if a.after > 0 {
		a.end(a.after, true, false, 7)
	}
	return a, nil
}

// end makes the command, the orphan or both end after the time in.
func (a *actor) end(in time.Duration, command, orphan bool, code int) {
	time.AfterFunc(in, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if command && !a.over {
			a.over, a.code = true, code
			close(a.ended)
		}
		a.orphaned = a.orphaned || orphan
		if a.over && a.orphaned && a.vanished.IsZero() {
			a.vanished = time.Now()
		}
	})
}

func (a *actor) signal(s syscall.Signal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard = append(a.heard, s)
	switch {
	case s == syscall.SIGTERM && a.term.IsZero():
		if a.term = time.Now(); a.onTerm >= 0 {
			a.end(a.onTerm, true, false, cli.StatusSignal+int(s))
		}
	case s == syscall.SIGKILL:
		a.end(a.onKill, true, true, cli.StatusSignal+int(s))
	}
}

func (a *actor) exited() <-chan struct{} { return a.ended }

func (a *actor) status() int { return a.code }

func (a *actor) gone() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.vanished.IsZero()
}

// below returns a random time up to d, in microseconds, so that it falls between the cluster's ticks.
func below(chance *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(chance.Int64N(int64(d/time.Microsecond)+1)) * time.Microsecond
}

// cutTrial is one run whose connections to all nodes are cut at some time.
type cutTrial struct {
	actor
	holder  *Holder
	cluster *oneLease
	chance  *rand.Rand
	how     cutOff
}

func newCutTrial(t *testing.T, seed int) *cutTrial {
	c := &cutTrial{chance: rand.New(rand.NewPCG(uint64(seed), 2))}
	c.cluster = newOneLease(rand.New(rand.NewPCG(uint64(seed), 3)))
	config := Config{Name: "db", Command: []string{"actor"}, Cluster: signalbox.Config{Addresses: []string{"n1", "n2", "n3"}, HTTPClient: &http.Client{Transport: c.cluster}}, Count: 1, Wait: 5 * time.Minute,
		TTL: []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 30 * time.Second}[c.chance.IntN(4)],
		Log: slog.New(slog.DiscardHandler), begin: c.begin}
	c.cluster.slow, c.cluster.lost = below(c.chance, config.TTL/16), c.chance.IntN(2)*15
	c.how = cutOff(c.chance.IntN(int(cutOffs)))
	if c.chance.IntN(2) == 0 {
		config.Grace = 1 + below(c.chance, config.TTL/4)
	}
	c.holder = newHolder(t, config)
	c.onTerm, c.onKill, c.orphan = below(c.chance, 2*c.holder.Grace), below(c.chance, c.holder.margin/2), c.chance.IntN(3) == 0
	if c.chance.IntN(3) == 0 {
		c.onTerm = -1
	}
	return c
}

func newHolder(t *testing.T, c Config) *Holder {
	t.Helper()
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// run returns how long before the next grant all processes of the command had ended.
func (c *cutTrial) run(t *testing.T, seed int) (early time.Duration, judged bool) {
	time.Sleep(below(c.chance, time.Second)) // virtual
	c.cluster.occupy(true)
	time.AfterFunc(below(c.chance, 2*c.holder.TTL), func() { c.cluster.occupy(false) })
	cut := make(chan time.Time, 1)
	cutAfter := below(c.chance, 6*c.holder.TTL)
	time.AfterFunc(cutAfter, func() {
		c.cluster.cutFrom(c.how)
		cut <- time.Now()
	})
	err := c.holder.Run(t.Context())
	defer func() { _ = c.holder.client.Close(t.Context()) }() // it is cut off; its goroutines end with the deadline
	if c.began.IsZero() {
		if status := cli.StatusOf(err); status != cli.StatusUnreachable {
			t.Errorf("seed %d: cut off before it was granted: status %d, %v", seed, status, err)
		}
		return 0, false
	}
	if status := cli.StatusOf(err); status != cli.StatusLost || !c.gone() {
		t.Errorf("seed %d: status %d, all gone: %v, %v", seed, status, c.gone(), err)
	}
	for c.cluster.grantedAnew().IsZero() {
		time.Sleep(c.holder.TTL) // virtual
	}
	anew := c.cluster.grantedAnew()
	if at := <-cut; c.term.Before(at) && c.cluster.lost == 0 {
		t.Errorf("seed %d: asked to end %v before it was cut off", seed, at.Sub(c.term))
	}
	unheard := c.cluster.lost > 0 || c.how == deafens // renewals that run never learned of
	if limit := c.holder.Grace + c.holder.margin + c.cluster.slow + c.holder.TTL/1000 + 3*time.Millisecond; anew.Sub(c.term) > limit && !unheard {
		t.Errorf("seed %d: asked to end %v before the next grant, more than %v", seed, anew.Sub(c.term), limit)
	}
	return anew.Sub(c.vanished), true
}

// TestRunCutOff cuts Run off from all nodes, at any time. Whatever its command does, its whole group has ended when the
// cluster grants the permit to another client. Run does not ask the command to end long before it has to.
func TestRunCutOff(t *testing.T) {
	const trials = 1000
	judged, misses, closest := 0, 0, time.Hour
	for seed := 0; judged < trials && seed < 2*trials; seed++ {
		synctest.Test(t, func(t *testing.T) {
			c := newCutTrial(t, seed)
			early, ok := c.run(t, seed)
			if !ok {
				return
			}
			judged++
			if c.how != deafens { // there the release, which comes after the command's end, may be heard
				closest = min(closest, early)
			}
			if early <= 0 {
				misses++
				t.Errorf("seed %d: gone %v after the next grant (ttl %v, grace %v, margin %v, cut %v)", seed, -early, c.holder.TTL, c.holder.Grace, c.holder.margin, c.how)
			}
		})
	}
	t.Logf("%d trials, %d misses; closest call %v", judged, misses, closest)
	if judged < trials {
		t.Errorf("only %d trials came to a grant", judged)
	}
}

// TestRunGuard shows which signals a command gets, and with which status Run ends.
func TestRunGuard(t *testing.T) {
	cases := []struct {
		name   string
		child  actor
		signal os.Signal // sent after a second
		heard  string
		status int
	}{
		{"ends by itself", actor{after: 3 * time.Second}, nil, "[]", 7},
		{"ends by itself, long after", actor{after: time.Hour}, nil, "[]", 7},
		{"leaves something behind", actor{after: 3 * time.Second, orphan: true}, nil, "[terminated continued killed]", 7},
		{"is sent a signal", actor{onTerm: time.Second}, syscall.SIGTERM, "[terminated]", cli.StatusSignal + 15},
		{"ignores a signal", actor{after: 5 * time.Second}, syscall.SIGUSR1, "[user defined signal 1]", 7},
	}
	for i := range cases {
		c := &cases[i]
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				signals := make(chan os.Signal, 1)
				cluster := newOneLease(rand.New(rand.NewPCG(1, 1)))
				h := newHolder(t, Config{Name: "db", Command: []string{"actor"}, Count: 1, TTL: 30 * time.Second,
					Cluster: signalbox.Config{Addresses: []string{"n1"}, HTTPClient: &http.Client{Transport: cluster}}, Log: slog.New(slog.DiscardHandler), Signals: signals, begin: c.child.begin})
				if c.signal != nil {
					time.AfterFunc(time.Second, func() { signals <- c.signal })
				}
				err := h.Run(t.Context())
				if status := cli.StatusOf(err); status != c.status || err.Error() != "" {
					t.Errorf("status %d, %v", status, err)
				}
				if heard := fmt.Sprint(c.child.heard); heard != c.heard {
					t.Errorf("the command was sent %s", heard)
				}
				if released := cluster.grantedAnew(); released.Before(c.child.vanished) || time.Since(released) > time.Second {
					t.Errorf("released %v before now, %v after the command's end", time.Since(released), released.Sub(c.child.vanished))
				}
			})
		})
	}
	t.Run("can't be begun", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			cluster := newOneLease(rand.New(rand.NewPCG(1, 1)))
			h := newHolder(t, Config{Name: "db", Command: []string{"actor"}, Count: 1, TTL: time.Second,
				Cluster: signalbox.Config{Addresses: []string{"n1"}, HTTPClient: &http.Client{Transport: cluster}}, Log: slog.New(slog.DiscardHandler),
				begin: func(_, _ []string) (child, error) { return nil, errors.New("no room") }})
			if err := h.Run(t.Context()); cli.StatusOf(err) != cli.StatusCantRun || cluster.grantedAnew().IsZero() {
				t.Errorf("status %d, %v; released %v", cli.StatusOf(err), err, cluster.grantedAnew())
			}
		})
	})
}

// lateHeld is a lost lease whose deadline moves.
type lateHeld struct{ deadline func() time.Time }

func (lateHeld) Lost() <-chan struct{} {
	lost := make(chan struct{})
	close(lost)
	return lost
}
func (lateHeld) Err() error            { return signalbox.ErrLost }
func (l lateHeld) Deadline() time.Time { return l.deadline() }

// TestGuardAfterSuspension: if the machine is suspended during the grace, the grace ends when the machine resumes.
func TestGuardAfterSuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actor{onTerm: -1}
		_, _ = a.begin(nil, nil)
		began := time.Now()
		g := &guard{child: a, grace: 10 * time.Second, margin: time.Second, held: lateHeld{func() time.Time {
			if time.Since(began) < 2*time.Second {
				return began.Add(time.Minute)
			}
			return began // it was suspended for a minute
		}}}
		_ = g.watch()
		if took := a.vanished.Sub(began); took > 2*time.Second+2*pollEvery {
			t.Errorf("it lived on for %v", took)
		}
	})
}
