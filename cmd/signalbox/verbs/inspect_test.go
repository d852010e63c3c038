package verbs

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/offline"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

// leaseFolder makes the folder of n1, a cluster by itself, with one lease and one waiting
// request.
func leaseFolder(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "n1")
	s, err := store.Open(store.Options{Folder: path, NodeID: "n1"})
	must(t, err)
	node, err := cluster.Start(t.Context(), cluster.Config{NodeID: "n1", Bind: "127.0.0.1:0", Store: s})
	must(t, err)
	for _, command := range []fsm.Command{
		fsm.CreateSemaphore{Name: "db", Permits: 2},
		fsm.RestoreSession{Session: 41, TTLMS: 60_000, Leases: []fsm.Want{{Semaphore: "db", Count: 2}}},
		fsm.RestoreSession{Session: 42, TTLMS: 60_000},
		fsm.Acquire{Session: 42, Name: "db", Count: 1, TTLMS: fsm.KeepTTL},
	} {
		if _, err := node.Do(t.Context(), calls.Call{Command: command}); err != nil {
			t.Fatal(err)
		}
	}
	must(t, errors.Join(node.Close(t.Context()), s.Close()))
	return path
}

// variable matches the parts of a report that differ each time.
var variable = regexp.MustCompile(`/\S*/n1|[0-9a-f]{32}|127\.0\.0\.1:\d+|[0-9.]+(ms|s),|\b(to|at) \d+`)

// spaces are as many as the longest name of a row wants.
var spaces = regexp.MustCompile(` {2,}`)

func TestInspect(t *testing.T) {
	path := leaseFolder(t)
	out, err := executed(newInspect(), path)
	const want = `folder  X, format 3, id X
node  n1
cluster  X
term  2, last vote in term 2 for X
log  entries 1 X, the last of term 2
committed  at least up X
member  n1=X
state X  term 2 of n1, cluster time X feature level N
  hash  X
  holds  1 semaphores, 2 sessions, 1 leases, 1 waiting requests
  most leases  db: 1, which hold 2 of 2 permits
  most waiting  db: 1
damage  no damage: every checksum is right
`
	got := spaces.ReplaceAllString(variable.ReplaceAllString(out, "X"), "  ")
	got = strings.Replace(got, fmt.Sprintf("level %d", fsm.FeatureLevel), "level N", 1)
	if err != nil || got != want {
		t.Errorf("%v, printed:\n%s", err, got)
	}
	out, err = executed(newInspect(), path, "--json", "--top", "0")
	var report offline.Report
	if err != nil || json.Unmarshal([]byte(out), &report) != nil || report.Committed.Leases != 1 || len(report.Committed.MostLeases) != 0 {
		t.Errorf("%v, printed:\n%s", err, out)
	}
}

// TestInspectFails: inspect ends with status 1 if a part is damaged, or can't be read.
func TestInspectFails(t *testing.T) {
	path := leaseFolder(t)
	must(t, os.Truncate(filepath.Join(path, "witness"), 0))
	out, err := executed(newInspect(), path)
	if err == nil || !strings.Contains(err.Error(), "is damaged in 1 places") || !strings.Contains(out, "witness is damaged: neither") ||
		!strings.Contains(out, "1 leases") {
		t.Errorf("%v, printed:\n%s", err, out)
	}
	for want, arguments := range map[string][]string{
		"no such file": {path + "x"}, "needs a FILE or FOLDER": {}, "below 0": {path, "--top", "-1"},
	} {
		if out, err := executed(newInspect(), arguments...); err == nil || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("%v: %v, printed %q", arguments, err, out)
		}
	}
}
