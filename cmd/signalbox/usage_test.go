package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestNoReplySaysWhatNext: where no node replies, the error names the flag, the variable and the command that help.
func TestNoReplySaysWhatNext(t *testing.T) {
	want := "signalbox: no node replied: dial tcp 127.0.0.1:1: connect: connection refused\n" +
		"  Start the nodes, or give their addresses by --addr or SIGNALBOX_ADDR; \"signalbox dev\" starts a cluster to try things out.\n"
	var stdout, stderr bytes.Buffer
	run(t.Context(), strings.Fields("ls --timeout 50ms --addr http://127.0.0.1:1"), lookup(t), &stdout, &stderr) // --timeout counts without a deadline alone
	if got := stderr.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

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

// TestPrintedConfig: as the file of --config, the output of config sets no more than was set.
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
