//go:build processes && linux

package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox/signalbox/test/throttleclient"
)

// declared is the file with which nodes are started.
type declared struct {
	*testing.T
	path string
}

func declareFile(t *testing.T, text string) declared {
	d := declared{t, filepath.Join(t.TempDir(), "throttle.toml")}
	d.write(text)
	return d
}

func (d declared) write(text string) {
	d.Helper()
	must(d.T, os.WriteFile(d.path, []byte(text), 0o600))
}

// shows waits until a page has the words.
func shows(t *testing.T, url string, words ...string) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		_, body := get(t, url)
		for _, word := range words {
			if !strings.Contains(body, word) {
				return fmt.Errorf("%s does not say %q: %s", url, word, body)
			}
		}
		return nil
	})
}

// logs waits until a process has logged the words.
func (p *process) logs(t *testing.T, words string) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		if text, err := os.ReadFile(p.log); err != nil || !strings.Contains(string(text), words) {
			return fmt.Errorf("%q is not logged (%v)", words, err)
		}
		return nil
	})
}

// TestDeclare starts three nodes with one file, changes it, and has one of them reload it.
func TestDeclare(t *testing.T) {
	t.Parallel()
	file := declareFile(t, "[semaphores]\nA = 2\nB = { max = 3, level = 1 }\n\n[semaphores.\"/&\"]\nmax = -1\n")
	c := startProcesses(t, testProgram, "--declare", file.path)
	for node := range c.running {
		shows(t, c.url(node)+"/readyz?verbose", "[+] declared the declared semaphores are in place")
		shows(t, c.url(node)+"/metrics", `throttle_max{semaphore="A"} 2`, `throttle_max{semaphore="B"} 3`, `throttle_max{semaphore="/&"} 0`)
	}
	c.running[0].logs(t, "counts as 0")
	c.must(t, 0, http.MethodPost, semaphorePath("A")+"/up", `{"count":5}`, http.StatusOK)
	c.restart(1)
	if s := c.must(t, 1, http.MethodGet, semaphorePath("A"), "", http.StatusOK); s.Available != 7 {
		t.Errorf("declared again: %d of A are free: an up was undone", s.Available)
	}
	file.write("[semaphores]\nB = { max = 4, level = 2 }\nC = 1\n")
	c.running[2].signal(syscall.SIGHUP)
	shows(t, c.url(2)+"/metrics", `throttle_max{semaphore="B"} 4`, `throttle_max{semaphore="C"} 1`)
	if s := c.must(t, 0, http.MethodGet, semaphorePath("A"), "", http.StatusOK); s.Permits != 2 {
		t.Errorf("a semaphore that the file no longer has is changed: %+v", s)
	}
	file.write("[semaphores]\nB = many\n")
	c.running[2].signal(syscall.SIGHUP)
	c.running[2].logs(t, "the file can't be declared; what it said before stays")
	shows(t, c.url(2)+"/metrics", `throttle_max{semaphore="B"} 4`)
	file.write("[semaphores]\nB = 5\n")
	c.running[2].signal(syscall.SIGHUP)
	shows(t, c.url(2)+"/metrics", `throttle_max{semaphore="B"} 5`)
	if took := c.running[0].terminate(t, stopWithin); took > stopWithin {
		t.Errorf("it took %v to stop", took)
	}
}

// TestDeclaredNotYet: a node is ready only once the declared semaphores are in place, which needs a majority. Without a
// majority it can still be stopped.
func TestDeclaredNotYet(t *testing.T) {
	t.Parallel()
	file := declareFile(t, "[semaphores]\nA = 2\n")
	c := newProcesses(t, testProgram, "--declare", file.path)
	c.start(0)
	eventually(t, 20*time.Second, func() error {
		r, err := c.ask(t.Context(), 0, http.MethodGet, "/readyz?verbose", "")
		if err == nil && (r.status != http.StatusServiceUnavailable || !strings.Contains(r.Detail, "[-] declared the semaphores of "+file.path)) {
			err = fmt.Errorf("%d %s", r.status, r.Detail)
		}
		return err
	})
	c.start(1)
	c.start(2)
	c.waitReady(0)
	if s := c.must(t, 0, http.MethodGet, semaphorePath("A"), "", http.StatusOK); s.Permits != 2 {
		t.Errorf("ready, and A has %d permits", s.Permits)
	}
	c.running[1].kill()
	c.running[2].kill()
	file.write("[semaphores]\nA = 3\n")
	c.running[0].signal(syscall.SIGHUP) // it tries, until it is to end
	c.running[0].terminate(t, stopWithin)
}

// startAlone starts one node in memory. again starts it again with the same arguments.
func startAlone(t *testing.T, extra ...string) (p *process, url string, again func()) {
	port := freePorts(t, 0, 1)
	arguments := append([]string{"serve", "--ephemeral", "--http", fmt.Sprintf("127.0.0.1:%d", port), "--peer", fmt.Sprintf("127.0.0.1:%d", port+1)}, extra...)
	p, url = new(process), fmt.Sprintf("http://127.0.0.1:%d", port)
	again = func() {
		*p = *startProcess(t, testProgram, filepath.Join(t.TempDir(), "alone.log"), arguments...)
		shows(t, url+"/readyz", "Ok")
	}
	again()
	return p, url, again
}

// TestDeclaredLogLevel: the level in the file applies, and changes with the file. A level on the command line takes
// precedence.
func TestDeclaredLogLevel(t *testing.T) {
	t.Parallel()
	file := declareFile(t, "[logging.stderr]\nlevel = \"ERROR\"\n")
	follows, url, _ := startAlone(t, "--declare", file.path)
	stays, otherURL, _ := startAlone(t, "--declare", file.path, "--log-level", "info")
	stays.logs(t, "[INFO]")
	if text := tail(follows.log, 100); strings.Contains(text, "[INFO]") || strings.Contains(text, "[WARN]") {
		t.Errorf("logged below ERROR: %s", text)
	}
	file.write("[semaphores]\nA = 1\n\n[logging.stderr]\nlevel = \"INFO\"\n")
	follows.signal(syscall.SIGHUP)
	follows.logs(t, "[INFO]  signalbox.declare: semaphores declared")
	file.write("[semaphores]\nA = 2\n\n[logging.stderr]\nlevel = \"ERROR\"\n")
	for _, p := range []*process{follows, stays} {
		p.signal(syscall.SIGHUP)
	}
	shows(t, url+"/metrics", `throttle_max{semaphore="A"} 2`)
	shows(t, otherURL+"/metrics", `throttle_max{semaphore="A"} 2`)
	stays.logs(t, "semaphores declared")
	follows.terminate(t, stopWithin)
	if text := tail(follows.log, 100); strings.Count(text, "semaphores declared") != 1 {
		t.Errorf("logged below ERROR: %s", text)
	}
}

// TestForgetful: a node in memory forgets its peers when it ends, as throttle does. A client restores them from what it
// remembers.
func TestForgetful(t *testing.T) {
	t.Parallel()
	file := declareFile(t, "[semaphores]\nA = 1\n")
	p, url, again := startAlone(t, "--declare", file.path)
	c := &throttleclient.Client{BaseURL: url, HTTP: &http.Client{}}
	id, err := c.NewPeer(t.Context(), time.Minute)
	must(t, err)
	if acquired, err := c.Acquire(t.Context(), id, "A", 1, -1, -1); !acquired || err != nil {
		t.Fatal(acquired, err)
	}
	p.terminate(t, stopWithin)
	again()
	if err := c.Heartbeat(t.Context(), id, time.Minute); err != throttleclient.ErrUnknownPeer {
		t.Fatalf("the peer is remembered: %v", err)
	}
	if left, err := c.Remainder(t.Context(), "A"); left != 1 || err != nil {
		t.Errorf("%d remain, %v", left, err)
	}
	if err := c.Restore(t.Context(), id, map[string]int64{"A": 1}, time.Minute); err != nil {
		t.Error(err)
	}
	if left, err := c.Remainder(t.Context(), "A"); left != 0 || err != nil {
		t.Errorf("%d remain, %v", left, err)
	}
}
