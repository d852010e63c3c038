package consulclient

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

const (
	holdsEach = 3
	holdFor   = 30 * time.Millisecond
)

// crowd is contenders for one lock, or for one semaphore of a limit, at one node or at all.
type crowd struct {
	name       string
	limit      int // 0: a lock
	contenders int
	spread     bool    // over all nodes
	consul     float64 // commands a hold that Consul 1.21.0 logs
	most       float64 // commands a hold, here; 0: not bounded, since nodes do not know of each other's lines
}

var crowds = []crowd{
	{name: "lock, alone", contenders: 1, consul: 4.2, most: 4.2},
	{name: "lock, 20", contenders: 20, consul: 15.6, most: 6},
	{name: "lock, 60", contenders: 60, consul: 27.1, most: 8},
	{name: "lock, 60 at 3 nodes", contenders: 60, spread: true, consul: 27.1},
	{name: "semaphore of 4, 60", limit: 4, contenders: 60, consul: 26.7, most: 9},
}

// TestHerd counts what one hold costs the log when many clients wait. A command is what Consul
// has an entry for; here many share one entry, and the clock's ticks are not counted.
func TestHerd(t *testing.T) {
	c := startCluster(t)
	table := "crowd | commands a hold, Consul's | refused writes a hold | entries a hold | longest wait, median, whole (s) | same again\n"
	for i, crowd := range crowds {
		got := crowd.run(t, c, fmt.Sprintf("herd/%d", i))
		table += fmt.Sprintf("%s | %.1f, %.1f | %.1f | %.1f | %.1f, %.1f, %.1f | %d of %d\n", crowd.name, got.commands, crowd.consul, got.refused, got.entries,
			got.longest.Seconds(), got.median.Seconds(), got.whole.Seconds(), got.again, got.holds)
		got.judge(t, crowd)
	}
	t.Log("\n" + table)
}

// measured is what one crowd did: counts for one hold, and times of waiting.
type measured struct {
	commands, refused, entries float64
	longest, median, whole     time.Duration
	again                      int // holds that followed one of the same contender
	holds                      int
}

// judge holds the counts to their bounds. Times belong to the machine, and are printed alone.
func (m measured) judge(t *testing.T, herd crowd) {
	t.Helper()
	if herd.most > 0 && m.commands > herd.most {
		t.Errorf("%s: %.1f commands a hold, more than %.1f", herd.name, m.commands, herd.most)
	}
	if herd.contenders == 1 || herd.most == 0 {
		return
	}
	if m.again*5 > m.holds {
		t.Errorf("%s: of %d holds %d followed one of the same contender", herd.name, m.holds, m.again)
	}
}

// run lets all contenders take their holds, and waits until their sessions are gone.
func (herd crowd) run(t *testing.T, c *cluster, name string) (m measured) {
	t.Helper()
	var mu sync.Mutex
	var waits []time.Duration
	var order []int
	var refused atomic.Int64
	var all sync.WaitGroup
	before, began := c.logged(), time.Now()
	for i := range herd.contenders {
		node := 0
		if herd.spread {
			node = i % nodes
		}
		take, give := herd.contender(t, client(t, c.address(node), func(transport *http.Transport) http.RoundTripper { return refusals{transport, &refused} }), name)
		all.Go(func() {
			for range holdsEach {
				called := time.Now()
				if lost, err := take(nil); err != nil || lost == nil {
					t.Errorf("%s: not held: %v", herd.name, err)
					return
				}
				mu.Lock()
				waits, order = append(waits, time.Since(called)), append(order, i)
				mu.Unlock()
				<-time.After(holdFor)
				if err := give(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	m.whole = time.Since(began)
	eventually(t, time.Minute, func() error { // the clients end their sessions behind their callers' backs
		if _, text, err := c.ask(0, http.MethodGet, "/v1/session/list", ""); err != nil || text != "[]" {
			return errors.New("there are sessions")
		}
		return nil
	})
	after := c.logged()
	m.holds = max(len(waits), 1)
	for i := 1; i < len(order); i++ {
		if order[i] == order[i-1] {
			m.again++
		}
	}
	slices.Sort(waits)
	m.longest, m.median = waits[len(waits)-1], waits[len(waits)/2]
	holds := float64(m.holds)
	m.commands, m.entries, m.refused = (after.commands-before.commands)/holds, (after.entries-before.entries)/holds, float64(refused.Load())/holds
	return m
}

// contender returns how one contender takes and gives back.
func (herd crowd) contender(t *testing.T, c *api.Client, name string) (take func(<-chan struct{}) (<-chan struct{}, error), give func() error) {
	t.Helper()
	if herd.limit > 0 {
		semaphore, err := c.SemaphorePrefix(name, herd.limit)
		ok(t, err)
		return semaphore.Acquire, semaphore.Release
	}
	lock, err := c.LockKey(name)
	ok(t, err)
	return lock.Lock, lock.Unlock
}

// refusals is a transport that counts the writes that were refused.
type refusals struct {
	*http.Transport
	count *atomic.Int64
}

func (r refusals) RoundTrip(request *http.Request) (*http.Response, error) {
	reply, err := r.Transport.RoundTrip(request)
	if err != nil || request.Method != http.MethodPut || !strings.HasPrefix(request.URL.Path, "/v1/kv/") {
		return reply, err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if strings.TrimSpace(string(text)) == "false" {
		r.count.Add(1)
	}
	reply.Body = io.NopCloser(strings.NewReader(string(text)))
	return reply, err
}

// logged is what a node has applied: commands, and entries that have any, so no tick.
type logged struct{ commands, entries float64 }

func (c *cluster) logged() logged {
	c.t.Helper()
	_, text, err := c.ask(0, http.MethodGet, "/metrics", "")
	ok(c.t, err)
	value := func(name string) float64 {
		_, rest, _ := strings.Cut(text, "\n"+name+" ")
		word, _, _ := strings.Cut(rest, "\n")
		count, err := strconv.ParseFloat(word, 64)
		if err != nil {
			c.t.Fatalf("%s: %v", name, err)
		}
		return count
	}
	return logged{
		commands: value("signalbox_entry_commands_sum"),
		entries:  value("signalbox_entry_commands_count") - value(`signalbox_entry_commands_bucket{le="0"}`),
	}
}
