//go:build processes && linux

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDamagedFolder flips one bit in a node's log while it is down. The node tells
// so in one line, which names the file and the way back, and does not start; that
// way back works.
func TestDamagedFolder(t *testing.T) {
	c := startProcesses(t, testProgram)
	w := startCounters(t, c.client, 4)
	w.await(t, 100)
	c.running[1].terminate(t, stopWithin)
	data := filepath.Join(c.dir, "n2")
	log := filepath.Join(data, "raft.db")
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.LastIndex(string(text), "counter-")
	if at < 0 {
		t.Fatal("the log has no entry to damage")
	}
	text[at] ^= 1
	if err := os.WriteFile(log, text, 0o600); err != nil {
		t.Fatal(err)
	}
	before := len(tail(c.running[1].log, 1<<20))
	c.start(1)
	select {
	case <-c.running[1].done:
	case <-time.After(10 * time.Second):
		t.Fatal("a node has started on a damaged log")
	}
	said := tail(c.running[1].log, 1<<20)[before:]
	if c.running[1].err == nil || strings.Count(said, "\n") != 1 || !strings.Contains(said, "raft.db") || !strings.Contains(said, "mv "+data) {
		t.Errorf("ended with %v, and said %q", c.running[1].err, said)
	}
	if err := os.Rename(data, data+".damaged"); err != nil {
		t.Fatal(err)
	}
	c.start(1)
	c.waitReady(1)
	w.finish(t, c.client)
	c.must(t, 1, http.MethodPut, semaphorePath("after"), `{"permits":1}`, http.StatusCreated)
	sameState(t, c)
}
