package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// startDev runs dev and returns clients of its nodes.
func startDev(ctx context.Context, t *testing.T, nodes int, flags ...string) (*running, *client, string) {
	t.Helper()
	var offsets []int
	var bases []string
	for i := range nodes {
		offsets = append(offsets, i, peerOffset+i)
	}
	port := freePorts(t, offsets...)
	for i := range nodes {
		bases = append(bases, fmt.Sprintf("http://127.0.0.1:%d", port+i))
	}
	arguments := append([]string{"dev", "--nodes", fmt.Sprint(nodes), "--http-port", fmt.Sprint(port)}, flags...)
	r := startInProcess(ctx, t, arguments...)
	r.awaitOutput(t, "Paste these")
	return r, newClient(bases...), fmt.Sprint(port)
}

// TestDev pastes the three lines as a new user would, and stops.
func TestDev(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dev, c, _ := startDev(ctx, t, 3)
	eventually(t, time.Second, func() error {
		if strings.Count(dev.stdout.String(), "\n  curl")+strings.Count(dev.stdout.String(), "\n  lease=") != 3 {
			return fmt.Errorf("no three lines: %s", dev.stdout.String())
		}
		return nil
	})
	var script strings.Builder
	for line := range strings.Lines(dev.stdout.String()) {
		if strings.HasPrefix(line, "  ") {
			script.WriteString(line)
		}
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Log("curl is missing: only the ports of the lines are checked")
		for _, base := range c.bases {
			if !strings.Contains(script.String(), base+"/v1/") {
				t.Errorf("%s is not in: %s", base, script.String())
			}
		}
	} else {
		pasted := exec.CommandContext(t.Context(), "sh", "-ec", strings.ReplaceAll(script.String(), "curl ", "curl --fail "))
		output, err := pasted.CombinedOutput()
		if err != nil || !strings.Contains(string(output), `"token"`) {
			t.Fatalf("%v: %s\n%s", err, output, script.String())
		}
		if s := c.must(t, 0, http.MethodGet, semaphorePath("db"), "", http.StatusOK); s.Permits != 3 || s.Held != 0 {
			t.Errorf("after the three lines: %d permits, %d held", s.Permits, s.Held)
		}
	}
	cancel()
	dev.ended(t, 5*time.Second)
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("%d temporary folders are left (%v)", len(left), err)
	}
}

// TestDevAcrossNodes acquires at one node, releases at another and waits at the third, whichever node leads.
func TestDevAcrossNodes(t *testing.T) {
	_, c, _ := startDev(t.Context(), t, 3)
	for first := range 3 {
		name := fmt.Sprintf("db %d/&", first)
		c.must(t, first, http.MethodPut, semaphorePath(name), `{"permits":1}`, http.StatusCreated)
		held := c.must(t, first+1, http.MethodPost, semaphorePath(name)+"/leases", `{"ttl":"1m"}`, http.StatusCreated)
		type answer struct {
			reply
			err error
		}
		granted := make(chan answer, 1)
		go func() {
			r, err := c.ask(t.Context(), first+2, http.MethodPost, semaphorePath(name)+"/leases", `{"ttl":"1m","wait":"20s"}`)
			granted <- answer{r, err}
		}()
		eventually(t, 5*time.Second, func() error {
			if s := c.must(t, first, http.MethodGet, semaphorePath(name), "", http.StatusOK); len(s.Waiters) != 1 {
				return fmt.Errorf("%d wait", len(s.Waiters))
			}
			return nil
		})
		c.must(t, first, http.MethodDelete, leasePath(held.Session, name), "", http.StatusNoContent)
		next := <-granted
		if next.err != nil || next.status != http.StatusCreated || next.Token <= held.Token {
			t.Errorf("n%d waited and got %d %s, token %d after %d, %v", (first+2)%3+1, next.status, next.Code, next.Token, held.Token, next.err)
		}
	}
}

// TestDevFolder stops dev and starts it on the same folder.
func TestDevFolder(t *testing.T) {
	data := filepath.Join(t.TempDir(), "state")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first, c, port := startDev(ctx, t, 2, "--data", data)
	c.must(t, 1, http.MethodPut, semaphorePath("db"), `{"permits":7}`, http.StatusCreated)
	cancel()
	first.ended(t, 5*time.Second)
	command(t, []string{"dev", "--nodes", "3", "--http-port", port, "--data", data}).refused(t, data, "--nodes 2")
	second := startInProcess(t.Context(), t, "dev", "--nodes", "2", "--http-port", port, "--data", data)
	second.awaitOutput(t, "Paste these")
	if s := c.must(t, 0, http.MethodGet, semaphorePath("db"), "", http.StatusOK); s.Permits != 7 {
		t.Errorf("%d permits", s.Permits)
	}
}
