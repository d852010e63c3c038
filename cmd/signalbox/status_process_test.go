//go:build processes && linux

package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/test/memnet"
)

// TestDeadNodesAreDown: after nodes are killed or stopped, status, members and top say which nodes are down and, if two
// of three are down, that there is no majority. The exit status of status says whether the cluster works.
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

// shows waits until status prints these words, ends with this status, and shows this many nodes as down.
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

// TestNodeCutOff: a node that reaches no other node replies to clients that there is no majority, and that the other
// nodes are down with an unknown lag and disk. The other nodes say that it is down, and work.
func TestNodeCutOff(t *testing.T) {
	t.Parallel()
	network, port := memnet.New(), freePorts(t, 0, 1, 2, peerOffset, peerOffset+1, peerOffset+2)
	d := devFlags{nodes: 3, port: port, config: defaultConfig()}
	d.config.hooks.cluster = func(c *cluster.Config) { c.Network = network.Host(c.NodeID) }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.run(ctx, io.Discard, hclog.NewNullLogger()) }()
	defer func() {
		cancel()
		must(t, <-ended)
	}()
	c := newClient()
	for i := range 3 {
		c.bases = append(c.bases, fmt.Sprintf("http://127.0.0.1:%d", port+i))
	}
	row := func(id string) string { return id + ` +127\S+ +follower +down for \d+s +\? +\? +\d+\n` }
	shows := func(addresses string, want int, problem string, rows ...string) {
		t.Helper()
		eventually(t, 20*time.Second, func() error {
			o, members := status(t, "--addr", addresses), command(t, []string{"members", "--addr", addresses})
			top := command(t, []string{"top", "--addr", addresses})
			for _, row := range rows {
				if seen := regexp.MustCompile(row); !seen.MatchString(o.stdout) || !seen.MatchString(members.stdout) {
					return fmt.Errorf("no %s: %+v, and members: %+v", row, o, members)
				}
			}
			if seen := regexp.MustCompile(problem); o.status != want || !seen.MatchString(o.stderr) || !seen.MatchString(members.stdout) || !seen.MatchString(top.stdout) {
				return fmt.Errorf("not %d, or no %s: %+v, members: %+v, and top: %+v", want, problem, o, members, top)
			}
			return nil
		})
	}
	shows(strings.Join(c.bases, ","), 0, "")
	network.Isolate("n3")
	shows(c.bases[2], 6, `no majority: n3 reaches 1 of 3 .* n1 is down for \d+s, n2 is down for \d+s`, row("n1"), row("n2"))
	shows(c.bases[0], 7, `n3 is down for \d+s; the others work`, row("n3"))
	shows(c.bases[1], 7, `n3 is down for \d+s; the others work`, row("n3"))
	shows(strings.Join(c.bases, ","), 7, `n3 is down for \d+s; the others work`, row("n3"))
	network.Rejoin("n3")
	shows(c.bases[2], 0, "")
}
