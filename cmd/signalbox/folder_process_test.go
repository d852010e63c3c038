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

// tokenOf acquires and releases a semaphore in a new session, and returns the token.
func (c *processes) tokenOf(name string) uint64 {
	c.t.Helper()
	session := c.must(c.t, 0, http.MethodPost, "/v1/sessions", `{"ttl":"1m"}`, http.StatusCreated).Session
	token := c.must(c.t, 0, http.MethodPut, "/v1/sessions/"+session+"/leases/"+name, `{}`, http.StatusOK).Token
	c.must(c.t, 0, http.MethodDelete, "/v1/sessions/"+session, "", http.StatusNoContent)
	return token
}

// TestRestoredFolders puts older copies of all folders back. A member that is started as restored refuses to run beside
// members that are not. If all of them are started so, no token is given twice.
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
