//go:build processes && linux

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// recover runs the subcommand on the folder of a node, and returns what it printed. Unless killed is 0, the subcommand
// is killed after that time.
func (c *processes) recover(node int, killed time.Duration, more ...string) (string, error) {
	c.t.Helper()
	arguments := append([]string{
		"recover", "--yes", "--data", c.folder(node), "--peers", fmt.Sprintf("n1=%s,n2=%s,n3=%s", c.peer(0), c.peer(1), c.peer(2)),
	}, more...)
	ctx := c.t.Context()
	if killed > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, killed)
		defer cancel()
	}
	command := exec.CommandContext(ctx, c.program, arguments...)
	command.Env = append(os.Environ(), asProgram+"=1")
	output, err := command.CombinedOutput()
	return string(output), err
}

// refused waits until recover fails with these words. It may first fail with other words: for 2 s after the death of a
// node the other nodes believe that it is alive.
func (c *processes) refused(node int, words string, more ...string) {
	c.t.Helper()
	eventually(c.t, 20*time.Second, func() error {
		out, err := c.recover(node, 0, more...)
		if err == nil {
			c.t.Fatalf("recover of n%d: %s", node+1, out)
		}
		if !strings.Contains(out, words) {
			return fmt.Errorf("recover of n%d: without %q:\n%s", node+1, words, out)
		}
		return nil
	})
}

// TestRecoverWithProcesses loses two of three nodes, and makes a cluster of the third node, with plain streams between
// nodes and with TLS. The subcommand recover is killed again and again.
func TestRecoverWithProcesses(t *testing.T) {
	t.Parallel()
	for _, secured := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%t", secured), func(t *testing.T) {
			t.Parallel()
			c := newProcesses(t, testProgram)
			if secured {
				files := peerCertificates{t, t.TempDir()}
				files.authority("ca")
				files.trust("ca")
				for node := range c.own {
					id := fmt.Sprintf("n%d", node+1)
					files.issue("ca", id)
					c.own[node] = files.flags(id)
				}
			}
			c.startAll()
			c.loseTwo()
		})
	}
}

func (c *processes) loseTwo() {
	t := c.t
	c.must(t, 0, http.MethodPut, "/v1/semaphores/db", `{"permits":3}`, http.StatusCreated)
	session := c.must(t, 0, http.MethodPost, "/v1/sessions", `{"ttl":"1h"}`, http.StatusCreated).Session
	token := c.must(t, 0, http.MethodPut, "/v1/sessions/"+session+"/leases/db", `{}`, http.StatusOK).Token
	sameState(t, c)

	c.refused(2, "is in use by process", c.own[2]...)
	c.running[2].kill()
	c.refused(2, "n2 at "+c.peer(1)+": it runs, in term", c.own[2]...)
	if len(c.own[2]) > 0 {
		c.refused(2, "n2 at "+c.peer(1)+": a process takes connections there")
	}
	for _, lost := range c.running[:2] {
		lost.kill()
	}
	must(t, os.RemoveAll(c.folder(0)))
	for round := range 15 { // each leaves the folder as it was, or recovered once more
		_, _ = c.recover(2, time.Duration(10*(round+1))*time.Millisecond, c.own[2]...)
	}
	out, err := c.recover(2, 0, c.own[2]...)
	if err != nil || !strings.Contains(out, "1 semaphores, 1 sessions, 1 leases") || !strings.Contains(out, "is cluster ") {
		t.Fatalf("recover: %v:\n%s", err, out)
	}

	c.start(2)
	c.waitReady(2)
	lease := c.must(t, 2, http.MethodGet, "/v1/sessions/"+session+"/leases/db", "", http.StatusOK)
	if lease.Token != token {
		t.Errorf("the lease has token %d, and had %d", lease.Token, token)
	}
	c.start(1) // with its old folder
	c.unready(1, "belongs to cluster")
	c.running[1].terminate(t, stopWithin)
	must(t, os.RemoveAll(c.folder(1)))
	for node := range 2 {
		c.start(node)
		c.waitReady(node)
	}
	sameState(t, c)
	if next := c.tokenOf("db"); next <= 1<<32 {
		t.Errorf("token %d after %d", next, token)
	}
}
