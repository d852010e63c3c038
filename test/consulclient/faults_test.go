package consulclient

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

// TestConsulClients goes through the checklist at each node, three times: on a new cluster, after
// its leader was killed, and after a rolling restart. Through both, contenders share a
// counter file and a semaphore, and holders keep what they hold.
func TestConsulClients(t *testing.T) {
	c := startCluster(t)
	checklist(t, c, "new")
	guests := startGuests(t, c)
	c.killLeader()
	guests.goOn("after the leader was killed")
	checklist(t, c, "after a kill")
	c.rollingRestart()
	guests.goOn("after a rolling restart")
	guests.finish()
	checklist(t, c, "after a restart")
}

const (
	contenders = 8
	slots      = 2 // of the semaphore
)

// guests are clients that go on through all faults.
type guests struct {
	t       *testing.T
	c       *cluster
	file    string // a counter, which one contender at a time may change
	stop    chan struct{}
	running sync.WaitGroup
	inside  struct{ lock, semaphore atomic.Int64 }
	holds   struct{ lock, semaphore [contenders]atomic.Int64 }
	kept    []<-chan struct{} // losses of the holders
}

func startGuests(t *testing.T, c *cluster) *guests {
	t.Helper()
	g := &guests{t: t, c: c, file: filepath.Join(t.TempDir(), "counter"), stop: make(chan struct{})}
	ok(t, os.WriteFile(g.file, []byte("0"), 0o600))
	for node := range nodes {
		s := &site{T: t, Client: client(t, c.address(node)), cluster: c, node: node, prefix: fmt.Sprintf("kept/%d/", node)}
		retries := api.LockOptions{Key: s.prefix + "l", MonitorRetries: 300, MonitorRetryTime: 200 * time.Millisecond}
		g.kept = append(g.kept, s.gets(s.lockOf(retries).Lock), s.gets(s.semaphoreOf(api.SemaphoreOptions{Prefix: s.prefix + "p/", Limit: 1,
			MonitorRetries: retries.MonitorRetries, MonitorRetryTime: retries.MonitorRetryTime}).Acquire))
	}
	for i := range contenders {
		g.running.Go(func() { g.contend(i, g.lock) })
		g.running.Go(func() { g.contend(i, g.semaphore) })
	}
	g.goOn("at the beginning")
	return g
}

// contend takes turns until the guests stop, at one node after another. After an error, it
// gives up its session at any node that takes it, and asks the next node.
func (g *guests) contend(contender int, turn func(contender int, c *api.Client, session string) error) {
	var clients [nodes]*api.Client
	for node := range nodes {
		clients[node] = client(g.t, g.c.address(node))
	}
	for node := contender % nodes; ; node = (node + 1) % nodes {
		session, _, err := clients[node].Session().CreateNoChecks(&api.SessionEntry{TTL: "10s", LockDelay: time.Millisecond, Behavior: api.SessionBehaviorDelete}, nil)
		if err == nil {
			err = g.withSession(clients[node], session, func() error { return turn(contender, clients[node], session) })
			for other := 0; ; other++ { // until one has ended it
				if _, err := clients[other%nodes].Session().Destroy(session, nil); err == nil {
					break
				}
			}
		}
		select {
		case <-g.stop:
			return
		default:
		}
		if err != nil {
			<-time.After(50 * time.Millisecond)
		}
	}
}

// withSession calls do while the session is renewed.
func (g *guests) withSession(c *api.Client, session string, do func() error) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = c.Session().RenewPeriodic("10s", session, (&api.WriteOptions{}).WithContext(ctx), nil) }()
	return do()
}

func (g *guests) lock(contender int, c *api.Client, session string) error {
	lock, err := c.LockOpts(&api.LockOptions{Key: "shared/lock", Session: session, MonitorRetries: 100, MonitorRetryTime: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	if lost, err := lock.Lock(g.stop); err != nil || lost == nil {
		return err
	}
	works(g.t, &g.inside.lock, 1, func() { g.count(contender) })
	return lock.Unlock()
}

// count adds one to the number in the counter file.
func (g *guests) count(contender int) {
	text, err := os.ReadFile(g.file)
	count, wrong := strconv.Atoi(string(text))
	if err == nil && wrong == nil {
		<-time.After(2 * time.Millisecond) // so that two inside would lose a count
		err = os.WriteFile(g.file, []byte(strconv.Itoa(count+1)), 0o600)
	}
	if err != nil || wrong != nil {
		g.t.Errorf("the counter file: %v %v", err, wrong)
	}
	g.holds.lock[contender].Add(1)
}

func (g *guests) semaphore(contender int, c *api.Client, session string) error {
	semaphore, err := c.SemaphoreOpts(&api.SemaphoreOptions{Prefix: "shared/semaphore", Limit: slots, Session: session, MonitorRetries: 100, MonitorRetryTime: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	if lost, err := semaphore.Acquire(g.stop); err != nil || lost == nil {
		return err
	}
	works(g.t, &g.inside.semaphore, slots, func() { g.holds.semaphore[contender].Add(1) })
	return semaphore.Release()
}

// goOn waits until each contender has held the lock and the semaphore once more, and checks that
// no holder has lost what it holds.
func (g *guests) goOn(when string) {
	g.t.Helper()
	began := time.Now()
	var before [2][contenders]int64
	for i := range contenders {
		before[0][i], before[1][i] = g.holds.lock[i].Load(), g.holds.semaphore[i].Load()
	}
	eventually(g.t, 2*time.Minute, func() error {
		for i := range contenders {
			if lock, semaphore := g.holds.lock[i].Load()-before[0][i], g.holds.semaphore[i].Load()-before[1][i]; lock == 0 || semaphore == 0 {
				return fmt.Errorf("%s contender %d has had the lock %d times and the semaphore %d times", when, i, lock, semaphore)
			}
		}
		return nil
	})
	for i, lost := range g.kept {
		select {
		case <-lost:
			g.t.Errorf("%s holder %d has lost what it held", when, i)
		default:
		}
	}
	g.t.Logf("%s all contenders had their turns within %v", when, time.Since(began).Round(time.Millisecond))
}

// finish ends the contenders, and compares the counter file with the count of holds.
func (g *guests) finish() {
	g.t.Helper()
	close(g.stop)
	g.running.Wait()
	var holds, slots int64
	for i := range contenders {
		holds += g.holds.lock[i].Load()
		slots += g.holds.semaphore[i].Load()
	}
	text, err := os.ReadFile(g.file)
	ok(g.t, err)
	if string(text) != fmt.Sprint(holds) {
		g.t.Errorf("the counter is %s after %d holds", text, holds)
	}
	g.t.Logf("%d holds of the lock, %d of the semaphore", holds, slots)
}
