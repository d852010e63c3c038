//go:build processes && linux

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/signalbox/signalbox/test/noderedclient"
	"github.com/signalbox/signalbox/test/throttleclient"
)

// script is a program of a dialect's user. It works under a semaphore again and again, at one node, and knows only the
// dialect.
type script struct {
	dialect string
	// declare is the declaration that the nodes need for this script.
	declare string
	// work takes permits, calls inside, and gives the permits back, again and again. It returns an error that has
	// reached the user's code, or nil once inside returns false.
	work func(ctx context.Context, base string, inside func() bool) error
	// left returns how many permits are available in the end.
	left func(ctx context.Context, base string) (int64, error)
}

// scriptPermits is how many scripts may be inside at the same time.
const scriptPermits = 2

// scripts are the scripts of all dialects.
var scripts = []script{
	{"throttle", fmt.Sprintf("throttled = %d\n", scriptPermits), throttleScript, func(ctx context.Context, base string) (int64, error) {
		return throttleAt(base).Remainder(ctx, "throttled")
	}},
	{"nodered", "", nodeREDScript, func(ctx context.Context, base string) (int64, error) {
		return nodeREDAt(base).Value(ctx, "flow")
	}},
}

func throttleAt(base string) *throttleclient.Client {
	return &throttleclient.Client{BaseURL: base, HTTP: &http.Client{}}
}

// throttleScript is "with lock(…)" in a loop.
func throttleScript(ctx context.Context, base string, inside func() bool) error {
	thread := &throttleclient.Thread{Client: throttleAt(base), Lease: time.Minute, Beat: 10 * time.Millisecond}
	for goesOn := true; goesOn; {
		unlock, err := thread.Lock(ctx, "throttled", 1, -1)
		if err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		goesOn = inside()
		if err := unlock(ctx); err != nil {
			return fmt.Errorf("unlock: %w", err)
		}
	}
	return nil
}

func nodeREDAt(base string) *noderedclient.Client {
	return &noderedclient.Client{Addresses: []string{base}, HTTP: &http.Client{}, Key: rand.Text}
}

// nodeREDScript polls until it is granted a permit, since a down of the subflow never waits.
func nodeREDScript(ctx context.Context, base string, inside func() bool) error {
	client := nodeREDAt(base)
	if _, err := client.Create(ctx, "flow", scriptPermits); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	for goesOn := true; goesOn; {
		_, err := client.Down(ctx, "flow")
		for errors.Is(err, noderedclient.ErrLocked) {
			<-time.After(10 * time.Millisecond) // as its users do
			_, err = client.Down(ctx, "flow")
		}
		if err != nil {
			return fmt.Errorf("down: %w", err)
		}
		goesOn = inside()
		if _, err := client.Up(ctx, "flow"); err != nil {
			return fmt.Errorf("up: %w", err)
		}
	}
	return nil
}

// users are copies of one script, at all nodes.
type users struct {
	script
	running sync.WaitGroup

	mu     sync.Mutex
	rounds []int
	inside int
	most   int
	ended  bool
	faults []error
}

func (s script) start(t *testing.T, c *processes, each int) *users {
	u := &users{script: s, rounds: make([]int, each*len(c.bases))}
	ctx, stop := context.WithTimeout(context.Background(), fleetPeriod)
	t.Cleanup(func() { stop(); u.running.Wait() })
	for i := range u.rounds {
		u.running.Go(func() {
			if err := s.work(ctx, c.bases[i%len(c.bases)], func() bool { return u.enter(i) }); err != nil {
				u.mu.Lock()
				u.faults = append(u.faults, fmt.Errorf("%s script %d, at n%d, round %d: %w", s.dialect, i, i%len(c.bases)+1, u.rounds[i]+1, err))
				u.mu.Unlock()
			}
		})
	}
	return u
}

// enter is the work that the semaphore protects. It counts how many scripts are inside.
func (u *users) enter(i int) bool {
	u.mu.Lock()
	u.inside++
	u.most = max(u.most, u.inside)
	u.mu.Unlock()
	<-time.After(20 * time.Millisecond)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.inside--
	u.rounds[i]++
	return !u.ended
}

// goOn waits until each script has called inside twice more. At least one of these rounds then began after goOn was
// called.
func (u *users) goOn(t *testing.T, since string) {
	t.Helper()
	u.mu.Lock()
	before := append([]int(nil), u.rounds...)
	u.mu.Unlock()
	eventually(t, time.Minute, func() error {
		u.mu.Lock()
		defer u.mu.Unlock()
		if err := errors.Join(u.faults...); err != nil {
			t.Fatalf("%s: %v", since, err)
		}
		for i := range before {
			if u.rounds[i] < before[i]+2 {
				return fmt.Errorf("%s: %s script %d stands still", since, u.dialect, i)
			}
		}
		return nil
	})
}

// end ends the scripts. None of them may have an error.
func (u *users) end(t *testing.T) {
	t.Helper()
	u.mu.Lock()
	u.ended = true
	u.mu.Unlock()
	u.running.Wait()
	if err := errors.Join(u.faults...); err != nil {
		t.Error(err)
	}
}

// finish ends the scripts, and checks what they have counted.
func (u *users) finish(t *testing.T, c *processes) {
	t.Helper()
	u.end(t)
	if u.most != scriptPermits {
		t.Errorf("%s: up to %d were inside at once, not %d", u.dialect, u.most, scriptPermits)
	}
	for node, base := range c.bases {
		if left, err := u.left(t.Context(), base); left != scriptPermits || err != nil {
			t.Errorf("%s: n%d says that %d are free (%v)", u.dialect, node+1, left, err)
		}
	}
	t.Logf("%s: rounds %v", u.dialect, u.rounds)
}

// TestScripts runs the scripts of all dialects while each node is restarted and the leader is killed. Each script knows
// one node: its client must bridge the restarts of this node, and no error may reach the script. One script sends no
// keys: its repeats may count twice, but no more often than replies were lost.
func TestScripts(t *testing.T) {
	t.Parallel()
	text := "[semaphores]\n"
	for _, s := range scripts {
		text += s.declare
	}
	c := startProcesses(t, testProgram, "--declare", declareFile(t, text).path)
	var all []*users
	for _, s := range scripts {
		all = append(all, s.start(t, c, 2))
	}
	plain := newKeyless()
	withoutKeys := script{dialect: "keyless", work: plain.work}.start(t, c, 2)
	goOn := func(since string) {
		t.Helper()
		for _, u := range append(all[:len(all):len(all)], withoutKeys) {
			u.goOn(t, since)
		}
	}
	goOn("at first")
	for node := range c.running {
		c.restart(node)
		goOn(fmt.Sprintf("n%d restarted", node+1))
	}
	leader := c.mustLead(t)
	c.restart(leader)
	goOn("leader restarted")
	for range 2 {
		leader := c.mustLead(t)
		c.running[leader].kill()
		c.start(leader)
		c.waitReady(leader)
		goOn("leader killed")
	}
	for _, u := range all {
		u.finish(t, c)
	}
	plain.finish(t, c, withoutKeys)
	sameState(t, c)
}
