//go:build processes && linux

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// folder is the data folder of a node.
func (c *processes) folder(node int) string { return filepath.Join(c.dir, fmt.Sprintf("n%d", node+1)) }

// unready waits until a node says that it is not ready, with these words.
func (c *processes) unready(node int, words string) {
	c.t.Helper()
	eventually(c.t, 20*time.Second, func() error {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		defer cancel()
		r, err := c.ask(ctx, node, http.MethodGet, "/readyz?verbose", "")
		if err == nil && (r.status != http.StatusServiceUnavailable || !strings.Contains(r.Detail, words)) {
			err = fmt.Errorf("%d: %s", r.status, r.Detail)
		}
		return err
	})
}

// tokenOf acquires and releases a semaphore in a new session and returns
// the token.
func (c *processes) tokenOf(name string) uint64 {
	c.t.Helper()
	session := c.must(c.t, 0, http.MethodPost, "/v1/sessions", `{"ttl":"1m"}`, http.StatusCreated).Session
	token := c.must(c.t, 0, http.MethodPut, "/v1/sessions/"+session+"/leases/"+name, `{}`, http.StatusOK).Token
	c.must(c.t, 0, http.MethodDelete, "/v1/sessions/"+session, "", http.StatusNoContent)
	return token
}

// TestFolderOfAnotherCluster starts a member on the data folder that the node of
// the same id has in another cluster: it serves nothing, and the others go on.
func TestFolderOfAnotherCluster(t *testing.T) {
	t.Parallel()
	c, other := startProcesses(t, testProgram), startProcesses(t, testProgram)
	other.must(t, 0, http.MethodPut, "/v1/semaphores/db", `{"permits":5}`, http.StatusCreated)
	c.must(t, 0, http.MethodPut, "/v1/semaphores/db", `{"permits":9}`, http.StatusCreated)
	c.running[2].terminate(t, stopWithin)
	other.running[2].terminate(t, stopWithin)
	kept := c.folder(2) + "-own"
	must(t, os.Rename(c.folder(2), kept))
	must(t, os.Rename(other.folder(2), c.folder(2)))

	c.start(2)
	c.unready(2, "another cluster")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if r, err := c.ask(ctx, 2, http.MethodGet, "/v1/semaphores/db", ""); err != nil || r.status != http.StatusServiceUnavailable {
		t.Errorf("a read on the stranger: %d with %d permits, %v", r.status, r.Permits, err)
	}
	if r := c.must(t, 0, http.MethodGet, "/v1/semaphores/db", "", http.StatusOK); r.Permits != 9 {
		t.Errorf("%d permits on the others", r.Permits)
	}

	c.running[2].terminate(t, stopWithin)
	must(t, os.RemoveAll(c.folder(2)))
	must(t, os.Rename(kept, c.folder(2)))
	c.start(2)
	c.waitReady(2)
	sameState(t, c)
}

// TestCopiedNodeID starts a fourth process with the id of a live member and an
// empty folder: it stays out, and the member keeps its place.
func TestCopiedNodeID(t *testing.T) {
	t.Parallel()
	c := startProcesses(t, testProgram)
	c.must(t, 0, http.MethodPut, "/v1/semaphores/db", `{"permits":1}`, http.StatusCreated)
	copied := &processes{t: t, program: testProgram, dir: t.TempDir(), base: freePorts(t, 2, 12)}
	copied.client = newClient(copied.url(0), copied.url(1), copied.url(2))
	copied.running[2] = startProcess(t, testProgram, filepath.Join(copied.dir, "copy.log"),
		"serve", "--node-id", "n3", "--http", fmt.Sprintf("127.0.0.1:%d", copied.base+2), "--peer", copied.peer(2),
		"--peers", fmt.Sprintf("n1=%s,n2=%s,n3=%s", c.peer(0), c.peer(1), copied.peer(2)), "--data", copied.folder(2), "--min-free", "1MiB")
	copied.unready(2, "waits to be taken back")
	c.waitReady(2)
	for _, member := range c.must(t, 0, http.MethodGet, "/v1/cluster", "", http.StatusOK).Members {
		if !member.Voter {
			t.Errorf("%s has lost its vote", member.ID)
		}
	}
	first, second := others(2)
	c.running[first].terminate(t, stopWithin) // so that the third vote is needed
	c.must(t, second, http.MethodPut, "/v1/semaphores/db/value", `{"value":1}`, http.StatusOK)
}

// TestRestoredFolders puts older copies of all folders back. A member started as
// restored beside others that are not refuses; all of them together give no token
// twice.
func TestRestoredFolders(t *testing.T) {
	t.Parallel()
	c := startProcesses(t, testProgram)
	c.must(t, 0, http.MethodPut, "/v1/semaphores/db", `{"permits":1}`, http.StatusCreated)
	c.tokenOf("db")
	for node := range c.running {
		c.running[node].terminate(t, stopWithin)
		must(t, os.CopyFS(c.folder(node)+"-copy", os.DirFS(c.folder(node))))
		c.start(node)
		c.waitReady(node)
	}
	var last uint64
	for range 10 {
		last = c.tokenOf("db")
	}

	c.extra = []string{"--restored"}
	c.running[2].terminate(t, stopWithin)
	c.start(2)
	c.running[2].exits(t, 1, "is alive") // a member, or for a moment the process before it

	for node := range c.running {
		if node != 2 {
			c.running[node].terminate(t, stopWithin)
		}
		must(t, os.RemoveAll(c.folder(node)))
		must(t, os.Rename(c.folder(node)+"-copy", c.folder(node)))
	}
	c.startAll()
	if token := c.tokenOf("db"); token <= last {
		t.Errorf("token %d after %d", token, last)
	}
	sameState(t, c)
}
