//go:build processes && linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

const (
	pauseFor = 5 * time.Second
	pauseTTL = 3 * time.Second // of a lease that is not renewed
)

// TestPause stops a node for five seconds, as a long garbage collection or a suspended machine does: first the leader,
// then a follower.
func TestPause(t *testing.T) {
	c := startProcesses(t, testProgram)
	f := startFleet(t, c.client, "db", 10, 10)
	c.must(t, 0, http.MethodPut, semaphorePath("value"), `{"permits":0}`, http.StatusCreated)
	leader := c.mustLead(t)
	c.pause(leader, 41)
	f.unchanged(t, leader)
	follower, _ := others(c.mustLead(t))
	c.pause(follower, 42)
	f.unchanged(t, follower)
	f.finish(t)
	sameState(t, c)
}

// pause stops a node, changes a value at another node, asks the stopped node for the value, and continues the stopped
// node. Its reply must be the new value, or a refusal because it doesn't know the value. A lease that is not renewed
// meanwhile ends at its deadline.
func (c *processes) pause(node, value int) {
	c.t.Helper()
	first, second := others(node)
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	expired := c.expiry(ctx, fmt.Sprintf("brief-%d", value), first, second)
	c.running[node].suspend(c.t)
	defer c.running[node].signal(syscall.SIGCONT)
	paused := time.Now()
	body := fmt.Sprintf(`{"value":%d}`, value)
	if r, err := c.insistOn(ctx, first, http.MethodPut, semaphorePath("value")+"/value", body); err != nil || r.status != http.StatusOK {
		c.t.Fatalf("set on n%d while n%d is paused: %d %v", first+1, node+1, r.status, err)
	}
	changed := time.Since(paused)
	type answer struct {
		reply
		err error
	}
	answers := make(chan answer, 20)
	for range cap(answers) {
		go func() {
			r, err := c.ask(ctx, node, http.MethodGet, semaphorePath("value"), "")
			answers <- answer{r, err}
		}()
	}
	<-time.After(time.Until(paused.Add(pauseFor))) // how long the pause lasts
	c.running[node].signal(syscall.SIGCONT)
	fresh := 0
	for range cap(answers) {
		a := <-answers
		switch {
		case a.err != nil || a.status == http.StatusServiceUnavailable:
		case a.status == http.StatusOK && a.Available == int64(value):
			fresh++
		default:
			c.t.Errorf("n%d answered %d, value %d, after it was set to %d elsewhere", node+1, a.status, a.Available, value)
		}
	}
	if err := <-expired; err != nil {
		c.t.Error(err)
	}
	c.waitReady(node)
	c.t.Logf("n%d paused for %v: a change elsewhere took %v; of 20 reads %d gave the new value, the others none",
		node+1, pauseFor, changed.Round(time.Millisecond), fresh)
}

// suspend sends SIGSTOP and waits until every thread stands still.
func (p *process) suspend(t *testing.T) {
	t.Helper()
	p.signal(syscall.SIGSTOP)
	eventually(t, 5*time.Second, func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.command.Process.Pid))
		if err != nil || len(threads) == 0 {
			return fmt.Errorf("no threads: %v", err)
		}
		for _, thread := range threads {
			stat, err := os.ReadFile(thread)
			if err != nil {
				return err
			}
			if after := stat[bytes.LastIndexByte(stat, ')')+1:]; !bytes.HasPrefix(after, []byte(" T")) {
				return fmt.Errorf("%s still runs: %s", thread, stat)
			}
		}
		return nil
	})
}

// expiry takes a lease, and waits behind it in a second session. It sends an error unless the waiting request is granted
// in time, and not early.
func (c *processes) expiry(ctx context.Context, name string, first, second int) <-chan error {
	c.t.Helper()
	c.must(c.t, first, http.MethodPut, semaphorePath(name), `{"permits":1}`, http.StatusCreated)
	sent := time.Now()
	c.must(c.t, first, http.MethodPost, semaphorePath(name)+"/leases", fmt.Sprintf(`{"ttl":%d}`, pauseTTL.Milliseconds()), http.StatusCreated)
	waiter := c.must(c.t, first, http.MethodPost, "/v1/sessions", `{"ttl":"10m"}`, http.StatusCreated).Session
	ended := make(chan error, 1)
	go func() {
		r, err := c.insistOn(ctx, second, http.MethodPut, leasePath(waiter, name), `{"wait":"30s"}`)
		took := time.Since(sent)
		switch {
		case err != nil || r.status != http.StatusOK:
			err = fmt.Errorf("waiting behind a lease of %v: %d %s %v", pauseTTL, r.status, r.Code, err)
		case took < pauseTTL:
			err = fmt.Errorf("a lease of %v ended after %v", pauseTTL, took)
		case took > pauseTTL+grantWithin+tickPeriod+slack:
			err = fmt.Errorf("a lease of %v ended only after %v", pauseTTL, took)
		}
		ended <- err
	}()
	return ended
}
