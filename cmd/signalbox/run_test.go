package main

import (
	"encoding/json"
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

// TestRunBadFlags: run refuses each of them before it asks a node.
func TestRunBadFlags(t *testing.T) {
	plainFile := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plainFile, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		arguments string
		status    int
		words     []string
	}{
		{"no dashes", "db true", cli.StatusUsage, []string{"--", "COMMAND"}},
		{"no name", "-- true", cli.StatusUsage, []string{"run needs a NAME"}},
		{"two names", "db web -- true", cli.StatusUsage, []string{"run takes a NAME", `"web"`}},
		{"no command", "db --", cli.StatusUsage, []string{"run needs a COMMAND"}},
		{"nothing", "", cli.StatusUsage, []string{"--"}},
		{"unknown flag", "db --level 3 -- true", cli.StatusUsage, []string{"unknown flag: --level"}},
		{"no number", "db -n many -- true", cli.StatusUsage, []string{"many"}},
		{"none", "db -n 0 -- true", cli.StatusUsage, []string{"--count", "above 0"}},
		{"no permits", "db --permits 0 -- true", cli.StatusUsage, []string{"--permits", "above 0"}},
		{"short ttl", "db --ttl 999ms -- true", cli.StatusUsage, []string{"--ttl", "1s"}},
		{"wait backwards", "db --wait -1s -- true", cli.StatusUsage, []string{"--wait"}},
		{"long grace", "db --ttl 30s --grace 15s -- true", cli.StatusUsage, []string{"--grace", "14s"}},
		{"grace backwards", "db --grace -1s -- true", cli.StatusUsage, []string{"--grace"}},
		{"no address", "db --addr= -- true", cli.StatusUsage, []string{"--addr"}},
		{"no URL", "db --addr http://n1:8701,ftp://n2 -- true", cli.StatusUsage, []string{"--addr", "ftp://n2"}},
		{"no such command", "db -- no-such-command-anywhere", cli.StatusNotFound, []string{"no-such-command-anywhere"}},
		{"no such file", "db -- ./no/such/file", cli.StatusNotFound, []string{"./no/such/file"}},
		{"no program", "db -- " + plainFile, cli.StatusCantRun, []string{plainFile, "permission denied"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := command(t, append([]string{"run"}, strings.Fields(c.arguments)...))
			o.refused(t, c.words...)
			if o.status != c.status {
				t.Errorf("status %d, not %d", o.status, c.status)
			}
		})
	}
	t.Run("variables", func(t *testing.T) {
		arguments := []string{"run", "db", "--wait", "100ms", "--", "true"}
		o := command(t, arguments, "SIGNALBOX_ADDR", "http://127.0.0.1:1,http://127.0.0.1:2")
		if o.status != cli.StatusUnavailable || !strings.Contains(o.stderr, "127.0.0.1:") || strings.Contains(o.stderr, "8701") {
			t.Errorf("%+v", o)
		}
		if o = command(t, arguments, "SIGNALBOX_TTL", "soon"); o.status != cli.StatusUsage || !strings.Contains(o.stderr, "SIGNALBOX_TTL") {
			t.Errorf("%+v", o)
		}
	})
}

// TestAnonymous: acquire, run and elect record whose a session is, unless that is not wanted.
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

// TestRunWarnsOfConsul: clients of Consul's interface share a name with a semaphore, and not its
// permits.
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
