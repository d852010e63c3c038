package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// flagSet is some flags, with a command line.
func flagSet(t *testing.T, line ...string) *pflag.FlagSet {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags.String("node-id", "n1", "")
	flags.Int("raft-multiplier", 1, "")
	flags.Bool("ephemeral", false, "")
	flags.String("data", "", "")
	flags.Duration("max-wait", time.Minute, "")
	flags.StringSlice("allow-host", nil, "")
	_ = flags.SetAnnotation("ephemeral", InsteadOf, []string{"data"})
	must(t, flags.Parse(line))
	return flags
}

func variables(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func write(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "s.toml")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestPrecedence: the command line takes precedence over a variable, and a variable over the file. The printed flags are
// a file that sets the same values.
func TestPrecedence(t *testing.T) {
	flags := flagSet(t, "--node-id", "flag", "--ephemeral")
	if err := ApplyVariables(flags, variables("SIGNALBOX_NODE_ID", "variable", "SIGNALBOX_RAFT_MULTIPLIER", "2", "SIGNALBOX_MAX_WAIT", "", "SIGNALBOX_DATA", "/data")); err != nil {
		t.Fatal(err)
	}
	path := write(t, "node-id = \"file\"\nraft-multiplier = 3\nmax-wait = \"5s\"\nallow-host = [\"a\", \"b\"]\ndata = \"d\"\n")
	must(t, ApplyFile(flags, path))
	var b bytes.Buffer
	must(t, PrintFlags(&b, flags))
	want := fmt.Sprintf("allow-host = [\"a\",\"b\"] # %s\n# data = \"\" # default\nephemeral = true # flag\nmax-wait = \"5s\" # %s\nnode-id = \"flag\" # flag\nraft-multiplier = 2 # SIGNALBOX_RAFT_MULTIPLIER\n", path, path)
	if b.String() != want {
		t.Errorf("printed\n%swanted\n%s", b.String(), want)
	}
	again := flagSet(t)
	must(t, ApplyFile(again, write(t, b.String())))
	flags.VisitAll(func(f *pflag.Flag) {
		if got := again.Lookup(f.Name).Value.String(); got != f.Value.String() {
			t.Errorf("%s is %s when it is read again, not %s", f.Name, got, f.Value)
		}
	})
}

// TestBadFiles: each file is refused, and the error names what is wrong.
func TestBadFiles(t *testing.T) {
	for text, word := range map[string]string{
		"node_id = \"a\"":            "did you mean node-id?",
		"config = \"a\"":             "\"config\" is no setting",
		"help = true":                "help",
		"raft-multiplier = \"fast\"": "raft-multiplier",
		"raft-multiplier = 1.5":      "raft-multiplier",
		"allow-host = [\"a,b\"]":     "allow-host",
		"allow-host = [1]":           "allow-host",
		"node-id = {a = 1}":          "node-id",
		"[node]\nid = 3":             "node",
		"node-id = ":                 "s.toml",
		"node-id = 1\nnode-id = 2":   "s.toml",
	} {
		err := ApplyFile(flagSet(t), write(t, text), "config")
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := ApplyFile(flagSet(t), "none.toml"); err == nil {
		t.Error("no file was read")
	}
}

// TestMistyped: a variable that looks like a setting but belongs to no flag is an error, unless Kubernetes makes it of
// the name of a service.
func TestMistyped(t *testing.T) {
	flags, others := []string{"node-id", "http", "peers"}, []string{"SIGNALBOX_TOKEN", "SIGNALBOX_TEST_"}
	fine := []string{"SIGNALBOX_NODE_ID=a", "SIGNALBOX_TOKEN=b", "SIGNALBOX_TEST_X=1", "SIGNALBOX_EMPTY=", "PATH=/bin", "MYSIGNALBOX_X=1"}
	if err := Mistyped(fine, flags, others); err != nil {
		t.Error(err)
	}
	for variable, word := range map[string]string{
		"SIGNALBOX_NODEID=3": "did you mean SIGNALBOX_NODE_ID?", "SIGNALBOX_TOKENS=3": "SIGNALBOX_TOKENS is no setting: did you mean SIGNALBOX_TOKEN?",
		"SIGNALBOX_SOMETHING_ELSE=1": "SIGNALBOX_SOMETHING_ELSE is no setting",
	} {
		if err := Mistyped(append(fine, variable), flags, others); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", variable, err)
		}
	}
	services := []string{"SIGNALBOX_SERVICE_HOST=10.0.0.1", "SIGNALBOX_SERVICE_PORT_HTTP=8701", "SIGNALBOX_PORT=tcp://10.0.0.1:8701", "SIGNALBOX_PEERS_PORT_8711_TCP_ADDR=10.0.0.1"}
	if err := Mistyped(append(services, "KUBERNETES_SERVICE_HOST=10.0.0.1"), flags, others); err != nil {
		t.Error(err)
	}
	if err := Mistyped(services, flags, others); err == nil {
		t.Error("they pass outside of Kubernetes")
	}
}
