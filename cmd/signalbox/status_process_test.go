//go:build processes && linux

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestDeadNodesAreDown: whether nodes are killed or stopped, status, members and top say which are down, and
// with two of three that there is no majority; the exit status of status says whether the cluster works.
func TestDeadNodesAreDown(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*testing.T, *process){
		"killed":  func(_ *testing.T, p *process) { p.kill() },
		"stopped": func(t *testing.T, p *process) { p.suspend(t); t.Cleanup(func() { p.signal(syscall.SIGCONT) }) },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			c := startProcesses(t, testProgram)
			c.shows(t, 0, 0)
			for dead, words := range [][]string{
				{"n1 is down for", "the others work", "members rm"},
				{"no majority", "n3 reaches 1 of 3 voting nodes", "2 are needed", "n1 is down for", "n2 is down for", "recover --help"},
			} {
				end(t, c.running[dead])
				c.shows(t, dead+1, 7-dead, words...)
			}
		})
	}
}

// shows waits until status ends with a status, and with so many nodes that are down, and words.
func (c *processes) shows(t *testing.T, down, want int, words ...string) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		began := time.Now()
		o := status(t, "--addr", strings.Join(c.bases, ","))
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("status took %v with --timeout 200ms", took)
		}
		members, top := command(t, []string{"members", "--addr", c.bases[2]}), command(t, []string{"top", "--addr", c.bases[2]})
		if strings.Count(o.stdout, "down for") != down || strings.Count(members.stdout, "down for") != 2*down { // in the table, and below it
			return fmt.Errorf("not %d nodes down: %s%s", down, o.stdout, members.stdout)
		}
		if o.status != want || members.status != 0 || top.status != 0 || strings.Contains(top.stdout, " is down for") != (down > 0) {
			return fmt.Errorf("%+v, and top: %+v", o, top)
		}
		for _, word := range words {
			if !strings.Contains(o.stdout+o.stderr, word) {
				return fmt.Errorf("no %q: %+v", word, o)
			}
		}
		return nil
	})
}
