package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

// TestRunOfNoProgram: run refuses a file that is no program before it asks a node.
func TestRunOfNoProgram(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plain")
	must(t, os.WriteFile(file, []byte("no program"), 0o600))
	o := command(t, []string{"run", "db", "--", file})
	if o.refused(t, file, "permission denied"); o.status != cli.StatusCantRun {
		t.Errorf("status %d", o.status)
	}
	o = command(t, []string{"run", "db", "--wait", "100ms", "--", "true"}, "SIGNALBOX_ADDR", "http://127.0.0.1:1,http://127.0.0.1:2")
	if o.status != cli.StatusUnreachable || !strings.Contains(o.stderr, "127.0.0.1:") || strings.Contains(o.stderr, "8701") {
		t.Errorf("a list in a variable: %+v", o)
	}
}

// TestAnonymous: acquire, run and elect record the host, process and user of a session, unless --anonymous is set.
func TestAnonymous(t *testing.T) {
	var sent []string // the keys of the metadata
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Metadata map[string]string }
		if _ = json.NewDecoder(r.Body).Decode(&body); r.Method == http.MethodPost {
			sent = slices.Sorted(maps.Keys(body.Metadata))
		}
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer server.Close()
	for line, want := range map[string]string{
		"acquire db": "host pid user", "acquire db --anonymous": "", "acquire db --anonymous --metadata pid=7": "pid",
		"run db -- true": "command host pid user", "run db --anonymous -- true": "",
		"elect db -- true": "command host pid user", "elect db --anonymous -- true": "",
	} {
		if o := command(t, strings.Fields(line), "SIGNALBOX_ADDR", server.URL); o.status == 0 || strings.Join(sent, " ") != want {
			t.Errorf("%s sends %q: %+v", line, sent, o)
		}
	}
}

// TestRunWarnsOfConsul: clients of Consul's interface may use the name of a semaphore, but they do not use its permits.
// run warns of that.
func TestRunWarnsOfConsul(t *testing.T) {
	_, c, _ := startDev(t.Context(), t, 1)
	address := []string{"SIGNALBOX_ADDR", c.bases[0]}
	for value, warns := range map[string]bool{
		`{"Limit":2,"Holders":{"a":true}}`: true, `{"Limit":2,"Holders":["a"]}`: true, `{"Limit":2,"Holders":{}}`: false, `[]`: false, "": false,
	} {
		if value != "" {
			if o := command(t, []string{"item", "put", "db/.lock", value}, address...); o.status != 0 {
				t.Fatalf("%+v", o)
			}
		} else if o := command(t, []string{"item", "rm", "db/.lock", "--yes"}, address...); o.status != 0 {
			t.Fatalf("%+v", o)
		}
		o := command(t, []string{"run", "db", "--permits", "1", "--", "true"}, address...)
		if o.status != 0 || strings.Contains(o.stderr, "Consul's interface") != warns {
			t.Errorf("%s: %+v", value, o)
		}
	}
}

// TestRunInGroup: run holds a permit of its group, which its command sees; the group of an outer run does not count.
func TestRunInGroup(t *testing.T) {
	_, c, _ := startDev(t.Context(), t, 1)
	variables := []string{"SIGNALBOX_ADDR", c.bases[0], "SIGNALBOX_GROUP", "outer", "SIGNALBOX_LIMIT", "5"}
	file := filepath.Join(t.TempDir(), "seen")
	for line, want := range map[string]string{"--group fix-17": "fix-17", "": ""} {
		o := command(t, []string{"create", "branches", "--permits", "none", "--groups", "request", "--per-group", "1"}, variables...)
		if o.status != 0 {
			t.Fatalf("%+v", o)
		}
		script := fmt.Sprintf("echo \"group=$SIGNALBOX_GROUP.\" >%s", file)
		o = command(t, append(append([]string{"run", "branches"}, strings.Fields(line)...), "--head-start", "1s", "--", "sh", "-c", script), variables...)
		seen, err := os.ReadFile(file)
		if o.status != 0 || err != nil || string(seen) != "group="+want+".\n" {
			t.Errorf("%q: %+v, %v, %s", line, o, err, seen)
		}
	}
	if o := command(t, []string{"groups", "branches"}, variables...); o.status != 0 || o.stdout != "" {
		t.Errorf("%+v", o)
	}
}

// TestRunHasSlots: the command sees the slots of its lease. Without slots it does not see the slots of an outer run
// either.
func TestRunHasSlots(t *testing.T) {
	_, c, _ := startDev(t.Context(), t, 1)
	variables := []string{"SIGNALBOX_ADDR", c.bases[0], "SIGNALBOX_SLOTS", "7,9", "SIGNALBOX_SLOT", "7"}
	for variable, value := range map[string]string{"SIGNALBOX_SLOTS": "7,9", "SIGNALBOX_SLOT": "7"} {
		t.Setenv(variable, value) // the command inherits the variables of the process
	}
	file := filepath.Join(t.TempDir(), "seen")
	for name, want := range map[string]string{"gpus": "0,1 0", "db": "none none"} {
		for _, line := range []string{"create gpus --permits 8 --slots", "create db --permits 2"} {
			if o := command(t, strings.Fields(line), variables...); o.status != 0 {
				t.Fatalf("%+v", o)
			}
		}
		script := fmt.Sprintf("echo ${SIGNALBOX_SLOTS-none} ${SIGNALBOX_SLOT-none} >%s", file)
		o := command(t, []string{"run", name, "--count", "2", "--", "sh", "-c", script}, variables...)
		if seen, err := os.ReadFile(file); o.status != 0 || err != nil || string(seen) != want+"\n" {
			t.Errorf("%s: %+v, %v, %s", name, o, err, seen)
		}
	}
}
