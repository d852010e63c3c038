package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

var manFolder = flag.String("man", "", "folder for the manual pages; without it they are only checked")

// commandPaths is all commands that people see: "signalbox members add" and so on.
func commandPaths(root *cobra.Command) (paths []string) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		for _, below := range c.Commands() {
			if !below.Hidden && below.Name() != "help" {
				paths = append(paths, below.CommandPath())
				visit(below)
			}
		}
	}
	visit(root)
	return paths
}

// TestManual makes the manual pages: one for each command, with all of its flags.
func TestManual(t *testing.T) {
	folder := *manFolder
	if folder == "" {
		folder = t.TempDir()
	}
	must(t, os.MkdirAll(folder, 0o755))
	root := newRoot(lookup(t))
	paths := commandPaths(root)
	root.DisableAutoGenTag = true // the date would differ from build to build
	must(t, doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Signalbox " + release, Manual: "Signalbox"}, folder))
	for _, path := range paths {
		page, err := os.ReadFile(filepath.Join(folder, strings.ReplaceAll(path, " ", "-")+".1"))
		if err != nil {
			t.Error(err)
		}
		if path == "signalbox acquire" && !bytes.Contains(page, []byte("ttl")) {
			t.Errorf("the page of acquire has no --ttl:\n%s", page)
		}
	}
}

// TestCLIPage: docs/cli.md lists every verb, and no other.
func TestCLIPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/cli.md")
	must(t, err)
	paths := commandPaths(newRoot(lookup(t)))
	var listed []string
	for _, row := range regexp.MustCompile(`(?m)^    ([a-z].*?) {2,}[a-z]`).FindAllStringSubmatch(string(text), -1) {
		path := "signalbox"
		for _, word := range strings.Fields(row[1]) { // as many as make a command
			if !slices.Contains(paths, path+" "+word) {
				break
			}
			path += " " + word
		}
		if !slices.Contains(paths, path) || slices.Contains(listed, path) {
			t.Errorf("%s is no verb, or is listed twice", row[1])
		}
		listed = append(listed, path)
	}
	for _, path := range paths {
		parent, _, _ := strings.Cut(strings.TrimPrefix(path, "signalbox "), " ")
		family := slices.Contains([]string{"cert", "token", "completion"}, parent) && path != "signalbox "+parent
		if !slices.Contains(listed, path) && !family {
			t.Errorf("docs/cli.md lacks %s", path)
		}
	}
}

// TestMistypedVariable: the variable of each flag is known, and so are the variables of run and of Compose.
func TestMistypedVariable(t *testing.T) {
	if err := mistyped([]string{"SIGNALBOX_NODE_ID=n1", "SIGNALBOX_PERMITS=3", "SIGNALBOX_SESSION=5", "SIGNALBOX_SEMAPHORE=db", "SIGNALBOX_TOKEN=3", "SIGNALBOX_SLOTS=0,1", "SIGNALBOX_SLOT=0",
		"SIGNALBOX_CONTEXT=home", "SIGNALBOX_OUTPUT=json", "SIGNALBOX_BIND=0.0.0.0", "SIGNALBOX_YES=true", "SIGNALBOX_TEST_AS_PROGRAM=1"}); err != nil {
		t.Error(err)
	}
	if err := mistyped([]string{"SIGNALBOX_ADR=n1"}); err == nil || !strings.Contains(err.Error(), "SIGNALBOX_ADDR") {
		t.Error(err)
	}
}

// TestConfig: config prints settings with their sources, and refuses the settings that serve would refuse.
func TestConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.toml")
	must(t, os.WriteFile(file, []byte("node-id = \"n7\"\nephemeral = true\nmax-leases = 7\n"), 0o600))
	o := command(t, []string{"config", "--config", file, "--max-sessions", "9"}, "SIGNALBOX_LOG_LEVEL", "warn")
	for _, line := range []string{`node-id = "n7" # ` + file, "max-leases = 7 # " + file, "max-sessions = 9 # flag", `log-level = "warn" # SIGNALBOX_LOG_LEVEL`, "lease-linger = 10 # default"} {
		if o.status != 0 || !strings.Contains(o.stdout, line+"\n") {
			t.Errorf("%q is not in %+v", line, o)
		}
	}
	if o := command(t, []string{"config"}); o.status == 0 || !strings.Contains(o.stderr, "--data") {
		t.Errorf("%+v", o)
	}
	command(t, []string{"serve", "--config", "none.toml"}).refused(t, "--config", "none.toml")
	command(t, []string{"serve"}, "SIGNALBOX_CONFIG", file, "SIGNALBOX_MAX_LEASES", "0").refused(t, "SIGNALBOX_MAX_LEASES", "above 0")
}

// TestCompletion: verbs and the values of flags are completed. Without a cluster no names are completed.
func TestCompletion(t *testing.T) {
	for line, word := range map[string]string{"cre": "create", "members ": "add", "ls -o ": "json"} {
		o := command(t, append([]string{"__complete"}, strings.Split(line, " ")...), "SIGNALBOX_ADDR", "http://127.0.0.1:1", "SIGNALBOX_TIMEOUT", "10ms")
		if o.status != 0 || !strings.Contains(o.stdout, word) {
			t.Errorf("%q: %+v", line, o)
		}
	}
	if o := command(t, []string{"__complete", "show", "d"}, "SIGNALBOX_ADDR", "http://127.0.0.1:1", "SIGNALBOX_TIMEOUT", "10ms"); o.status != 0 || !strings.HasPrefix(o.stdout, ":4") {
		t.Errorf("%+v", o)
	}
	if o := command(t, []string{"completion", "bash"}); o.status != 0 || !strings.Contains(o.stdout, "__complete") {
		t.Errorf("status %d", o.status)
	}
}
