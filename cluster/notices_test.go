package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
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
	// answer is the result of an attempt; nil: success.
	answer func(ctx context.Context, node string, n fsm.NoticeView) error
}

type attempt struct {
	node   string
	notice fsm.NoticeView
	at     time.Time
}

// from is the notifier of each node.
func (m *deliveries) from(config *Config) { config.Notifier = &postman{m, config.NodeID} }

type postman struct {
	mail *deliveries
	node string
}

func (p *postman) Notify(ctx context.Context, n fsm.NoticeView) error {
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

func (m *deliveries) set(answer func(ctx context.Context, node string, n fsm.NoticeView) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answer = answer
}

// wish leaves a notice by a down that is refused, and returns its id.
func (c *nodes) wish(n *testNode, name string, count int64) uint64 {
	c.t.Helper()
	return c.wishAt(n, name, count, "http://hooks.example/"+name)
}

// wishAt leaves a notice with another address.
func (c *nodes) wishAt(n *testNode, name string, count int64, address string) uint64 {
	c.t.Helper()
	r := c.do(n, fsm.Down{Name: name, Count: count, Notice: address}, fsm.Unavailable)
	if r.Place == 0 {
		c.t.Fatal("a refused down left no notice")
	}
	return r.Place
}

// dueNotices returns how many the leader has still to deliver.
func (c *nodes) dueNotices() (count int) {
	c.leader().View(func(m *fsm.Machine) { count = len(m.DueNotices()) })
	return count
}

var errNobodyHome = errors.New("nobody home")

// TestNoticesAreDelivered: by the leader alone, once, when they are due and not
// before, with the permits that are available then; and they are forgotten. The metrics count them.
func TestNoticesAreDelivered(t *testing.T) {
	m := &deliveries{}
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		c.semaphore("b", 0)
		n := c.follower()
		double, single, other := c.wish(n, "a", 2), c.wish(n, "a", 1), c.wish(n, "b", 7)
		synctest.Wait()
		if got := m.all(); len(got) != 0 {
			t.Fatalf("nothing is due, and %v was delivered", got)
		}
		expect := func(want ...fsm.NoticeView) {
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
		first := fsm.NoticeView{ID: single, Semaphore: "a", Count: 1, Available: 1}
		c.do(n, fsm.Up{Name: "a", Count: 1}, fsm.OK)
		expect(first)
		second := fsm.NoticeView{ID: double, Semaphore: "a", Count: 2, Available: 4}
		c.do(n, fsm.Up{Name: "a", Count: 3}, fsm.OK)
		expect(first, second)
		c.do(n, fsm.DeleteSemaphore{Name: "b"}, fsm.OK)
		expect(first, second, fsm.NoticeView{ID: other, Semaphore: "b", Count: 7, Deleted: true})
		m.set(func(context.Context, string, fsm.NoticeView) error { return errNobodyHome })
		c.wish(n, "a", 8)
		c.do(n, fsm.Up{Name: "a", Count: 8}, fsm.OK)
		c.until("three attempts have failed", func() bool { return len(m.all()) == 6 })
		synctest.Wait() // the third is counted
		if values := metricsOf(t, c.leader()); values["notice_attempts_failed_total"] != 3 || values["notices_delivered_total"] != 3 || values["notices_given_up_total"] != 0 {
			t.Errorf("%v attempts have failed, %v notices are delivered, %v given up",
				values["notice_attempts_failed_total"], values["notices_delivered_total"], values["notices_given_up_total"])
		}
		time.Sleep(10 * time.Minute) // virtual
		c.until("it is given up", func() bool { return c.dueNotices() == 0 })
		if values := metricsOf(t, c.leader()); values["notices_given_up_total"] != 1 {
			t.Errorf("%v are given up", values["notices_given_up_total"])
		}
	}, m.from)
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

			m.set(func(ctx context.Context, node string, n fsm.NoticeView) error {
				if node == old.id { // it arrives, but the leader does not learn of it
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
				c.must(old.raft().LeadershipTransfer().Error())
			}
			next := c.leader(old)
			c.until("the next leader has delivered", func() bool { return c.dueNotices() == 0 })
			var nodes []string
			var first fsm.NoticeView
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
	m := &deliveries{answer: func(context.Context, string, fsm.NoticeView) error { return errNobodyHome }}
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
