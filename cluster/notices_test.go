package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/fsm"
)

// deliveries are what the notifiers of a cluster were asked to deliver.
type deliveries struct {
	mu       sync.Mutex
	attempts []attempt
	underWay int
	most     int // under way at once
	// answer is how an attempt comes out; nil: well.
	answer func(ctx context.Context, node string, n Notice) error
}

type attempt struct {
	node   string
	notice Notice
	at     time.Time
}

// from is the notifier of each node.
func (m *deliveries) from(config *Config) { config.Notifier = &postman{m, config.NodeID} }

type postman struct {
	mail *deliveries
	node string
}

func (p *postman) Notify(ctx context.Context, n Notice) error {
	m := p.mail
	m.mu.Lock()
	m.attempts = append(m.attempts, attempt{p.node, n, time.Now()})
	m.underWay++
	m.most = max(m.most, m.underWay)
	answer := m.answer
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.underWay--
	}()
	if answer == nil {
		return nil
	}
	return answer(ctx, p.node, n)
}

func (p *postman) Host(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}

func (m *deliveries) all() []attempt {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.attempts)
}

func (m *deliveries) set(answer func(ctx context.Context, node string, n Notice) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answer = answer
}

// wish leaves a notice by a down that is refused, and answers its id.
func (c *nodes) wish(n *testNode, name string, count int64) uint64 {
	c.t.Helper()
	return c.wishAt(n, name, count, "http://hooks.example/"+name)
}

// wishAt leaves a notice with an address of its own.
func (c *nodes) wishAt(n *testNode, name string, count int64, address string) uint64 {
	c.t.Helper()
	r := c.do(n, fsm.Down{Name: name, Count: count, Notice: address}, fsm.Unavailable)
	if r.Place == 0 {
		c.t.Fatal("a refused down left no notice")
	}
	return r.Place
}

// dueNotices answers how many the leader has still to deliver.
func (c *nodes) dueNotices() (count int) {
	c.leader().View(func(m *fsm.Machine) { count = len(m.DueNotices()) })
	return count
}

var errNobodyHome = errors.New("nobody home")

// TestNoticesAreDelivered: by the leader alone, once, when they are due and not
// before, with what is available then; and they are forgotten.
func TestNoticesAreDelivered(t *testing.T) {
	m := &deliveries{}
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		c.semaphore("b", 0)
		n := c.follower()
		two, one, other := c.wish(n, "a", 2), c.wish(n, "a", 1), c.wish(n, "b", 7)
		synctest.Wait()
		if got := m.all(); len(got) != 0 {
			t.Fatalf("nothing is due, and %v was delivered", got)
		}
		expect := func(want ...Notice) {
			t.Helper()
			c.until("all are removed", func() bool { return c.dueNotices() == 0 && len(m.all()) >= len(want) })
			for i, a := range m.all() {
				a.notice.DueMS, a.notice.Epoch, a.notice.URL = 0, 0, ""
				if a.notice != want[i] || a.node != c.leader().id {
					t.Errorf("%s delivered %+v, want %+v", a.node, a.notice, want[i])
				}
			}
			if len(m.all()) != len(want) {
				t.Errorf("%d deliveries, want %d", len(m.all()), len(want))
			}
		}
		first := Notice{ID: one, Semaphore: "a", Count: 1, Available: 1}
		c.do(n, fsm.Up{Name: "a", Count: 1}, fsm.OK)
		expect(first)
		second := Notice{ID: two, Semaphore: "a", Count: 2, Available: 4}
		c.do(n, fsm.Up{Name: "a", Count: 3}, fsm.OK)
		expect(first, second)
		c.do(n, fsm.DeleteSemaphore{Name: "b"}, fsm.OK)
		expect(first, second, Notice{ID: other, Semaphore: "b", Count: 7, Deleted: true})
	}, m.from)
}

// TestNoticesAreTriedAgain: with pauses that double up to 15 s; each attempt tells
// what is available then.
func TestNoticesAreTriedAgain(t *testing.T) {
	m := &deliveries{answer: func(context.Context, string, Notice) error { return errNobodyHome }}
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		c.wish(c.follower(), "a", 1)
		c.do(c.leader(), fsm.Up{Name: "a", Count: 1}, fsm.OK)
		c.until("six attempts", func() bool { return len(m.all()) == 6 })
		m.set(nil)
		c.do(c.leader(), fsm.Up{Name: "a", Count: 1}, fsm.OK)
		c.until("it is delivered", func() bool { return c.dueNotices() == 0 })
		got := m.all()
		if len(got) != 7 {
			t.Fatalf("%d attempts", len(got))
		}
		for i, pause := range []time.Duration{1, 2, 4, 8, 15, 15} {
			if took := got[i+1].at.Sub(got[i].at).Round(100 * time.Millisecond); took != pause*time.Second {
				t.Errorf("pause %d is %v, want %ds", i+1, took, pause)
			}
		}
		if got[5].notice.Available != 1 || got[6].notice.Available != 2 {
			t.Errorf("available %d, then %d", got[5].notice.Available, got[6].notice.Available)
		}
		values := metricsOf(t, c.leader())
		for figure, want := range map[string]float64{"notices_delivered_total": 1, "notice_attempts_failed_total": 6, "notices_given_up_total": 0} {
			if values[figure] != want {
				t.Errorf("%s is %v, want %v", figure, values[figure], want)
			}
		}
		if got[0].notice.DueMS != got[6].notice.DueMS {
			t.Error("the time since when it is due has moved")
		}
	}, m.from)
}

// TestNoticesAreGivenUp: ten minutes after they were due, on an idle cluster and
// past slow addresses as well; on one that delivers none, too.
func TestNoticesAreGivenUp(t *testing.T) {
	slow := &deliveries{answer: func(ctx context.Context, _ string, _ Notice) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	quick := &deliveries{answer: func(context.Context, string, Notice) error { return errNobodyHome }}
	for name, scene := range map[string]struct {
		setup func(*Config)
		last  error
	}{
		"quick":       {quick.from, errNobodyHome},
		"slow":        {slow.from, context.DeadlineExceeded},
		"no notifier": {func(*Config) {}, errNoNotifier},
	} {
		t.Run(name, func(t *testing.T) {
			log := newRecordedLog()
			inBubble(t, 1, func(t *testing.T, c *nodes) {
				c.semaphore("a", 0)
				time.Sleep(noticeKept) // virtual: before it is due, nothing counts
				c.wish(c.leader(), "a", 1)
				c.do(c.leader(), fsm.Up{Name: "a", Count: 1}, fsm.OK)
				due := time.Now()
				time.Sleep(noticeKept - time.Second) // virtual
				if c.dueNotices() != 1 {
					t.Fatalf("given up already, within %v", time.Since(due))
				}
				c.until("it is given up", func() bool { return c.dueNotices() == 0 })
				if took := time.Since(due); took > noticeKept+noticeTimeout+noticePauseMost+time.Second {
					t.Errorf("given up after %v", took)
				}
				if values := metricsOf(t, c.leader()); values["notices_given_up_total"] != 1 || values["notices_delivered_total"] != 0 {
					t.Errorf("%v are given up, %v delivered", values["notices_given_up_total"], values["notices_delivered_total"])
				}
				if told := log.lines("a notice was given up"); len(told) != 1 || !strings.Contains(told[0], fmt.Sprintf("error=%q", scene.last)) {
					t.Errorf("logged %q, want it with %q", told, scene.last)
				}
				before := c.leader().raft.LastIndex()
				time.Sleep(noticeKept) // virtual: how much is logged is counted
				if n := c.leader().raft.LastIndex() - before; n != 0 {
					t.Errorf("%d entries after it was given up", n)
				}
			}, scene.setup, func(config *Config) { config.Logger = log })
		})
	}
	if n := len(quick.all()); n < 40 || n > 50 {
		t.Errorf("%d attempts in ten minutes", n)
	}
}

// TestNoticesOutliveTheirLeader: one that was due and not delivered is the next
// leader's, the same in all; one whose delivery was not recorded comes
// again; one that was delivered and removed does not.
func TestNoticesOutliveTheirLeader(t *testing.T) {
	m := &deliveries{}
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		for i := range 6 {
			done, name, old := fmt.Sprintf("done%d", i), fmt.Sprintf("open%d", i), c.leader()
			m.set(nil)
			c.semaphore(done, 0)
			c.wish(old, done, 1)
			c.do(old, fsm.Up{Name: done, Count: 1}, fsm.OK)
			c.until("one is delivered", func() bool { return c.dueNotices() == 0 })

			m.set(func(ctx context.Context, node string, n Notice) error {
				if node == old.id { // it arrives, but nobody is told
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			})
			c.semaphore(name, 0)
			id := c.wish(old, name, 1)
			c.do(old, fsm.Up{Name: name, Count: 1}, fsm.OK)
			synctest.Wait()
			if i%2 == 0 {
				c.kill(old)
			} else {
				c.must(old.raft.LeadershipTransfer().Error())
			}
			next := c.leader(old)
			c.until("the next leader has delivered", func() bool { return c.dueNotices() == 0 })
			var nodes []string
			var first Notice
			for _, a := range m.all() {
				if a.notice.Semaphore == name {
					nodes = append(nodes, a.node)
					if first.ID == 0 {
						first = a.notice
					}
					if a.notice.ID != id || a.notice != first { // a receiver's key is made from it
						t.Errorf("%+v, then %+v; the id is %d", first, a.notice, id)
					}
				}
			}
			if !slices.Equal(nodes, []string{old.id, next.id}) {
				t.Errorf("delivered by %v, want %s and then %s", nodes, old.id, next.id)
			}
			if i%2 == 0 {
				c.revive(old)
			}
		}
		count := 0
		for _, a := range m.all() {
			if a.notice.Semaphore[:4] == "done" {
				count++
			}
		}
		if count != 6 {
			t.Errorf("%d deliveries of six that were recorded", count)
		}
	}, m.from)
}

// TestNoticesOutliveARestart: all nodes stop between the due and the delivery.
func TestNoticesOutliveARestart(t *testing.T) {
	m := &deliveries{answer: func(context.Context, string, Notice) error { return errNobodyHome }}
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		id := c.wish(c.leader(), "a", 1)
		c.do(c.leader(), fsm.Up{Name: "a", Count: 1}, fsm.OK)
		for _, n := range c.all {
			c.kill(n)
		}
		m.set(nil)
		for _, n := range c.all {
			c.revive(n)
		}
		c.until("it is delivered", func() bool { return c.dueNotices() == 0 })
		got := m.all()
		if last := got[len(got)-1].notice; last.ID != id {
			t.Errorf("delivered %+v, want id %d", last, id)
		}
	}, m.from)
}

// TestNoticesAreBounded: as many attempts at once as there is room for, and the
// others in their turn.
func TestNoticesAreBounded(t *testing.T) {
	var release chan struct{}
	m := &deliveries{answer: func(ctx context.Context, _ string, _ Notice) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		release = make(chan struct{}) // of the bubble
		wanted := 0
		for i := range 3 {
			name := fmt.Sprint(i)
			c.semaphore(name, 0)
			for range 100 {
				c.wishAt(c.leader(), name, 1, fmt.Sprintf("http://hooks%d.example/", wanted))
				wanted++
			}
			r := c.do(c.leader(), fsm.Down{Name: name, Count: 1, Notice: "http://hooks.example/"}, fsm.LimitReached)
			if r.Rule != fsm.RuleNotices {
				t.Errorf("rule %v", r.Rule)
			}
		}
		for i := range 3 {
			c.do(c.leader(), fsm.Up{Name: fmt.Sprint(i), Count: 1}, fsm.OK)
		}
		synctest.Wait()
		if got := len(m.all()); got != noticesAtOnce {
			t.Errorf("%d attempts under way, want %d", got, noticesAtOnce)
		}
		close(release)
		c.until("all are delivered", func() bool { return c.dueNotices() == 0 })
		delivered := map[uint64]int{}
		for _, a := range m.all() {
			delivered[a.notice.ID]++
		}
		if len(delivered) != wanted || len(m.all()) != wanted || m.most != noticesAtOnce {
			t.Errorf("%d of %d delivered in %d attempts, %d at once", len(delivered), wanted, len(m.all()), m.most)
		}
	}, m.from)
}

// TestSilentHost: one that accepts and never answers delays its own notices only.
// None of them is tried once it is too old, however long it waited for its turn.
func TestSilentHost(t *testing.T) {
	m, log := &deliveries{}, newRecordedLog()
	m.set(func(ctx context.Context, _ string, n Notice) error {
		if strings.Contains(n.URL, "healthy") {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	})
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		for i := range 3 {
			name := fmt.Sprint(i)
			c.semaphore(name, 0)
			for range 100 {
				c.wishAt(c.leader(), name, 1, "http://silent.example/")
			}
		}
		c.semaphore("b", 0)
		c.wishAt(c.leader(), "b", 1, "http://healthy.example/")
		for i := range 3 {
			c.do(c.leader(), fsm.Up{Name: fmt.Sprint(i), Count: 1}, fsm.OK)
		}
		due := time.Now()
		synctest.Wait()
		if got := len(m.all()); got != noticesToHost {
			t.Errorf("%d attempts to one host under way, want %d", got, noticesToHost)
		}
		c.do(c.leader(), fsm.Up{Name: "b", Count: 1}, fsm.OK)
		freed := time.Now()
		c.until("the other is delivered", func() bool { return c.dueNotices() == 300 })
		if took := time.Since(freed); took >= noticeTimeout {
			t.Errorf("the other host was told %v later", took)
		}
		time.Sleep(noticeKept) // virtual
		c.until("all are given up", func() bool { return c.dueNotices() == 0 })
		for _, a := range m.all() {
			if late := a.at.Sub(due); late > noticeKept+time.Second {
				t.Errorf("notice %d was tried %v after it was due", a.notice.ID, late)
			}
		}
		if told := log.lines(errNoTurn.Error()); len(told) == 0 || len(told) == 300 {
			t.Errorf("%d of 300 were given up without an attempt", len(told))
		}
		if m.most > noticesToHost+1 {
			t.Errorf("%d attempts at once", m.most)
		}
	}, m.from, func(config *Config) { config.Logger = log })
}

// TestNoticesAreRemovedLater: when the log takes nothing just then, one that was
// delivered is removed when it does, and not delivered again.
func TestNoticesAreRemovedLater(t *testing.T) {
	var disk watchdogDisk
	m := &deliveries{answer: func(context.Context, string, Notice) error {
		disk.spent.Store(true)
		time.Sleep(2 * spaceEvery) // virtual: it is noticed
		return nil
	}}
	inBubble(t, 1, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		c.wish(c.leader(), "a", 1)
		c.do(c.leader(), fsm.Up{Name: "a", Count: 1}, fsm.OK)
		time.Sleep(30 * time.Second) // virtual: the log takes nothing
		if c.dueNotices() != 1 {
			t.Fatal("removed, though nothing could be logged")
		}
		disk.spent.Store(false)
		c.until("it is removed", func() bool { return c.dueNotices() == 0 })
		if got := m.all(); len(got) != 1 {
			t.Errorf("delivered %d times", len(got))
		}
	}, m.from, func(c *Config) { c.space = disk.space })
}

// TestTurnsAreForgotten: hosts are forgotten with their last attempt, whether it was
// made or given up while it waited.
func TestTurnsAreForgotten(t *testing.T) {
	turns := newTurns()
	var leaves []func()
	for i := range noticesAtOnce {
		leave, err := turns.enter(t.Context(), fmt.Sprint(i%(noticesAtOnce/noticesToHost)))
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, host := range []string{"0", "another"} { // full: for the host, in all
		if _, err := turns.enter(ended, host); !errors.Is(err, context.Canceled) {
			t.Errorf("host %s: %v", host, err)
		}
	}
	for _, leave := range leaves {
		leave()
	}
	if len(turns.hosts) != 0 || !turns.all.TryAcquire(noticesAtOnce) {
		t.Errorf("%d hosts are left", len(turns.hosts))
	}
}
