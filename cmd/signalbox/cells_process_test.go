//go:build processes && linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	signalbox "github.com/signalbox/signalbox/client"
)

// divided is two cells of three processes each, and a proxy before them.
type divided struct {
	*testing.T
	dir   string
	cells [2]*processes
	proxy *process
	addr  string // of the proxy
	file  string
	list  []signalbox.Cell // of file
}

func startCells(t *testing.T) *divided {
	t.Helper()
	d := &divided{T: t, dir: t.TempDir()}
	for i := range d.cells {
		d.cells[i] = newProcesses(t, testProgram, "--cell", fmt.Sprint(i+1))
	}
	for _, c := range d.cells {
		c.startAll()
	}
	must(t, os.Symlink(testProgram, filepath.Join(d.dir, "signalbox")))
	d.file = filepath.Join(d.dir, "cells.toml")
	d.write("us/")
	port := freePorts(t, 0)
	d.addr = fmt.Sprintf("http://127.0.0.1:%d", port)
	d.proxy = startProcess(t, testProgram, filepath.Join(d.dir, "proxy.log"), "proxy", "--cells", d.file, "--listen", fmt.Sprintf("127.0.0.1:%d", port))
	d.awaitProxy("serving")
	return d
}

// write writes a file of cells in which cell 2 has these prefixes.
func (d *divided) write(prefixes ...string) {
	d.Helper()
	text := ""
	d.list = nil
	for i, prefixes := range [][]string{{""}, prefixes} {
		c := signalbox.Cell{Number: i + 1, Prefixes: prefixes, Nodes: d.cells[i].bases}
		d.list = append(d.list, c)
		text += fmt.Sprintf("[[cell]]\nnumber = %d\nprefix = [\"%s\"]\nnodes = [\"%s\"]\n", c.Number, strings.Join(prefixes, `", "`), strings.Join(c.Nodes, `", "`))
	}
	must(d.T, os.WriteFile(d.file, []byte(text), 0o600))
}

func (d *divided) awaitProxy(words string) {
	d.Helper()
	eventually(d.T, 30*time.Second, func() error {
		if !strings.Contains(tail(d.proxy.log, 100), words) {
			return fmt.Errorf("the proxy has not written %q", words)
		}
		return nil
	})
}

// client returns a client that calls the proxy. With the path /cells/N it calls one cell.
func (d *divided) client(path string) *signalbox.Client {
	d.Helper()
	c, err := signalbox.New(signalbox.Config{Addresses: []string{d.addr + path}})
	must(d.T, err)
	d.Cleanup(func() { must(d.T, c.Close(context.WithoutCancel(d.Context()))) })
	return c
}

// put sends a PUT to the proxy.
func (d *divided) put(path, body string) {
	d.Helper()
	r, err := newClient(d.addr).ask(d.Context(), 0, http.MethodPut, path, body)
	must(d.T, err)
	if r.status >= 300 {
		d.Fatalf("%s %s: %d %s", path, body, r.status, r.Detail)
	}
}

// runbook returns the commands of a section of docs/cells.md, one text for each step that has commands.
func runbook(t *testing.T) (steps []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/cells.md")
	must(t, err)
	_, section, _ := strings.Cut(string(page), "\n## Move a prefix\n")
	return regexp.MustCompile(`(?m)(?:^ {7}\S.*\n)+`).FindAllString(section, -1)
}

// shell runs commands of the page.
func (d *divided) shell(commands string) {
	d.Helper()
	command := exec.CommandContext(d.Context(), "sh", "-euc", strings.ReplaceAll("ADDR=http://127.0.0.1:8700\n"+commands, "http://127.0.0.1:8700", d.addr))
	command.Dir = d.dir
	command.Env = append(os.Environ(), asProgram+"=1", "PATH="+d.dir+":"+os.Getenv("PATH"))
	if output, err := command.CombinedOutput(); err != nil {
		d.Fatalf("%v: %s\n%s", err, commands, output)
	}
}

// workers hold semaphores again and again, and check each grant.
type workers struct {
	mu      sync.Mutex
	most    map[string]int64 // permits
	held    map[string]int64
	granted map[string]int
	highest map[string]uint64 // token
	wrong   []error
}

func (w *workers) failed(format string, arguments ...any) {
	w.wrong = append(w.wrong, fmt.Errorf(format, arguments...))
}

// begin starts two programs for each name, with the client that pick returns. end ends them.
func (w *workers) begin(ctx context.Context, pick func(name string) *signalbox.Client) (end func()) {
	var working sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	for name := range w.most {
		for range 2 {
			working.Go(func() { w.work(ctx, pick(name), name) })
		}
	}
	return func() {
		stop()
		working.Wait()
	}
}

// work holds a permit of the name again and again, until ctx ends. It asks again after the move has deleted the
// semaphore in the old cell.
func (w *workers) work(ctx context.Context, c *signalbox.Client, name string) {
	for ctx.Err() == nil {
		lease, err := c.Acquire(ctx, name, signalbox.TTL(5*time.Second))
		w.mu.Lock()
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, signalbox.ErrDeleted) {
				w.failed("%s: %w", name, err)
			}
			w.mu.Unlock()
			continue
		}
		w.granted[name]++
		if w.held[name]++; w.held[name] > w.most[name] {
			w.failed("%s: %d hold it", name, w.held[name])
		}
		if lease.Token <= w.highest[name] && w.most[name] == 1 { // grants of several permits overtake each other on their way
			w.failed("%s: token %d came after %d", name, lease.Token, w.highest[name])
		}
		w.highest[name] = max(lease.Token, w.highest[name])
		w.mu.Unlock()
		select {
		case <-lease.Lost():
			w.mu.Lock()
			w.failed("%s: a lease was lost: %w", name, lease.Err())
			w.mu.Unlock()
		case <-time.After(50 * time.Millisecond):
		}
		w.mu.Lock()
		w.held[name]--
		w.mu.Unlock()
		_ = lease.Release(context.WithoutCancel(ctx)) // of a lost lease: counted
	}
}

// awaitGrants waits until each name has had this many more grants.
func (w *workers) awaitGrants(t *testing.T, more int) {
	t.Helper()
	w.mu.Lock()
	before := maps.Clone(w.granted)
	w.mu.Unlock()
	eventually(t, 30*time.Second, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		for name := range w.most {
			if got := w.granted[name] - before[name]; got < more {
				return errors.Join(append(w.wrong, fmt.Errorf("%s: %d grants", name, got))...)
			}
		}
		return nil
	})
}

// prepare carries out steps 1 to 4 of the page. before is cell 1.
func (d *divided) prepare(steps []string, before *signalbox.Client) {
	d.Helper()
	// 1. and 2.
	d.shell(steps[0])
	eventually(d.T, 30*time.Second, func() error {
		for s, err := range before.List(d.Context(), "eu/") {
			if err != nil || s.Held > 0 || s.Returning > 0 || s.Paused == "" {
				return fmt.Errorf("%+v: %w", s, err)
			}
		}
		return nil
	})
	// 3. and 4.
	d.shell(steps[1])
	settings, err := os.ReadFile(filepath.Join(d.dir, "settings"))
	must(d.T, err)
	var listed []signalbox.Semaphore
	must(d.T, json.Unmarshal(settings, &listed))
	for _, s := range listed {
		d.put("/cells/2/v1/semaphores/"+url.PathEscape(s.Name), fmt.Sprintf(`{"permits":%d,"max_waiting":%d,"paused":"moves here"}`, s.Permits, max(1, s.MaxWaiting)))
	}
}

// TestMoveOfAPrefix moves eu/ from cell 1 to cell 2 with the commands of docs/cells.md. Meanwhile programs with the
// proxy, and programs with the file, hold leases and wait. No lease is lost, the tokens of each name rise, and no permit
// is granted twice.
func TestMoveOfAPrefix(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skipf("NOT CHECKED: %v", err)
	}
	steps := runbook(t)
	if len(steps) != 3 {
		t.Fatalf("the page has commands in %d steps: %q", len(steps), steps)
	}
	d := startCells(t)
	c, before, after := d.client(""), d.client("/cells/1"), d.client("/cells/2")
	w := &workers{most: map[string]int64{"db": 1, "us/db": 1, "eu/a": 1, "eu/b c": 1, "eu/pool": 2}, held: map[string]int64{}, granted: map[string]int{}, highest: map[string]uint64{}}
	for name, permits := range w.most {
		_, _, err := c.Put(d.Context(), name, signalbox.Permits(permits), signalbox.MaxWaiting(50))
		must(t, err)
	}
	d.put("/v1/semaphores/stays", `{"permits":1}`)
	d.put("/v1/semaphores/eu%2Fjobs", `{"permits":0}`)
	_, err := c.Up(d.Context(), "eu/jobs", 3)
	must(t, err)
	d.put("/cells/1/v1/cluster/tokens", `{"above":1000000}`) // else tokens could rise by luck
	stays, err := c.Acquire(d.Context(), "stays", signalbox.TTL(3*time.Second))
	must(t, err)
	endProxied := w.begin(d.Context(), func(string) *signalbox.Client { return c })
	withFile, err := signalbox.NewCells(signalbox.Config{}, d.list)
	must(t, err)
	endWithFile := w.begin(d.Context(), withFile.For)
	w.awaitGrants(t, 10)

	d.prepare(steps, before)
	// 5.
	d.write("us/", "eu/")
	d.proxy.signal(syscall.SIGHUP)
	d.awaitProxy("the cells were read again")
	endWithFile()
	must(t, withFile.Close(d.Context()))
	withFile, err = signalbox.NewCells(signalbox.Config{}, d.list)
	must(t, err)
	endWithFile = w.begin(d.Context(), withFile.For)
	// 6.
	jobs, err := before.Get(d.Context(), "eu/jobs")
	must(t, err)
	d.put("/cells/2/v1/semaphores/eu%2Fjobs/value", fmt.Sprintf(`{"value":%d}`, jobs.Offset))
	for s, err := range after.List(d.Context(), "eu/") {
		must(t, err)
		d.shell(`signalbox set '` + s.Name + `' --resume --addr $ADDR/cells/2`)
	}
	w.awaitGrants(t, 10)
	// 7.
	d.shell(steps[2])
	w.awaitGrants(t, 10)
	endProxied()
	endWithFile()
	must(t, withFile.Close(d.Context()))

	for s, err := range before.List(d.Context(), "eu/") {
		t.Errorf("cell 1 still has %+v, %v", s, err)
	}
	if jobs, err = c.Get(d.Context(), "eu/jobs"); err != nil || jobs.Available != 3 {
		t.Errorf("eu/jobs is %+v, %v", jobs, err)
	}
	must(t, stays.Err())
	if len(w.wrong) > 0 {
		t.Error(errors.Join(w.wrong...))
	}
	t.Logf("grants: %v", w.granted)
}
