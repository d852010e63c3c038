//go:build processes && linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	// maxFilesOnLeader and maxFilesOnFollower bound the source files that one acquire passes through, since a reader has
	// to open them all to follow it.
	maxFilesOnLeader   = 47
	maxFilesOnFollower = 46
	// acquiresTraced is how many acquires follow one another in a trace. Background work runs less often than they do.
	acquiresTraced = 40
	// tracesTaken bounds the traces: on a busy machine, background work may run as often as the acquires in some of them.
	tracesTaken = 20
)

// TestFilesOfOneAcquire counts and lists the source files that run for one acquire: on the leader, and on a follower
// that forwards the acquire.
func TestFilesOfOneAcquire(t *testing.T) {
	program := buildWithCoverage(t)
	coverage := t.TempDir()
	t.Setenv("GOCOVERDIR", coverage)
	c := startProcesses(t, program)
	leader := c.mustLead(t)
	follower, _ := others(leader)
	for n := range acquiresTraced {
		c.must(t, leader, http.MethodPut, fmt.Sprint("/v1/semaphores/db", n), `{"permits":1}`, http.StatusCreated)
	}

	for _, node := range []struct {
		name string
		at   int
		most int
	}{{"leader", leader, maxFilesOnLeader}, {"follower", follower, maxFilesOnFollower}} {
		trace := newCoverageTrace(t, coverage, c.running[node.at].command.Process.Pid)
		var always map[string]bool
		for n := 0; n < 1 || n < tracesTaken && len(always) > node.most; n++ {
			session := c.must(t, node.at, http.MethodPost, "/v1/sessions", `{"ttl":"10m"}`, http.StatusCreated).Session
			trace.clear()
			for n := range acquiresTraced {
				c.must(t, node.at, http.MethodPut, fmt.Sprint("/v1/sessions/", session, "/leases/db", n), `{}`, http.StatusOK)
			}
			files := trace.filesWith("cluster/metrics/counters.go", "cluster/lead/leadership.go", "fsm/queue.go", "fsm/slots.go") // a follower may reply before it applies, which ends with these
			c.must(t, node.at, http.MethodDelete, "/v1/sessions/"+session, "", http.StatusNoContent)
			if always == nil {
				always = files
			}
			maps.DeleteFunc(always, func(file string, _ bool) bool { return !files[file] })
		}
		t.Logf("an acquire passes through %d files on the %s:\n%s", len(always), node.name, strings.Join(slices.Sorted(maps.Keys(always)), "\n"))
		if len(always) > node.most {
			t.Errorf("%d files on the %s, more than %d", len(always), node.name, node.most)
		}
	}
}

// buildWithCoverage builds a program that counts how often its statements run, and that writes and clears the counters
// on request. It works on a copy of the sources, since cover does not read overlays.
func buildWithCoverage(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source, hook := filepath.Join(dir, "source"), filepath.Join("testdata", "coverage", "hook.go.txt")
	copyModule(t, filepath.Join("..", ".."), source)
	text, err := os.ReadFile(hook)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(source, "cmd", "signalbox", "coverage_hook.go"), text, 0o600))
	program := filepath.Join(dir, "signalbox")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-cover", "-covermode=atomic", "-coverpkg=./...,github.com/signalbox/signalbox/client/...",
		"-o", program, "./cmd/signalbox")
	build.Dir = source
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, output)
	}
	return program
}

// copyModule copies the sources of a module, without tests, test data and hidden files.
func copyModule(t *testing.T, from, to string) {
	t.Helper()
	must(t, filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case relative == ".":
			return os.Mkdir(to, 0o700)
		case entry.IsDir() && (name == "testdata" || name[0] == '.'):
			return filepath.SkipDir
		case entry.IsDir():
			return os.Mkdir(filepath.Join(to, relative), 0o700)
		case strings.HasSuffix(name, "_test.go") || name[0] == '.' || !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, relative), text, 0o600)
	}))
}

// coverageTrace reads the counters of one process.
type coverageTrace struct {
	t      *testing.T
	client *http.Client
	meta   string // the file that says what the counters mean
	dir    string
	tool   string // the path of covdata: "go tool" looks it up for 0.1 s and more each time
	taken  int
}

// newCoverageTrace traces the process with this id. home is its GOCOVERDIR.
func newCoverageTrace(t *testing.T, home string, process int) *coverageTrace {
	t.Helper()
	meta, err := filepath.Glob(filepath.Join(home, "covmeta.*"))
	if err != nil || len(meta) != 1 {
		t.Fatalf("%v %v in %s", meta, err, home)
	}
	tool, err := exec.CommandContext(t.Context(), "go", "tool", "-n", "covdata").Output()
	must(t, err)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(home, fmt.Sprint(process, ".sock")))
	}
	return &coverageTrace{t: t, client: &http.Client{Transport: &http.Transport{DialContext: dial}}, meta: meta[0],
		dir: t.TempDir(), tool: strings.TrimSpace(string(tool))}
}

func (c *coverageTrace) post(path string) {
	c.t.Helper()
	reply, err := c.client.Post("http://program"+path, "", nil)
	must(c.t, err)
	defer reply.Body.Close()
	if text, err := io.ReadAll(reply.Body); err != nil || reply.StatusCode != http.StatusOK {
		c.t.Fatalf("%s: %s %s %v", path, reply.Status, text, err)
	}
}

func (c *coverageTrace) clear() { c.post("/clear") }

// take writes the counters to a folder and returns it.
func (c *coverageTrace) take() string {
	c.t.Helper()
	c.taken++
	at := filepath.Join(c.dir, fmt.Sprint(c.taken))
	must(c.t, os.Mkdir(at, 0o700))
	must(c.t, os.Link(c.meta, filepath.Join(at, filepath.Base(c.meta))))
	c.post(at)
	return at
}

// filesWith waits until all files in these have run for each acquire, and returns all files that have done so by then.
func (c *coverageTrace) filesWith(these ...string) (files map[string]bool) {
	c.t.Helper()
	eventually(c.t, 10*time.Second, func() error {
		files = c.files(c.take())
		if slices.ContainsFunc(these, func(file string) bool { return !files[file] }) {
			return fmt.Errorf("not all of %v have run", these)
		}
		return nil
	})
	return files
}

// files returns the source files of this module in which a statement had run for each acquire between clear and take. The
// paths begin at the module's root.
func (c *coverageTrace) files(at string) map[string]bool {
	c.t.Helper()
	profile := at + ".txt"
	if output, err := exec.CommandContext(c.t.Context(), c.tool, "textfmt", "-i="+at, "-o="+profile).CombinedOutput(); err != nil {
		c.t.Fatalf("%v: %s", err, output)
	}
	file, err := os.Open(profile)
	must(c.t, err)
	defer file.Close()
	files := map[string]bool{}
	for lines := bufio.NewScanner(file); lines.Scan(); { // PLACE.go:LINE.COLUMN,LINE.COLUMN STATEMENTS COUNT
		place, _, found := strings.Cut(lines.Text(), ".go:")
		count, err := strconv.Atoi(lines.Text()[strings.LastIndexByte(lines.Text(), ' ')+1:])
		if found && err == nil && count >= acquiresTraced && !strings.HasSuffix(place, "/coverage_hook") {
			files[strings.TrimPrefix(place, "github.com/signalbox/signalbox/")+".go"] = true
		}
	}
	return files
}
