//go:build processes && linux

package main

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDamagedFolder flips one bit of an entry in a node's log while the node is down. It flips the bit in each copy of
// the entry, since Bolt leaves old pages in its file. The node then does not start, and prints one line that names the
// file and how to repair it. That repair works.
func TestDamagedFolder(t *testing.T) {
	t.Parallel()
	c := startProcesses(t, testProgram)
	w := startCounters(t, c.client, 4)
	w.await(t, 100)
	c.running[1].terminate(t, stopWithin)
	data := filepath.Join(c.dir, "n2")
	log := filepath.Join(data, "raft.db")
	text, err := os.ReadFile(log)
	must(t, err)
	first := bytes.Index(text, []byte("counter-"))
	if first < 0 {
		t.Fatal("the log has no entry to damage")
	}
	entry := bytes.Clone(text[first-8 : first+16]) // with the request's id before the name
	damaged := bytes.Clone(entry)
	damaged[8] ^= 1
	text = bytes.ReplaceAll(text, entry, damaged)
	must(t, os.WriteFile(log, text, 0o600))
	before := len(tail(c.running[1].log, 1<<20))
	c.start(1)
	select {
	case <-c.running[1].done:
	case <-time.After(10 * time.Second):
		t.Fatal("a node has started on a damaged log")
	}
	output := tail(c.running[1].log, 1<<20)[before:]
	if c.running[1].err == nil || strings.Count(output, "\n") != 1 || !strings.Contains(output, "raft.db") || !strings.Contains(output, "mv "+data) {
		t.Errorf("ended with %v, and said %q", c.running[1].err, output)
	}
	must(t, os.Rename(data, data+".damaged"))
	c.start(1)
	c.waitReady(1)
	w.finish(t, c.client)
	c.must(t, 1, http.MethodPut, semaphorePath("after"), `{"permits":1}`, http.StatusCreated)
	sameState(t, c)
}
