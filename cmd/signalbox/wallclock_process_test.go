//go:build processes && linux

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestWallClock runs nodes whose wall clocks jump by a day, ahead and back, every three seconds. The service must work
// as with exact clocks.
func TestWallClock(t *testing.T) {
	c := startProcesses(t, buildWithWildClock(t))
	f := startFleet(t, c.client, "db", 20, 20)
	c.must(t, 0, http.MethodPut, semaphorePath("brief"), `{"permits":1}`, http.StatusCreated)
	var days [3]map[int]bool
	for node := range days {
		days[node] = map[int]bool{}
	}
	for round := range 3 {
		const ttl = 4 * time.Second // longer than the clock stands still
		waiter := c.must(t, round, http.MethodPost, "/v1/sessions", `{"ttl":"10m"}`, http.StatusCreated).Session
		sent := time.Now()
		c.must(t, round, http.MethodPost, semaphorePath("brief")+"/leases", `{"ttl":"4s"}`, http.StatusCreated)
		c.must(t, round+1, http.MethodPut, leasePath(waiter, "brief"), "", http.StatusAccepted)
		eventually(t, 20*time.Second, func() error {
			for node := range days {
				days[node][c.daysOff(t, node)] = true
			}
			r := c.must(t, round+1, http.MethodPut, leasePath(waiter, "brief"), "", http.StatusOK, http.StatusAccepted)
			if r.status != http.StatusOK {
				return fmt.Errorf("the lease of %v is still there", ttl)
			}
			return nil
		})
		if took := time.Since(sent); took < ttl || took > ttl+slack {
			t.Errorf("a lease of %v ended after %v", ttl, took)
		}
		c.must(t, 0, http.MethodDelete, "/v1/sessions/"+waiter, "", http.StatusNoContent)
	}
	for node, seen := range days {
		if !seen[-1] || !seen[0] || !seen[1] {
			t.Errorf("n%d's clock was off by these days only: %v", node+1, seen)
		}
	}
	f.unchanged(t, 0)
	f.finish(t)
	sameState(t, c)
}

// daysOff returns by how many days a node's wall clock is wrong, by the Date of its replies.
func (c *processes) daysOff(t *testing.T, node int) int {
	t.Helper()
	response, err := c.http.Get(c.url(node) + "/livez")
	must(t, err)
	response.Body.Close()
	date, err := http.ParseTime(response.Header.Get("Date"))
	must(t, err)
	return int(time.Until(date).Round(24*time.Hour) / (24 * time.Hour))
}

// wildClock is the code that we add to time.Now of the standard library. In it, mono is the time since the process
// began.
const wildClock = `
	sec += [...]int64{0, 86400, -86400}[mono/3e9%3]
`

// buildWithWildClock builds the program with a standard library in which the wall clock of time.Now jumps. Libraries
// that fake the time of other programs don't work for Go programs, which make their system calls themselves.
func buildWithWildClock(t *testing.T) string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	must(t, err)
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(original)
	must(t, err)
	const before = "\tmono -= startNano\n"
	if strings.Count(string(text), before) == 0 {
		t.Fatalf("%s is not as this test knows it", original)
	}
	dir := t.TempDir()
	changed, overlay, program := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "signalbox")
	must(t, os.WriteFile(changed, []byte(strings.Replace(string(text), before, before+wildClock, 1)), 0o600))
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	must(t, err)
	must(t, os.WriteFile(overlay, replace, 0o600))
	if output, err := exec.Command("go", "build", "-buildvcs=false", "-overlay", overlay, "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return program
}
