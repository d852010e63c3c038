package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestErrorsDriveNoTerminal: the text of a server is printed without its control characters.
func TestErrorsDriveNoTerminal(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"code":"unknown-semaphore","semaphore":"a\u001b[2Jb\u202e","detail":"\u001b]0;x\u0007"}`))
	}))
	defer server.Close()
	for _, verb := range []string{"show db", "up db", "down db", "acquire db", "rm db --yes"} {
		o := command(t, append(strings.Fields(verb), "--addr", server.URL))
		o.refused(t)
		if strings.ContainsAny(o.stderr, "\x1b\x07\u202e") || !strings.Contains(o.stderr, "create") {
			t.Errorf("%s: %q", verb, o.stderr)
		}
	}
}

// TestPrintedConfig: used as the file of --config, the output of config sets exactly the flags that were set.
func TestPrintedConfig(t *testing.T) {
	printed := command(t, []string{"config", "--data", t.TempDir()})
	file := t.TempDir() + "/config.toml"
	must(t, os.WriteFile(file, []byte(printed.stdout), 0o600))
	s := serveFlags{config: defaultConfig()}
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	s.add(flags)
	s.file = file
	must(t, s.complete(flags))
	if flags.Changed("log-level") || !flags.Changed("data") {
		t.Errorf("printed:\n%s", printed.stdout)
	}
}
