package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

// TestUsageStatus: each kind of mistake on the command line ends with status 2.
func TestUsageStatus(t *testing.T) {
	for _, c := range []struct{ arguments, word string }{
		{"nosuch", "nosuch"},
		{"--nosuch", "--nosuch"},
		{"--nosuch ls", "--nosuch"},
		{"serve --nosuch", "--nosuch"},
		{"serve nosuch", "nosuch"},
		{"version nosuch", "nosuch"},
		{"backup", "backup needs a FILE"},
		{"show", "show needs a NAME"},
		{"show db web", `show takes a NAME, and not "web" too`},
		{"revoke db", "revoke needs a NAME and a SESSION"},
		{"resize db", "resize needs a NAME and an N"},
		{"resize db +2", "resize sets how many there are in all"},
		{"resize db 2.5", "no number of permits"},
		{"why", "why needs a NAME or SESSION"},
		{"sessions all", `sessions takes no arguments but flags: "all"`},
		{"item bogus", `item has no "bogus"`},
		{"item", "item needs one of"},
		{"token", "token needs new"},
		{"cert", "cert needs one of"},
		{"cert nosuch", "nosuch"},
		{"cert ca nosuch", "nosuch"},
		{"acquire db --ttl 500us", "--ttl"},
		{"acquire db --ttl 0", "--ttl"},
		{"acquire db --ttl -1s", "--ttl"},
		{"renew 5 --ttl 0", "--ttl"},
		{"renew 5 --ttl 500us", "--ttl"},
	} {
		o := command(t, strings.Fields(c.arguments))
		o.refused(t, c.word)
		if o.status != cli.StatusUsage {
			t.Errorf("%s: status %d: %s", c.arguments, o.status, o.stderr)
		}
	}
	o := command(t, []string{"backup", "file"}, "SIGNALBOX_SEND_TOKEN_OVER_HTTP", "maybe")
	if o.refused(t, "SIGNALBOX_SEND_TOKEN_OVER_HTTP"); o.status != cli.StatusUsage {
		t.Errorf("%+v", o)
	}
}

// TestErrorsSayWhatNext: an error has two lines: what, in the user's words, and what to do next.
func TestErrorsSayWhatNext(t *testing.T) {
	for arguments, want := range map[string]string{
		"shwo db":               "signalbox: unknown command \"shwo\" for \"signalbox\"\n  Did you mean this? show\n",
		"create db --permits x": "signalbox: invalid argument \"x\" for \"--permits\" flag: invalid syntax\n  See \"signalbox create --help\".\n",
		"serve nosuch":          "signalbox: serve takes no arguments but flags: \"nosuch\"\n  See \"signalbox serve --help\".\n",
		"cert ca nosuch":        "\n  See \"signalbox cert ca --help\".\n",
		"ls --timeout 50ms --addr http://127.0.0.1:1": "signalbox: no node replied: dial tcp 127.0.0.1:1: connect: connection refused\n" +
			"  Start the nodes, or give their addresses by --addr or SIGNALBOX_ADDR; \"signalbox dev\" starts a cluster to try things out.\n",
	} {
		var stdout, stderr bytes.Buffer
		run(t.Context(), strings.Fields(arguments), lookup(t), &stdout, &stderr) // --timeout counts without a deadline alone
		if got := stderr.String(); !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 2 {
			t.Errorf("%s: %q, want %q", arguments, got, want)
		}
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
