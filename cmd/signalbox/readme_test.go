package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// tour returns the commands in a part of a page, as a reader would paste them. The part begins at the line that starts
// with from, and ends at the next line that starts with to.
func tour(t *testing.T, page, from, to string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + page)
	must(t, err)
	_, rest, begins := strings.Cut(string(text), "\n"+from)
	part, _, ends := strings.Cut(rest, "\n"+to)
	if !begins || !ends {
		t.Fatalf("%s has no part from %q to %q", page, from, to)
	}
	var script strings.Builder
	for line := range strings.Lines(part) {
		if pasted, ok := strings.CutPrefix(line, "    "); ok {
			script.WriteString(pasted)
		}
	}
	return script.String()
}

// paste runs a script of README, with the addresses of the test in place of README's. It fails if a command fails, or if
// a node replies with an error.
func paste(t *testing.T, folder, script string, c *client) string {
	t.Helper()
	for _, program := range []string{"sh", "curl", "sed", "grep"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("README's commands are not tried: %v", err)
		}
	}
	for i, base := range c.bases {
		script = strings.ReplaceAll(script, fmt.Sprintf("localhost:%d", 8701+i), strings.TrimPrefix(strings.TrimPrefix(base, "https://"), "http://"))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // an image may have to be built
	defer cancel()
	pasted := exec.CommandContext(ctx, "sh", "-ec", strings.ReplaceAll(script, "curl ", "curl --fail --show-error "))
	pasted.Dir, pasted.WaitDelay = folder, time.Second
	var stdout, stderr bytes.Buffer
	pasted.Stdout, pasted.Stderr = &stdout, &stderr
	if err := pasted.Run(); err != nil {
		t.Fatalf("%v\n%s\nof\n%s\n%s", err, stderr.String(), script, stdout.String())
	}
	return stdout.String()
}

// TestReadme pastes README's tour, up to the containers, with a running dev and with a binary that was built as make
// builds it.
func TestReadme(t *testing.T) {
	folder := t.TempDir()
	binary := filepath.Join(folder, "bin", "signalbox")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	_, c, _ := startDev(t.Context(), t, 3)
	script := tour(t, "README.md", "## Five minutes", "**5. Lose the leader.**")
	// README uses run's default address. In this test it is the address of another node.
	shown := paste(t, folder, "export SIGNALBOX_ADDR="+c.bases[0]+"\n"+script, c)
	for _, words := range []string{
		`"blocked_by":"not-enough-available"`, // the one who waited was seen to
		`"token":3,`,                          // and was granted, after the others
		`"granted":1,"value":0`,               // as was the worker
		"deploying with token 4\n",
	} {
		if !strings.Contains(shown, words) {
			t.Errorf("README's tour doesn't show %s:\n%s", words, shown)
		}
	}
	for name, want := range map[string]reply{"db": {Permits: 2, Held: 2}, "jobs": {}, "deploy": {Permits: 1, Available: 1}} {
		s := c.must(t, 0, http.MethodGet, semaphorePath(name), "", http.StatusOK)
		if s.Permits != want.Permits || s.Held != want.Held || s.Available != want.Available {
			t.Errorf("after README's tour %s has %d permits, %d held, %d available", name, s.Permits, s.Held, s.Available)
		}
	}
}

// TestCommandsOnASecuredCluster: with the files and variables that install.md names, curl and the verbs use HTTPS and a
// token, although the commands of the page name neither.
func TestCommandsOnASecuredCluster(t *testing.T) {
	folder := t.TempDir()
	certs := func(name string) string { return filepath.Join(folder, "certs", name) }
	for _, arguments := range [][]string{{"cert", "cluster", "n1", "--dir", certs("")},
		{"token", "new", "admin", "--scope", "admin", "--token-file", certs("admin.token"), "--append", certs("tokens.toml")}} {
		if o := command(t, arguments); o.status != 0 {
			t.Fatalf("%v: %s", arguments, o.stderr)
		}
	}
	c := &client{bases: []string{fmt.Sprintf("https://localhost:%d", freePorts(t, 0))}}
	startInProcess(t.Context(), t, "serve", "--ephemeral", "--http", strings.TrimPrefix(c.bases[0], "https://"), "--tls-cert", certs("n1/node.pem"),
		"--tls-key", certs("n1/node-key.pem"), "--tokens", certs("tokens.toml")).awaitLog(t, "leading")
	script := tour(t, "docs/install.md", "## The commands of these pages on a secured cluster", "## A service of systemd")
	output := paste(t, folder, script+"curl localhost:8701/v1/cluster\necho; env | grep ^SIGNALBOX_\n", c)
	var variables []string
	for line := range strings.Lines(output) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			variables = append(variables, name, value)
		}
	}
	if o := command(t, []string{"members"}, variables...); o.status != 0 || !strings.Contains(o.stdout, "leader") || !strings.Contains(output, `"leader":"n1"`) {
		t.Errorf("%s\n%+v", output, o)
	}
}
