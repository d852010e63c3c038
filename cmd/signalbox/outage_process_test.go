//go:build processes && linux

package main

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

const (
	outageTTL = 8 * time.Second
	// tickPeriod is how much cluster time may repeat after a restart of all nodes.
	tickPeriod = 500 * time.Millisecond
	// slack is the time that a busy machine may need until an event is noticed in this process.
	slack = 500 * time.Millisecond
)

// TestKillAll kills all three nodes at once and starts them again. The whole acknowledged state is there, and a lease
// has the same time left as before.
func TestKillAll(t *testing.T) {
	c := startProcesses(t, testProgram)
	w := startCounters(t, c.client, 4)
	c.must(t, 0, http.MethodPut, semaphorePath("db"), `{"permits":1}`, http.StatusCreated)
	holder := c.must(t, 0, http.MethodPost, "/v1/sessions", `{"ttl":"10m"}`, http.StatusCreated).Session
	waiter := c.must(t, 0, http.MethodPost, "/v1/sessions", `{"ttl":"10m"}`, http.StatusCreated).Session
	held := c.must(t, 1, http.MethodPut, leasePath(holder, "db"), "", http.StatusOK)
	c.must(t, 2, http.MethodPut, leasePath(waiter, "db"), "", http.StatusAccepted)
	w.await(t, 50)

	sent := time.Now()
	c.must(t, 0, http.MethodPut, "/v1/sessions/"+holder, fmt.Sprintf(`{"ttl":%d}`, outageTTL.Milliseconds()), http.StatusOK)
	renewed := time.Now()
	<-time.After(2 * time.Second) // so much of the lease's time is used
	for _, p := range c.running {
		p.signal(9)
	}
	killed := time.Now()
	for _, p := range c.running {
		<-p.done
	}
	<-time.After(2 * time.Second) // the outage, which must not use it
	restarted := time.Now()
	c.startAll()
	ready := time.Now()

	lease := c.must(t, 1, http.MethodGet, leasePath(holder, "db"), "", http.StatusOK)
	left := time.Duration(lease.ExpiresInMS) * time.Millisecond
	if lease.Token != held.Token {
		t.Errorf("token %d is now %d", held.Token, lease.Token)
	}
	if least := outageTTL - killed.Sub(sent) - time.Since(restarted); left < least {
		t.Errorf("only %v are left of the lease: it must be %v at least", left, least)
	}
	if limit := outageTTL - killed.Sub(renewed) + tickPeriod + slack; left > limit {
		t.Errorf("%v are left of the lease: it must be %v at most", left, limit)
	}
	c.must(t, 2, http.MethodPut, leasePath(waiter, "db"), `{"wait":"30s"}`, http.StatusOK)
	granted := time.Now()
	if least := outageTTL - killed.Sub(sent); granted.Sub(restarted) < least {
		t.Errorf("the lease ended %v after the restart, which is early: it had %v left", granted.Sub(restarted), least)
	}
	if late := granted.Sub(renewed) - outageTTL - ready.Sub(killed); late > tickPeriod+slack {
		t.Errorf("the lease ended %v later than its time and the outage", late)
	}
	t.Logf("ready %v after the restart; %v of %v were left then; the lease ended %v after the restart",
		ready.Sub(restarted).Round(time.Millisecond), left, outageTTL, granted.Sub(restarted).Round(time.Millisecond))
	w.await(t, 50)
	w.finish(t, c.client)
	sameState(t, c)
}
